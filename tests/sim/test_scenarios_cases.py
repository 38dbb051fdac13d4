"""The prototype's lessons about the life of a case, each arranged on purpose on the simulator with the real brain.

Every scenario is also played with its rule taken away, and must then fail: see `test_a_scenario_notices...` below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sickbay.model import Case, Command, Event, Failed, Phase, Started, Unguarded, Verb
from sickbay.settings import Limit
from tests.sim.removed import Removed, both, notices, row, rule, wrapped
from tests.sim.ward import Ward, a_policy, names

SICK = "node-0005"
TWO = Limit(count=2, at_least=1)


def test_lesson_01_case_numbers_never_repeat_so_every_illness_gets_a_treatment_of_its_own() -> None:
    ward = Ward()
    for kind in ("gpu_lost_79", "host_crash"):
        ward.world.strike(kind, SICK, 0, cure="reboot")
        ward.until(lambda: ward.case(SICK) is not None).until_ended(SICK)
    keys = [f.detail["key"] for f in ward.facts("treat-start", SICK)]
    assert len(keys) == len(set(keys)) == 2
    assert ward.is_well(SICK)
    ward.ends_well()


def test_lesson_02_a_flapping_check_opens_no_more_cases_than_may_be_believed() -> None:
    ward = Ward(policy=a_policy(max_out=TWO))
    ward.fill_limits(*names(0, 2))  # so every case waits, and may clear
    gpu = ward.ails(SICK, "gpu_lost_silent", cure="reboot")
    for i in range(40):
        gpu.dormant = bool(i % 2)
        ward.world.truth_changed(ward.world.nodes[SICK])
        ward.passes(400.0)
    assert len(ward.ended(SICK)) == 2
    for name in names(0, 2):
        ward.world.people.uncordon(name)
    ward.until_ended(SICK)
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.ends_well()


def test_lesson_03_a_latched_sickness_is_not_forgotten_when_its_case_was_deferred() -> None:
    ward = Ward(policy=a_policy(max_out=TWO, waiting_s=3600.0, quiet_s=3600.0))
    ward.fill_limits(*names(0, 2))
    ward.world.strike("nvlink_74", SICK, 0, cure="reset")
    ward.until(lambda: ward.ended(SICK))
    assert ward.ended(SICK)[0].phase is Phase.DEFERRED
    for name in names(0, 2):
        ward.world.people.uncordon(name)
    ward.passes(7200.0)
    assert ward.treatments(SICK) == ["RESET_GPU"]
    assert ward.is_well(SICK)
    ward.ends_well()


def test_lesson_04_a_used_up_ladder_rests_with_a_person_and_is_not_examined_in_circles() -> None:
    ward = Ward(policy=a_policy(max_verb="POWER_CYCLE"))
    ward.world.strike("gpu_lost_79", SICK, 0, cure="replace")
    ward.until_phase(SICK, Phase.ESCALATED, 43_200.0)
    ward.ends_well(86_400.0)
    assert ward.treatments(SICK) == ["REBOOT", "POWER_CYCLE"]
    assert len(ward.facts("verify-start", SICK)) <= 2
    assert ward.world.nodes[SICK].cordoned


def slow_drain(ward: Ward, seconds: float) -> None:
    """The drain of every node takes this long."""
    began = ward.world.now
    ward.door.on[Verb.DRAIN] = lambda action, go: go(action) if ward.world.now > began + seconds else Started(20.0)


def test_lesson_05_no_jump_of_a_clock_makes_anything_time_out() -> None:
    """A small jump would end the drain's 1800 s; after a far one nobody would believe that they had ended."""
    ward = Ward()
    slow_drain(ward, 1500.0)  # of 1800 allowed
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.until_phase(SICK, Phase.DRAINING)
    for jump in (1800.0, 4000.0, 2 * 86_400.0):
        ward.passes(100.0)
        ward.clock.offset += jump  # somebody sets the wall clock
        ward.clock.leap += jump  # and the machine was suspended
        ward.passes(60.0)
        ward.crash(back_after=1.0)
    ended = ward.until_ended(SICK)
    assert not [e for e in ended.journal if e.event == "TIMED_OUT"]
    assert ward.treatments(SICK) == ["REBOOT"]
    ward.ends_well()


def test_lesson_06_a_relapse_starts_above_the_highest_rung_that_was_tried() -> None:
    ward = Ward()
    ward.world.strike("load_only", SICK, 0, cure="replace", relapse_s=300.0)
    for n in range(3):
        ward.submit(f"job-{n}", (SICK,), managed=False)
        ward.until(lambda: ward.case(SICK) is not None, 43_200.0, 20.0).until_ended(SICK)
    assert ward.treatments(SICK) == ["REBOOT", "POWER_CYCLE", "REPLACE"]
    ward.ends_well()


