"""A job that shows the number of an earlier attempt: late for a while, then it is the number that is wrong."""

from __future__ import annotations

from typing import Any

from sickbay.core.progress import LATE_S
from sickbay.core.recover import decide
from sickbay.core.turn import JobDecision, JobSlice, Now
from sickbay.model import Done, Job, JobPhase, Recovery, RecoveryPhase, Verb
from sickbay.settings import JobPolicy
from tests.builders import WALL, a_job, a_recovery

P = RecoveryPhase
DRAINED = a_job(JobPhase.STOPPED, stopped_by="drain:n2.1", attempt=1)


def turn(r: Recovery, job: Job, now: float, **seen: Any) -> JobDecision:
    return decide(JobSlice(job, r, **seen), JobPolicy(), Now(now, WALL + now))


def after(r: Recovery, job: Job, now: float, **seen: Any) -> Recovery:
    found = turn(r, job, now, **seen).recovery
    assert found is not None
    return found


def second(phase: P = P.RUNNING, **changed: Any) -> Recovery:
    return a_recovery(phase, attempt=2, **changed)


def test_a_job_whose_number_was_removed_and_that_our_drain_stops_is_brought_back() -> None:
    """It was taken for a look at an earlier attempt, for ever: the job lay there, and nobody heard of it."""
    r = after(second(), DRAINED, 1_010.0)
    assert r.phase is P.RUNNING, "it may be told late"
    r = after(r, DRAINED, 1_010.0 + LATE_S)
    assert (r.phase, r.by_drain, r.attempt) == (P.STOPPING, "n2.1", 2)
    assert r.pending is not None
    r = after(r, DRAINED, 1_320.0, outcome=Done(), answers=r.pending.key)
    r = after(r, DRAINED, 1_330.0, good=("n1", "n3"))
    assert (r.phase, r.pending and r.pending.verb) == (P.RESTARTING, Verb.RESTART_JOB)
    assert r.pending is not None
    assert r.pending.args["attempt"] == "3", "one that no attempt has had"


def test_its_owner_hears_once_that_the_number_was_changed() -> None:
    runs = a_job(attempt=1)
    r = after(second(behind=1_000.0), runs, 1_300.0)
    said = [n for n in r.notices if "number" in n.body]
    assert len(said) == 1
    assert "says that it is attempt 1, and it is attempt 2" in said[0].body
    assert after(r, runs, 1_310.0).notices == r.notices


def test_a_look_at_an_earlier_attempt_is_late_as_long_as_any_look_may_be() -> None:
    r = after(second(progressed=1_100.0), DRAINED, 1_010.0)
    r = after(r, DRAINED, 1_009.0 + LATE_S)
    assert (r.phase, r.notices) == (P.RUNNING, ())
    r = after(r, a_job(attempt=2, step=300), 1_310.0)
    assert (r.phase, r.behind) == (P.RUNNING, -1.0)
    assert after(r, DRAINED, 1_311.0).phase is P.RUNNING, "it is counted anew"


def test_a_job_that_runs_on_under_a_lower_number_is_not_called_stalled() -> None:
    r = second(behind=1_000.0)
    for now in range(1_300, 3_000, 100):
        r = after(r, a_job(attempt=1, step=now), float(now))
        assert r.phase is P.RUNNING
    assert r.job_step == 2_900


def test_one_that_stands_still_is_stopped_in_time_though_it_shows_a_lower_number() -> None:
    """The time-out of a stall was never reached: its stop was asked of the job that was shown, and that was ignored."""
    r = second(P.STALLED, deadline=1_100.0)
    r = after(r, DRAINED, 1_101.0)
    assert (r.phase, r.journal[-1].event) == (P.STOPPING, "TIMED_OUT")
