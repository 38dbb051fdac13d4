"""A job without a record is looked after, also one that our drain has stopped; an attempt that we gave up is not."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.core.deleted import LET_GO
from sickbay.core.progress import LATE_S
from sickbay.model import Entry, Job, JobPhase, RecoveryPhase, Verb
from sickbay.settings import JobPolicy
from sickbay.stores.memory import MemoryStore
from tests.builders import a_job, a_node, a_recovery
from tests.controller.door import Door, Shift

DRAINED = a_job(JobPhase.STOPPED, stopped_by="drain:n2.1")


def having_ended(phase: RecoveryPhase = RecoveryPhase.FAILED, **changed: Any) -> MemoryStore:
    store, ended = MemoryStore(), a_recovery(phase, **({"stopped": 900.0, "journal": ()} | changed))
    store.archive(ended, store.create(ended, 1), 1)
    return store


def on_duty(job: Job = DRAINED, **settings: Any) -> Shift:
    return Shift(Door(a_node("n1"), a_node("n2"), a_node("n3"), jobs=(job,)), **settings)


def test_a_drained_gang_without_a_record_is_restarted() -> None:
    assert on_duty().passes(60.0).door.called(Verb.RESTART_JOB)


def test_a_drained_gang_is_left_alone_where_jobs_are_not_helped() -> None:
    assert not on_duty(jobs=JobPolicy(enabled=False)).passes(60.0).door.asked


def test_a_drained_gang_that_we_gave_up_is_not_taken_up_again_by_this_leader_or_the_next() -> None:
    shift = on_duty(store=having_ended())
    shift.passes(600.0)
    shift.successor().passes(600.0)
    assert not shift.door.asked


@pytest.mark.parametrize("shown", [1, 2])
def test_a_job_that_we_gave_up_is_not_restarted_by_a_new_leader_whose_first_look_is_from_before_its_end(
    shown: int,
) -> None:
    """Seed 50000435."""
    shift = on_duty(a_job(attempt=shown), store=having_ended(attempt=2)).passes(120.0)
    shift.door.shows_job("llama", phase=JobPhase.FAILED, attempt=2)
    shift.passes(3600.0)
    assert not shift.door.asked


def test_a_job_whose_given_up_attempt_really_runs_again_is_looked_after_a_little_later() -> None:
    shift = on_duty(a_job(), store=having_ended())
    assert "llama" not in shift.passes(LATE_S - 1.0).controller.view.recoveries
    shift.passes(2.0)
    shift.door.shows_job("llama", phase=JobPhase.FAILED)
    assert shift.passes(600.0).door.called(Verb.RESTART_JOB)


def test_a_new_attempt_of_a_job_that_we_gave_up_is_looked_after_at_once() -> None:
    shift = on_duty(a_job(attempt=2), store=having_ended()).passes(0.0)
    shift.door.shows_job("llama", phase=JobPhase.FAILED)
    assert shift.passes(600.0).door.called(Verb.RESTART_JOB)


def test_an_attempt_that_we_gave_up_is_looked_after_at_once_when_it_is_resumed_before_our_eyes() -> None:
    shift = on_duty(a_job(JobPhase.FAILED), store=having_ended()).passes(LATE_S + 1.0)
    shift.door.shows_job("llama", phase=JobPhase.RUNNING)
    assert "llama" in shift.passes(0.0).controller.view.recoveries


@pytest.mark.parametrize(
    "ended",
    [
        having_ended(RecoveryPhase.STOPPED),
        having_ended(RecoveryPhase.STOPPED, stopped=-1.0, journal=(Entry(9, LET_GO, 0.0, "operator", "deleted"),)),
    ],
    ids=["suspended by its owner", "let go while it stalled and ran on"],
)
def test_a_job_that_was_not_down_when_it_was_left_is_looked_after_at_once_by_the_next_leader(
    ended: MemoryStore,
) -> None:
    assert "llama" in on_duty(a_job(), store=ended).passes(0.0).controller.view.recoveries
