"""A state without an exit is seen: marks, verdicts, suspicions, holds, waits. No brain runs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sickbay.model import Absence, Action, Doubt, Entry, Ledger, Notice, Pause, Phase, Place, RecoveryPhase, Verb
from tests.builders import a_case, a_latch, a_record, a_recovery
from tests.sim.test_checkers_outages import NODE, complaints, unwatched


def test_a_node_carries_a_mark_of_no_case() -> None:
    ward = unwatched()
    ward.run.platform.perform(Action(f"{NODE}.1/2", Verb.CORDON, Place(NODE)))
    assert "which is no case" in complaints(ward, "EveryStateHasAnExit", at_the_end=True)[0]


def test_a_case_rests_with_a_person_who_was_never_told() -> None:
    ward = unwatched()
    ward.run.store.create(a_case(Phase.ESCALATED, node=NODE))
    assert "no notice says so" in complaints(ward, "EveryStateHasAnExit", at_the_end=True)[0]


def test_the_breaker_stays_open_for_ever() -> None:
    ward = unwatched()
    ward.run.store.create(Ledger(breaker="too many", breaker_until=1e9))
    assert "the breaker stays open" in complaints(ward, "EveryStateHasAnExit", at_the_end=True)[0]


def test_a_job_waits_long_and_its_owner_was_never_told() -> None:
    ward = unwatched()
    ward.run.store.create(a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY))
    ward.world.note("tick")
    ward.judge.look()
    ward.passes(7200.0)
    assert "nobody was told" in complaints(ward, "EveryStateHasAnExit", at_the_end=True)[0]


def test_a_verdict_stays_for_ever_and_nobody_was_told() -> None:
    ward = unwatched()
    ward.run.store.create(a_record(a_latch("gpu-lost"), node=NODE))
    said = complaints(ward, "EveryStateHasAnExit", at_the_end=True)
    assert f"gpu-lost is held against {NODE} without a case" in said[0]


@pytest.mark.parametrize(
    ("quiet_s", "told", "complained"),
    [(7200.0, False, False), (0.0, True, False), (9e9, False, True), (200_000.0, False, True)],
)
def test_a_verdict_has_a_quiet_time_as_long_as_the_settings_say_or_was_told(
    quiet_s: float, told: bool, complained: bool
) -> None:
    ward = unwatched()
    ward.run.store.create(Ledger(watch_time=1e6))
    ward.run.store.create(a_record(a_latch("gpu-lost"), node=NODE, quiet={"gpu-lost|boot|": 1e6 + quiet_s}))
    if told:
        body = f"no new case opens for gpu-lost on {NODE}: sickbay case reopen {NODE}"
        ward.run.mailbox.send(Notice("k", "info", "t", body, "", 0.0))
    assert bool(complaints(ward, "EveryStateHasAnExit", at_the_end=True)) is complained


@pytest.mark.parametrize(
    ("body", "complained"),
    [
        ("Nothing more is done until a person decides: sickbay case show node-0003.1.", True),
        ("sickbay case show node-0003.1, then sickbay case retry node-0003.1 (treat again)", False),
        ("sickbay case abort node-0009.1", True),
    ],
)
def test_who_rests_with_a_person_was_told_of_with_a_command_that_ends_it(body: str, complained: bool) -> None:
    ward = unwatched()
    ward.run.store.create(a_case(Phase.ESCALATED, node=NODE, id=f"{NODE}.1"))
    ward.judge.look()
    ward.run.mailbox.send(Notice("k", "urgent", f"{NODE}: in the hands of a person", body, f"{NODE}.1", 0.0))
    said = complaints(ward, "EveryStateHasAnExit", at_the_end=True)
    assert any("by which command" in words for words in said) is complained


@pytest.mark.parametrize(("named", "complained"), [(f"{NODE}.1", False), ("node-0009.1", True)])
def test_who_rests_once_more_for_what_people_were_told_of_many_was_told_of(named: str, complained: bool) -> None:
    """One about many spells out three of them (seed 50000658)."""
    ward = unwatched()
    rows = "{} machines in a row came sick to pool default: another REPLACE would bring the next one"
    body = f"Their cases: node-0002.1, {named}.\nnode-0002: {rows.format(3)}. sickbay case retry node-0002.1"
    ward.run.mailbox.send(Notice("k", "urgent", "4 nodes came sick", body, "", 0.0))
    ward.passes(600.0)
    case = a_case(Phase.QUEUED, node=NODE, id=f"{NODE}.1")
    version = ward.run.store.create(case)
    ward.judge.look()
    put = Entry(case.step + 1, "EXHAUSTED", 0.0, "sickbay", rows.format(6), "ESCALATED")
    rests = replace(case, phase=Phase.ESCALATED, step=put.step, journal=(*case.journal, put))
    ward.run.store.commit(rests, version, 1)
    said = complaints(ward, "EveryStateHasAnExit", at_the_end=True)
    assert any("no notice says so" in words for words in said) is complained


@pytest.mark.parametrize(
    ("level", "title", "complained"),
    [
        ("warning", "llama waits for capacity", False),
        ("warning", "node-0003: is being closed, llama runs there", True),
        ("urgent", "llama has stopped", True),
        ("warning", "2 jobs are down and not restarted", False),
    ],
)
def test_that_a_job_waits_is_told_in_words_that_say_so(level: str, title: str, complained: bool) -> None:
    ward = unwatched()
    ward.run.store.create(a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY))
    ward.world.note("tick")
    ward.judge.look()
    ward.passes(7200.0)
    ward.run.mailbox.send(Notice("k", level, title, "llama, mixtral", "", 0.0))
    said = complaints(ward, "EveryStateHasAnExit", at_the_end=True)
    assert any("nobody was told that it does" in words for words in said) is complained


@pytest.mark.parametrize(("counted_s", "complained"), [(0.0, True), (9000.0, False)])
def test_a_suspicion_fades_with_good_hours_under_load(counted_s: float, complained: bool) -> None:
    ward = unwatched()
    ward.submit("llama")
    doubt = Doubt("SN-1", strikes=1, why="again", at=1.0)
    version = ward.run.store.create(a_record(node=NODE, doubts=(doubt,)))
    ward.passes(600.0)
    for _ in range(6):
        ward.world.note("tick")
        ward.judge.look()
        ward.passes(1800.0)
    ward.run.store.commit(a_record(node=NODE, doubts=(replace(doubt, load_s=counted_s),)), version, 1)
    said = complaints(ward, "EveryStateHasAnExit", at_the_end=True)
    assert any("has worked well for" in words for words in said) is complained


@pytest.mark.parametrize(
    ("told", "led", "complained"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_a_hold_that_is_a_day_old_by_a_clock_that_leapt_is_brought_to_mind(
    told: bool, led: bool, complained: bool
) -> None:
    ward = unwatched()
    led_since = ward.world.now if led else None
    brain = SimpleNamespace(first_led=0.0, led_since=led_since, controller=None, next_turn=1e18, wake=lambda: None)
    ward.run.brains.append(brain)  # type: ignore[arg-type]
    held = Entry(0, "HOLD", ward.run.clock.now(), "ann", "", "QUEUED")
    ward.run.store.create(a_case(Phase.QUEUED, node=NODE, id=f"{NODE}.1", held=True, journal=(held,)))
    ward.clock.offset += 2 * 86_400.0
    ward.judge.look()
    if told:
        body = f"Nothing is done until somebody says so: sickbay case unhold {NODE}.1."
        ward.run.mailbox.send(Notice("k", "warning", f"{NODE}.1 is still held", body, f"{NODE}.1", 0.0))
    ward.passes(3600.0)
    ward.world.note("tick")
    assert bool(complaints(ward, "EveryStateHasAnExit")) is complained


@pytest.mark.parametrize(("missed", "away", "complained"), [(1, 1, False), (1, 0, True), (0, 1, True)])
def test_that_a_node_does_not_answer_rests_with_the_case_about_all_who_are_away(
    missed: int, away: int, complained: bool
) -> None:
    ward = unwatched()
    ward.run.store.create(a_record(a_latch("node-not-ready"), node=NODE))
    if missed:
        absence = Absence(("fleet",), "nothing", 0.0, 3, 3, (NODE,))
        ward.run.store.create(a_case(Phase.ESCALATED, node="absence", factor="absence", absence=absence))
        body = "You may decide: sickbay case split absence.1"
        ward.run.mailbox.send(Notice("k", "urgent", "3 nodes are away together", body, "absence.1", 0.0))
    if away:
        ward.world.network.cut([NODE], "control", 7200.0)
        ward.passes(600.0)
    said = complaints(ward, "EveryStateHasAnExit", at_the_end=True)
    assert any("node-not-ready is held" in words for words in said) == complained


def test_a_suspicion_that_nobody_was_told_of() -> None:
    ward = unwatched()
    ward.run.store.create(a_record(node=NODE, doubts=(Doubt("SN-1", strikes=1, why="again", at=0.0),)))
    assert "no notice says how that ends" in complaints(ward, "EveryStateHasAnExit", at_the_end=True)[0]


def test_a_pause_without_an_end_that_nobody_was_reminded_of() -> None:
    ward = unwatched()
    ward.run.store.create(Pause("fleet", "ann", "", ward.run.clock.now() - 2 * 86_400.0))
    assert "nobody was reminded" in complaints(ward, "EveryStateHasAnExit", at_the_end=True)[0]


def test_a_hold_that_nobody_was_reminded_of() -> None:
    ward = unwatched()
    held = Entry(0, "HOLD", ward.run.clock.now() - 2 * 86_400.0, "ann", "", "QUEUED")
    ward.run.store.create(a_case(Phase.QUEUED, node=NODE, held=True, journal=(held,)))
    assert "is held, and nobody was reminded" in complaints(ward, "EveryStateHasAnExit", at_the_end=True)[0]


def test_what_a_pass_raised_counts_though_it_was_contained() -> None:
    ward = unwatched()
    raised = SimpleNamespace(contained=["node n1: KeyError"])
    brain = SimpleNamespace(first_led=0.0, led_since=None, controller=raised)
    ward.run.brains.append(brain)  # type: ignore[arg-type]
    ward.world.note("tick")
    assert "contained: node n1: KeyError" in complaints(ward, "NoException")[0]
