"""What truly happened to a node or a job, read from the world's log alone: the scenes judge by this.

It must never read a record of the controller: a checker that reads the other side's notes sees nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from sickbay.model import JobPhase
from sickbay.sim.jobs import SimJob
from sickbay.sim.tour.scene import and_then
from sickbay.sim.world import Fact, World

VERB_WORDS = {
    "RESET_GPU": "GPU reset",
    "REBOOT": "reboot",
    "POWER_CYCLE": "power-cycle",
    "REPLACE": "replacement",
}


def facts(world: World, kind: str, node: str | None = None, since: float = 0.0) -> list[Fact]:
    return [f for f in world.log if f.kind == kind and f.t >= since and node in (None, f.node)]


def job_facts(world: World, kind: str, job: str) -> list[Fact]:
    return [f for f in world.log if f.kind == kind and f.detail.get("job") == job]


def treatments(world: World, node: str, since: float = 0.0) -> list[str]:
    """The treatments that truly began on this node, in order."""
    return [str(f.detail["verb"]) for f in facts(world, "treat-start", node, since)]


def disturbed(world: World, nodes: tuple[str, ...], since: float = 0.0) -> list[str]:
    """Nodes of these that we cordoned, drained or treated."""
    kinds = ("cordon", "drain", "treat-start")
    return sorted({f.node for f in world.log if f.kind in kinds and f.t >= since and f.node in nodes})


def course(world: World, node: str, since: float = 0.0) -> str:
    """What was done to a node and where it ended, in one sentence: "reboot, then returned to service, truly well"."""
    done = [VERB_WORDS[verb] for verb in treatments(world, node, since)]
    return and_then([*(done or ["no treatment"]), standing(world, node, since)])


def standing(world: World, node: str, since: float = 0.0) -> str:
    """Where a node is now, by the truth."""
    it = world.nodes[node]
    if it.treating:
        return "under treatment"
    if it.mark or it.closed or it.gate:
        return "kept out of service"
    ours = [f for f in world.log if f.node == node and f.t >= since and f.kind in ("release", "person")]
    if ours and (ours[-1].kind == "person" or ours[-1].detail.get("cancel")):
        return "left as the person left it"
    if not facts(world, "release", node, since):
        return "never taken out of service"
    return "returned to service, " + ("truly well" if world.truly_healthy(node) else "NOT well")


def job_course(job: SimJob) -> str:
    """How a job ended: "completed on attempt 2"."""
    words = {
        JobPhase.SUCCEEDED: "completed",
        JobPhase.RUNNING: "running",
        JobPhase.FAILED: "stopped",
        JobPhase.STOPPED: "stopped",
    }
    return f"{words.get(job.phase, job.phase.value.lower())} on attempt {job.attempt}"


def minutes_down(world: World, job: SimJob) -> float:
    """From each moment at which the ranks stopped making steps to the first step of the next attempt."""
    stops = ("ranks-hung", "ranks-dead", "job-end")
    total, since = 0.0, None
    for fact in world.log:
        if fact.detail.get("job") != job.id:
            continue
        if fact.kind in stops and since is None:
            since = fact.t
        elif fact.kind == "place" and since is not None:
            total, since = total + fact.t + job.spec.init_s + job.spec.step_s - since, None
    return total / 60


def losses(world: World, job: SimJob) -> dict[str, int | float]:
    """Minutes without a step, steps done again, and both together in minutes."""
    down = minutes_down(world, job)
    return {
        "minutes_down": round(down, 1),
        "steps_lost": job.lost_steps,
        "minutes_lost": round(down + job.lost_steps * job.spec.step_s / 60, 1),
    }


def out_by_us(world: World, since: float = 0.0) -> Iterator[tuple[float, frozenset[str]]]:
    """Nodes that carried our cordon, after each change: replayed from the log, whatever anybody's ledger says."""
    out: set[str] = set()
    for fact in world.log:
        if fact.t < since:
            continue
        if fact.kind == "cordon":
            out.add(fact.node)
        elif fact.kind in ("release", "joined") or (fact.kind == "person" and fact.detail.get("act") == "uncordon"):
            out.discard(fact.node)
        else:
            continue
        yield fact.t, frozenset(out)
