"""A part that came back ill is trusted less, for a while: how that begins, fades, ends, and what it means for jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.core import suspicion
from sickbay.core.capacity import Trust, choose, words
from sickbay.core.recover import decide as decide_job
from sickbay.core.suspicion import GOOD_S, KILLS, KILLS_S, PATIENCE_S, SMALL_GANG
from sickbay.core.turn import JobSlice, Now
from sickbay.model import Before, Doubt, JobPhase, NodeRecord, Phase, RecoveryPhase, Verb, When
from sickbay.settings import JobPolicy
from tests.builders import WALL, a_diagnosis, a_gpu, a_job, a_latch, a_node, a_past, a_policy, a_record, a_recovery
from tests.core.bedside import Bedside

HOUR, DAY = 3600.0, 86_400.0
GANG = tuple(f"g{n}" for n in range(SMALL_GANG + 1))


def a_doubt(**changed: Any) -> Doubt:
    return replace(Doubt("S1", strikes=1, why="gpu-lost came back after REBOOT (n1.1)", checked=True), **changed)


def a_suspect(**changed: Any) -> NodeRecord:
    return a_record(doubts=(a_doubt(**changed),))


def relapsed(record: NodeRecord, **how: Any) -> Bedside:
    return Bedside(record=record, **how).finds("xid.79", part="S1")


# --- how it begins ----------------------------------------------------------------------------------------------------


def test_a_part_that_is_ill_again_after_a_treatment_comes_under_suspicion_and_it_is_told_how_that_ends() -> None:
    bed = relapsed(a_record(past=(a_past(rung=Verb.REBOOT, part="S1"),)))
    assert [(d.part, d.strikes, d.checked) for d in bed.record.doubts] == [("S1", 1, False)]
    told = next(n for n in bed.record.notices if "suspicion" in n.title)
    assert "gpu-lost came back after REBOOT (n1.1)" in told.body
    assert "ends after 48" in told.body
    assert "sickbay node acknowledge n1" in told.body


def test_the_same_fault_on_another_part_of_the_node_is_no_relapse() -> None:
    bed = relapsed(a_record(past=(a_past(rung=Verb.REBOOT, part="S2"),)))
    assert bed.record.doubts == ()


def test_a_second_relapse_weighs_more_and_takes_longer_to_be_made_good() -> None:
    record = suspicion.strike(a_suspect(load_s=40 * HOUR), {"S1": "again"}, WALL)
    assert suspicion.grade(record, 0.0) == 2.0
    assert suspicion.left_s(record.doubts[0], 0.0) == 2 * GOOD_S


def test_a_suspect_is_examined_under_load_before_it_returns() -> None:
    assert suspicion.with_deep_check(("nvidia-smi",)) == ("nvidia-smi", "dcgm-l2")
    assert suspicion.with_deep_check(("nvidia-smi", "dcgm-l4")) == ("nvidia-smi", "dcgm-l4")


# --- how it fades -----------------------------------------------------------------------------------------------------


def test_only_hours_in_which_a_job_makes_steps_count_and_nothing_is_written_meanwhile() -> None:
    began = suspicion.note_load(a_suspect(), loaded=True, now=100.0)
    assert suspicion.note_load(began, loaded=True, now=100.0 + 9 * HOUR) is began
    assert suspicion.left_s(began.doubts[0], 100.0 + 9 * HOUR) == GOOD_S - 9 * HOUR
    ended = suspicion.note_load(began, loaded=False, now=100.0 + 10 * HOUR)
    assert suspicion.left_s(ended.doubts[0], 100.0 + 500 * HOUR) == GOOD_S - 10 * HOUR


def test_after_enough_good_hours_nothing_is_held_against_it() -> None:
    record = suspicion.note_load(a_suspect(), loaded=True, now=0.0)
    assert suspicion.trusted_at(record, 0.0) == GOOD_S
    assert suspicion.note_load(record, loaded=True, now=GOOD_S).doubts == ()


def test_jobs_that_it_ended_are_still_counted_when_the_suspicion_is_over() -> None:
    record = suspicion.note_load(a_suspect(kills=(1.0,)), loaded=True, now=0.0)
    assert suspicion.note_load(record, loaded=True, now=GOOD_S).doubts == (Doubt("S1", kills=(1.0,)),)


def test_good_hours_are_counted_by_the_nodes_own_turns() -> None:
    bed = Bedside(record=a_suspect(), node=a_node(jobs=("llama",)), now=1_000.0).turns(loaded=True)
    assert bed.record.doubts[0].loaded_since == 1_000.0
    bed.waits(GOOD_S - 1.0).turns(loaded=True)
    assert bed.record.doubts
    bed.waits(2.0).turns(loaded=True)
    assert bed.record.doubts == ()


def test_a_node_that_shows_a_fault_makes_nothing_good() -> None:
    quiet = a_suspect()
    record = replace(quiet, latched=(a_latch("row-remap-pending"),), quiet={"row-remap-pending": 9e9})
    bed = Bedside(record=record, node=a_node(jobs=("llama",))).turns(loaded=True)
    assert bed.record.doubts[0].loaded_since is None


def test_a_lemon_of_an_earlier_version_becomes_a_suspicion_that_fades_and_is_told() -> None:
    bed = Bedside(record=a_record(lemon="gpu-lost came back after REBOOT")).turns()
    assert bed.record.lemon == ""
    assert [(d.part, d.strikes) for d in bed.record.doubts] == [("", 1)]
    assert any("under suspicion" in n.title for n in bed.record.notices)


def test_a_person_ends_it_by_acknowledging_the_node() -> None:
    assert Bedside(record=a_suspect()).commands("acknowledge").record.doubts == ()


def test_what_is_known_of_a_part_stays_with_it_when_the_machine_around_it_is_exchanged() -> None:
    bed = Bedside(
        record=a_record(doubts=(a_doubt(), a_doubt(part="S2"))), node=a_node(instance="i-new", gpus=(a_gpu("S1"),))
    )
    assert [d.part for d in bed.turns().record.doubts] == ["S1"]


# --- three jobs -------------------------------------------------------------------------------------------------------


def test_the_third_job_that_a_part_ends_within_a_month_is_for_a_person() -> None:
    now = 20 * DAY
    record = a_record(doubts=(Doubt("S1", kills=(1 * DAY, 9 * DAY)),))
    bed = relapsed(record, node=a_node(jobs=("llama",)), now=now, policy=a_policy()).until(Phase.ESCALATED)
    assert "GPU S1 of n1 has ended 3 jobs within 30 days: a person decides" in bed.why
    assert bed.case.rungs_tried == ()
    assert bed.case.notices[-1].level == "urgent"


def test_jobs_of_more_than_a_month_ago_do_not_count() -> None:
    record = a_record(doubts=(Doubt("S1", kills=(1.0, 2.0)),))
    bed = relapsed(record, node=a_node(jobs=("llama",)), now=KILLS_S + 9.0).until(Phase.REPAIRING)
    assert bed.case.rung is Verb.REBOOT


def test_a_fault_on_an_empty_node_ends_no_job() -> None:
    record = a_record(doubts=(Doubt("S1", kills=(1.0, 2.0)),))
    assert relapsed(record, now=DAY).until(Phase.REPAIRING).case.rung is Verb.REBOOT


def test_where_machines_may_be_replaced_without_asking_the_third_job_leads_to_that() -> None:
    record = a_record(doubts=(Doubt("S1", kills=(1.0, 2.0)),))
    bed = relapsed(record, node=a_node(jobs=("llama",)), now=DAY, policy=a_policy(approval=())).until(Phase.QUEUED)
    assert bed.grants().case.rung is Verb.REPLACE


def test_a_person_who_wants_it_treated_again_has_decided() -> None:
    record = a_record(doubts=(Doubt("S1", kills=(1.0, 2.0)),))
    bed = relapsed(record, node=a_node(jobs=("llama",)), now=DAY).until(Phase.ESCALATED)
    bed.commands("retry")
    assert suspicion.kills(bed.record, ["S1"], DAY) == ("S1", 0)
    assert bed.until(Phase.REPAIRING).case.rung is Verb.REBOOT


def ends_its_third_job(**how: Any) -> Bedside:
    """A GPU whose verdict a boot clears has ended a third job; its case waits for a place, and the node stays open."""
    record = a_record(doubts=(Doubt("S1", kills=(1 * DAY, 9 * DAY)),))
    bed = relapsed(record, node=a_node(jobs=("llama",)), now=20 * DAY, **how)
    assert bed.phase is Phase.WAITING
    return bed


def is_rebooted_by_others(bed: Bedside) -> Bedside:
    return bed.shows(boot_id="boot-2", findings=(), jobs=()).waits(HOUR)


def test_a_boot_by_others_does_not_take_the_third_job_that_a_part_ended_from_the_person_who_decides() -> None:
    bed = is_rebooted_by_others(ends_its_third_job(policy=a_policy()))
    assert bed.phase is Phase.WAITING
    bed.until(Phase.ESCALATED)
    assert "has ended 3 jobs within 30 days: a person decides" in bed.why
    assert bed.case.rungs_tried == ()


def test_what_ended_three_jobs_opens_a_case_again_when_the_first_found_no_place_in_time() -> None:
    bed = ends_its_third_job(policy=a_policy(waiting_s=2 * HOUR, quiet_s=HOUR))
    bed = is_rebooted_by_others(bed).waits(2 * HOUR)
    assert bed.phase is Phase.DEFERRED
    assert bed.waits(2 * HOUR).until(Phase.ESCALATED).case.id == "n1.2"


def test_a_part_whose_machine_was_only_started_again_is_for_a_person_though_all_checks_pass() -> None:
    """Its provider says that it replaced the machine, and started the very same one."""
    bed = ends_its_third_job(policy=a_policy(approval=())).until(Phase.REPAIRING)
    assert bed.case.rung is Verb.REPLACE
    assert bed.case.pending is not None
    assert bed.node is not None
    bed.live = replace(bed.case, pending=replace(bed.case.pending, sends=1, before=Before(bed.node.boot_id)))
    bed.node = replace(bed.node, boot_id="boot-2", findings=(), jobs=())
    bed.answers().verified(boot="boot-2")
    assert bed.phase is Phase.ESCALATED


def test_a_month_after_its_first_job_a_boot_clears_it_again() -> None:
    bed = is_rebooted_by_others(ends_its_third_job(policy=a_policy(waiting_s=90 * DAY)))
    bed.waits(12 * DAY)
    assert bed.phase is Phase.DISMISSED
    assert bed.faults == set()


def test_a_person_who_acknowledges_the_node_lets_it_serve_whatever_it_ended() -> None:
    bed = is_rebooted_by_others(ends_its_third_job(policy=a_policy())).commands("acknowledge").turns()
    assert bed.phase is Phase.DISMISSED
    assert (bed.faults, bed.record.doubts) == (set(), ())


def test_a_person_who_wants_it_examined_has_decided_and_it_returns_if_it_is_well() -> None:
    bed = is_rebooted_by_others(ends_its_third_job(policy=a_policy())).until(Phase.ESCALATED)
    bed.commands("examine").until(Phase.RESOLVED)
    assert bed.faults == set()


@pytest.mark.parametrize(("seen", "left"), [(1, set()), (3, {"nvlink-down"})], ids=["once", "often enough"])
def test_what_was_not_seen_often_enough_to_be_believed_still_goes_away_by_itself(seen: int, left: set[str]) -> None:
    latch = a_latch("nvlink-down", part="S1", count=seen, check="topology")
    record = a_record(latch, doubts=(Doubt("S1", kills=(1.0, 2.0, 3.0)),))
    assert Bedside(record=record, now=DAY).passes("topology", 9).faults == left


def test_no_more_kills_are_remembered_than_are_asked_for() -> None:
    record = a_record(doubts=(Doubt("S1", kills=tuple(map(float, range(KILLS)))),))
    said = a_diagnosis(part="S1", when=When.NOW)
    assert len(suspicion.note_kills(record, [said], DAY).doubts[0].kills) == KILLS


def test_what_is_said_of_one_part_within_minutes_ended_one_job() -> None:
    said = [a_diagnosis(part="S1", when=When.NOW)]
    record = suspicion.note_kills(suspicion.note_kills(a_record(), said, 1.0), said, 200.0)
    assert suspicion.kills(record, ["S1"], 200.0) == ("S1", 1)
    assert suspicion.kills(suspicion.note_kills(record, said, 3_000.0), ["S1"], 3_000.0) == ("S1", 2)


def test_a_job_counts_that_died_before_we_heard_of_the_fault() -> None:
    """Its ranks were gone, and the node empty, when the agent's word arrived."""
    record = a_record(doubts=(Doubt("S1", kills=(1.0, 2.0)),))
    bed = Bedside(record=record, now=DAY, policy=a_policy())
    bed.died = True
    bed.finds("xid.79", part="S1").died = False
    bed.until(Phase.ESCALATED)
    assert "has ended 3 jobs" in bed.why


