"""Another job of the same name: what is known of the one that was deleted says nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.core import namesake, progress, reach
from sickbay.core.recover import decide
from sickbay.core.turn import JobDecision, JobSlice, Now
from sickbay.model import Action, Job, JobPhase, Place, Recovery, RecoveryPhase, Verb
from sickbay.settings import JobPolicy
from tests.builders import a_command, a_job, a_recovery

P = RecoveryPhase
NOW = Now(1_100.0, 5_100.0)
NEW = a_job(uid="new", step=0)
SENT = Action("llama#2.6", Verb.RESTART_JOB, Place(""), {"job": "llama"}, ("n1", "n2"), sends=1)


def old(phase: P = P.RUNNING, **changed: Any) -> Recovery:
    return a_recovery(phase, **{"attempt": 2, "uid": "old", "unfenced": 1, "swap": True, **changed})


def turn(r: Recovery | None, job: Job | None, **seen: Any) -> JobDecision:
    return decide(JobSlice(job, r, **seen), JobPolicy(), NOW)


def after(r: Recovery | None, job: Job | None, **seen: Any) -> Recovery:
    found = turn(r, job, **seen).recovery
    assert found is not None
    return found


@pytest.mark.parametrize("phase", [P.RUNNING, P.STALLED, P.STOPPING, P.EXAMINING, P.WAITING_FOR_CAPACITY, P.RESTARTING])
def test_the_record_of_the_old_one_ends_as_if_its_deletion_had_been_seen(phase: P) -> None:
    made = turn(old(phase), NEW)
    assert made.ended
    assert made.recovery is not None
    assert made.recovery.phase is P.GONE
    assert made.recovery.journal[-1].why == "llama was deleted, and another job of its name was submitted"


def test_so_it_ends_while_the_old_one_was_made_anew_or_its_record_had_been_deleted() -> None:
    assert turn(old(P.RESTARTING, pending=SENT), NEW).ended
    made = turn(None, NEW, lost=old())
    assert (made.opened, made.ended) == (True, True)


def test_the_new_one_is_adopted_with_nothing_of_the_old_one() -> None:
    r = after(None, NEW)
    assert (r.uid, r.attempt, r.unfenced, r.swap, r.suspects, r.progressed) == ("new", 1, 0, False, (), NOW.watch)


def test_its_owners_word_said_in_that_moment_is_answered_and_heard_for_nobody() -> None:
    waits = old(P.WAITING_FOR_CAPACITY, attempt=1, unfenced=0)
    r = after(waits, NEW, commands=(a_command("restart"),), unreachable={"n2": 500.0})
    assert r.unfenced == 0
    assert "nothing is done" in r.journal[-2].why


def test_a_job_that_we_have_made_anew_to_restart_it_is_the_same() -> None:
    """A batch Job that its controller has ended for good is deleted and made again, with a later number."""
    r = after(old(P.RESTARTING, pending=SENT), a_job(uid="new", attempt=3))
    assert (r.phase, r.attempt, r.uid, r.swap) == (P.RUNNING, 3, "new", True)


def test_one_that_a_stop_of_ours_holds_is_the_same_but_what_was_said_of_its_ranks_is_over() -> None:
    """Its owner has deleted it and put a copy with our words in its place: nobody else would bring that back."""
    held = a_job(JobPhase.STOPPED, uid="new", attempt=2, stopped_by="llama#2.4")
    r = after(old(P.EXAMINING, unfenced=2), held)
    assert (r.phase, r.uid, r.unfenced) == (P.EXAMINING, "new", 0)


@pytest.mark.parametrize(("known", "shown"), [("", "new"), ("old", ""), ("old", "old")])
def test_where_an_identity_is_not_known_it_is_taken_for_the_same_job(known: str, shown: str) -> None:
    """A record of an earlier version has none; it learns it."""
    r = after(old(uid=known), a_job(attempt=2, uid=shown))
    assert (r.phase, r.uid, r.unfenced) == (P.RUNNING, known or shown, 1)


def test_a_further_step_is_the_plainest_turn_only_of_the_same_job() -> None:
    moved = a_job(attempt=2, step=200, uid="old")
    assert progress.only_progressed(old(), moved)
    assert not progress.only_progressed(old(), a_job(attempt=2, step=200, uid="new"))
    assert not progress.only_progressed(old(uid=""), moved), "its identity is yet to be noted"


def test_an_owners_word_is_not_heard_for_a_lower_number_than_is_on_record() -> None:
    """Bare pods have no identity that lasts: a later gang of the name begins at the first attempt again."""
    s = JobSlice(a_job(JobPhase.FAILED), old(uid=""), unreachable={"n2": 500.0})
    assert s.job is not None
    assert s.recovery is not None
    assert reach.loose(s, s.recovery, s.job) == ("n2",)
    assert reach.behind(s, s.recovery, s.job) == ""


def test_a_given_up_job_is_not_the_one_that_bears_its_name() -> None:
    assert namesake.is_another(old(P.FAILED), NEW)
    assert not namesake.is_another(old(P.FAILED), None)
