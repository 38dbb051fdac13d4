"""The record of a job that somebody deleted before our eyes: what that means, by what was being done about the job.

A job that runs is looked after all the same: its record is written again. So it is while a restart is under way that
was sent already, which nobody else would see through. Otherwise it means "hands off": this failure is left to people,
they are told, and the job is taken up again as soon as it runs. So it is where nobody could read what was being done.
No attempt is ever begun from here. Called by core/recover.py. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from sickbay.core.turn import Now
from sickbay.model import RECOVERY_WORDS, Entry, Job, JobPhase, Notice, Recovery, RecoveryPhase

REMADE, LET_GO = "REMADE", "LET_GO"


def answer(lost: Recovery, job: Job | None, now: Now) -> Recovery:
    if lost.phase is RecoveryPhase.RUNNING or _is_sent(lost):
        return _remade(lost, now)
    return _let_go(lost, job, now)


def _is_sent(lost: Recovery) -> bool:
    """A restart may delete the job before it makes it anew: in between only this record knows of it."""
    return lost.phase is RecoveryPhase.RESTARTING and lost.pending is not None and lost.pending.sends > 0


def _remade(lost: Recovery, now: Now) -> Recovery:
    sent = _is_sent(lost)
    goes_on = "the restart that was sent is seen through" if sent else f"{lost.job} is still looked after"
    why = f"somebody deleted this record; it is written again, because {goes_on}"
    entry = Entry(lost.step, REMADE, now.wall, "sickbay", why, lost.phase.value)
    again = bool(lost.journal) and lost.journal[-1].event == REMADE  # whoever deletes it every minute is noted once
    before = lost.journal[:-1] if again else lost.journal
    return replace(lost, journal=(*before, entry))


def _let_go(lost: Recovery, job: Job | None, now: Now) -> Recovery:
    why = (
        f"somebody deleted the record of {lost.job}, which was {RECOVERY_WORDS[lost.phase]}: nothing more is "
        "done about this failure"
    )
    entry = Entry(lost.step + 1, LET_GO, now.wall, "operator", why, RecoveryPhase.STOPPED.value)
    ended = replace(
        lost, phase=RecoveryPhase.STOPPED, step=lost.step + 1, entered=now.watch, deadline=None, pending=None,
        refusal="", attempt=max(lost.attempt, job.attempt if job else 0), journal=(*lost.journal, entry),
    )  # fmt: skip
    needs_nobody = job is None or job.phase is JobPhase.RUNNING
    return ended if needs_nobody else replace(ended, notices=(*ended.notices, _told(ended, why, now))[-8:])


def unread(job: Job, now: Now, cluster: str) -> Recovery | None:
    """Nobody could read it, so nobody knows what was being done about the job. One that is down and that nobody takes
    up lay there for days without a word."""
    if not job.managed or job.phase not in (JobPhase.FAILED, JobPhase.STOPPED):
        return None
    why = f"somebody removed the record of {job.id}, which could not be read: nothing more is done about this failure"
    step = int(now.watch)  # as of one that is adopted: no key of the one before comes again
    entry = Entry(step, LET_GO, now.wall, "operator", why, RecoveryPhase.STOPPED.value)
    ended = Recovery(
        job=job.id, phase=RecoveryPhase.STOPPED, attempt=job.attempt, step=step, entered=now.watch, deadline=None,
        nodes=job.nodes, job_step=job.step, owner=job.owner, journal=(entry,), cluster=cluster, uid=job.uid,
    )  # fmt: skip
    return replace(ended, notices=(_told(ended, why, now),))


def _told(ended: Recovery, why: str, now: Now) -> Notice:
    body = (
        f"{why[:1].upper()}{why[1:]}. It is not restarted by Sickbay: start it by hand, and it is looked after again "
        f"as soon as it runs. Its story: sickbay why {ended.job}."
    )
    title = f"{ended.job}: its record was deleted, and it is not restarted"
    return Notice(f"{ended.job}/{ended.step}/let-go", "warning", title, body, "", now.wall)