@pytest.mark.parametrize(("approval", "end"), [(("REPLACE",), Phase.ESCALATED), ((), Phase.REPAIRING)])
def test_a_fault_that_joins_an_open_case_has_ended_a_job_too(approval: tuple[str, ...], end: Phase) -> None:
    record = a_record(doubts=(Doubt("S1", kills=(1.0, 2.0)),))
    bed = Bedside(record=record, node=a_node(jobs=("llama",)), now=DAY, policy=a_policy(approval=approval))
    bed.finds("xid.63", part="S2", n=1).finds("xid.79", part="S1", n=2)
    assert len(bed.case.diagnoses) == 2
    bed.until(end)
    assert bed.case.rungs_tried == (() if approval else (Verb.REPLACE,))


@pytest.mark.parametrize("since", [0.0, 5 * HOUR])
def test_a_case_that_opens_again_for_what_was_left_standing_counts_no_job_twice(since: float) -> None:
    """A node was away for four days with a job on it that ran on: its third case said that it had ended three."""
    past = a_past("gpu-lost", end="DEFERRED", ended=4 * HOUR, part="S1")
    latch = a_latch("gpu-lost", part="S1", since=since)
    bed = Bedside(record=a_record(latch, past=(past,)), node=a_node(jobs=("llama",)), now=8 * HOUR)
    bed.turns()
    assert suspicion.kills(bed.record, ["S1"], 8 * HOUR)[1] == (since > 4 * HOUR)


