"""Is a job moving? What a step says, what a silence says, and which silence is not the job's own.

Called by core/recover.py, and by controller/jobs.py for the commonest turn of all. Pure. A step that differs is
movement, backwards too; a job that waits for its place or whose steps nobody can read is not called silent.
"""

from __future__ import annotations

from sickbay.core.frozen import replace
from sickbay.core.turn import JobSlice, Now
from sickbay.model import Cost, Job, JobPhase, Recovery
from sickbay.model import RecoveryPhase as P
from sickbay.settings import JobPolicy


def note(r: Recovery, s: JobSlice, now: Now) -> Recovery:
    job = s.job
    if job is None or job.attempt < r.attempt or r.phase is not P.RUNNING:
        return r
    if job.phase is JobPhase.PENDING:
        return replace(r, entered=now.watch, progressed=now.watch)  # it waits for its place: not a silence of its own
    if job.phase is not JobPhase.RUNNING:
        return r
    if job.attempt == r.attempt and not differs(job, r.job_step):
        return _without_silence(r, now) if job.unread else r
    began = job.attempt > r.attempt  # by its own controller: it has yet to make its first step
    entered = now.watch if began else r.entered
    r = replace(r, job_step=job.step, entered=entered, attempt=job.attempt, nodes=job.nodes)
    return replace(r, progressed=now.watch, cost=Cost.SETTLED)


def differs(job: Job, step: int) -> bool:
    """Has it moved since this step? Backwards too, by its own word: restarted in place, it begins where it saved."""
    return job.step > step or (job.step < step and job.step_at > 0)


def _without_silence(r: Recovery, now: Now) -> Recovery:
    """Nobody can read its steps: that time is not counted, nor is it taken for a first step."""
    return replace(r, progressed=now.watch, entered=now.watch if r.progressed <= r.entered else r.entered)


def only_progressed(r: Recovery, job: Job) -> bool:
    """A running job made further steps and nothing else has changed: the commonest turn of all, and the plainest."""
    return (
        r.phase is P.RUNNING
        and job.phase is JobPhase.RUNNING
        and job.attempt == r.attempt
        and differs(job, r.job_step)
        and job.nodes == r.nodes
        and job.uid in ("", r.uid)
        and job.attempt > r.unfenced  # else what its owner said may be over by now
        and r.pending is None
    )


def progressed(r: Recovery, job: Job, now: Now) -> Recovery:
    return replace(r, job_step=job.step, progressed=now.watch, cost=Cost.SETTLED)


STOPS_S = 60.0  # a gang that answers is stopped within that


def may_move(r: Recovery, job: Job | None, now: float) -> bool:
    """Would a drain stop work that makes progress? One that stalls may go on, and a stop asks whether it has; a drain
    does not ask. So the stop comes first; ranks that it cannot end in a minute hang."""
    if r.phase in (P.RUNNING, P.RESTARTING):
        return True
    runs = job is not None and job.phase is JobPhase.RUNNING
    return runs and (r.phase is P.STALLED or (r.phase is P.STOPPING and now < r.entered + STOPS_S))


def has_just_died(r: Recovery, job: Job | None) -> bool:
    """By itself, and nobody has looked at its nodes yet."""
    if r.phase in (P.STOPPING, P.EXAMINING):
        return next((e.event for e in reversed(r.journal) if e.event != "DONE"), "") == "DIED"
    dead = job is not None and job.phase is JobPhase.FAILED and job.attempt >= r.attempt
    return dead and r.phase in (P.RUNNING, P.STALLED, P.RESTARTING)


def most_quiet_s(r: Recovery, job: Job | None, policy: JobPolicy) -> float:
    """How long a running job may go without a step."""
    first = policy.restarting_s if r.progressed <= r.entered else 0.0  # an attempt that has not made a step yet
    return max(policy.stall_s, policy.stall_steps * (job.step_s if job else 1.0), first)


LATE_S = 300.0  # a look that is told later than that after a stop is taken for a new life of the job


def is_told_late(r: Recovery, job: Job, now: float) -> bool:
    """Every rank of this attempt was confirmed gone a moment ago and it is shown as running: a look from before the
    stop. Somebody who has resumed the very same attempt is believed a little later."""
    confirmed = r.stopped >= 0 and now - r.stopped < LATE_S
    return confirmed and job.phase is JobPhase.RUNNING and job.attempt <= r.attempt


def has_moved(r: Recovery, job: Job) -> bool:
    """Since its stop was asked for; before that, since it was called stalled. By its steps: by the clock a leader who
    takes over at the very moment of the stall could not tell."""
    asked = int(r.pending.args.get("last_step", r.job_step)) if r.pending else r.job_step
    moved = job.attempt > r.attempt or (job.attempt == r.attempt and differs(job, asked))
    return job.phase is JobPhase.RUNNING and moved


def stands_at(r: Recovery, job: Job) -> int:
    """The last step that this attempt has told; what we remember, where nobody has told one since we look."""
    return job.step if differs(job, r.job_step) else r.job_step