def test_lesson_09_a_node_whose_fault_went_away_while_it_was_held_is_examined_before_it_returns() -> None:
    ward = Ward()
    gpu = ward.ails(SICK, "gpu_lost_silent", gpu=0, cure="reboot")
    ward.world.truth_changed(ward.world.nodes[SICK])
    ward.until_phase(SICK, Phase.HOLDING)
    ward.world.nodes[SICK].gpus[0].ailments.remove(gpu)  # it is gone by itself
    ward.world.truth_changed(ward.world.nodes[SICK])
    ward.world.agents._cycle(ward.world.nodes[SICK], ward.world.nodes[SICK].boot_id)
    ward.ails(SICK, "row_remap_pending_63", cure="reset")  # and this has come, unseen
    ward.until_ended(SICK)
    assert ward.is_well(SICK)
    assert len(ward.facts("verify-start", SICK)) == 2
    ward.ends_well()


def test_lesson_10_an_object_deleted_is_not_a_machine_gone() -> None:
    ward = Ward()
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    case = ward.until_phase(SICK, Phase.COLLECTING)
    ward.world.people.delete_object(SICK, rejoins_after_s=300.0)
    ended = ward.until_ended(SICK)
    assert ended.id == case.id
    assert [f.detail["case"] for f in ward.facts("cordon", SICK)] == [case.id, case.id]
    assert ward.treatments(SICK) == ["REBOOT"]
    assert ward.is_well(SICK)
    ward.ends_well()


@pytest.mark.parametrize("sick", [(SICK,), (SICK, "node-0006")])
def test_a_node_that_was_closed_beside_the_limits_and_rejoins_open_waits_for_a_place(sick: tuple[str, ...]) -> None:
    """Its object comes back without the mark of the person who had closed it, and it was closed again as one too many
    (seed 50001364). Nor do two that wait so wait for each other."""
    ward = Ward(policy=a_policy(max_out=TWO))
    ward.fill_limits(*sick, *names(0, 2))
    for node in sick:
        ward.world.strike("gpu_lost_79", node, 0, cure="reboot")
    for node in sick:
        ward.until_phase(node, Phase.COLLECTING)
    for node in sick:
        ward.world.people.delete_object(node, rejoins_after_s=30.0)
    ward.passes(600.0)
    for node in sick:
        assert not ward.world.nodes[node].closed, ward.story()
        case = ward.until_phase(node, Phase.WAITING)
        assert case.refusal == "2 of at most 2 nodes of pool:default are out already: node-0000, node-0001"
    ward.world.people.uncordon("node-0000")
    for node in sick:
        ward.until_ended(node)
        assert ward.is_well(node)
    ward.ends_well()


def test_lesson_11_a_node_that_is_down_waits_for_no_seat() -> None:
    ward = Ward(policy=a_policy(max_out=TWO))
    ward.fill_limits(*names(0, 2))
    ward.world.strike("host_crash", SICK, 0, cure="reboot")
    ward.until(lambda: ward.treatments(SICK), 1800.0)
    ward.until_ended(SICK)
    assert ward.is_well(SICK)
    ward.ends_well()


def test_lesson_13_a_cancelled_case_is_not_revived_by_retry() -> None:
    ward = Ward()
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    slow_drain(ward, 1500.0)
    refused: list[float] = []

    def release(action: Any, go: Any) -> Any:
        refused.append(ward.world.now)
        return Failed("the API server says no") if len(refused) < 3 else go(action)

    ward.door.on[Verb.RELEASE] = release
    ward.until_phase(SICK, Phase.DRAINING)
    ward.says("abort", ward.case(SICK))
    for _ in range(2):
        ward.says("retry", ward.until_phase(SICK, Phase.ESCALATED))
        ward.passes(5.0)
    ward.until_ended(SICK)
    assert ward.treatments(SICK) == []
    assert len(ward.facts("cordon", SICK)) == 1
    assert ward.world.nodes[SICK].mark == ""
    ward.is_sound()


def test_lesson_17_a_retry_empties_the_node_again_before_it_treats() -> None:
    ward = Ward(policy=a_policy(max_verb="REBOOT"))
    ward.world.strike("gpu_lost_79", SICK, 0, cure="power_cycle")
    ward.until_phase(SICK, Phase.ESCALATED)
    ward.submit("stray", (SICK,), managed=False)  # its owner pinned it there, cordon or not
    ward.says("retry", ward.case(SICK))
    ward.until(lambda: len(ward.treatments(SICK)) == 2)
    assert ward.facts("unguarded") == []
    assert ward.facts("drain", SICK)[-1].detail["job"] == "stray"
    ward.ends_well()