# --- what it means for jobs -------------------------------------------------------------------------------------------


def test_a_suspect_is_taken_last_and_the_least_suspected_first() -> None:
    job = a_job(nodes=("n1", "n2"))
    doubts = {"n3": Trust(0.5, checked=True), "n4": Trust(0.2, checked=True)}
    assert choose(job, ("n1", "n3", "n4", "n5"), (), doubts=doubts, most=2) == ("n1", "n5")
    assert choose(job, ("n1", "n3", "n4"), (), doubts=doubts) is None
    assert choose(job, ("n1", "n3", "n4"), (), doubts=doubts, most=2) == ("n1", "n4")


def test_suspects_on_which_a_job_has_run_are_no_reason_to_wait() -> None:
    doubts = {n: Trust(1.0, checked=True) for n in (*GANG[:4], "s1")}
    assert set(choose(a_job(nodes=GANG), (*GANG, "s1"), (), doubts=doubts, most=1) or ()) == set(GANG)
    assert set(choose(a_job(nodes=GANG), (*GANG, "t1"), (), doubts=doubts, most=1) or ()) == {
        *GANG[:3],
        *GANG[4:],
        "t1",
    }


def test_a_large_gang_takes_no_suspect_without_a_deep_check_unless_it_has_waited() -> None:
    job, rest = a_job(nodes=GANG), GANG[1:]
    assert choose(job, GANG, (), doubts={"g0": Trust(1.0, checked=False)}, most=1) is None
    assert choose(job, GANG, (), doubts={"g0": Trust(1.0, checked=True)}, most=1) == ("g0", *rest)
    assert choose(job, GANG, (), doubts={"g0": Trust(1.0, checked=False)}, most=2) == ("g0", *rest)  # it has waited
    small = a_job(nodes=GANG[:2])
    assert choose(small, GANG[:2], (), doubts={"g0": Trust(1.0, checked=False)}, most=2) == GANG[:2]


