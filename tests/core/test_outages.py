"""One job alone: which of its failures look like something shared, what they cost, and that it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.core import outages
from sickbay.core.blame import BlameVerdict
from sickbay.core.recover import decide
from sickbay.core.turn import JobSlice, Now
from sickbay.model import Blame, Entry, JobPhase, Place, RankExit, Recovery, RecoveryPhase, Severity, Status
from sickbay.settings import JobPolicy
from tests.builders import a_case, a_finding, a_job, a_recovery

P = RecoveryPhase
BEGAN = (("PROGRESSED", P.RUNNING), ("STALLED", P.STALLED), ("DONE", P.STOPPING), ("DONE", P.EXAMINING))
NEVER = (("FOUND", P.RESTARTING), ("TIMED_OUT", P.STOPPING), ("DONE", P.EXAMINING))
DIED = (("FOUND", P.RESTARTING), ("DIED", P.STOPPING), ("DONE", P.EXAMINING))
HARDWARE = {"gpu-lost": "hardware", "node-not-ready": "infrastructure"}
SICK = replace(a_finding(), status=Status.FAILED, place=Place("n1"))


def after(*events: tuple[str, P], **changed: Any) -> Recovery:
    journal = tuple(Entry(i, event, float(i), "sickbay", "why", phase.value) for i, (event, phase) in enumerate(events))
    return replace(a_recovery(events[-1][1]), **{"journal": journal, "blame": Blame.UNKNOWN, **changed})


def judged(r: Recovery, *findings: Any, fresh: bool = False, **job: Any) -> Recovery:
    return outages.judged(JobSlice(job=a_job(JobPhase.STOPPED, **job), recovery=r), r, findings, fresh)


def test_an_attempt_that_does_not_begin_on_good_nodes_is_not_counted() -> None:
    r = judged(after(*NEVER))
    assert (r.excused, r.spared) == (True, 1)


def test_one_that_stands_still_in_the_middle_of_its_work_is_excused_once_until_it_saves() -> None:
    first = judged(after(*BEGAN))
    again = judged(after(*BEGAN, spared=1))
    saved = judged(after(*BEGAN, spared=1), fresh=True)
    assert [(r.excused, r.spared) for r in (first, again, saved)] == [(True, 1), (False, 1), (True, 1)]


def test_an_attempt_with_a_sick_node_is_counted() -> None:
    assert not judged(after(*NEVER), SICK).excused


@pytest.mark.parametrize(
    ("said", "excused"), [(None, True), (Blame.INFRASTRUCTURE, True), (Blame.HARDWARE, False), (Blame.USER_CODE, False)]
)
def test_an_attempt_is_not_counted_beside_an_illness_that_work_is_safe_from(said: Blame | None, excused: bool) -> None:
    """A row remap that waits for a reset hangs no gang; what the logs say of the hardware stays said."""
    r = after(*NEVER, blame=Blame.HARDWARE)
    job = a_job(JobPhase.STOPPED)
    s = JobSlice(job=job, recovery=r, harmless=frozenset({SICK.code}))
    s = replace(s, verdict=BlameVerdict(said, 0.9, ()) if said else None)
    assert outages.judged(s, r, (SICK,), False).excused is excused


def test_one_in_which_a_single_node_fell_silent_is_counted() -> None:
    assert not judged(after(*NEVER), silent=(1,), rank_nodes=("n1", "n2"), nodes=("n1", "n2")).excused


@pytest.mark.parametrize(
    ("blame", "excused"), [(Blame.INFRASTRUCTURE, True), (Blame.UNKNOWN, False), (Blame.USER_CODE, False)]
)
def test_one_that_died_is_excused_only_by_what_its_logs_say_of_the_infrastructure(blame: Blame, excused: bool) -> None:
    assert judged(after(*DIED, blame=blame)).excused is excused


@pytest.mark.parametrize(
    ("suspected", "status", "excused"),
    [(("n2",), Status.UNKNOWN, False), ((), Status.UNKNOWN, True), (("n2",), Status.OK, True)],
)
def test_one_that_dies_again_first_on_a_node_that_nobody_can_examine_is_counted(
    suspected: tuple[str, ...], status: Status, excused: bool
) -> None:
    looked = replace(a_finding(), status=status, place=Place("n2"))
    exits = (RankExit(1, "n2", 1), RankExit(0, "n1", 1))
    r = judged(after(*DIED, blame=Blame.INFRASTRUCTURE, suspects=suspected), looked, exits=exits)
    assert r.excused is excused


def waiting(spared: int) -> Recovery:
    r = after(*NEVER, ("BLAMED", P.WAITING_FOR_CAPACITY), spared=spared, excused=True, barren=4, checkpoint_step=0)
    return replace(r, entered=0.0)


def decided(r: Recovery, at: float) -> Recovery:
    job = a_job(JobPhase.STOPPED, checkpoint=None)
    made = decide(JobSlice(job=job, recovery=r, good=job.nodes), JobPolicy(), Now(at, at)).recovery
    assert made is not None
    return made


def test_it_is_tried_again_later_and_later_and_spends_no_attempt() -> None:
    assert outages.back_off(waiting(4)) == 480.0
    assert decided(waiting(4), 400.0).phase is P.WAITING_FOR_CAPACITY
    again = decided(waiting(4), 500.0)
    assert (again.phase, again.barren) == (P.RESTARTING, 4)


def test_it_ends_when_it_was_tried_for_a_day() -> None:
    ended = decided(waiting(outages.TRIES + 1), 10_000.0)
    assert ended.phase is P.FAILED
    assert "did not begin, and nothing is wrong with its nodes" in ended.journal[-1].why


# --- what spends no attempt -------------------------------------------------------------------------------------------


def last_chance(**changed: Any) -> Recovery:
    """One more attempt that counts, and it is given up."""
    entered = (*NEVER, ("BLAMED", P.WAITING_FOR_CAPACITY))
    return replace(after(*entered, barren=4, checkpoint_step=0, **changed), entered=0.0)


def test_an_attempt_that_counts_is_given_up_when_it_is_known_that_its_nodes_did_not_go_away_with_many() -> None:
    assert decided(last_chance(), outages.KNOWN_S - 1).phase is P.WAITING_FOR_CAPACITY
    assert decided(last_chance(), outages.KNOWN_S).phase is P.FAILED


def test_an_attempt_that_our_own_drain_ended_before_its_first_step_is_not_the_jobs() -> None:
    """It was given up for a node that we had emptied under it (seeds 514, 593)."""
    again = decided(last_chance(by_drain="n1.1"), 1_000.0)
    assert (again.phase, again.barren, again.by_drain) == (P.RESTARTING, 4, "")


def test_what_was_away_when_it_ended_excuses_it_also_when_that_is_back() -> None:
    """It was given up two hours later, when its nodes had come back (seeds 803, 809)."""
    again = decided(last_chance(outage="its nodes are away together with many others"), 10_000.0)
    assert (again.phase, again.barren, again.outage) == (P.RESTARTING, 4, "")


@pytest.mark.parametrize(("fault", "events", "excused"), [
    ("node-not-ready", NEVER, True), ("node-not-ready", BEGAN, False), ("gpu-lost", NEVER, False),
])  # fmt: skip
def test_who_was_evicted_from_a_node_that_is_only_away_before_the_first_step_was_not_tried(
    fault: str, events: tuple[tuple[str, P], ...], excused: bool
) -> None:
    r = after(*events)
    s = JobSlice(job=a_job(JobPhase.FAILED), recovery=r, cases=(a_case(fault=fault, node="n1"),), kinds=HARDWARE)
    assert outages.judged(s, r, (), False).excused is excused


@pytest.mark.parametrize(("severity", "excused"), [(Severity.MONITOR, True), (Severity.REBOOT, False)])
def test_the_word_of_somebody_who_may_have_nothing_treated_explains_no_hang(severity: Severity, excused: bool) -> None:
    """core/witness.py holds what an outsider says to MONITOR (seeds 586, 300083)."""
    case = a_case(fault="gpu-lost", node="n1")
    case = replace(case, diagnoses=tuple(replace(d, severity=severity) for d in case.diagnoses))
    r = after(*NEVER)
    s = JobSlice(job=a_job(JobPhase.STOPPED), recovery=r, cases=(case,), kinds=HARDWARE)
    assert outages.judged(s, r, (), False).excused is excused
