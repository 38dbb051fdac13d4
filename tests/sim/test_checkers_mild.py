"""Harms that the judge once let pass: exemptions wider than their reason, or decided by what the brain had written.

Each test fails with the judge as it was. The world is driven by hand; no brain runs.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sickbay.errors import ApiError, NotNow
from sickbay.model import Absence, Action, Entry, Notice, Phase, Place, RecoveryPhase, Verb
from sickbay.sim import backup
from sickbay.stores.memory import MemoryStore
from tests.builders import a_case, a_diagnosis, a_latch, a_record, a_recovery
from tests.sim.test_checkers_outages import NODE, complaints, treats, unwatched
from tests.sim.ward import Ward, a_policy, names

ABORT = f"To let it go: sickbay case abort {NODE}.1"


def is_approved(ward: Ward, verb: str) -> None:
    ward.world.note("person", NODE, act="approve", by="alice", case=f"{NODE}.1", verb=verb)


def test_a_member_of_many_is_closed_though_nothing_is_wrong_with_it() -> None:
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 7200.0)
    ward.passes(600.0)
    ward.run.platform.perform(Action(f"{NODE}.1/2", Verb.CORDON, Place(NODE)))
    assert f"CORDON of {NODE}, which had nothing wrong" in complaints(ward, "HealthyLeftAlone")[0]


def test_a_sick_member_of_many_may_be_closed() -> None:
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "control", 7200.0)
    ward.world.strike("gpu_lost_79", NODE, 1)
    ward.passes(600.0)
    ward.run.platform.perform(Action(f"{NODE}.1/2", Verb.CORDON, Place(NODE)))
    assert complaints(ward, "HealthyLeftAlone") == []


def test_a_person_who_approves_one_verb_has_not_approved_another() -> None:
    ward = unwatched()
    ward.world.network.cut(names(0, 8), "power", 7200.0)
    is_approved(ward, "REBOOT")
    ward.passes(1200.0)
    ward.world.treatments.begin(f"{NODE}.1/7", Verb.REPLACE, ward.world.nodes[NODE])
    assert f"REPLACE of {NODE}, which had nothing wrong" in complaints(ward, "HealthyLeftAlone")[0]


def test_all_of_a_pool_of_two_is_many() -> None:
    ward = Ward(12, brains=0, policy=a_policy(), pools={"default": 10, "pair": 2})
    ward.judge.silent = frozenset()
    ward.world.network.cut(names(10, 2), "control", 7200.0)
    ward.passes(1200.0)
    ward.world.treatments.begin("node-0010.1/7", Verb.REBOOT, ward.world.nodes["node-0010"])
    assert "REBOOT of node-0010, which had nothing wrong" in complaints(ward, "HealthyLeftAlone")[0]


def test_many_of_a_rack_are_many_though_they_are_few_of_the_fleet() -> None:
    ward = unwatched()
    limits = replace(ward.run.settings.controller, absent_share=1.0)
    ward.run.settings = replace(ward.run.settings, controller=limits)
    ward.world.network.cut(names(0, 3), "control", 7200.0)
    ward.passes(1200.0)
    treats(ward, node="node-0001")
    assert "REBOOT of node-0001, which had nothing wrong" in complaints(ward, "HealthyLeftAlone")[-1]


@pytest.mark.parametrize(("left", "complained"), [(8, True), (1, False)])
def test_who_is_one_of_many_still_when_the_time_of_the_people_is_over_is_left_alone(
    left: int, complained: bool
) -> None:
    ward = unwatched()
    cut = ward.world.network.cut(names(0, 8), "control")
    ward.passes(1200.0)
    ward.world.note("order", "absence", act="abort", by="alice", case="absence.1")
    ward.judge.look()
    ward.world.network.mend(cut, [n for n in names(0, 8) if n != NODE][: 8 - left])
    ward.passes(ward.run.settings.policy.quiet_s + 1200.0)
    treats(ward)
    assert bool(complaints(ward, "HealthyLeftAlone")) is complained


def test_a_program_that_fails_on_a_node_makes_it_no_patient() -> None:
    ward = unwatched()
    ward.submit("llama", (NODE,))
    ward.world.network.cut(names(0, 8), "control", 7200.0)
    ward.judge.look()
    ward.world.strike("app_fault_13_31", NODE, 0)
    ward.passes(1200.0)
    treats(ward)
    assert f"REBOOT of {NODE}, which had nothing wrong" in complaints(ward, "HealthyLeftAlone")[-1]


@pytest.mark.parametrize(("accused", "complained"), [(True, False), (False, True)])
def test_what_a_case_calls_the_fault_excuses_nothing_that_never_happened(accused: bool, complained: bool) -> None:
    ward = unwatched()
    ward.run.store.create(a_case(Phase.QUEUED, node=NODE, diagnoses=(a_diagnosis("gpu-lost"),)))
    ward.world.network.cut(names(0, 8), "control", 7200.0)
    ward.judge.look()
    if accused:
        ward.world.outsiders.accuse("webhook", NODE, "xid.79", 1)
    ward.passes(1200.0)
    treats(ward)
    assert bool(complaints(ward, "HealthyLeftAlone")) is complained


def test_a_newcomer_in_a_dark_rack_is_one_of_many() -> None:
    ward = unwatched()
    ward.world.network.cut(ward.world.network.rack("rack-000"), "control", 9e4, stays=True)
    ward.passes(1200.0)
    ward.world.people.terminate(NODE, successor_after_s=300.0)
    ward.passes(1200.0)
    treats(ward)
    assert f"REBOOT of {NODE}, which had nothing wrong" in complaints(ward, "HealthyLeftAlone")[-1]


@pytest.mark.parametrize(("befell", "complained"), [("nothing", True), ("approved", True), ("accused", False)])
def test_a_node_is_treated_that_nothing_has_ever_befallen(befell: str, complained: bool) -> None:
    ward = unwatched()
    if befell == "approved":
        is_approved(ward, "REBOOT")
    if befell == "accused":
        ward.world.outsiders.accuse("webhook", NODE, "xid.79", 1)
    treats(ward)
    assert bool(complaints(ward, "DisruptionsBounded")) is complained


def test_approvals_make_no_circle_of_treatments_right() -> None:
    ward = unwatched()
    ward.world.outsiders.accuse("webhook", NODE, "xid.79", 1)
    for n in range(1, 9):
        ward.world.note("person", NODE, act="approve", by="alice", case=f"{NODE}.{n}", verb="REBOOT")
        treats(ward, n)
        ward.passes(7200.0)
    assert "was treated 7 times for 0 faults" in complaints(ward, "DisruptionsBounded")[0]


def test_a_case_rests_with_a_person_who_was_told_of_it_only_before_it_did() -> None:
    ward = unwatched()
    case = a_case(Phase.CORDONING, node=NODE)
    version = ward.run.store.create(case)
    ward.run.mailbox.send(Notice("k", "info", f"{NODE} is being closed", "", case.id, 0.0))
    ward.judge.look()
    ward.run.store.commit(replace(case, phase=Phase.ESCALATED, step=case.step + 1), version, 1)
    ward.judge.look()
    assert "no notice says so" in complaints(ward, "EveryStateHasAnExit", at_the_end=True)[0]


@pytest.mark.parametrize(("had_ended", "complained"), [(True, False), (False, True)])
def test_a_case_that_a_restored_store_opens_again_was_told_when_it_rested_first(
    had_ended: bool, complained: bool
) -> None:
    """Seed 81007."""
    ward = unwatched()
    store = ward.run.store
    case = a_case(Phase.ESCALATED, node=NODE)
    ward.run.mailbox.send(Notice("k", "urgent", f"{NODE} is in the hands of a person", ABORT, case.id, 0.0))
    looks(ward)
    version = store.create(case)
    assert isinstance(store, MemoryStore)
    yesterday = backup.take(ward.world, store)
    if had_ended:
        store.archive(replace(case, phase=Phase.DISMISSED), version, 1)
        looks(ward)
        backup.restore(ward.world, store, yesterday)
    looks(ward)
    assert bool(complaints(ward, "EveryStateHasAnExit", at_the_end=True)) is complained


def looks(ward: Ward) -> None:
    ward.world.note("tick")
    ward.judge.look()


def test_a_case_that_could_not_be_read_for_a_while_need_not_be_told_again() -> None:
    """A newer version had written it, and was rolled back (seed 720078)."""
    ward = unwatched()
    case = a_case(Phase.ESCALATED, node=NODE)
    ward.run.mailbox.send(Notice("k", "urgent", f"{NODE} is in the hands of a person", ABORT, case.id, 0.0))
    ward.run.store.create(case)
    ward.judge.look()
    store = ward.run.store
    assert isinstance(store, MemoryStore)
    store.lose(type(case), case.id)
    ward.judge.look()
    store.create(case)
    ward.judge.look()
    assert complaints(ward, "EveryStateHasAnExit", at_the_end=True) == []


def test_that_a_job_runs_again_tells_nobody_that_it_waits() -> None:
    ward = unwatched()
    ward.run.store.create(a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY))
    ward.run.mailbox.send(Notice("k", "info", "llama runs again", "", "", 0.0))
    ward.world.note("tick")
    ward.judge.look()
    ward.passes(7200.0)
    assert "nobody was told" in complaints(ward, "EveryStateHasAnExit", at_the_end=True)[0]


@pytest.mark.parametrize(("event", "later", "complained"), [
    ("DONE", "", True), ("REPLACED", "", True), ("REPLACED", "taken over", False),
])  # fmt: skip
def test_the_mark_on_a_machine_that_was_only_started_again_may_be_taken_over_by_the_next_case(
    event: str, later: str, complained: bool
) -> None:
    """Its provider said that it was replaced, and it was the same one, cut off from the control plane (seed 133)."""
    ward = unwatched()
    ward.run.platform.perform(Action(f"{NODE}.1/2", Verb.CORDON, Place(NODE)))
    ended = a_case(
        Phase.RESOLVED, node=NODE, id=f"{NODE}.1", journal=(Entry(9, event, 0.0, "platform", "", "RESOLVED"),)
    )
    ward.run.store.archive(ended, ward.run.store.create(ended), 1)
    ward.judge.look()
    if later:
        ward.run.platform.perform(Action(f"{NODE}.2/2", Verb.CORDON, Place(NODE), {"adopts": f"{NODE}.1"}))
    ward.passes(200.0)
    ward.world.note("tick")
    assert bool(complaints(ward, "LeftAsFound")) is complained


def test_a_verdict_whose_end_nobody_was_told() -> None:
    ward = unwatched()
    ward.run.store.create(a_record(a_latch("gpu-lost"), node=NODE))
    ward.run.mailbox.send(Notice("k", "warning", f"{NODE}: gpu-lost", f"sickbay case show {NODE}.1", f"{NODE}.1", 0.0))
    said = complaints(ward, "EveryStateHasAnExit", at_the_end=True)
    assert f"gpu-lost is held against {NODE} without a case" in said[0]


@pytest.mark.parametrize(("away", "complained"), [(True, False), (False, True)])
def test_what_is_held_against_a_node_that_is_away_with_many_waits_for_it(away: bool, complained: bool) -> None:
    """Nothing is done to it while it is away, and that was told (seeds 1787, 50000079)."""
    ward = unwatched()
    ward.world.nodes[NODE].ready = not away
    ward.run.store.create(a_record(a_latch("gpu-lost"), node=NODE))
    many = Absence(("fleet",), "rack=r1", 0.0, 4, 4)
    about = (a_diagnosis("nodes-absent"),)
    case = a_case(Phase.ESCALATED, node="absence", id="absence.1", factor="absence", absence=many, diagnoses=about)
    ward.run.store.create(case)
    said = "To treat them one by one: sickbay case split absence.1"
    ward.run.mailbox.send(Notice("k", "urgent", "4 nodes are away together", said, "absence.1", 0.0))
    ward.world.note("tick")
    words = complaints(ward, "EveryStateHasAnExit", at_the_end=True)
    assert any("is held against" in each for each in words) is complained


@pytest.mark.parametrize(
    ("factor", "seen_on", "complained"),
    [
        ("driver=bad", "", False), ("instance-type=p4d", "", False), ("driver=good", "", True),
        ("job=llama", NODE, False), ("job=llama", "node-0009", True),
    ],
)  # fmt: skip
def test_a_shared_cause_answers_only_for_those_who_have_what_is_shared(
    factor: str, seen_on: str, complained: bool
) -> None:
    ward = unwatched()
    for name in (NODE, "node-0001", "node-0002"):
        ward.world.nodes[name].driver, ward.world.nodes[name].kind = "bad", "p4d"
    if seen_on == NODE:
        ward.submit("llama")
    for name in (NODE, "node-0001", "node-0002"):
        ward.world.strike("gpu_lost_79", name, 1)
    ward.run.store.create(a_record(a_latch("gpu-lost"), node=NODE))
    seen = a_diagnosis("gpu-lost", place=Place(seen_on))
    shared = a_case(Phase.ESCALATED, node=factor, factor=factor, diagnoses=(seen,))
    ward.run.store.create(shared)
    ward.world.note("tick")
    said = complaints(ward, "EveryStateHasAnExit", at_the_end=True)
    assert any("is held against" in words for words in said) is complained


def test_jobs_that_their_owners_placed_count_for_the_part_that_killed_them() -> None:
    ward = unwatched()
    job = ward.submit("llama")
    ward.world.strike("gpu_lost_79", NODE, 0, cure="replace")
    ward.passes(70.0)
    ward.judge.look()
    for n in range(2, 5):
        ward.world.gangs.restart(f"llama#{n}.3", job, n, 0, names(0, 4))
        ward.passes(70.0)
        ward.judge.look()
    assert "has killed 4 jobs" in complaints(ward, "LemonsKillFewJobs")[0]


def test_a_pass_that_raised_and_changed_nothing_is_seen_at_the_end() -> None:
    ward = unwatched()
    ward.judge.look()
    raised = SimpleNamespace(contained=["node n1: KeyError"])
    brain = SimpleNamespace(first_led=0.0, led_since=None, controller=raised)
    ward.run.brains.append(brain)  # type: ignore[arg-type]
    assert "contained: node n1: KeyError" in complaints(ward, "NoException", at_the_end=True)[0]


@pytest.mark.parametrize(("away", "complained"), [(True, False), (False, True)])
@pytest.mark.parametrize("error", [ApiError(503, "ServiceUnavailable", "try later"), NotNow("not now")])
def test_a_pass_that_ends_because_its_cluster_did_not_answer_has_an_excuse_only_while_that_is_away(
    error: Exception, away: bool, complained: bool
) -> None:
    ward = Ward(4, policy=a_policy())
    ward.passes(60.0)

    def does_not_answer() -> float:
        raise error

    brain = ward.run.brains[0]
    assert brain.controller is not None
    brain.controller.turn = does_not_answer  # type: ignore[method-assign]
    if away:
        ward.world.services.fail("api", 600.0)
    brain.turn()
    assert bool(complaints(ward, "NoException", at_the_end=True)) is complained


@pytest.mark.parametrize(
    ("verb", "befell", "complained"),
    [
        (Verb.REBOOT, "", False),
        (Verb.POWER_CYCLE, "", True),
        (Verb.REPLACE, "", True),
        (Verb.REPLACE, "approved", False),
        (Verb.REPLACE, "ill before", False),
        (Verb.POWER_CYCLE, "power", False),
    ],
)
def test_a_healthy_node_that_is_cut_off_alone_is_rebooted_and_no_more(
    verb: Verb, befell: str, complained: bool
) -> None:
    ward = unwatched()
    if befell == "ill before":
        ward.world.strike("gpu_lost_79", NODE, 1, cure="reset")
    ward.world.network.cut([NODE], "power" if befell == "power" else "control", 9000.0)
    if befell == "approved":
        is_approved(ward, "REPLACE")
    ward.passes(1200.0)
    for gpu in ward.world.nodes[NODE].gpus:
        gpu.ailments = []
    treats(ward, verb=verb)
    assert bool(complaints(ward, "HealthyLeftAlone")) is complained


@pytest.mark.parametrize(("told", "complained"), [(False, True), (True, False)])
def test_an_owner_does_not_hear_that_ranks_are_out_of_reach(told: bool, complained: bool) -> None:
    ward = unwatched()
    ward.submit("llama")
    brain = SimpleNamespace(first_led=0.0, led_since=ward.world.now, controller=None)
    ward.run.brains.append(brain)  # type: ignore[arg-type]
    ward.run.brains[0].next_turn, ward.run.brains[0].wake = float("inf"), lambda: None  # type: ignore[method-assign]
    ward.world.network.cut(names(0, 4), "control", 9000.0)
    ward.passes(400.0)
    ward.judge.look()
    if told:
        body = "If you know that they write nothing any more: sickbay job restart llama."
        ward.run.mailbox.send(Notice("k", "warning", "llama: some of its nodes are out of reach", body, "", 0.0))
    ward.passes(600.0)
    ward.world.note("tick")
    assert bool(complaints(ward, "OwnersTold")) is complained


@pytest.mark.parametrize(
    ("led_on", "case_too", "complained"), [(True, False, True), (False, False, True), (True, True, True),
                                           (False, True, False)]
)  # fmt: skip
def test_what_a_window_has_had_is_known_when_the_ledger_is_deleted_unless_the_case_is_too_and_nobody_leads_on(
    led_on: bool, case_too: bool, complained: bool
) -> None:
    ward = unwatched()
    policy = a_policy(per_window={"REBOOT": 1})
    ward.run.settings = replace(ward.run.settings, policy=policy)
    led = SimpleNamespace(first_led=0.0, led_since=ward.world.now, controller=None, next_turn=1e18, wake=lambda: None)
    ward.run.brains.append(led)  # type: ignore[arg-type]
    treats(ward)
    ward.passes(10.0)
    if case_too:
        done = ward.facts("treat-start")[-1]
        ward.world.note("person", done.node, act="delete-record", case=str(done.detail["key"]).rsplit("/", 1)[0])
    ward.world.note("person", act="delete-ledger")
    ward.judge.look()
    led.led_since += 0.0 if led_on else 30.0
    ward.passes(900.0)
    ward.world.note("tick")
    ward.judge.look()
    treats(ward, node="node-0004")
    assert bool(complaints(ward, "FewInAWindow")) is complained
