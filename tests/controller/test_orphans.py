"""A gang that our drain has stopped is brought back although its record is not there; one that we gave up is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sickbay.model import Job, JobPhase, RecoveryPhase, Verb
from sickbay.settings import JobPolicy
from tests.builders import a_job, a_node, a_recovery
from tests.controller.door import Door, Shift

DRAINED = a_job(JobPhase.STOPPED, stopped_by="drain:n2.1")


def on_duty(job: Job = DRAINED, **settings: Any) -> Shift:
    return Shift(Door(a_node("n1"), a_node("n2"), a_node("n3"), jobs=(job,)), **settings)


def test_a_drained_gang_without_a_record_is_restarted() -> None:
    assert on_duty().passes(60.0).door.called(Verb.RESTART_JOB)


def test_a_drained_gang_is_left_alone_where_jobs_are_not_helped() -> None:
    assert not on_duty(jobs=JobPolicy(enabled=False)).passes(60.0).door.asked


def test_a_drained_gang_that_we_gave_up_is_not_taken_up_again_by_this_leader_or_the_next() -> None:
    shift = on_duty()
    given_up = replace(a_recovery(RecoveryPhase.FAILED), journal=())
    version = shift.store.create(given_up, 1)
    shift.store.archive(given_up, version, 1)
    shift.passes(600.0)
    shift.successor().passes(600.0)
    assert not shift.door.asked