def _no_number(old: Any) -> Any:
    return lambda record, *args, **kw: old(replace(record, last_n=0), *args, **kw)


def _forgets_ids(old: Any) -> Any:
    """A store that would take a number a second time."""

    def create(self: Any, value: Any, epoch: int = 0) -> int:
        self._last.clear()
        return int(old(self, value, epoch))

    return create


def _only_new(old: Any) -> Any:
    return lambda record, catalog, now: tuple(la for la in record.latched if la.since == now)


def _looks_empty(old: Any) -> Any:
    def queued(turn: Any, case: Any) -> Any:
        said = old(turn, case)
        return (Event.UNTREATED, said[1]) if said and said[0] is Event.EXHAUSTED else said

    return queued


def _by_wall(old: Any) -> Any:
    return lambda self: replace(old(self), watch=self._clock.now())


def _unbounded(old: Any) -> Any:
    def advance(self: Any) -> None:
        mono = self._clock.monotonic()
        self._watch += max(0.0, mono - self._last)
        self._last = mono

    return advance


def _deleted_is_gone(old: Any) -> Any:
    return lambda self, change: old(self, replace(change, gone=True))


def _never_down(old: Any) -> Any:
    return lambda *a, **kw: replace(old(*a, **kw), down=False)


RULES: list[tuple[Callable[[], None], str, Removed]] = [
    (test_lesson_01_case_numbers_never_repeat_so_every_illness_gets_a_treatment_of_its_own, "numbers are reused",
     both(wrapped("core.triage", "open_case", _no_number),
          wrapped("stores.memory", "MemoryStore.create", _forgets_ids))),
    (test_lesson_02_a_flapping_check_opens_no_more_cases_than_may_be_believed, "flaps are believed for ever",
     wrapped("core.triage", "may_clear", lambda old: lambda *a: True)),
    (test_lesson_03_a_latched_sickness_is_not_forgotten_when_its_case_was_deferred, "only new findings open cases",
     wrapped("core.triage", "openable", _only_new)),
    (test_lesson_04_a_used_up_ladder_rests_with_a_person_and_is_not_examined_in_circles,
     "used up is mistaken for empty",
     rule("core.phases", Phase.QUEUED, _looks_empty)),
    (test_lesson_05_no_jump_of_a_clock_makes_anything_time_out, "deadlines by the wall clock",
     wrapped("controller.loop", "Controller._now", _by_wall)),
    (test_lesson_05_no_jump_of_a_clock_makes_anything_time_out, "time passes while nobody watches",
     wrapped("controller.loop", "Controller._advance", _unbounded)),
    (test_lesson_06_a_relapse_starts_above_the_highest_rung_that_was_tried, "every case starts at the bottom",
     wrapped("core.triage", "_relapse_floor", lambda old: lambda *a: (None, ""))),
    (test_lesson_09_a_node_whose_fault_went_away_while_it_was_held_is_examined_before_it_returns, "cleared is returned",
     row(Phase.HOLDING, Event.CLEARED, Phase.RETURNING)),
    (test_lesson_10_an_object_deleted_is_not_a_machine_gone, "deleted is gone",
     wrapped("controller.view", "View._delete_node", _deleted_is_gone)),
    (lambda: test_a_node_that_was_closed_beside_the_limits_and_rejoins_open_waits_for_a_place((SICK,)),
     "a place beside the limits is kept", wrapped("core.admit", "is_beside", lambda old: lambda *a: False)),
    (test_lesson_11_a_node_that_is_down_waits_for_no_seat, "a seat for everybody",
     wrapped("core.admit", "request_of", _never_down)),
    (test_lesson_13_a_cancelled_case_is_not_revived_by_retry, "retry revives",
     wrapped("core.machine", "AFTER_CANCEL", lambda old: {})),
    (test_lesson_17_a_retry_empties_the_node_again_before_it_treats, "retry goes straight to treatment",
     row(Phase.ESCALATED, Event.RETRIED, Phase.QUEUED)),
]  # fmt: skip


@pytest.mark.parametrize(("scenario", "removed"), [(s, r) for s, _, r in RULES], ids=[words for _, words, _ in RULES])
def test_a_scenario_notices_when_its_rule_is_taken_away(scenario: Callable[[], None], removed: Removed) -> None:
    notices(scenario, removed)


