"""STOP_JOB and RESTART_JOB on the simulated fleet: refused when the world has moved on, made once per key and attempt.

platform.py calls it. Every refusal says why; a refused restart spends no attempt.
"""

from __future__ import annotations

from sickbay.model import Action, Done, Failed, JobPhase, Lost, Outcome, Started
from sickbay.sim.jobs import SimJob
from sickbay.sim.world import World

ASK_AGAIN_S = 30.0


def job_of(world: World, action: Action) -> SimJob | None:
    """The job an action is about: named, or running on its node, or the owner of its key ("{job}#{step}")."""
    name = action.args.get("job", "")
    node = world.nodes.get(action.place.node)
    if not name and node is not None:
        name = node.job
    return world.jobs.get(name or action.key.split("#")[0])


def has_saved(job: SimJob) -> Outcome:
    newest = job.newest_checkpoint()
    if newest is None or not job.live:
        return Failed(f"{job.id} ended before it could save")
    return Done(f"{job.id} has saved step {newest.step}")


def stop(world: World, action: Action) -> Outcome:
    job, stops = job_of(world, action), world.gangs.stops
    if job is None:
        return Done("there is no such job")
    if action.key in stops:
        return _stopped(world, job, stops[action.key])
    if job.attempt > int(action.args.get("attempt", job.attempt)):
        return Failed(f"moved: {job.id} is at attempt {job.attempt}")
    if not job.live:
        return _stopped(world, job, f"{job.id} does not run")
    step, last = job.step(world.now), action.args.get("last_step")
    if last is not None and step > int(last):
        return Failed(f"moved: {job.id} has reached step {step}, beyond {last}")
    world.gangs.stop(job, action.key)
    stops[action.key] = f"{job.id} attempt {job.attempt} is stopped at step {step}"
    return _stopped(world, job, stops[action.key])


def _stopped(world: World, job: SimJob, words: str) -> Outcome:
    """Confirmed gone, as the gang's pods would say, wherever somebody answers. What runs where nobody does is not ended
    by waiting here: it holds the restart back."""
    if left := world.gangs.unended(job, silent=False):
        return Started(
            ASK_AGAIN_S, f"ranks of {job.id} on {', '.join(left[:3])} do not answer and cannot be confirmed gone"
        )
    hidden = world.gangs.unended(job, silent=True)
    also = f"; not confirmed on {', '.join(hidden[:3])}, which do not answer" if hidden else ""
    return Done(words + also)


def restart(world: World, action: Action) -> Outcome:
    job = job_of(world, action)
    if job is None or job.phase is JobPhase.GONE:
        return Failed("there is no such job")
    attempt = int(action.args.get("attempt", job.attempt + 1))
    made = world.gangs.restarts.get(action.key)
    if made or job.attempt == attempt:
        return Done(made or f"attempt {attempt} is already there")
    if job.attempt > attempt:
        return Failed(f"attempt {job.attempt} of {job.id} is already there")
    if not action.call:
        return Lost(f"attempt {attempt} of {job.id} was never made")
    return _restart(world, action, job, attempt)


def _restart(world: World, action: Action, job: SimJob, attempt: int) -> Outcome:
    if job.phase in (JobPhase.SUCCEEDED, JobPhase.GONE):
        return Failed(f"{job.id} is {job.phase.value.lower()}")
    from_step = int(action.args.get("from_step", 0))
    why = world.gangs.refusal(job, action.nodes, from_step, action.args.get("behind", ""))
    if why:
        world.note("restart-refused", "", job=job.id, key=action.key, why=why.replace(" ", "_"))
        return Failed(f"refused: {why}")
    world.gangs.restart(action.key, job, attempt, from_step, action.nodes)
    return Done(f"{job.id} attempt {attempt} is placed on {len(action.nodes)} nodes")
