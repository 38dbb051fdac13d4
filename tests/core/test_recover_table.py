"""The shape of the job table, held against the plan's words on job recovery."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.core.recover import RULES
from sickbay.core.recover_table import DEADLINE_OF, ENDS, TABLE, JobEvent, step
from sickbay.core.turn import Now
from sickbay.model import RecoveryPhase
from sickbay.settings import JobPolicy
from tests.builders import WALL, a_recovery

E, P = JobEvent, RecoveryPhase
LIVE = sorted(set(TABLE) - ENDS)
BY_OTHERS = {E.COMPLETED: P.COMPLETED, E.SUSPENDED: P.STOPPED, E.DELETED: P.GONE}

# Section 4 of the plan, "Job recovery". Rows for what others do to the job are added below.
PLAN = {
    P.RUNNING: {E.STALLED: P.STALLED, E.DIED: P.STOPPING, E.DRAINED: P.STOPPING},
    P.STALLED: {
        E.PROGRESSED: P.RUNNING, E.UNSEEN: P.RUNNING,
        E.DIED: P.STOPPING, E.DRAINED: P.STOPPING, E.DONE: P.STOPPING, E.TIMED_OUT: P.STOPPING,
    },
    P.STOPPING: {
        E.PROGRESSED: P.RUNNING, E.UNSEEN: P.RUNNING,
        E.DONE: P.EXAMINING, E.SPARED: P.WAITING_FOR_CAPACITY, E.TIMED_OUT: P.STOPPING,
    },
    P.EXAMINING: {
        E.BLAMED: P.WAITING_FOR_CAPACITY, E.GIVEN_UP: P.FAILED, E.ALIVE: P.RUNNING, E.TIMED_OUT: P.WAITING_FOR_CAPACITY,
    },
    P.WAITING_FOR_CAPACITY: {
        E.FOUND: P.RESTARTING, E.GIVEN_UP: P.FAILED, E.ALIVE: P.RUNNING, E.TIMED_OUT: P.WAITING_FOR_CAPACITY,
    },
    P.RESTARTING: {
        E.PROGRESSED: P.RUNNING, E.DIED: P.STOPPING, E.TIMED_OUT: P.STOPPING, E.DRAINED: P.STOPPING,
        E.REFUSED: P.WAITING_FOR_CAPACITY, E.ABSENT: P.STOPPING,
    },
}  # fmt: skip


def test_the_table_is_the_plan_s() -> None:
    live = {phase: {**row, **BY_OTHERS} for phase, row in PLAN.items()}
    assert live | {end: {} for end in ENDS} == TABLE


def test_every_phase_has_a_row_and_every_live_one_a_rule() -> None:
    assert set(TABLE) == set(RecoveryPhase)
    assert set(RULES) == set(LIVE)


def test_four_ends_absorb_everything() -> None:
    assert {P.COMPLETED, P.FAILED, P.STOPPED, P.GONE} == ENDS


@pytest.mark.parametrize("phase", [p for p in LIVE if p is not P.RUNNING])
def test_everything_but_running_has_a_time_limit_and_answers_it(phase: RecoveryPhase) -> None:
    assert E.TIMED_OUT in TABLE[phase]
    assert DEADLINE_OF[phase] in {f.name for f in fields(JobPolicy)}


def test_every_phase_can_be_reached() -> None:
    reached = {P.RUNNING}
    for _ in TABLE:
        reached |= {to for phase in reached for to in TABLE[phase].values()}
    assert reached == set(RecoveryPhase)


def test_a_job_is_restarted_only_on_capacity_that_was_found() -> None:
    assert [p for p, row in TABLE.items() if P.RESTARTING in row.values()] == [P.WAITING_FOR_CAPACITY]


def test_a_gang_is_examined_only_after_it_was_stopped() -> None:
    assert [p for p, row in TABLE.items() if P.EXAMINING in row.values()] == [P.STOPPING]


@given(st.sampled_from(LIVE), st.lists(st.sampled_from(sorted(JobEvent)), max_size=40))
def test_whatever_happens_steps_grow_and_a_live_phase_has_its_deadline(
    phase: RecoveryPhase, said: list[JobEvent]
) -> None:
    r, seen = a_recovery(phase), [5]
    for event in said:
        moved = step(r, event, "it happened", now=Now(2_000.0, WALL), policy=JobPolicy())
        if moved is None:
            continue
        r = moved
        seen.append(r.step)
        assert (r.deadline is None) is (r.phase not in DEADLINE_OF)
        assert len(r.journal) <= 128
    assert seen == sorted(set(seen))
