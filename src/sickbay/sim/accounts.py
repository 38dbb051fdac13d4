"""What the jobs and the nodes cost, from the truth: ETTR and GPU-hours (plan, section 9). Read at the end of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sickbay.sim.hardware import SimNode
from sickbay.sim.jobs import SimJob


@dataclass(frozen=True, slots=True)
class JobAccount:
    """W = Q + R + U in seconds; ETTR = R / W. User-code attempts are left out of all four and counted."""

    job: str
    ettr: float
    wall_s: float
    productive_s: float
    queued_s: float
    unproductive_s: float
    user_code_s: float
    surviving_steps: int
    lost_steps: int
    attempts: int
    interruptions: int
    gpu_hours_lost: float
    useful_gpu_hours: float  # of steps that survived and hold right numbers


def _until(job: SimJob, now: float) -> float:
    last = job.attempts[-1]
    return last.ended if last.ended is not None and not job.live and last.end == "completed" else now


def _surviving(job: SimJob, now: float) -> int:
    """Steps that count: all of a running attempt, else up to the newest complete checkpoint."""
    first = job.spec.first_step
    if job.live or job.attempts[-1].end == "completed":
        return job.step(now) - first
    newest = job.newest_checkpoint()
    return (newest.step if newest else first) - first


def _mending(job: SimJob, end: float) -> float:
    """Ended by its own code and not started again yet: its owner is at work, and nobody keeps it from running."""
    last = job.attempts[-1]
    return end - last.ended if last.user_code and last.ended is not None and not job.live else 0.0


def _productive_steps(job: SimJob, surviving: int) -> int:
    """Surviving steps of attempts that the user's own code did not end, each counted once."""
    steps, ceiling = 0, job.spec.first_step + surviving
    for attempt in reversed(job.attempts):
        steps += 0 if attempt.user_code else max(0, ceiling - attempt.from_step)
        ceiling = min(ceiling, attempt.from_step)
    return steps


def useful_steps(job: SimJob, surviving: int) -> int:
    """Surviving steps with right numbers, each counted once. What was computed on silently corrupted state counts for
    nothing, nor does what was computed from it later; who ended the attempt does not matter."""
    steps, ceiling = 0, job.spec.first_step + surviving
    for attempt in reversed(job.attempts):
        clean = ceiling if attempt.wrong_from is None else min(ceiling, attempt.wrong_from)
        steps += max(0, clean - attempt.from_step)
        ceiling = min(ceiling, attempt.from_step)
    return steps


def job_account(job: SimJob, now: float, gpus_per_node: int = 8) -> JobAccount:
    job.settle(now)
    end = _until(job, now)
    running = user = 0.0
    for attempt in job.attempts:
        took = (end if attempt.ended is None else attempt.ended) - attempt.started
        running += took
        user += took if attempt.user_code else 0.0
    excused = job.excused_s + _mending(job, end)
    wall = max(0.0, end - job.submitted - user - excused)
    surviving = _surviving(job, now)
    productive = min(_productive_steps(job, surviving) * job.spec.step_s, wall)
    queued = max(0.0, end - job.submitted - running - excused)
    lost_h = (wall - productive) / 3600 * len(job.nodes) * gpus_per_node
    useful_h = useful_steps(job, surviving) * job.spec.step_s / 3600 * len(job.nodes) * gpus_per_node
    interruptions = sum(a.ended is not None and a.end != "completed" and not a.user_code for a in job.attempts)
    return JobAccount(
        job.id, productive / wall if wall else 0.0, wall, productive, queued, wall - productive - queued, user,
        surviving, job.lost_steps, len(job.attempts), interruptions, lost_h, useful_h,
    )  # fmt: skip


def gpu_hours_out(nodes: Iterable[SimNode], now: float) -> float:
    """GPU-hours during which nodes could take no work: closed, gated, not ready or under treatment."""
    seconds = sum((n.out_s + (now - n.out_since if n.out_since is not None else 0.0)) * n.expected for n in nodes)
    return seconds / 3600
