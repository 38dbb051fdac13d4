"""ETTR and its kin, from what a job shows and its recovery writes: docs/metrics.md as arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sickbay.controller.job_accounts import JobBook, Span, largest
from sickbay.controller.view import View
from sickbay.model import Blame, Checkpoint, Entry, Job, JobPhase, Recovery, RecoveryPhase
from sickbay.ports import Stored
from tests.builders import WALL, a_job, a_node, a_recovery

P = RecoveryPhase
MINUTE = 60.0


class Watched:
    """One job, looked at and written about as the controller does; times in minutes."""

    def __init__(self) -> None:
        self.book, self.view = JobBook(), View()
        self.view.nodes = {name: a_node(name) for name in ("n1", "n2")}
        self.recovery: Recovery | None = None
        self.number = 0

    def look(self, minute: float, job: Job) -> None:
        self.view.jobs[job.id] = job
        self.book.look(self.view, WALL + minute * MINUTE)

    def enters(self, minute: float, phase: RecoveryPhase, event: str = "X", **changed: Any) -> None:
        self.number += 1
        entry = Entry(self.number, event, WALL + minute * MINUTE, "sickbay", "", phase.value)
        before = self.recovery or a_recovery(journal=(), step=0, restarts=0)
        known = replace(before, phase=phase, step=self.number, journal=(*before.journal, entry), **changed)
        over = phase in (P.COMPLETED, P.FAILED, P.STOPPED, P.GONE)
        self.recovery = known
        self.view.recoveries.pop(known.job, None)
        if not over:
            self.view.recoveries[known.job] = Stored(known, 1, 1)
        self.book.wrote(known, over)

    def total(self) -> Span:
        return self.book.open["llama"].total


def running(step: int, **changed: Any) -> Job:
    return a_job(step=step, step_at=WALL, step_s=10.0, checkpoint=None, **changed)


def down(step: int, saved: int) -> Job:
    return a_job(JobPhase.STOPPED, step=step, step_at=WALL, step_s=10.0, checkpoint=Checkpoint(saved, WALL))


def worked_example() -> Watched:
    seen = Watched()
    seen.look(0, a_job(JobPhase.PENDING, step=0))
    seen.look(10, running(0))
    seen.enters(10, P.RUNNING, "ADOPTED")
    seen.look(66, running(300))
    seen.look(67, running(306))
    seen.enters(72, P.STALLED, "STALLED")
    seen.enters(72, P.STOPPING, "TIMED_OUT")
    seen.look(72, down(306, 300))
    seen.enters(72, P.EXAMINING, "DONE")
    seen.enters(72, P.WAITING_FOR_CAPACITY, "BLAMED", blame=Blame.HARDWARE)
    seen.enters(74, P.RESTARTING, "FOUND", lost_steps=6)
    seen.look(75, running(300, attempt=2))
    seen.enters(78, P.RUNNING, "PROGRESSED", restarts=1, attempt=2)
    seen.look(98, running(418, attempt=2))
    return seen


def test_r_q_and_w_are_those_of_the_worked_example() -> None:
    total = worked_example().total()
    assert total.productive == 418 * 10.0  # each surviving step once: 301 to 306 were made twice
    assert total.queued == 12 * MINUTE
    assert total.wall == 98 * MINUTE
    assert round(total.productive / total.wall, 3) == 0.711


def test_an_interruption_its_restart_its_lost_steps_and_its_wait_are_counted() -> None:
    book = worked_example().book
    assert book.interruptions.value("hardware") == 1.0
    assert book.restarts.value("hardware") == 1.0
    assert book.lost_steps.value() == 6.0
    assert book.capacity_wait_s.value() == 2 * MINUTE
    assert book.node_s.value() == 2 * MINUTE * ((72 - 10) + (98 - 74))  # two nodes, while it runs or starts


def test_when_it_ends_its_time_is_kept_by_gpus_and_its_name_forgotten() -> None:
    seen = worked_example()
    seen.enters(98, P.COMPLETED, "COMPLETED")
    book = seen.book
    assert book.open == {}
    assert book.ended.value("true") == 1.0
    assert (book.ended_productive_s.value(), book.ended_wall_s.value()) == (4_180.0 * 16, 5_880.0 * 16)


def test_an_attempt_that_the_users_own_code_ended_is_excluded_and_counted() -> None:
    seen = Watched()
    seen.look(0, running(0))
    seen.enters(0, P.RUNNING, "ADOPTED")
    seen.look(10, running(60))
    seen.enters(10, P.EXAMINING, "DONE")
    seen.enters(11, P.FAILED, "GIVEN_UP", blame=Blame.USER_CODE)
    book = seen.book
    assert (book.ended_wall_s.value(), book.ended_productive_s.value()) == (0.0, 0.0)
    assert book.excluded.value() == 1.0
    assert book.interruptions.value("user-code") == 1.0


def test_a_job_whose_steps_nobody_tells_is_not_measured() -> None:
    seen = Watched()
    seen.look(0, a_job(step=0, checkpoint=None))
    seen.look(10, a_job(step=0, checkpoint=None))
    account = seen.book.open["llama"]
    assert not account.measured
    seen.view.jobs.clear()
    seen.book.look(seen.view, WALL + 900.0)
    assert seen.book.ended.items() == [(("false",), 1.0)]
    assert seen.book.ended_wall_s.value() == 0.0


def test_a_job_that_is_down_keeps_only_what_its_checkpoint_holds() -> None:
    seen = Watched()
    seen.look(0, running(0))
    seen.enters(0, P.RUNNING, "ADOPTED")
    seen.look(10, running(60))
    assert seen.total().productive == 600.0
    seen.enters(10, P.STOPPING, "DIED")
    seen.look(11, down(60, 40))
    assert seen.total().productive == 400.0


def test_a_drain_of_ours_is_an_interruption_with_no_examination() -> None:
    seen = Watched()
    seen.look(0, running(5))
    seen.enters(0, P.RUNNING, "ADOPTED")
    seen.enters(1, P.STOPPING, "DRAINED")
    seen.enters(2, P.WAITING_FOR_CAPACITY, "SPARED", blame=Blame.HARDWARE)
    assert seen.book.interruptions.value("hardware") == 1.0


def test_giving_up_while_waiting_is_not_a_second_interruption() -> None:
    seen = Watched()
    seen.enters(0, P.EXAMINING, "DONE")
    seen.enters(1, P.WAITING_FOR_CAPACITY, "BLAMED", blame=Blame.HARDWARE)
    seen.enters(9, P.FAILED, "GIVEN_UP")
    assert seen.book.interruptions.value("hardware") == 1.0


def test_a_new_leader_does_not_count_an_old_journal() -> None:
    book = JobBook()
    old = a_recovery(step=5, restarts=3, journal=(Entry(5, "BLAMED", WALL, "s", "", P.WAITING_FOR_CAPACITY.value),))
    book.know(old)
    book.wrote(old, False)
    assert sum(count for _, count in book.entered.items()) == 0
    assert sum(count for _, count in book.restarts.items()) == 0


def test_steps_can_never_be_worth_more_than_the_time_that_was_there() -> None:
    seen = Watched()
    seen.look(0, running(0))
    seen.look(1, running(1_000_000))
    assert seen.total().productive == MINUTE


def test_the_largest_jobs_are_shown_first() -> None:
    seen = Watched()
    seen.look(0, a_job(id="small", nodes=("n1",)))
    seen.look(0, a_job(id="large"))
    assert [account.job for account in largest(seen.book.open.values(), 1)] == ["large"]


def test_steps_that_a_restart_in_place_makes_again_are_not_counted_twice() -> None:
    watched = Watched()
    steps = [(0, 100), (1, 140), (2, 101), (3, 140), (4, 150)]  # its launcher has taken it back to 100
    for minute, step in steps:
        watched.look(minute, a_job(step=step, step_at=WALL + minute * MINUTE, step_s=1.0))
    assert watched.book.open["llama"].total.productive == 50.0
