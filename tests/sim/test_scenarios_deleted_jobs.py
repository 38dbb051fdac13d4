"""Somebody deletes the record of a job that we look after: it is missed, and no second attempt is ever begun for it."""

from __future__ import annotations

import pytest

from sickbay.model import Action, JobPhase, Notice, Outcome, Recovery, RecoveryPhase, Retry, Verb
from sickbay.sim import backup
from sickbay.stores.memory import MemoryStore
from tests.sim.ward import Perform, Ward, names

SICK = "node-0005"


def working(nodes: int = 10) -> Ward:
    ward = Ward(nodes, store=MemoryStore())
    ward.submit(nodes=names(4, 3))
    return ward.passes(1_000.0)


def delete(ward: Ward) -> None:
    assert isinstance(ward.run.store, MemoryStore)
    ward.run.store.lose(Recovery, "llama")
    for brain in ward.brains:
        brain.next_turn = min(brain.next_turn, ward.world.now + 0.1)


def said(ward: Ward) -> list[Notice]:
    return [n for n in ward.run.mailbox.notices if "its record was deleted" in n.title]


def starved(by: str = "gpu_lost_79") -> Ward:
    """Llama died, and there are no nodes for it: it waits."""
    ward = Ward(3, store=MemoryStore())
    ward.submit(nodes=names(0, 3))
    ward.passes(1_000.0)
    ward.world.strike(by, "node-0001", 0, cure="never")
    ward.until_job("llama", RecoveryPhase.WAITING_FOR_CAPACITY)
    return ward


def test_a_job_whose_record_was_deleted_while_it_ran_is_looked_after_within_a_minute_and_brought_back() -> None:
    """It was FAILED for ever, without a word: only a restart of the controller would have missed the record."""
    ward = working()
    delete(ward)
    ward.until(lambda: ward.recovery("llama") is not None, within=60.0)
    ward.passes(3_600.0)
    ward.world.strike("host_crash", SICK, 0, cure="reboot")
    ward.until(lambda: ward.world.jobs["llama"].attempt == 2 and ward.world.jobs["llama"].live, within=14_400.0)
    ward.ends_well()


def test_a_job_that_dies_in_the_moment_in_which_its_record_is_deleted_is_brought_back() -> None:
    ward = working()
    ward.world.strike("unexplained_job_failure", SICK)
    assert isinstance(ward.run.store, MemoryStore)
    ward.run.store.lose(Recovery, "llama")
    ward.until(lambda: ward.world.jobs["llama"].attempt == 2 and ward.world.jobs["llama"].live, within=14_400.0)
    ward.ends_well()


def test_deleting_the_record_of_a_job_that_is_being_brought_back_means_hands_off_and_is_told() -> None:
    ward = starved()
    delete(ward)
    ward.passes(600.0)
    assert ward.recovery("llama") is None
    (notice,) = said(ward)
    assert "start it by hand" in notice.body
    ward.world.treatments.cure(ward.world.nodes["node-0001"], "replace")
    ward.passes(14_400.0)
    assert ward.world.jobs["llama"].attempt == 1
    assert len(said(ward)) == 1
    ward.is_sound()


@pytest.mark.parametrize("led_anew", [False, True])
def test_so_is_that_somebody_removed_a_record_that_nobody_could_read(led_anew: bool) -> None:
    """The notice about it advises that. It was decided and not said, for the record was read again in that pass; and
    whoever had taken the lead meanwhile knew of no such job: it lay there for days without a word (f8b)."""
    ward = starved(by="host_crash")
    assert isinstance(ward.run.store, MemoryStore)
    backup.written_by_a_newer(ward.run.store, Recovery, "llama")
    attempt = ward.passes(600.0).world.jobs["llama"].attempt
    if led_anew:
        ward.crash(back_after=5.0)
        ward.passes(60.0)
    delete(ward)
    ward.passes(86_400.0)
    assert ward.recovery("llama") is None
    (notice,) = said(ward)
    assert "start it by hand" in notice.body
    assert [r.phase for r in ward.run.store.history(Recovery)] == [RecoveryPhase.STOPPED]
    assert ward.world.jobs["llama"].attempt == attempt
    ward.is_sound()


def test_a_job_that_runs_when_its_unreadable_record_is_removed_is_looked_after_without_a_word() -> None:
    ward = working()
    assert isinstance(ward.run.store, MemoryStore)
    backup.written_by_a_newer(ward.run.store, Recovery, "llama")
    ward.passes(60.0)
    ward.crash(back_after=5.0)
    ward.passes(60.0)
    delete(ward)
    ward.until_job("llama", RecoveryPhase.RUNNING, within=60.0)
    assert said(ward) == []
    ward.ends_well()


def test_hands_off_outlives_the_leader_also_where_our_own_drain_had_stopped_the_job() -> None:
    ward = Ward(4, store=MemoryStore())
    ward.submit(nodes=names(0, 4))
    ward.passes(1_000.0)
    ward.world.strike("sram", "node-0001", 0, cure="never")
    ward.until(lambda: ward.world.jobs["llama"].phase is JobPhase.STOPPED, within=14_400.0)
    ward.until_job("llama", RecoveryPhase.WAITING_FOR_CAPACITY)
    delete(ward)
    ward.passes(60.0)
    ward.crash()
    ward.passes(1_800.0)
    assert ward.recovery("llama") is None
    assert len(said(ward)) == 1


def test_a_job_that_was_let_go_is_looked_after_again_as_soon_as_it_runs() -> None:
    ward = working()
    ward.door.on[Verb.STOP_JOB] = lambda action, perform: Retry(5.0, "not yet")
    ward.world.strike("unexplained_job_failure", SICK)
    ward.until_job("llama", RecoveryPhase.STOPPING)
    delete(ward)
    ward.passes(120.0)
    assert ward.recovery("llama") is None
    del ward.door.on[Verb.STOP_JOB]
    assert ward.world.gangs.resubmit(ward.world.jobs["llama"])
    ward.until_job("llama", RecoveryPhase.RUNNING, within=900.0)
    ward.ends_well()


def test_a_stalled_job_whose_record_is_deleted_is_given_its_whole_time_again() -> None:
    ward = working()
    ward.world.strike("job_hang", SICK)
    ward.until_job("llama", RecoveryPhase.STALLED)
    delete(ward)
    ward.until_job("llama", RecoveryPhase.RUNNING, within=60.0)
    ward.until(lambda: ward.world.jobs["llama"].attempt == 2 and ward.world.jobs["llama"].live, within=14_400.0)
    assert said(ward) == []
    ward.ends_well()


@pytest.mark.parametrize("after", [0.0, 1.0, 20.0])
def test_a_restart_that_was_sent_is_seen_through_and_made_once(after: float) -> None:
    ward = working()
    sent: list[str] = []

    def slow(action: Action, perform: Perform) -> Outcome:
        sent.append(action.key)
        return perform(action)

    ward.door.on[Verb.RESTART_JOB] = slow
    ward.world.strike("host_crash", SICK, 0, cure="reboot")
    ward.until(lambda: sent, within=14_400.0, step=0.5)
    ward.passes(after) if after else None
    delete(ward)
    ward.until(lambda: ward.world.jobs["llama"].live, within=14_400.0)
    ward.until_job("llama", RecoveryPhase.RUNNING)
    assert ward.world.jobs["llama"].attempt == 2
    ward.ends_well()
