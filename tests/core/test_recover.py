"""A job through its failures: stalls, deaths, drains, restarts, limits. One sentence per row and rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sickbay.core import capacity, outages, progress
from sickbay.core.blame import BlameVerdict
from sickbay.core.capacity import choose, start_from
from sickbay.core.moment import moment
from sickbay.core.recover import decide
from sickbay.core.turn import JobDecision, JobSlice, Now
from sickbay.model import (
    Action,
    Blame,
    Case,
    Checkpoint,
    Cost,
    Done,
    Entry,
    Failed,
    Job,
    JobPhase,
    Lost,
    Outcome,
    Phase,
    Place,
    RankExit,
    Recovery,
    RecoveryPhase,
    Unguarded,
    Verb,
)
from sickbay.settings import JobPolicy
from tests.builders import CATALOG, WALL, a_blind, a_case, a_diagnosis, a_finding, a_job, a_recovery

P = RecoveryPhase
KINDS = {name: fault.kind for name, fault in CATALOG.faults.items()}
POLICY = JobPolicy()
DEAD = a_job(JobPhase.FAILED, exits=(RankExit(1, "n2", 1, ("Traceback",)),))
PLAIN_BUG = BlameVerdict(Blame.USER_CODE, 0.95, ("TypeError: unsupported operand",), "train.py:10 TypeError")
MYSTERY = BlameVerdict(Blame.UNKNOWN, 0.2, ())


def turn(
    r: Recovery | None, job: Job | None, now: float = 1_100.0, policy: JobPolicy = POLICY, **seen: Any
) -> JobDecision:
    s = JobSlice(job=job, recovery=r, kinds=KINDS)
    return decide(replace(s, **seen), policy, Now(now, WALL + now))


def after(r: Recovery | None, job: Job | None, now: float = 1_100.0, **seen: Any) -> Recovery:
    found = turn(r, job, now, **seen).recovery
    assert found is not None
    return found


def asks(verb: Verb, key: str = "llama#5") -> Action:
    return Action(key, verb, Place(""), {"job": "llama"}, ("n1", "n2"))


def answered(r: Recovery, job: Job, outcome: Outcome, now: float = 1_100.0, **seen: Any) -> Recovery:
    assert r.pending is not None
    return after(r, job, now, outcome=outcome, answers=r.pending.key, **seen)


def stalled(**changed: Any) -> Recovery:
    return a_recovery(P.STALLED, **({"progressed": 700.0} | changed))


def stopping(**changed: Any) -> Recovery:
    return a_recovery(P.STOPPING, pending=asks(Verb.STOP_JOB), down_since=WALL, **changed)


def examining(**changed: Any) -> Recovery:
    return a_recovery(P.EXAMINING, pending=asks(Verb.VERIFY), down_since=WALL, **changed)


def waiting(**changed: Any) -> Recovery:
    given = {"blame": Blame.HARDWARE, "down_since": WALL, "cost": Cost.ONE, **changed}
    return a_recovery(P.WAITING_FOR_CAPACITY, **given)


def restarting(**changed: Any) -> Recovery:
    base = {"pending": asks(Verb.RESTART_JOB), "checkpoint_step": 80, "blame": Blame.HARDWARE, "down_since": WALL}
    return a_recovery(P.RESTARTING, **(base | changed))


def sick_node(fault: str = "gpu-lost", node: str = "n2") -> Case:
    return a_case(Phase.HOLDING, fault, node)


# --- being watched ----------------------------------------------------------------------------------------------------


def test_a_managed_job_that_runs_is_adopted() -> None:
    said = turn(None, a_job())
    assert said.opened
    assert said.recovery is not None
    assert (said.recovery.phase, said.recovery.job_step, said.recovery.checkpoint_step) == (P.RUNNING, 100, -1)


def test_what_an_attempt_had_saved_before_somebody_deleted_its_record_makes_it_one_that_got_further() -> None:
    """It was counted as one that came to nothing, and the job was given up one attempt too early (seed 72440045)."""
    saved = (Checkpoint(40, WALL, 1), Checkpoint(60, WALL, 2), Checkpoint(80, WALL, 2))
    job = a_job(attempt=2, checkpoints=saved)
    adopted = after(None, job)
    assert adopted.checkpoint_step == 40
    assert outages.barren(job, replace(adopted, cost=Cost.ONE)) == 0
    none_yet = a_job(attempt=2, checkpoints=saved[:1])
    assert outages.barren(none_yet, replace(after(None, none_yet), cost=Cost.ONE)) == 1


@pytest.mark.parametrize("job", [a_job(managed=False), a_job(JobPhase.PENDING), a_job(JobPhase.FAILED), None])
def test_nothing_else_is_adopted(job: Job | None) -> None:
    assert turn(None, job).recovery is None


def drained_job(**changed: Any) -> Job:
    return a_job(JobPhase.STOPPED, **({"stopped_by": "drain:n2.1"} | changed))


def test_a_job_that_our_own_drain_stopped_and_nobody_looks_after_is_adopted_and_brought_back() -> None:
    said = turn(None, drained_job())
    assert said.opened
    assert said.recovery is not None
    assert (said.recovery.phase, said.recovery.by_drain) == (P.STOPPING, "n2.1")


@pytest.mark.parametrize(
    "job",
    [drained_job(managed=False), drained_job(stopped_by="llama#1.7"), drained_job(rank_nodes=("n1", ""))],
    ids=["not opted in", "stopped by its own recovery", "never ran whole"],
)
def test_no_other_job_that_is_stopped_is_adopted(job: Job) -> None:
    assert turn(None, job).recovery is None


def test_a_job_that_was_given_up_after_the_drain_stays_with_its_owner() -> None:
    assert turn(None, drained_job(), given_up=True).recovery is None


def test_a_new_step_is_noted() -> None:
    r = after(a_recovery(), a_job(step=140))
    assert (r.job_step, r.progressed) == (140, 1_100.0)


def test_a_job_without_a_step_for_five_minutes_is_stalled() -> None:
    r = a_recovery(progressed=1_001.0)
    assert after(r, a_job(), 1_300.0).phase is P.RUNNING
    assert after(r, a_job(), 1_301.0).phase is P.STALLED


def test_a_slow_job_gets_five_of_its_own_steps() -> None:
    slow = a_job(step_s=120.0)
    assert after(a_recovery(progressed=1_001.0), slow, 1_500.0).phase is P.RUNNING
    assert after(a_recovery(progressed=1_001.0), slow, 1_601.0).phase is P.STALLED


def test_since_when_a_job_stands_still_is_as_true_when_it_is_told_days_later() -> None:
    r = after(a_recovery(progressed=1_001.0), a_job(), 1_001.0 + POLICY.stall_s)
    assert r.journal[-1].why == f"no step after 100 since {moment(WALL + 1_001.0)}"


def test_a_job_that_waits_for_its_place_is_not_stalled_and_then_has_the_time_of_a_start() -> None:
    r = after(a_recovery(progressed=1_001.0), a_job(JobPhase.PENDING), 9_000.0)
    assert r.phase is P.RUNNING
    assert after(r, a_job(), 9_000.0 + POLICY.restarting_s - 1).phase is P.RUNNING
    assert after(r, a_job(), 9_000.0 + POLICY.restarting_s).phase is P.STALLED


def test_an_attempt_begun_by_its_own_controller_has_the_time_of_a_start_until_its_first_step() -> None:
    r = after(a_recovery(), a_job(attempt=2, step=80), 2_000.0)
    assert after(r, a_job(attempt=2, step=80), 2_000.0 + POLICY.restarting_s - 1).phase is P.RUNNING
    r = after(r, a_job(attempt=2, step=81), 2_100.0)
    assert after(r, a_job(attempt=2, step=81), 2_100.0 + POLICY.stall_s).phase is P.STALLED


def test_steps_that_go_back_are_steps_and_a_job_that_makes_them_is_never_stalled() -> None:
    """torchrun has restarted it in place: 140, then from its checkpoint 101, 102, ..."""
    r = after(a_recovery(), a_job(step=140, step_at=1.0), 1_100.0)
    for i, step in enumerate(range(101, 140)):
        r = after(r, a_job(step=step, step_at=2.0 + i), 1_150.0 + 50.0 * i)
        assert r.phase is P.RUNNING
    assert r.job_step == 139
    assert after(r, a_job(step=139, step_at=99.0), r.progressed + POLICY.stall_s).phase is P.STALLED


def test_a_lower_step_that_nobody_has_told_is_no_step() -> None:
    """A controller that has just begun to look shows the job before it has read anything."""
    r = after(a_recovery(), a_job(step=1, step_at=0.0))
    assert (r.job_step, r.progressed) == (100, 1_001.0)


def test_time_in_which_a_jobs_steps_cannot_be_read_is_no_silence() -> None:
    unread = a_job(unread="dial tcp 10.0.0.7:10250: i/o timeout")
    r = a_recovery(progressed=1_001.0)
    for minute in range(60):
        r = after(r, unread, 1_100.0 + 60.0 * minute)
        assert r.phase is P.RUNNING
    assert after(r, a_job(), r.progressed + POLICY.stall_s - 1).phase is P.RUNNING
    assert after(r, a_job(), r.progressed + POLICY.stall_s).phase is P.STALLED


def test_an_attempt_without_a_first_step_that_cannot_be_read_keeps_the_time_of_a_start() -> None:
    r = after(a_recovery(entered=1_001.0), a_job(unread="?"), 1_100.0)
    assert after(r, a_job(), 1_100.0 + POLICY.restarting_s - 1).phase is P.RUNNING


# --- what others do to it is no failure -------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [P.RUNNING, P.STALLED, P.STOPPING, P.EXAMINING, P.WAITING_FOR_CAPACITY, P.RESTARTING])
@pytest.mark.parametrize(
    ("job", "end"),
    [
        (a_job(JobPhase.SUSPENDED, stopped_by="the queue"), P.STOPPED),
        (a_job(JobPhase.SUCCEEDED), P.COMPLETED),
        (a_job(JobPhase.GONE), P.GONE),
        (None, P.GONE),
    ],
    ids=["suspended", "finished", "deleted", "not there"],
)
def test_what_others_do_to_a_job_ends_our_part_without_a_word_of_failure(
    phase: RecoveryPhase, job: Job | None, end: RecoveryPhase
) -> None:
    said = turn(a_recovery(phase), job)
    assert said.recovery is not None
    assert (said.recovery.phase, said.ended) == (end, True)
    assert not said.recovery.notices


# --- stalled ----------------------------------------------------------------------------------------------------------


def test_a_stalled_job_that_makes_a_step_after_all_runs_on() -> None:
    assert after(stalled(), a_job(step=101)).phase is P.RUNNING


def test_a_stalled_job_has_moved_also_for_a_leader_who_takes_over_at_the_moment_of_the_stall() -> None:
    """Watch time stands still between two leaders: nothing is later than anything."""
    r = stalled(entered=1_100.0, progressed=1_100.0, pending=asks(Verb.COLLECT))
    assert after(r, a_job(step=101), 1_100.0).phase is P.RUNNING
    assert answered(r, a_job(step=101), Done("2 pieces"), 1_100.0).phase is P.RUNNING
    assert answered(r, a_job(), Done("2 pieces"), 1_100.0).phase is P.STOPPING


def test_a_leader_who_takes_over_a_stalled_job_does_not_take_its_own_first_look_for_a_step() -> None:
    assert after(stalled(entered=1_000.0, progressed=1_050.0, deadline=1_060.0), a_job()).phase is P.STOPPING


def test_a_stalled_job_is_stopped_as_a_whole_after_its_time() -> None:
    r = after(stalled(deadline=1_060.0), a_job())
    assert r.phase is P.STOPPING
    assert r.pending is not None
    assert (r.pending.verb, r.pending.args["attempt"], r.pending.args["last_step"]) == (Verb.STOP_JOB, "1", "100")


@pytest.mark.parametrize("deadline", [9_000.0, 1_060.0])
def test_a_stalled_job_whose_steps_cannot_be_read_any_more_is_not_stopped(deadline: float) -> None:
    r = after(stalled(deadline=deadline), a_job(unread="i/o timeout"))
    assert (r.phase, r.pending) == (P.RUNNING, None)
    assert r.journal[-1].why == "its progress cannot be read: i/o timeout"


def test_the_silent_ranks_node_is_the_suspect() -> None:
    job = a_job(silent=(1,), rank_nodes=("n1", "n2"))
    said = turn(stalled(deadline=1_060.0), job)
    assert [node for node, _ in said.suspects] == ["n2"]
    assert "rank 1" in said.suspects[0][1]


def test_a_rank_is_no_suspect_that_says_nothing_because_its_node_does_not_answer() -> None:
    """With that beside its absence a healthy node was power-cycled for a network that came and went."""
    job = a_job(silent=(1,), rank_nodes=("n1", "n2"))
    assert turn(stalled(deadline=1_060.0), job, unreachable={"n2": 900.0}).suspects == ()
    assert turn(stalled(deadline=1_060.0), job, unreachable={"n1": 900.0}).suspects != ()


def test_silent_ranks_of_several_nodes_make_none_of_them_a_suspect() -> None:
    """Of a job whose network was cut two healthy nodes were closed: the controller manager was dead too, so nobody said
    that they did not answer (seed 70020142)."""
    where = ("n1", "n1", "n2", "n2", "n3", "n3")
    assert turn(stalled(deadline=1_060.0), a_job(silent=(0, 2), rank_nodes=where)).suspects == ()
    said = turn(stalled(deadline=1_060.0), a_job(silent=(2, 3), rank_nodes=where)).suspects
    assert said == (("n2", "rank 2 of llama fell silent while all others logged that they were waiting"),)


def test_a_stalled_job_without_a_silent_rank_has_no_suspect() -> None:
    assert turn(stalled(deadline=1_060.0), a_job()).suspects == ()


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_a_dead_job_is_stopped_as_a_whole_and_the_journal_says_how_it_died() -> None:
    r = after(a_recovery(), DEAD)
    assert r.phase is P.STOPPING
    assert r.journal[-1].why == "rank 1 on n2 exited with 1"


def test_a_stopped_gang_is_examined() -> None:
    r = answered(stopping(), DEAD, Done())
    assert r.phase is P.EXAMINING
    assert r.pending is not None
    assert (r.pending.verb, r.pending.nodes) == (Verb.VERIFY, ("n1", "n2"))


@pytest.mark.parametrize("outcome", [Failed("moved: step 130"), Unguarded("moved")])
def test_a_stop_refused_because_the_job_has_moved_lets_it_run(outcome: Outcome) -> None:
    r = answered(stopping(), a_job(step=130), outcome)
    assert (r.phase, r.job_step) == (P.RUNNING, 130)


def test_a_stop_refused_because_the_job_has_gone_back_lets_it_run() -> None:
    r = answered(stopping(), a_job(step=81, step_at=5.0), Failed("moved: step 81"))
    assert (r.phase, r.job_step) == (P.RUNNING, 81)


def test_a_stop_refused_because_its_steps_cannot_be_read_lets_it_run() -> None:
    r = answered(stopping(), a_job(unread="i/o timeout"), Failed("its progress cannot be read: i/o timeout"))
    assert (r.phase, r.journal[-1].event) == (P.RUNNING, "UNSEEN")


def test_an_attempt_that_hangs_before_its_first_step_is_stopped_where_it_stands() -> None:
    """It has told the step of its checkpoint, and the attempt before it was further."""
    hung = a_job(attempt=2, step=80, step_at=5.0)
    r = after(restarting(pending=None, deadline=1_050.0, job_step=140), hung)
    assert r.phase is P.STOPPING
    assert r.pending is not None
    assert (r.pending.args["attempt"], r.pending.args["last_step"]) == ("2", "80")
    assert r.job_step == 140  # what it has lost is counted from there


def test_a_stop_is_not_tried_again_when_the_job_has_moved_meanwhile() -> None:
    r = after(stopping(deadline=1_050.0), a_job(step=101))
    assert r.phase is P.RUNNING


def test_a_stop_that_takes_too_long_is_tried_again_under_a_new_name() -> None:
    before = stopping(deadline=1_050.0)
    r = after(before, a_job())
    assert r.phase is P.STOPPING
    assert r.pending is not None
    assert before.pending is not None
    assert r.pending.key != before.pending.key


def test_a_job_stopped_by_our_own_drain_is_not_examined() -> None:
    drained = a_job(JobPhase.STOPPED, stopped_by="drain:n2.1")
    r = after(a_recovery(), drained)
    assert (r.phase, r.by_drain) == (P.STOPPING, "n2.1")
    r = answered(r, drained, Done(), cases=(sick_node(),), good=())
    assert (r.phase, r.blame, r.suspects) == (P.WAITING_FOR_CAPACITY, Blame.HARDWARE, ("n2",))
    assert r.because == ("the line that says gpu-lost",)


# --- examining: by blame ----------------------------------------------------------------------------------------------


def test_what_the_agents_saw_blames_the_hardware() -> None:
    r = answered(examining(), DEAD, Done(), cases=(sick_node(),), verdict=MYSTERY)
    assert (r.phase, r.blame, r.suspects) == (P.WAITING_FOR_CAPACITY, Blame.HARDWARE, ("n2",))


def test_what_the_examination_finds_blames_the_hardware() -> None:
    lost = a_finding("smi.gpu-lost", node="n1", check="nvidia-smi")
    r = answered(examining(), DEAD, Done("", (lost,)), verdict=MYSTERY)
    assert (r.blame, r.suspects) == (Blame.HARDWARE, ("n1",))


def test_a_node_that_answers_unknown_is_not_used_again() -> None:
    mute = replace(a_blind(), place=Place("n1"))
    r = answered(examining(), DEAD, Done("", (mute,)), verdict=MYSTERY)
    assert "n1" in r.suspects


def test_a_mute_node_is_not_used_again_even_when_another_is_to_blame() -> None:
    mute = replace(a_blind(), place=Place("n1"))
    r = answered(examining(), DEAD, Done("", (mute,)), cases=(sick_node(),))
    assert set(r.suspects) == {"n1", "n2"}


def test_a_node_that_is_sick_and_mute_is_named_once() -> None:
    mute = replace(a_blind(), place=Place("n2"))
    r = answered(examining(), DEAD, Done("", (mute,)), cases=(sick_node(),))
    assert r.suspects == ("n2",)


def test_a_sick_network_is_infrastructure() -> None:
    r = answered(examining(), DEAD, Done(), cases=(sick_node("fabric-unhealthy"),))
    assert r.blame is Blame.INFRASTRUCTURE


def test_a_users_bug_is_reported_with_its_evidence_and_not_restarted() -> None:
    r = answered(examining(), DEAD, Done(), verdict=PLAIN_BUG, good=("n1", "n2"))
    assert (r.phase, r.blame) == (P.FAILED, Blame.USER_CODE)
    notice = r.notices[-1]
    assert notice.level == "urgent"
    assert "TypeError: unsupported operand" in notice.body
    assert "no node is to blame" in notice.body


def test_the_same_traceback_at_the_same_step_twice_is_the_users_code() -> None:
    odd = BlameVerdict(Blame.UNKNOWN, 0.3, ("RuntimeError: odd",), "train.py:9 RuntimeError")
    first = answered(examining(), DEAD, Done(), verdict=odd)
    assert first.phase is P.WAITING_FOR_CAPACITY
    again = answered(examining(tracebacks=first.tracebacks, swap=True), DEAD, Done(), verdict=odd)
    assert (again.phase, again.blame) == (P.FAILED, Blame.USER_CODE)


def test_an_unexplained_failure_is_restarted_once_with_its_suspect_swapped_out() -> None:
    r = answered(examining(checkpoint_step=80), DEAD, Done(), verdict=MYSTERY, good=("n1", "n9"))
    assert (r.phase, r.blame, r.swap) == (P.RESTARTING, Blame.UNKNOWN, True)
    assert r.suspects == ("n2",)
    assert r.nodes == ("n1", "n9")


def test_an_unexplained_failure_the_second_time_is_given_up() -> None:
    r = answered(examining(swap=True, checkpoint_step=80, barren=1), DEAD, Done(), verdict=MYSTERY)
    assert (r.phase, r.blame) == (P.FAILED, Blame.UNKNOWN)
    assert "nothing to explain it" in r.notices[-1].body


def test_a_failure_that_cost_nothing_is_no_first_one_of_two_that_nothing_explains() -> None:
    """A storage that hung and a fabric that was cut took the first attempt (seeds 50001350, 50001865)."""
    r = answered(examining(swap=True, checkpoint_step=80), DEAD, Done(), verdict=MYSTERY)
    assert (r.phase, r.cost) == (P.WAITING_FOR_CAPACITY, Cost.ONE)


HANG = tuple(
    Entry(i, event, float(i), "sickbay", "why", phase.value)
    for i, (event, phase) in enumerate((("STALLED", P.STALLED), ("DONE", P.STOPPING), ("DONE", P.EXAMINING)))
)


def test_a_hang_that_cost_nothing_is_no_first_one_though_deaths_that_were_explained_came_after_it() -> None:
    """It hung once in a cut fabric, then a machine was taken away and another drained; its first death that nothing
    explained was given up as its second (seed 71)."""
    hung = answered(examining(journal=HANG, checkpoint_step=80), a_job(JobPhase.STOPPED), Done(), verdict=MYSTERY)
    assert (hung.cost, hung.swap) == (Cost.BLAMELESS, False)
    later = examining(checkpoint_step=80, barren=1, swap=hung.swap)
    r = answered(later, DEAD, Done(), verdict=MYSTERY)
    assert (r.phase, r.cost, r.swap) == (P.WAITING_FOR_CAPACITY, Cost.ONE, True)


def test_a_job_that_hangs_again_and_nothing_explains_it_is_moved_to_other_nodes() -> None:
    again = examining(journal=HANG, checkpoint_step=80, spared=1)
    r = answered(again, a_job(JobPhase.STOPPED), Done(), verdict=MYSTERY)
    assert "moved to other nodes" in r.journal[-1].why
    assert set(a_job().nodes) <= set(r.suspects)


def test_a_failure_on_a_node_that_answers_nobody_is_no_first_one_of_two_that_nothing_explains() -> None:
    """Its next one, the first that truly nothing explained, was its last."""
    job = a_job(JobPhase.FAILED, checkpoint=None)
    for away, first in (({"n2": 1_000.0}, False), ({}, True)):
        r = answered(examining(), job, Done(), verdict=MYSTERY, unreachable=away)
        assert (r.blame, r.swap) == (Blame.UNKNOWN, first)


def test_a_second_unexplained_failure_on_a_node_that_answers_nobody_is_not_given_up_at_once() -> None:
    """A rack without power is known as that a minute later."""
    job = replace(DEAD, checkpoint=Checkpoint(40, WALL, 1))
    r = examining(swap=True, checkpoint_step=40, barren=1)
    assert answered(r, job, Done("", (a_blind(),)), verdict=MYSTERY).phase is P.WAITING_FOR_CAPACITY
    assert answered(r, job, Done(), verdict=MYSTERY, unreachable={"n2": 1_000.0}).phase is P.WAITING_FOR_CAPACITY
    assert answered(r, job, Done(), verdict=MYSTERY).phase is P.FAILED


def test_a_second_unexplained_failure_on_a_node_that_answered_nobody_and_is_back_is_not_given_up_either() -> None:
    job = replace(DEAD, checkpoint=Checkpoint(40, WALL, 1))
    r = examining(swap=True, checkpoint_step=40, barren=1)
    assert answered(replace(r, told_of=job.attempt), job, Done(), verdict=MYSTERY).phase is P.WAITING_FOR_CAPACITY
    assert answered(replace(r, told_of=job.attempt - 1), job, Done(), verdict=MYSTERY).phase is P.FAILED


def test_a_second_unexplained_failure_whose_nodes_nobody_could_examine_in_time_is_not_given_up_at_once() -> None:
    """With `examining_s = 0.1` a host that had crashed was a machine that had been exchanged by then (50001350)."""
    r = examining(swap=True, checkpoint_step=80, barren=1)
    assert answered(r, DEAD, Failed("no answer in time"), verdict=MYSTERY).phase is P.WAITING_FOR_CAPACITY
    assert answered(r, DEAD, Done(), verdict=MYSTERY).phase is P.FAILED


def test_an_unexplained_failure_after_new_checkpoints_is_a_first_one_again() -> None:
    r = answered(examining(swap=True, checkpoint_step=40, barren=1), DEAD, Done(), verdict=MYSTERY)
    assert r.phase is P.WAITING_FOR_CAPACITY


def test_what_failed_before_new_checkpoints_is_no_first_one_of_two_beside_a_death_that_was_explained() -> None:
    """Its first attempt died and nothing explained it; the next ones saved. Hours later a machine was rebooted under
    it, and the first death since then that nothing explained was given up as its second (seed 33)."""
    first = answered(examining(checkpoint_step=40), DEAD, Done(), verdict=MYSTERY, good=("n1", "n9"))
    assert (first.phase, first.swap) == (P.RESTARTING, False)
    rebooted = examining(checkpoint_step=80, barren=1, swap=first.swap)
    r = answered(rebooted, DEAD, Done(), verdict=MYSTERY, good=("n1", "n9"))
    assert (r.phase, r.swap) == (P.RESTARTING, True)


@pytest.mark.parametrize("outcome", [Failed("no agents"), Lost("?"), None])
def test_an_examination_that_does_not_answer_does_not_hold_the_job_up(outcome: Outcome | None) -> None:
    r = examining(deadline=1_050.0)
    r = answered(r, DEAD, outcome) if outcome else after(r, DEAD)
    assert r.phase is P.WAITING_FOR_CAPACITY


# --- waiting for capacity ---------------------------------------------------------------------------------------------


def test_a_job_never_waits_for_a_repair_when_a_good_node_exists() -> None:
    r = after(waiting(suspects=("n2",)), DEAD, good=("n1", "n7"))
    assert (r.phase, r.nodes) == (P.RESTARTING, ("n1", "n7"))
    assert r.journal[-1].why == "n7 takes the place of n2"


def test_a_job_without_enough_good_nodes_waits_and_says_how_many_it_needs() -> None:
    r = after(waiting(), DEAD, good=("n1",))
    assert r.phase is P.WAITING_FOR_CAPACITY
    assert r.refusal == "needs 2 good nodes, 1 are known to be good and free"


def test_a_job_that_waits_too_long_is_told_to_its_owner_and_goes_on_waiting() -> None:
    r = after(waiting(deadline=1_050.0), DEAD, good=())
    assert r.phase is P.WAITING_FOR_CAPACITY
    assert "needs 2 good nodes" in r.notices[-1].body
    assert r.deadline == 1_100.0 + POLICY.capacity_s


def test_a_live_attempt_seen_while_waiting_is_let_run() -> None:
    r = after(waiting(), a_job(attempt=2, step=10), good=("n1", "n2"))
    assert (r.phase, r.attempt, r.job_step) == (P.RUNNING, 2, 10)


def test_an_attempt_that_was_just_stopped_and_is_shown_as_running_is_an_old_look() -> None:
    """Taken for alive it would be seen to die once more, with nothing to explain it, and be given up."""
    job, stopped = a_job(attempt=1, step=100), waiting(stopped=1_000.0)
    late = after(stopped, job, 1_100.0, good=("n1", "n2"))
    assert (late.phase, late.refusal) == (P.WAITING_FOR_CAPACITY, "attempt 1 is stopped and still shown as running")
    assert after(late, DEAD, 1_130.0, good=("n1", "n2")).phase is P.RESTARTING
    assert after(stopped, a_job(attempt=2, step=10), 1_100.0).phase is P.RUNNING


def test_whoever_resumes_the_very_attempt_that_we_stopped_is_believed_a_little_later() -> None:
    r = after(waiting(stopped=1_000.0), a_job(attempt=1, step=100), 1_000.0 + progress.LATE_S)
    assert (r.phase, r.stopped) == (P.RUNNING, -1.0)


def test_a_live_attempt_seen_while_examining_is_let_run_and_its_own_steps_count() -> None:
    r = after(examining(job_step=500), a_job(attempt=2, step=10))
    assert (r.phase, r.attempt, r.job_step) == (P.RUNNING, 2, 10)
    assert after(r, a_job(attempt=2, step=20), 1_200.0).progressed == 1_200.0


def test_a_job_that_keeps_dying_without_a_new_checkpoint_stops_at_its_limit() -> None:
    stuck = replace(DEAD, checkpoint=Checkpoint(40, WALL, 1))
    r = after(waiting(checkpoint_step=40, barren=4), stuck, good=("n1", "n2"))
    assert (r.phase, r.refusal[:23]) == (P.WAITING_FOR_CAPACITY, "before it is given up w")
    r = after(r, stuck, r.entered + outages.KNOWN_S, good=("n1", "n2"))
    assert r.phase is P.FAILED
    assert "5 attempts in a row ended without a new complete checkpoint (limit 5)" in r.notices[-1].body


def test_a_new_checkpoint_makes_the_count_start_again() -> None:
    r = after(waiting(checkpoint_step=40, barren=2), DEAD, good=("n1", "n2"))
    assert (r.phase, r.barren) == (P.RESTARTING, 0)


def test_own_nodes_that_are_good_are_kept_and_suspects_never_used() -> None:
    job = a_job(nodes=("n1", "n2", "n3"))
    assert choose(job, ("n1", "n2", "n3"), ()) == ("n1", "n2", "n3")
    assert choose(job, ("n1", "n3", "n8", "n9"), ("n8",)) == ("n1", "n9", "n3")
    assert choose(job, ("n1", "n3", "n2"), ("n2",)) is None


# --- from which checkpoint --------------------------------------------------------------------------------------------

SAVED = (Checkpoint(40, WALL - 500.0), Checkpoint(60, WALL - 300.0), Checkpoint(80, WALL - 100.0))


def test_a_job_resumes_from_its_newest_complete_checkpoint() -> None:
    assert start_from(a_job(checkpoints=SAVED), a_recovery()) == SAVED[2]


def test_after_corrupted_memory_it_resumes_from_before_the_first_evidence() -> None:
    r = a_recovery(distrust=True, evidence_at=WALL - 200.0)
    assert start_from(a_job(checkpoints=SAVED), r) == SAVED[1]


def test_if_no_checkpoint_is_old_enough_to_be_trusted_it_starts_over() -> None:
    assert start_from(a_job(checkpoints=SAVED), a_recovery(distrust=True, evidence_at=WALL - 900.0)) is None


def test_an_uncontained_memory_error_makes_younger_checkpoints_distrusted() -> None:
    case = replace(sick_node("ecc-uncontained"), first_evidence_at=WALL - 200.0)
    job = replace(DEAD, checkpoints=SAVED)
    r = answered(examining(), job, Done(), cases=(case,), good=("n1", "n9"))
    assert r.distrust
    assert r.pending is not None
    assert (r.pending.args["from_step"], r.lost_steps) == ("60", 40)


# --- restarting -------------------------------------------------------------------------------------------------------


def test_a_restart_names_its_attempt_its_nodes_and_its_checkpoint() -> None:
    r = after(waiting(), DEAD, good=("n1", "n2"))
    assert r.pending is not None
    assert r.pending.verb is Verb.RESTART_JOB
    assert (r.pending.args["attempt"], r.pending.args["from_step"]) == ("2", "80")
    assert r.pending.nodes == ("n1", "n2")
    assert r.lost_steps == 20


def test_the_first_step_of_the_new_attempt_is_what_counts_and_the_owner_is_told_once() -> None:
    r = answered(restarting(), replace(DEAD), Done())
    assert (r.phase, r.pending) == (P.RESTARTING, None)
    r = after(r, a_job(attempt=2, step=81), 1_160.0)
    assert (r.phase, r.attempt, r.restarts) == (P.RUNNING, 2, 1)
    assert [n.title for n in r.notices] == ["llama runs again"]
    assert "from step 80" in r.notices[0].body


def test_a_restart_that_dies_is_stopped_and_examined() -> None:
    r = after(restarting(), replace(DEAD, attempt=2))
    assert (r.phase, r.attempt) == (P.STOPPING, 2)


def test_a_restart_that_dies_when_it_has_told_a_step_has_begun_and_nobody_is_told_that_it_runs() -> None:
    """It died within the minute and a half in which nobody heard of its steps, and was not counted (seed 50000231)."""
    r = after(restarting(checkpoint_step=80), replace(DEAD, attempt=2, step=84))
    assert (r.phase, r.attempt, r.notices) == (P.STOPPING, 2, ())
    assert [e.event for e in r.journal[-2:]] == ["PROGRESSED", "DIED"]
    assert not outages.never_began(r)
    r = answered(r, replace(DEAD, attempt=2, step=84), Done())
    r = answered(r, replace(DEAD, attempt=2, step=84), Done(), verdict=BlameVerdict(Blame.INFRASTRUCTURE, 0.9, ()))
    assert (r.phase, r.cost) == (P.WAITING_FOR_CAPACITY, Cost.ONE)


def test_where_the_scheduler_had_another_node_for_an_attempt_its_story_says_so() -> None:
    r = after(restarting(nodes=("n1", "n9")), a_job(nodes=("n1", "n3"), attempt=2, step=84))
    assert r.journal[-1].why == "attempt 2 made its first step, on n3 instead of n9"
    r = after(restarting(nodes=("n1", "n9")), a_job(nodes=("n1", "n9"), attempt=2, step=84))
    assert r.journal[-1].why == "attempt 2 made its first step"


def test_a_restart_without_a_first_step_is_stopped() -> None:
    r = after(restarting(deadline=1_050.0), a_job(attempt=2, step=0))
    assert (r.phase, r.attempt) == (P.STOPPING, 2)


@pytest.mark.parametrize(("by", "event"), [("llama#4.33", "TIMED_OUT"), ("ann", "DIED")])
def test_a_later_attempt_that_we_had_stopped_before_a_store_was_put_back_has_not_died(by: str, event: str) -> None:
    """Seed 50001926."""
    r = after(restarting(), a_job(JobPhase.STOPPED, attempt=4, step=80, stopped_by=by))
    assert (r.phase, r.attempt, r.journal[-1].event) == (P.STOPPING, 4, event)
    assert outages.hung(r) is (event == "TIMED_OUT")


@pytest.mark.parametrize("outcome", [Failed("n2 carries a mark"), Lost("twice"), Unguarded("an attempt lives")])
def test_a_refused_restart_waits_again_and_spends_no_attempt(outcome: Outcome) -> None:
    r = answered(restarting(barren=1), DEAD, outcome)
    assert (r.phase, r.attempt) == (P.WAITING_FOR_CAPACITY, 1)


def test_a_refused_restart_is_tried_again_later_and_later_each_time() -> None:
    r = answered(restarting(), DEAD, Failed("n2 carries a mark"))
    assert after(r, DEAD, r.entered + 1.0, good=("n1", "n2")).phase is P.WAITING_FOR_CAPACITY
    first = capacity.again_at(r) - r.entered
    again = answered(after(r, DEAD, capacity.again_at(r), good=("n1", "n2")), DEAD, Failed("still"))
    assert capacity.again_at(again) - again.entered > first


def test_a_job_whose_restart_is_refused_for_an_hour_is_told_to_its_owner_once_a_day() -> None:
    """Each refusal began the hour anew: a job stood still for three days, and nobody heard of it."""
    r, start = restarting(stopped=1_000.0), 1_100.0
    now, told = start, dict[str, float]()
    while now < start + 40_000.0:
        assert r.pending is not None
        r = answered(r, DEAD, Failed("ranks of an earlier attempt live on n2"), now, good=("n1", "n2"))
        told.update({n.key: now for n in r.notices if n.key not in told})
        now = capacity.again_at(r)
        r = after(r, DEAD, now, good=("n1", "n2"))
    assert [min(told.values()) - start >= 3_500.0, min(told.values()) - start < 4_600.0] == [True, True]
    assert len(told) == len({int((WALL + t) // 86_400) for t in told.values()}) <= 2
    assert "ranks of an earlier attempt live on n2" in r.notices[-1].body


@pytest.mark.parametrize("first", [40, 80], ids=["after a new checkpoint", "without one"])
def test_however_often_a_restart_is_refused_the_limit_comes_no_nearer(first: int) -> None:
    r = after(waiting(checkpoint_step=first, barren=0), DEAD, good=("n1", "n2"))
    granted = r.barren + (r.cost is Cost.ONE)
    for _ in range(5):
        r = answered(r, DEAD, Failed("not yet"))
        r = after(r, DEAD, capacity.again_at(r), good=("n1", "n2"))
        assert (r.phase, r.barren + (r.cost is Cost.ONE)) == (P.RESTARTING, granted)


def test_a_restart_drained_again_by_us_skips_the_examination() -> None:
    r = after(restarting(), a_job(JobPhase.STOPPED, attempt=2, stopped_by="drain:n1.4"))
    assert (r.phase, r.by_drain) == (P.STOPPING, "n1.4")


# --- fences -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("r", [stopping(), examining(), restarting()], ids=lambda r: r.phase)
def test_an_answer_to_an_older_step_changes_nothing(r: Recovery) -> None:
    assert after(r, DEAD, outcome=Done(), answers="llama#4") == after(r, DEAD)


def test_a_paused_job_is_watched_and_not_touched() -> None:
    why = "fleet is paused by ann"
    r = after(waiting(), DEAD, good=("n1", "n2"), paused=why)
    assert (r.phase, r.refusal) == (P.WAITING_FOR_CAPACITY, why)
    assert after(waiting(deadline=1_000.0), DEAD, paused=why).deadline == 1_100.0 + JobPolicy().capacity_s


def test_that_its_next_attempt_has_ended_too_and_by_something_shared_is_noted_in_a_pause() -> None:
    """Afterwards its nodes were back, and it was given up for a second failure that nothing explained (50000113)."""
    gone, away = a_job(JobPhase.FAILED, attempt=2), "its nodes are away together with many others (absence.1)"
    r = after(restarting(cost=Cost.ONE), gone, paused="fleet is paused by ann", outage=away)
    assert (r.phase, r.cost, r.barren, r.refusal) == (P.STOPPING, Cost.SHARED, 1, "fleet is paused by ann")
    first = after(restarting(cost=Cost.ONE), a_job(JobPhase.FAILED), paused="fleet is paused by ann", outage=away)
    assert (first.phase, first.cost) == (P.RESTARTING, Cost.ONE)


def test_what_stands_still_is_not_looked_at_ten_times_a_second_however_short_its_time_is() -> None:
    """Each pass renewed the 0.1 s that it would have afterwards, wrote that, and was due again (seed 40088)."""
    short, dead = JobPolicy(stopping_s=0.1), a_job(JobPhase.RUNNING)
    slept = after(stopping(deadline=1_000.0), dead, policy=short, paused="fleet is paused by alice")
    assert slept.deadline == 1_130.0
    again = after(stopping(deadline=1_000.0), dead, paused="fleet is paused by alice")
    assert again.deadline == 1_100.0 + JobPolicy().stopping_s


def test_a_stop_that_takes_longer_than_its_time_is_not_asked_for_several_times_a_second() -> None:
    short, lives = JobPolicy(stopping_s=0.1), a_job(JobPhase.RUNNING)
    again = after(stopping(deadline=1_000.0), lives, policy=short)
    assert (again.phase, again.journal[-1].event, again.deadline) == (P.STOPPING, "TIMED_OUT", 1_130.0)
    slow = after(stopping(deadline=1_000.0), lives)
    assert slow.deadline == 1_100.0 + JobPolicy().stopping_s


@pytest.mark.parametrize("at_work", [stopping, examining, restarting])
def test_time_in_which_nobody_could_attend_to_a_job_is_not_counted(at_work: Callable[..., Recovery]) -> None:
    """Its record could be read again hours later, under another leader: what it had asked for was done, and it would
    have been restarted without a word of its examination (as seed 1462 for nodes)."""
    r = after(at_work(deadline=1_000.0), a_job(JobPhase.STOPPED), 9_000.0)
    assert (r.phase, r.journal) == (at_work().phase, at_work().journal)
    assert r.deadline is not None
    late = after(at_work(deadline=r.deadline), a_job(JobPhase.STOPPED), r.deadline + 1.0)
    assert late.journal != at_work().journal


def test_actions_of_a_job_are_named_by_its_step_and_never_alike() -> None:
    first = after(waiting(), DEAD, good=("n1", "n2"))
    second = after(waiting(step=first.step), DEAD, good=("n1", "n2"))
    assert first.pending is not None
    assert second.pending is not None
    assert first.pending.key.startswith("llama#")
    assert first.pending.key != second.pending.key


def test_a_job_adopted_anew_uses_none_of_its_old_names() -> None:
    """A door answers a known key without acting: the second record must not count its steps from the same number."""
    early, late = after(None, a_job(), 1_000.0), after(None, a_job(), 90_000.0)
    assert late.step > early.step + 100


def test_a_case_about_a_harmless_instrument_is_no_excuse_for_a_bug() -> None:
    case = a_case(Phase.ESCALATED, diagnoses=(a_diagnosis("monitor-sick"),))
    r = answered(examining(), DEAD, Done(), cases=(case,), verdict=PLAIN_BUG)
    assert r.blame is Blame.USER_CODE


def test_a_gang_that_does_not_stop_is_told_of() -> None:
    job = a_job(step=100)
    first = after(a_recovery(phase=P.STALLED, deadline=1_100.0, job_step=100, progressed=0.0), job, 1_100.0)
    assert (first.phase, first.notices) == (P.STOPPING, ())
    again = after(first, job, first.deadline or 0.0)
    assert again.phase is P.STOPPING
    assert "does not stop" in again.notices[-1].title


def test_while_the_api_server_is_away_nobody_is_sent_to_look_for_ranks_that_do_not_end() -> None:
    """45 owners were told so about jobs that ran on, for 25 minutes in which no stop could be delivered."""
    job = a_job(step=100)
    r = after(a_recovery(phase=P.STALLED, deadline=1_100.0, job_step=100, progressed=1_000.0), job, 1_100.0)
    while r.deadline is not None and r.deadline < 5_000.0:
        assert r.notices == ()
        r = after(r, job, r.deadline, undelivered="the API server does not answer")
    (told,) = {n.key: n for n in r.notices}.values()
    assert "the API server does not answer" in told.body
    assert "Look for processes" not in told.body


def test_a_suspect_that_is_good_again_is_used_when_nothing_else_is_left() -> None:
    r = after(waiting(suspects=("n2",)), DEAD, good=("n1", "n2"))
    assert (r.phase, r.nodes) == (P.RESTARTING, ("n1", "n2"))
    spared = after(waiting(suspects=("n2",)), DEAD, good=("n1", "n2", "n3"))
    assert spared.nodes == ("n1", "n3")


def test_where_not_all_suspects_can_be_swapped_out_the_node_whose_rank_died_first_is() -> None:
    """Agents that see nothing made every node a suspect, and the one that killed the job was used six times (seed
    510000)."""
    r = after(waiting(suspects=("n1", "n2")), DEAD, good=("n1", "n2", "n3"))
    assert (r.phase, r.nodes) == (P.RESTARTING, ("n1", "n3"))


# --- the attempt that we asked for waits in line ----------------------------------------------------------------------


IN_LINE = [
    a_job(JobPhase.SUSPENDED, attempt=2, stopped_by="Kueue"),
    a_job(JobPhase.PENDING, attempt=2, unplaced=1),
]


@pytest.mark.parametrize("job", IN_LINE, ids=["held by its queue", "no node is free for a rank"])
def test_a_restarted_gang_that_waits_for_its_place_has_not_failed_to_start_however_long_it_waits(job: Job) -> None:
    r = answered(restarting(), job, Done("it is made"))
    for hour in range(1, 6):
        r = after(r, job, 1_100.0 + hour * 3_700.0)
    assert r.phase is P.RESTARTING
    assert "attempt 2 is made and waits for a place" in r.refusal
    assert r.notices[-1].title == "llama waits for capacity"


@pytest.mark.parametrize("job", IN_LINE, ids=["held by its queue", "no node is free for a rank"])
def test_once_it_has_its_place_it_must_start_in_time(job: Job) -> None:
    r = after(restarting(pending=None), job, 50_000.0)
    begun = replace(job, phase=JobPhase.RUNNING, step=80, unplaced=0)
    r = after(r, begun, 60_000.0)
    assert (r.phase, r.refusal) == (P.RESTARTING, "")
    assert after(r, begun, 60_000.0 + POLICY.restarting_s - 1).phase is P.RESTARTING
    assert after(r, begun, 60_000.0 + POLICY.restarting_s).phase is P.STOPPING


def test_a_gang_whose_ranks_all_have_their_nodes_must_start_in_time() -> None:
    assert (
        after(restarting(pending=None, deadline=2_000.0), a_job(JobPhase.PENDING, attempt=2), 2_000.0).phase
        is P.STOPPING
    )


def test_a_restart_whose_second_half_is_refused_is_asked_for_again_although_the_queue_holds_the_job() -> None:
    held = IN_LINE[0]
    r = answered(restarting(), held, Failed("it never arrived"))
    assert r.phase is P.WAITING_FOR_CAPACITY
    r = after(r, held, 1_200.0, good=("n1", "n2"))
    assert (r.phase, r.pending and r.pending.args["attempt"]) == (P.RESTARTING, "2")


def test_an_owner_who_suspends_the_attempt_before_ours_is_made_has_the_last_word() -> None:
    assert after(restarting(), a_job(JobPhase.SUSPENDED)).phase is P.STOPPED


# --- a job that must be deleted to be restarted -----------------------------------------------------------------------


def sent() -> Action:
    return replace(asks(Verb.RESTART_JOB), sends=1)


@pytest.mark.parametrize("job", [None, a_job(JobPhase.GONE)], ids=["not there", "deleted"])
def test_while_a_restart_is_under_way_a_deletion_is_believed_only_from_the_door(job: Job | None) -> None:
    r = after(restarting(pending=sent(), deadline=2_000.0), job, 3_000.0)
    assert (r.phase, r.deadline) == (P.RESTARTING, 3_000.0 + POLICY.restarting_s)
    assert after(r, job, outcome=Done("made anew"), answers="llama#5").pending is not None
    assert after(r, job, outcome=Failed("there is no such job"), answers="llama#5").phase is P.GONE


def test_a_job_that_was_made_anew_goes_on() -> None:
    r = after(restarting(pending=sent()), a_job(JobPhase.GONE))
    assert after(r, a_job(attempt=2, step=81)).phase is P.RUNNING