def test_a_case_that_may_only_be_watched_is_not_looked_at_many_times_a_second_however_short_the_window() -> None:
    ward = Ward(policy=a_policy(max_verb="OBSERVE", window_s=0.1))
    ward.world.strike("gpu_lost_79", "node-0003", 1)
    ward.until_phase("node-0003", Phase.WAITING)
    turns: list[float] = []
    ward.run.on_turn.append(lambda: turns.append(ward.world.now))
    ward.passes(600.0)
    assert len(turns) < 120


def _told_of(ward: Ward, case: Case) -> list[tuple[str, str]]:
    """(level, what the title ends with) of each notice about this case."""
    return [(n.level, n.title.rpartition("(")[2].rstrip(")")) for n in ward.run.mailbox.notices if n.case == case.id]


def test_a_person_is_asked_once_for_their_word_and_told_once_that_it_was_done() -> None:
    """Nobody was asked before the case had waited for a day; each time a node was closed again it was told again."""
    ward = Ward(policy=a_policy(approval=("REPLACE",)))
    ward.world.strike("sram", SICK, 0, cure="replace")
    ward.until(lambda: (case := ward.case(SICK)) is not None and "approval" in case.refusal, 14_400.0, step=20.0)
    ward.passes(7200.0)
    case = ward.case(SICK)
    assert case is not None
    assert _told_of(ward, case) == [("info", "being closed for new work"), ("urgent", "REPLACE waits for your word")]
    asked = next(n for n in ward.run.mailbox.notices if n.case == case.id and n.level == "urgent")
    assert f"sickbay case approve {case.id} --verb REPLACE" in asked.body
    order = Command("yes", "approve", case.id, "alice", "go", ward.world.now, {"verb": "REPLACE"})
    ward.run.store.create(order)
    ward.world.note("person", SICK, act="approve", by="alice", case=case.id, verb="REPLACE")
    ward.until_ended(SICK)
    assert _told_of(ward, case)[2:] == [("info", "well, or gone for good")]
    ward.ends_well()


def test_a_node_that_is_closed_again_in_the_same_case_is_not_told_of_again() -> None:
    ward = Ward()
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    refused: list[str] = []

    def not_let_in(action: Any, go: Any) -> Any:
        if action.call and len(refused) < 2:
            refused.append(action.key)
            return Unguarded("somebody looked at it just then")
        return go(action)

    ward.door.on[Verb.REBOOT] = not_let_in
    ended = ward.until_ended(SICK)
    assert [phase for phase, _ in ended.timeline].count("CORDONING") == 3
    assert [words for _, words in _told_of(ward, ended)] == ["being closed for new work", "well, or gone for good"]
    ward.ends_well()


def test_a_node_that_falls_ill_again_and_again_is_told_as_that_and_not_case_by_case() -> None:
    """Cut off every hour it sent two messages an hour, all of them true and none of them news."""
    ward = Ward(policy=a_policy(max_verb="REBOOT"))
    for _ in range(8):
        ward.world.network.cut([SICK], "control", 900.0)
        ward.passes(3600.0)
    told = [n for n in ward.run.mailbox.notices if n.case.startswith(f"{SICK}.") and n.level != "urgent"]
    often = [n for n in told if n.title.endswith("for the 3rd time today")]
    assert [n.level for n in often] == ["warning"]
    assert f"sickbay why {SICK}" in often[0].body
    people = {n.case for n in ward.run.mailbox.notices if n.level == "urgent"}
    single = [n for n in told[told.index(often[0]) + 1 :] if n.case not in people]
    assert single == []


def test_an_approval_that_comes_after_the_time_of_its_wait_takes_the_case_up_again() -> None:
    """Over a weekend: both notices say how to approve, the command line said that it was done, and for ever after the
    node stayed out and nobody heard of it."""
    ward = Ward(policy=a_policy(approval=("REBOOT",)))
    ward.world.strike("gpu_lost_79", SICK, 0, cure="reboot")
    ward.passes(2 * 86_400.0)
    case = ward.case(SICK)
    assert case is not None
    assert case.phase is Phase.ESCALATED
    assert f"sickbay case approve {case.id} --verb REBOOT" in ward.run.mailbox.notices[-1].body
    ward.run.store.create(Command("yes", "approve", case.id, "alice", "go", ward.world.now, {"verb": "REBOOT"}))
    ward.world.note("person", SICK, act="approve", by="alice", case=case.id, verb="REBOOT")
    assert ward.until_ended(SICK).phase is Phase.RESOLVED
    assert ward.treatments(SICK) == ["REBOOT"]
    assert ward.is_well(SICK)
    ward.ends_well()
