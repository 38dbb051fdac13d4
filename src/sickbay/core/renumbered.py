"""A job that shows the number of an earlier attempt: a look that is told late, or a number that somebody has changed.

The number stands on the job's own object, where its owner may edit or remove it, and whoever puts an object back from a
backup puts an old one there. A look from before is late for a while only. What is shown like that for longer than any
look is late is the attempt on record: its death, its steps and our own stop of it are believed. The record's number
stands, so the next attempt gets one that none has had. Called by core/recover.py; pure.
"""

from __future__ import annotations

from sickbay.core import explain
from sickbay.core.frozen import replace
from sickbay.core.progress import LATE_S
from sickbay.core.turn import JobSlice, Now
from sickbay.model import Entry, Job, Recovery
from sickbay.model import RecoveryPhase as P

EVENT = "RENUMBERED"


def seen(s: JobSlice, r: Recovery, now: Now) -> tuple[JobSlice, Recovery]:
    """What it shows, under the number on record once that is no late look any more. For how long it has been shown is
    counted by our own looking: by its last step, one that makes a step an hour would be late at once."""
    job = s.job
    if job is None or job.attempt >= r.attempt:
        return s, (r if r.behind < 0 else replace(r, behind=-1.0))
    if r.behind < 0:
        return s, replace(r, behind=now.watch)
    if now.watch < r.behind + LATE_S:
        return s, r
    return replace(s, job=replace(job, attempt=r.attempt)), _told(r, job, now)


def _told(r: Recovery, job: Job, now: Now) -> Recovery:
    """Once for each number. One that is stopped by us has its own messages, and its next attempt is numbered anew."""
    why = f"its number of attempts says {job.attempt} and was changed by somebody: this is attempt {r.attempt}"
    if r.phase not in (P.RUNNING, P.STALLED) or any(entry.why == why for entry in r.journal):
        return r
    entry = Entry(r.step, EVENT, now.wall, "sickbay", why, r.phase.value)
    notices = (*r.notices, explain.renumbered(r, job.attempt, now.wall))[-8:]
    return replace(r, journal=(*r.journal, entry), notices=notices)
