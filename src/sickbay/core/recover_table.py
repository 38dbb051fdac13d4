"""The life of a job through its failures, as one table: which event leads from which phase to which.

Read and stepped by core/recover.py only, which says which event it is. Pure.
"""

from __future__ import annotations

from enum import StrEnum

from sickbay.core.frozen import replace
from sickbay.core.machine import LATE_S
from sickbay.core.turn import Now
from sickbay.model import Entry, Recovery, RecoveryPhase
from sickbay.settings import JobPolicy

P = RecoveryPhase


class JobEvent(StrEnum):
    PROGRESSED = "PROGRESSED"
    STALLED = "STALLED"
    UNSEEN = "UNSEEN"  # its steps cannot be read: nobody can say that it stands still
    DIED = "DIED"
    DRAINED = "DRAINED"
    DONE = "DONE"
    SPARED = "SPARED"  # stopped by our own drain: the blame is known, no examination
    BLAMED = "BLAMED"
    GIVEN_UP = "GIVEN_UP"
    FOUND = "FOUND"
    REFUSED = "REFUSED"
    ABSENT = "ABSENT"  # the nodes that it asked for did not come
    ALIVE = "ALIVE"
    TIMED_OUT = "TIMED_OUT"
    COMPLETED = "COMPLETED"
    SUSPENDED = "SUSPENDED"
    DELETED = "DELETED"


E = JobEvent

_OTHERS = {E.COMPLETED: P.COMPLETED, E.SUSPENDED: P.STOPPED, E.DELETED: P.GONE}

TABLE: dict[RecoveryPhase, dict[JobEvent, RecoveryPhase]] = {
    P.RUNNING: {E.STALLED: P.STALLED, E.DIED: P.STOPPING, E.DRAINED: P.STOPPING, **_OTHERS},
    P.STALLED: {E.PROGRESSED: P.RUNNING, E.UNSEEN: P.RUNNING, E.DIED: P.STOPPING, E.DRAINED: P.STOPPING,
                E.DONE: P.STOPPING, E.TIMED_OUT: P.STOPPING, **_OTHERS},
    P.STOPPING: {E.PROGRESSED: P.RUNNING, E.UNSEEN: P.RUNNING, E.DONE: P.EXAMINING, E.SPARED: P.WAITING_FOR_CAPACITY,
                 E.TIMED_OUT: P.STOPPING, **_OTHERS},
    P.EXAMINING: {E.BLAMED: P.WAITING_FOR_CAPACITY, E.GIVEN_UP: P.FAILED, E.ALIVE: P.RUNNING,
                  E.TIMED_OUT: P.WAITING_FOR_CAPACITY, **_OTHERS},
    P.WAITING_FOR_CAPACITY: {E.FOUND: P.RESTARTING, E.GIVEN_UP: P.FAILED, E.ALIVE: P.RUNNING,
                             E.TIMED_OUT: P.WAITING_FOR_CAPACITY, **_OTHERS},
    P.RESTARTING: {E.PROGRESSED: P.RUNNING, E.DIED: P.STOPPING, E.TIMED_OUT: P.STOPPING, E.DRAINED: P.STOPPING,
                   E.REFUSED: P.WAITING_FOR_CAPACITY, E.ABSENT: P.STOPPING, **_OTHERS},
    P.COMPLETED: {},
    P.FAILED: {},
    P.STOPPED: {},
    P.GONE: {},
}  # fmt: skip

AFTER_ITS_END = frozenset({P.STOPPING.value, P.EXAMINING.value, P.WAITING_FOR_CAPACITY.value})
ENDS = frozenset(phase for phase, row in TABLE.items() if not row)

STILL_S = 30.0  # between two looks at what stands still, two tries of a stop

DEADLINE_OF = {
    P.STALLED: "stalled_s",
    P.STOPPING: "stopping_s",
    P.EXAMINING: "examining_s",
    P.WAITING_FOR_CAPACITY: "capacity_s",
    P.RESTARTING: "restarting_s",
}


def step(r: Recovery, event: JobEvent, why: str, *, now: Now, policy: JobPolicy) -> Recovery | None:
    phase = TABLE[r.phase].get(event)
    if phase is None:
        return None
    again = phase is r.phase is P.STOPPING  # whom nobody could stop in 0.1 s was asked to stop six times a second
    deadline = renewed(r, policy, now) if again else deadline_of(phase, policy, now)
    entry = Entry(r.step + 1, event.value, now.wall, "sickbay", why, phase.value)
    journal = (*r.journal, entry)
    if len(journal) > 128:
        journal = (*journal[:8], *journal[9:])
    return replace(
        r, phase=phase, step=r.step + 1, entered=now.watch, deadline=deadline, pending=None, refusal="", journal=journal
    )


def how_it_ended(r: Recovery) -> tuple[str, str]:
    """From which phase its last attempt came to its end, and by which event. A stop that had to be asked for again, an
    examination, the wait after it and a restart that was refused say nothing of that."""
    event = ""
    for entry in reversed(r.journal):
        if entry.phase not in AFTER_ITS_END and event != E.REFUSED:
            return entry.phase, event
        event = entry.event
    return "", event


def deadline_of(phase: RecoveryPhase, policy: JobPolicy, now: Now) -> float | None:
    setting = DEADLINE_OF.get(phase)
    return now.watch + float(getattr(policy, setting)) if setting else None


def was_passed_over(r: Recovery, now: Now) -> bool:
    """As that of a case: nobody could attend to it. What it asked for may be done by now."""
    return r.pending is not None and r.deadline is not None and now.watch >= r.deadline + LATE_S


def renewed(r: Recovery, policy: JobPolicy, now: Now) -> float | None:
    """The deadline of what goes on in its phase, or stands still and has its whole time again afterwards. Never nearer
    than the next look: a job that stood still with `stopping_s = 0.1` was decided and written ten times a second, for
    hours (seed 40088)."""
    deadline = deadline_of(r.phase, policy, now)
    return None if deadline is None else max(deadline, now.watch + STILL_S)
