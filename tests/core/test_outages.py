"""One job alone: which of its failures look like something shared, what they cost, and that it ends."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from sickbay.core import outages
from sickbay.core.blame import BlameVerdict
from sickbay.core.recover import decide
from sickbay.core.recover_table import how_it_ended
from sickbay.core.turn import JobSlice, Now
from sickbay.model import (
    Blame,
    Checkpoint,
    Cost,
    Done,
    Entry,
    Failed,
    JobPhase,
    Place,
    RankExit,
    Recovery,
    RecoveryPhase,
    Severity,
    Status,
)
from sickbay.settings import JobPolicy
from tests.builders import a_case, a_finding, a_job, a_recovery, an_action

P = RecoveryPhase
BEGAN = (("PROGRESSED", P.RUNNING), ("STALLED", P.STALLED), ("DONE", P.STOPPING), ("DONE", P.EXAMINING))
NEVER = (("FOUND", P.RESTARTING), ("TIMED_OUT", P.STOPPING), ("DONE", P.EXAMINING))
DIED = (("FOUND", P.RESTARTING), ("DIED", P.STOPPING), ("DONE", P.EXAMINING))
REFUSED = (("FOUND", P.RESTARTING), ("REFUSED", P.WAITING_FOR_CAPACITY))
HARDWARE = {"gpu-lost": "hardware", "node-not-ready": "infrastructure"}
AWAY = "its nodes are away together with many others (absence.1)"
SICK = replace(a_finding(), status=Status.FAILED, place=Place("n1"))


def after(*events: tuple[str, P], **changed: Any) -> Recovery:
    journal = tuple(Entry(i, event, float(i), "sickbay", "why", phase.value) for i, (event, phase) in enumerate(events))
    return replace(a_recovery(events[-1][1]), **{"journal": journal, "blame": Blame.UNKNOWN, **changed})


def judged(r: Recovery, *findings: Any, fresh: bool = False, **job: Any) -> Recovery:
    step = -1 if fresh else 1_000  # of the checkpoint that it was started from
    r = replace(r, checkpoint_step=step)
    return outages.judged(JobSlice(job=a_job(JobPhase.STOPPED, **job), recovery=r), r, findings)


def is_excused(r: Recovery) -> bool:
    return r.cost is Cost.BLAMELESS


def test_an_attempt_that_does_not_begin_on_good_nodes_is_not_counted() -> None:
    r = judged(after(*NEVER))
    assert (r.cost, r.spared) == (Cost.BLAMELESS, 1)


def test_one_that_stands_still_in_the_middle_of_its_work_is_excused_once_until_it_saves() -> None:
    first = judged(after(*BEGAN))
    again = judged(after(*BEGAN, spared=1))
    saved = judged(after(*BEGAN, spared=1), fresh=True)
    judgements = [(r.cost, r.spared) for r in (first, again, saved)]
    assert judgements == [(Cost.BLAMELESS, 1), (Cost.ONE, 1), (Cost.BLAMELESS, 1)]


def test_one_that_stands_still_after_attempts_that_did_not_begin_is_excused_too() -> None:
    """A cut fabric had used up its excuse when the storage hung (seed 50001557)."""
    began = (*BEGAN, *NEVER, ("BLAMED", P.WAITING_FOR_CAPACITY), ("FOUND", P.RESTARTING), *BEGAN)
    assert judged(after(*began, spared=2)).cost is Cost.BLAMELESS
    again = (*began, ("BLAMED", P.WAITING_FOR_CAPACITY), *REFUSED, ("FOUND", P.RESTARTING), *BEGAN)
    assert judged(after(*again, spared=3)).cost is Cost.ONE


def test_one_that_stands_still_after_one_that_died_is_excused_too() -> None:
    """A sick GPU had ended the one between, and the storage the next: it was given up for that (seed 50001484)."""
    found = (("BLAMED", P.WAITING_FOR_CAPACITY), ("FOUND", P.RESTARTING))
    died = (("PROGRESSED", P.RUNNING), ("DIED", P.STOPPING), ("DONE", P.EXAMINING))
    assert judged(after(*BEGAN, *found, *died, *found, *BEGAN, spared=1)).cost is Cost.BLAMELESS
    assert judged(after(*BEGAN, *found, *BEGAN, spared=1)).cost is Cost.ONE


def test_a_restart_that_was_refused_is_no_attempt_that_ended() -> None:
    r = after(*BEGAN, ("BLAMED", P.WAITING_FOR_CAPACITY), *REFUSED, *REFUSED)
    assert how_it_ended(r) == (P.STALLED, "DONE")


def test_an_attempt_with_a_sick_node_is_counted() -> None:
    assert judged(after(*NEVER), SICK).cost is Cost.ONE


def test_one_that_had_saved_and_is_shown_alive_once_more_is_not_charged_when_it_is_seen_to_end_again() -> None:
    """By a look from before its end, while its next attempt was refused (seed 50001182)."""
    waiting = replace(a_recovery(P.WAITING_FOR_CAPACITY), cost=Cost.SETTLED, job_step=100)
    assert outages.counted_once(waiting, replace(waiting, phase=P.RUNNING)).cost is Cost.DRAINED
    assert outages.counted_once(waiting, replace(waiting, phase=P.RUNNING, job_step=101)).cost is Cost.SETTLED
    assert outages.counted_once(replace(waiting, cost=Cost.ONE), waiting).cost is Cost.SETTLED


CAUSE = "agent=agent-next.1"


@pytest.mark.parametrize(
    ("explained", "said", "cost"),
    [
        ({"n1": CAUSE}, Blame.UNKNOWN, Cost.SHARED),
        ({"n2": CAUSE}, Blame.UNKNOWN, Cost.ONE),
        ({"n1": CAUSE}, Blame.USER_CODE, Cost.ONE),
    ],
)
def test_what_an_open_case_about_a_common_cause_explains_of_its_nodes_costs_a_job_no_attempt(
    explained: dict[str, str], said: Blame, cost: Cost
) -> None:
    """A bad version of the agent said that GPUs were gone, while the data network was away (seed 50001957)."""
    r = replace(after(*NEVER), checkpoint_step=1_000)
    verdict = BlameVerdict(said, 1.0, (), "")
    s = JobSlice(job=a_job(JobPhase.STOPPED), recovery=r, explained=explained, verdict=verdict)
    made = outages.judged(s, r, [SICK])
    assert made.cost is cost
    assert (made.because[:1] == (f"what its nodes show has a common cause ({CAUSE})",)) is (cost is Cost.SHARED)


@pytest.mark.parametrize(
    ("said", "excused"), [(None, True), (Blame.INFRASTRUCTURE, True), (Blame.HARDWARE, False), (Blame.USER_CODE, False)]
)
def test_an_attempt_is_not_counted_beside_an_illness_that_work_is_safe_from(said: Blame | None, excused: bool) -> None:
    """A row remap that waits for a reset hangs no gang; what the logs say of the hardware stays said."""
    r = after(*NEVER, blame=Blame.HARDWARE)
    job = a_job(JobPhase.STOPPED)
    s = JobSlice(job=job, recovery=r, harmless=frozenset({SICK.code}))
    s = replace(s, verdict=BlameVerdict(said, 0.9, ()) if said else None)
    assert is_excused(outages.judged(s, r, (SICK,))) is excused


def test_one_in_which_a_single_node_fell_silent_is_counted() -> None:
    r = judged(after(*NEVER), silent=(1,), rank_nodes=("n1", "n2"), nodes=("n1", "n2"))
    assert r.cost is Cost.ONE


@pytest.mark.parametrize(
    ("blame", "excused"), [(Blame.INFRASTRUCTURE, True), (Blame.UNKNOWN, False), (Blame.USER_CODE, False)]
)
def test_one_that_died_is_excused_only_by_what_its_logs_say_of_the_infrastructure(blame: Blame, excused: bool) -> None:
    assert is_excused(judged(after(*DIED, blame=blame))) is excused


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
    assert is_excused(r) is excused


def waiting(spared: int) -> Recovery:
    r = after(*NEVER, ("BLAMED", P.WAITING_FOR_CAPACITY), spared=spared, barren=4, checkpoint_step=0)
    return replace(r, entered=0.0, cost=Cost.BLAMELESS)


def decided(r: Recovery, at: float, outage: str = "") -> Recovery:
    job = a_job(JobPhase.STOPPED, checkpoint=None)
    made = decide(JobSlice(job=job, recovery=r, good=job.nodes, outage=outage), JobPolicy(), Now(at, at)).recovery
    assert made is not None
    return made


def test_it_is_tried_again_later_and_later_and_spends_no_attempt() -> None:
    assert outages.back_off(waiting(4)) == 480.0
    assert decided(waiting(4), 400.0).phase is P.WAITING_FOR_CAPACITY
    again = decided(waiting(4), 500.0)
    assert (again.phase, again.barren) == (P.RESTARTING, 4)


def ended(*events: tuple[str, P], at: float = 100.0, outage: str = "", **changed: Any) -> Recovery:
    """The last answer is there: every rank is stopped, or the examination is done and has found nothing."""
    given = {"barren": 4, "checkpoint_step": 0, "pending": an_action(), **changed}
    r = after(*events, **given)
    job = a_job(JobPhase.STOPPED, checkpoint=None)
    s = JobSlice(job=job, recovery=r, outcome=Done(), answers=an_action().key, outage=outage)
    made = decide(s, JobPolicy(), Now(at, at)).recovery
    assert made is not None
    return made


def test_it_ends_when_it_was_tried_for_a_day() -> None:
    assert ended(*NEVER, spared=outages.TRIES - 1).phase is P.WAITING_FOR_CAPACITY
    r = ended(*NEVER, spared=outages.TRIES)
    assert r.phase is P.FAILED
    assert "33 attempts in a row did not begin, and nothing is wrong with its nodes" in r.journal[-1].why


def test_a_day_of_trying_is_no_reason_to_give_it_up_while_something_shared_is_away() -> None:
    assert ended(*NEVER, spared=outages.TRIES, outage=AWAY).phase is P.WAITING_FOR_CAPACITY


# --- what spends no attempt -------------------------------------------------------------------------------------------


def last_chance(**changed: Any) -> Recovery:
    """One more attempt that counts, and it is given up."""
    entered = (*NEVER, ("BLAMED", P.WAITING_FOR_CAPACITY))
    given = {"barren": 4, "checkpoint_step": 0, "cost": Cost.ONE, **changed}
    return replace(after(*entered, **given), entered=0.0)


def test_an_attempt_that_counts_is_given_up_when_it_is_known_that_its_nodes_did_not_go_away_with_many() -> None:
    assert decided(last_chance(), outages.KNOWN_S - 1).phase is P.WAITING_FOR_CAPACITY
    assert decided(last_chance(), outages.KNOWN_S).phase is P.FAILED


def test_an_attempt_that_our_own_drain_ended_before_its_first_step_is_not_the_jobs() -> None:
    """It was given up for a node that we had emptied under it (seeds 514, 593)."""
    r = ended(("FOUND", P.RESTARTING), ("DRAINED", P.STOPPING), by_drain="n1.1")
    assert (r.phase, r.cost) == (P.WAITING_FOR_CAPACITY, Cost.DRAINED)
    again = decided(r, 101.0)
    assert (again.phase, again.barren, again.by_drain) == (P.RESTARTING, 4, "")


def test_tries_stay_in_a_row_when_our_own_drain_ended_one_that_had_not_begun() -> None:
    """It was found alive, and drained: the tries before it began anew (seed 700)."""
    found = (("FOUND", P.RESTARTING), ("TIMED_OUT", P.STOPPING), ("PROGRESSED", P.RUNNING), ("DRAINED", P.STOPPING))
    r = ended(*found, by_drain="n1.1", spared=12, checkpoint_step=540, job_step=540)
    assert (r.cost, r.spared) == (Cost.DRAINED, 12)
    r = ended(*found, by_drain="n1.1", spared=12, checkpoint_step=540, job_step=541)
    assert (r.cost, r.spared) == (Cost.ONE, 0)


def test_an_attempt_that_our_own_drain_ended_after_its_first_step_counts() -> None:
    r = ended(("PROGRESSED", P.RUNNING), ("DRAINED", P.STOPPING), by_drain="n1.1")
    assert (r.phase, r.cost) == (P.WAITING_FOR_CAPACITY, Cost.ONE)


def test_what_was_away_when_it_ended_excuses_it_also_when_that_is_back() -> None:
    """It was given up two hours later, when its nodes had come back (seeds 803, 809)."""
    r = ended(*DIED, outage=AWAY)
    assert (r.phase, r.cost, r.because[0]) == (P.WAITING_FOR_CAPACITY, Cost.SHARED, AWAY)
    again = decided(r, 10_000.0)
    assert (again.phase, again.barren, again.cost) == (P.RESTARTING, 4, Cost.SETTLED)


def test_what_was_shared_may_come_to_light_after_its_end() -> None:
    job = a_job(JobPhase.STOPPED, checkpoint=None)
    s = JobSlice(job=job, recovery=last_chance(), outage=AWAY)
    r = decide(s, JobPolicy(), Now(outages.KNOWN_S, 0.0)).recovery
    assert r is not None
    assert (r.phase, r.cost, r.barren) == (P.WAITING_FOR_CAPACITY, Cost.SHARED, 4)


@pytest.mark.parametrize(("since", "may"), [(-math.inf, True), (1_059.0, True), (1_061.0, False)])
def test_a_node_that_goes_away_after_an_attempt_is_over_has_not_ended_it(since: float, may: bool) -> None:
    assert outages.may_have_ended(a_recovery(P.WAITING_FOR_CAPACITY, stopped=1_000.0), since) is may


def begun_anew() -> Recovery:
    """Restarted a second after an attempt that counts."""
    r = decided(last_chance(barren=1), 1.0)
    assert (r.phase, r.stopped) == (P.RESTARTING, -1.0)
    return replace(r, stopped=0.0)


def seen(r: Recovery, phase: JobPhase, step: int, outage: str = "") -> Recovery:
    job = a_job(phase, checkpoint=None, attempt=2, step=step)
    made = decide(JobSlice(job=job, recovery=r, outage=outage), JobPolicy(), Now(60.0, 60.0)).recovery
    assert made is not None
    return made


def test_what_was_shared_may_come_to_light_when_it_has_been_asked_to_begin_again() -> None:
    """Its nodes lost their power, which was known forty seconds after its restart (seed 50001607)."""
    r = seen(begun_anew(), JobPhase.PENDING, 0, AWAY)
    assert (r.phase, r.cost, r.because) == (P.RESTARTING, Cost.SHARED, (AWAY,))
    r = seen(r, JobPhase.RUNNING, 5)
    assert (r.phase, r.barren, r.cost) == (P.RUNNING, 1, Cost.SETTLED)


@pytest.mark.parametrize("phase", [JobPhase.RUNNING, JobPhase.FAILED])
def test_it_counts_when_the_next_one_has_begun_or_died(phase: JobPhase) -> None:
    r = seen(begun_anew(), phase, 5 if phase is JobPhase.RUNNING else 0)
    assert (r.barren, r.cost) == (2, Cost.SETTLED)


@pytest.mark.parametrize(("attempt", "barren"), [(1, 0), (0, 5)])
def test_an_attempt_that_has_saved_does_not_count_though_its_checkpoint_is_not_trusted(
    attempt: int, barren: int
) -> None:
    """A node of it may have corrupted memory: it goes on from an older one, and is not given up for it (seed 1508)."""
    job = a_job(JobPhase.STOPPED, checkpoint=None, checkpoints=(Checkpoint(360, 500.0, attempt),))
    r = last_chance(checkpoint_step=300, attempt=1, distrust=True, evidence_at=400.0)
    assert outages.barren(job, r) == barren


def test_what_was_away_while_it_was_stopped_excuses_it_though_it_is_back_when_it_is_examined() -> None:
    """Twenty seconds between the end of the cut and the examination cost it one of two attempts (seed 50000674)."""
    seen = after(*BEGAN[:3], barren=4, checkpoint_step=0, pending=an_action(), entered=50.0)
    for outage, outcome in ((AWAY, None), ("", Done()), ("", Done())):
        job, key = a_job(JobPhase.STOPPED, checkpoint=None), seen.pending.key if seen.pending else ""
        s = JobSlice(job=job, recovery=seen, outcome=outcome, answers=key, outage=outage)
        made = decide(s, JobPolicy(), Now(100.0, 100.0)).recovery
        assert made is not None
        seen = made
    assert (seen.phase, seen.cost, seen.because) == (P.WAITING_FOR_CAPACITY, Cost.SHARED, (AWAY,))


@pytest.mark.parametrize(("since", "may"), [(1_059.0, True), (1_061.0, False)])
def test_a_node_that_goes_away_while_a_job_that_hung_is_being_stopped_has_not_ended_it(since: float, may: bool) -> None:
    assert outages.may_have_ended(a_recovery(P.STOPPING, stopped=-1.0, entered=1_000.0), since) is may


# --- counted once -----------------------------------------------------------------------------------------------------


def refused(r: Recovery, at: float) -> Recovery:
    assert r.pending is not None
    s = JobSlice(job=a_job(JobPhase.STOPPED, checkpoint=None), recovery=r, outcome=Failed("a rank lives"))
    made = decide(replace(s, answers=r.pending.key), JobPolicy(), Now(at, at)).recovery
    assert made is not None
    return made


def test_what_was_shared_may_come_to_light_when_its_restart_has_been_refused() -> None:
    """It was counted half a minute before anybody knew that six nodes had lost their power (seed 50000851)."""
    r = refused(decided(last_chance(barren=1), 1.0), 2.0)
    assert (outages.barren(a_job(JobPhase.STOPPED, checkpoint=None), r), r.cost) == (2, Cost.ONE)
    r = decided(r, 40.0, outage=AWAY)
    assert (r.barren, r.cost, r.because) == (1, Cost.SHARED, (AWAY,))


def test_an_outage_while_restarts_are_refused_gives_back_the_attempt_that_it_ended_and_no_other() -> None:
    """It gave back the one before as well (seed 50000162)."""
    r = refused(decided(last_chance(barren=1), 100.0), 101.0)
    again = refused(decided(decided(r, 110.0, outage=AWAY), 1_000.0), 1_001.0)
    assert (again.phase, again.barren, again.cost) == (P.WAITING_FOR_CAPACITY, 1, Cost.SETTLED)
    assert decided(again, 3_000.0, outage=AWAY).barren == 1


def lives_and_dies(r: Recovery, step: int) -> Recovery:
    """Its attempt, which was seen to end, is shown as running, and then as stopped: a store was put back."""
    for second, (phase, outcome) in enumerate([(JobPhase.RUNNING, None), (JobPhase.STOPPED, None),
                                               (JobPhase.STOPPED, Done()), (JobPhase.STOPPED, Done())]):  # fmt: skip
        key = r.pending.key if r.pending else ""
        job = a_job(phase, checkpoint=None, step=step)
        s = JobSlice(job=job, recovery=r, outcome=outcome, answers=key)
        made = decide(s, JobPolicy(), Now(400.0 + second, 400.0)).recovery
        assert made is not None
        r = made
    return r


@pytest.mark.parametrize(("step", "cost"), [(0, Cost.BLAMELESS), (7, Cost.ONE)])
def test_an_attempt_is_judged_once_though_it_is_shown_as_running_again(step: int, cost: Cost) -> None:
    """It was tried again later and later, and then given up because the same attempt had died once more (seed 356)."""
    r = lives_and_dies(replace(waiting(1), barren=1, swap=False, job_step=step), step)
    assert (r.phase, r.cost) == (P.WAITING_FOR_CAPACITY, cost)


def test_refusals_give_nothing_back_of_what_something_shared_did_not_cost() -> None:
    r = refused(decided(waiting(0), 200.0), 201.0)
    assert decided(r, 1_000.0).barren == 4


def test_a_refused_restart_is_no_try_that_makes_the_next_one_later() -> None:
    tries = (("FOUND", P.RESTARTING), ("REFUSED", P.WAITING_FOR_CAPACITY)) * 3
    assert outages.tries_of(after(("PROGRESSED", P.RUNNING), *tries, ("FOUND", P.RESTARTING))) == 1


# --- how it ended -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("events", "hung"), [
    ((("STALLED", P.STALLED), ("DONE", P.STOPPING)), True),
    ((("STALLED", P.STALLED), ("TIMED_OUT", P.STOPPING)), True),
    ((("STALLED", P.STALLED), ("DIED", P.STOPPING)), False),
    ((("FOUND", P.RESTARTING), ("TIMED_OUT", P.STOPPING)), True),
    ((("FOUND", P.RESTARTING), ("DIED", P.STOPPING)), False),
])  # fmt: skip
def test_a_stop_that_had_to_be_asked_for_again_says_nothing_of_how_an_attempt_ended(
    events: tuple[tuple[str, P], ...], hung: bool
) -> None:
    """A job that died, and whose ranks could not be stopped at once, was taken for one that hung."""
    r = after(*events, ("TIMED_OUT", P.STOPPING), ("DONE", P.EXAMINING))
    assert (outages.hung(r), how_it_ended(r)[0]) == (hung, events[0][1])


@pytest.mark.parametrize(("fault", "events", "excused"), [
    ("node-not-ready", NEVER, True), ("node-not-ready", BEGAN, False), ("gpu-lost", NEVER, False),
])  # fmt: skip
def test_who_was_evicted_from_a_node_that_is_only_away_before_the_first_step_was_not_tried(
    fault: str, events: tuple[tuple[str, P], ...], excused: bool
) -> None:
    r = after(*events)
    s = JobSlice(job=a_job(JobPhase.FAILED), recovery=r, cases=(a_case(fault=fault, node="n1"),), kinds=HARDWARE)
    assert is_excused(outages.judged(s, r, ())) is excused


@pytest.mark.parametrize(("events", "excused"), [(DIED, True), (BEGAN[:1] + DIED[1:], False)], ids=["never", "began"])
def test_one_whose_node_goes_away_before_its_first_step_is_not_counted_though_no_log_says_anything(
    events: tuple[tuple[str, P], ...], excused: bool
) -> None:
    """It was evicted from a node that was cut off alone (seed 313)."""
    r = replace(after(*events), checkpoint_step=1_000)
    job = a_job(JobPhase.FAILED, exits=())
    said = outages.judged(JobSlice(job=job, recovery=r, unreachable={"n2": 1.0}), r, ())
    assert is_excused(said) is excused


@pytest.mark.parametrize(
    ("status", "events", "excused"),
    [(Status.UNKNOWN, DIED, True), (Status.OK, DIED, False), (Status.UNKNOWN, BEGAN[:1] + DIED[1:], False)],
)
def test_one_whose_nodes_give_no_answer_after_it_died_before_its_first_step_is_not_counted(
    status: Status, events: tuple[tuple[str, P], ...], excused: bool
) -> None:
    """All lost their power, and a new leader was shown them as they had been minutes before (seed 313)."""
    r = replace(after(*events), checkpoint_step=1_000)
    asked = replace(a_finding(), status=status, place=Place("n2"))
    assert is_excused(outages.judged(JobSlice(job=a_job(JobPhase.FAILED), recovery=r), r, (asked,))) is excused


@pytest.mark.parametrize(("severity", "excused"), [(Severity.MONITOR, True), (Severity.REBOOT, False)])
def test_the_word_of_somebody_who_may_have_nothing_treated_explains_no_hang(severity: Severity, excused: bool) -> None:
    """core/witness.py holds what an outsider says to MONITOR (seeds 586, 300083)."""
    case = a_case(fault="gpu-lost", node="n1")
    case = replace(case, diagnoses=tuple(replace(d, severity=severity) for d in case.diagnoses))
    r = after(*NEVER)
    s = JobSlice(job=a_job(JobPhase.STOPPED), recovery=r, cases=(case,), kinds=HARDWARE)
    assert is_excused(outages.judged(s, r, ())) is excused
