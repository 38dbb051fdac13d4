"""A job whose nodes are made on demand: it asks by running for what is missing, and stops asking in time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.core.blame import BlameVerdict
from sickbay.core.recover import decide
from sickbay.core.turn import JobSlice, Now
from sickbay.model import Blame, Cost, Done, Entry, Job, JobPhase, RankExit, Recovery, RecoveryPhase, Verb
from sickbay.settings import JobPolicy
from tests.builders import WALL, a_case, a_job, a_recovery

P = RecoveryPhase
POLICY = JobPolicy()
FOUR = ("n1", "n2", "n3", "n4")
STOPPED = a_job(JobPhase.STOPPED, FOUR, stopped_by="drain:n1.1")


def waiting(**changed: Any) -> Recovery:
    return a_recovery(P.WAITING_FOR_CAPACITY, **{"nodes": FOUR, "on_demand": True, "suspects": ("n1",), **changed})


def restarting(**changed: Any) -> Recovery:
    return a_recovery(P.RESTARTING, **{"nodes": FOUR[1:], "on_demand": True, "expects": 1, **changed})


def pending(**changed: Any) -> Job:
    return a_job(JobPhase.PENDING, FOUR[1:], **{"attempt": 2, "ranks": 4, "unplaced": 1, **changed})


def after(r: Recovery, job: Job, now: float = 1_100.0, **seen: Any) -> Recovery:
    found = decide(replace(JobSlice(job=job, recovery=r), **seen), POLICY, Now(now, WALL + now)).recovery
    assert found is not None
    return found


def test_a_job_is_let_run_on_the_good_nodes_there_are_and_asks_for_the_missing_one() -> None:
    r = after(waiting(), STOPPED, good=("n2", "n3", "n4"))
    assert (r.phase, r.nodes, r.expects) == (P.RESTARTING, ("n2", "n3", "n4"), 1)
    assert r.pending is not None
    assert (r.pending.verb, r.pending.nodes, r.pending.args["on_demand"]) == (Verb.RESTART_JOB, r.nodes, "1")
    assert r.journal[-1].why == "3 nodes known to be good and free; 1 more will be made on demand, once it waits"


def test_with_enough_good_nodes_nothing_is_asked_for() -> None:
    r = after(waiting(), STOPPED, good=("n2", "n3", "n4", "n9"))
    assert (r.phase, r.expects) == (P.RESTARTING, 0)


def test_where_nobody_makes_nodes_a_job_waits_for_those_that_are_there() -> None:
    r = after(waiting(on_demand=False), STOPPED, good=("n2", "n3", "n4"))
    assert (r.phase, r.refusal) == (
        P.WAITING_FOR_CAPACITY,
        "needs 4 good nodes, 3 are known to be good and free",
    )


def test_that_nodes_come_on_demand_is_remembered_when_the_autoscaler_has_removed_them_all() -> None:
    r = after(a_recovery(nodes=FOUR), a_job(nodes=FOUR), on_demand=True)
    assert r.on_demand
    assert after(r, a_job(nodes=FOUR, step=101), on_demand=None).on_demand
    assert not after(r, a_job(nodes=FOUR, step=101), on_demand=False).on_demand


def test_what_was_asked_for_is_waited_for_and_nothing_else_is_asked_meanwhile() -> None:
    r = after(restarting(), pending())
    assert (r.phase, r.pending) == (P.RESTARTING, None)
    assert r.refusal == "attempt 2 waits for 1 node to be made on demand"
    again = after(r, pending(), 1_100.0 + POLICY.arrival_s - 1)
    assert (again.phase, again.arrivals) == (P.RESTARTING, 0)


def test_after_three_that_did_not_come_it_is_stopped_and_its_owner_told() -> None:
    r = after(restarting(), pending())
    for turn in range(1, 4):
        assert r.phase is P.RESTARTING
        r = after(r, pending(), 1_100.0 + turn * POLICY.arrival_s)
    assert (r.phase, r.arrivals) == (P.STOPPING, 3)
    assert r.pending is not None
    assert (r.pending.verb, r.pending.args["attempt"]) == (Verb.STOP_JOB, "2")
    stopped = a_job(JobPhase.STOPPED, FOUR[1:], attempt=2)
    r = after(r, stopped, 4_000.0, outcome=Done(), answers=r.pending.key, good=("n2", "n3", "n4"))
    assert (r.phase, r.blame, r.cost, r.barren) == (P.WAITING_FOR_CAPACITY, None, Cost.ABSENT, 0)
    assert [n.title for n in r.notices] == ["llama gets no good nodes"]
    assert r.refusal == "needs 4 good nodes, 3 are known to be good and free"


def test_a_node_that_came_sick_counts_and_gives_back_no_attempt_that_was_spent_before() -> None:
    case = a_case(node="n9")
    died = a_job(JobPhase.STOPPED, (*FOUR[1:], "n9"), attempt=2, step=0, stopped_by=f"drain:{case.id}")
    found = (Entry(5, "FOUND", WALL, "sickbay", "1 more will be made", P.RESTARTING.value),)
    r = after(restarting(barren=2, checkpoint_step=80, journal=found), died, cases=(case,))
    assert (r.phase, r.by_drain, r.arrivals, r.barren) == (P.STOPPING, case.id, 1, 2)
    assert r.pending is not None
    r = after(r, died, outcome=Done(), answers=r.pending.key, cases=(case,))
    assert (r.phase, r.barren) == (P.RESTARTING, 2)


@pytest.mark.parametrize(("sick", "counted"), [("n9", 1), ("n2", 0), ("", 0)])
def test_a_node_that_came_and_brought_the_gang_down_counts_though_nothing_was_drained(sick: str, counted: int) -> None:
    exits = (RankExit(0, sick, 1),) if sick else ()
    died = a_job(JobPhase.FAILED, (*FOUR[1:], "n9"), attempt=2, step=0, exits=exits)
    r = after(restarting(), died)
    assert (r.phase, r.arrivals) == (P.STOPPING, 0)
    assert r.pending is not None
    r = after(r, died, 1_110.0, outcome=Done(), answers=r.pending.key)
    assert r.phase is P.EXAMINING
    assert r.pending is not None
    unknown = BlameVerdict(Blame.UNKNOWN, 0.3, ("NCCL error",), "")
    r = after(r, died, 1_120.0, outcome=Done(), answers=r.pending.key, verdict=unknown)
    assert r.arrivals == counted


def test_after_three_that_brought_it_down_nothing_more_is_asked_for_and_its_owner_is_told() -> None:
    died = a_job(JobPhase.FAILED, (*FOUR[1:], "n9"), attempt=2, step=0, exits=(RankExit(0, "n9", 1),))
    r = after(restarting(arrivals=2), died)
    for now in (1_110.0, 1_120.0):
        assert r.pending is not None
        verdict = BlameVerdict(Blame.UNKNOWN, 0.3, ("NCCL error",), "")
        r = after(r, died, now, outcome=Done(), answers=r.pending.key, verdict=verdict, good=FOUR[1:])
    assert (r.phase, r.arrivals) == (P.WAITING_FOR_CAPACITY, 3)
    assert [n.title for n in r.notices] == ["llama gets no good nodes"]


def test_after_a_first_step_the_count_begins_anew() -> None:
    r = after(restarting(arrivals=2, checkpoint_step=80), a_job(nodes=FOUR, attempt=2, step=81))
    assert (r.phase, r.arrivals, r.expects) == (P.RUNNING, 0, 0)


def test_after_a_while_what_did_not_come_is_asked_for_anew() -> None:
    r = after(waiting(arrivals=3, deadline=2_000.0), STOPPED, 2_000.0, good=("n2", "n3", "n4"))
    assert (r.phase, r.arrivals) == (P.RESTARTING, 0)


def test_a_restart_without_a_first_step_is_examined_also_when_nothing_came_for_an_earlier_one() -> None:
    r = after(restarting(arrivals=2), pending())
    r = after(r, pending(), 1_100.0 + POLICY.arrival_s)
    stopped = a_job(JobPhase.STOPPED, FOUR[1:], attempt=2)
    assert r.pending is not None
    r = after(r, stopped, 3_000.0, outcome=Done(), answers=r.pending.key)
    r = after(r, stopped, 3_010.0, good=FOUR)
    assert r.phase is P.RESTARTING
    assert r.deadline is not None
    late = r.deadline + 10.0
    r = after(r, a_job(attempt=3, nodes=FOUR, step=0), late)
    assert (r.phase, r.journal[-1].event) == (P.STOPPING, "TIMED_OUT")
    assert r.pending is not None
    r = after(r, a_job(JobPhase.STOPPED, FOUR, attempt=3), late + 10.0, outcome=Done(), answers=r.pending.key)
    assert r.phase is P.EXAMINING