def test_a_large_gang_takes_one_suspect_and_one_more_for_each_long_wait() -> None:
    gang = SMALL_GANG + 1
    assert suspicion.most_suspects(SMALL_GANG, 0.0) == SMALL_GANG
    assert [suspicion.most_suspects(gang, waited) for waited in (0.0, PATIENCE_S, 2 * PATIENCE_S)] == [1, 2, 3]


def waiting(suspects: int, waited_s: float) -> RecoveryPhase:
    job = a_job(JobPhase.FAILED, nodes=GANG)
    r = a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY, nodes=GANG, progressed=1_000.0)
    doubts = {f"s{n}": Trust(1.0, checked=True) for n in range(suspects)}
    s = JobSlice(job, r, good=(*GANG[suspects:], *doubts), doubts=doubts)
    decided = decide_job(s, JobPolicy(), Now(1_000.0 + waited_s, WALL)).recovery
    assert decided is not None
    return decided.phase


def test_a_job_does_not_wait_for_ever_though_all_that_is_free_is_suspected() -> None:
    assert waiting(1, 60.0) is RecoveryPhase.RESTARTING
    assert waiting(2, 60.0) is RecoveryPhase.WAITING_FOR_CAPACITY
    assert waiting(2, PATIENCE_S) is RecoveryPhase.RESTARTING
    assert waiting(len(GANG), 9 * PATIENCE_S) is RecoveryPhase.RESTARTING


def test_a_job_that_waits_says_how_many_suspects_there_are_and_how_many_it_takes() -> None:
    job, r = a_job(JobPhase.FAILED, nodes=GANG), a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY, nodes=GANG)
    doubts = {n: Trust(1.0, checked=True) for n in ("s1", "s2", "s3")}
    s = JobSlice(job, r, good=(*GANG[3:], *doubts), doubts=doubts)
    decided = decide_job(s, JobPolicy(), Now(1_100.0, WALL)).recovery
    assert decided is not None
    assert decided.refusal == (
        "needs 9 good nodes, 6 are known to be good and free; 3 more are under suspicion, of which it takes 1 by now"
    )


def test_the_story_of_a_restart_names_the_suspect_it_took() -> None:
    said = words(a_job(nodes=("n1", "n2")), ("n1", "n3"), {"n3": Trust(1.0, checked=True)})
    assert said == "n3 takes the place of n2; n3 is under suspicion and taken because nothing better is free"
