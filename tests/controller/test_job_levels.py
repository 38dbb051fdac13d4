"""How far a job may be helped follows policy.max_verb: a stop is a drain of the job."""

from __future__ import annotations

import pytest

from sickbay.model import JobPhase, RankExit, Recovery, RecoveryPhase, Verb
from tests.builders import a_job, a_node, a_policy
from tests.controller.door import Door, Shift

ON_JOBS = {Verb.STOP_JOB, Verb.RESTART_JOB, Verb.COLLECT, Verb.CHECKPOINT_JOB}


def watching(level: str) -> Shift:
    """A managed job of two nodes and one spare, looked after by a controller that may go so far."""
    lodged = [a_node(name, jobs=("llama",)) for name in ("n1", "n2")]
    door = Door(*lodged, a_node("n3"), jobs=(a_job(),))
    return Shift(door, policy=a_policy(max_verb=level)).passes(60.0)


def dies(shift: Shift) -> Shift:
    shift.door.shows_job("llama", phase=JobPhase.FAILED, exits=(RankExit(1, "n2", 1, ("Traceback",)),))
    return shift.passes(1_800.0)


def recovery(shift: Shift) -> Recovery:
    return shift.controller.view.recoveries["llama"].value


@pytest.mark.parametrize("level", ["OBSERVE", "CORDON"])
def test_below_drain_a_hurt_job_is_left_as_it_is_and_its_record_says_which_setting_would_help_it(level: str) -> None:
    shift = dies(watching(level))
    assert not [a for a in shift.door.asked if a.verb in ON_JOBS]
    assert f"policy.max_verb is {level}" in recovery(shift).refusal
    assert "raise it to DRAIN" in recovery(shift).refusal


def test_from_drain_on_a_hurt_job_is_stopped() -> None:
    assert dies(watching("DRAIN")).door.called(Verb.STOP_JOB)


def test_the_strictest_pool_under_a_job_decides() -> None:
    door = Door(a_node("n1", jobs=("llama",)), a_node("n2", jobs=("llama",), pool="theirs"), jobs=(a_job(),))
    shift = Shift(door, pools={"theirs": a_policy(max_verb="OBSERVE")}).passes(60.0)
    assert not dies(shift).door.called(Verb.STOP_JOB)


def test_a_job_that_its_owner_brings_back_is_watched_again_although_we_may_only_watch() -> None:
    shift = dies(watching("OBSERVE"))
    shift.door.shows_job("llama", phase=JobPhase.RUNNING, exits=(), step=101)
    assert recovery(shift.passes(10.0)).phase is RecoveryPhase.RUNNING


def test_a_job_that_stands_still_is_not_looked_into_by_one_who_may_only_watch() -> None:
    shift = watching("OBSERVE").passes(3_600.0)
    assert recovery(shift).phase is RecoveryPhase.STALLED
    assert not [a for a in shift.door.asked if a.verb in ON_JOBS]


def test_what_we_have_stopped_ourselves_is_brought_back_although_the_level_was_lowered_since() -> None:
    shift = watching("OBSERVE")
    shift.door.shows_job("llama", phase=JobPhase.STOPPED, stopped_by="drain:n2.1")
    for name in ("n1", "n2"):
        shift.door.shows(name, jobs=())
    assert shift.passes(600.0).door.called(Verb.RESTART_JOB)
