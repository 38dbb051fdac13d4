"""The truth as a platform shows it: SimNode -> Node, SimJob -> Job. Nothing that only the world knows may pass."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from sickbay.model import Finding, Job, Node
from sickbay.sim.hardware import SimNode
from sickbay.sim.jobs import SimJob
from sickbay.sim.world import World


def show_again(world: World, node: SimNode) -> Node:
    """As `show_node`, for an announced change: where only work came or went, most of the last showing stands."""
    n: Node | None = node.shown
    if n is None:
        node.shown = n = show_node(world, node)
        return n
    return Node(
        n.name, n.uid, n.instance, n.pool, n.rack, n.domain, n.factors, n.ready, n.gone, n.boot_id, n.cordoned, n.mark,
        n.gate, n.others, _jobs(node), tuple(node.stuck), node.gpu_map, n.gpus_expected,
        n.gpus_allocatable, n.findings, n.last_check, n.capacity, n.opted_out, node.version, _taken(node),
        machine=_machine(world, node),
    )  # fmt: skip


def show_node(world: World, node: SimNode) -> Node:
    return Node(
        name=node.name,
        uid=node.uid,
        instance=node.instance,
        pool=node.pool,
        rack=node.rack,
        domain=node.domain,
        factors=_factors(node.driver, node.image, node.rack, node.switch, node.zone, node.kind, node.agent),
        ready=node.ready,
        gone=node.gone,
        boot_id=node.told_boot,
        cordoned=node.cordoned,
        mark=node.mark,
        gate=node.gate,
        others=tuple(node.others),
        jobs=_jobs(node),
        stuck=tuple(node.stuck),
        gpus=node.gpu_map,
        gpus_expected=node.expected,
        gpus_allocatable=node.allocatable(),
        findings=tuple(sorted(_said_of(node), key=_worst_first)) if node.findings or node.outside else (),
        last_check=world.agents.last_check(node) if world.heartbeats else 0.0,  # not told of: then it is no heartbeat
        capacity=node.capacity or ("spare" if node.spare else "reservation"),
        opted_out=node.opted_out,
        version=node.version,
        gpus_taken=_taken(node),
        machine=_machine(world, node),
    )


def _said_of(node: SimNode) -> list[Finding]:
    """Its agent's findings, and what outsiders say of this boot."""
    return [*node.findings.values(), *(f for f in node.outside.values() if f.boot_id == node.told_boot)]


PROVIDER = {"running": "running", "stopped": "off", "terminated": "dead"}


def _machine(world: World, node: SimNode) -> str:
    """What its provider says is looked up only while the node does not answer, and while the provider does."""
    if node.ready or not world.provider_tells or world.services.is_away("provider"):
        return ""
    return PROVIDER.get(node.provider_status, "")


@lru_cache(maxsize=10_000)
def _factors(driver: str, image: str, rack: str, switch: str, zone: str, kind: str, agent: str) -> Mapping[str, str]:
    """One mapping for all nodes that share it: thousands are shown at once when a gang is placed. What no label tells
    is no factor."""
    told = {"driver": driver, "image": image, "rack": rack}
    others = (("switch", switch), ("zone", zone), ("instance-type", kind), ("agent", agent))
    return told | {name: value for name, value in others if value}


def _jobs(node: SimNode) -> tuple[str, ...]:
    """Pods that are being deleted on a node that does not answer still count as living there."""
    if node.orphans:
        return tuple(sorted({*node.orphans, *node.jobs}))
    return tuple(sorted(node.jobs)) if len(node.jobs) > 1 else tuple(node.jobs)


def _taken(node: SimNode) -> int:
    return sum(map(len, node.jobs.values()))


def _worst_first(finding: Finding) -> tuple[int, float, str]:
    return (-finding.severity, -finding.at, finding.id)


def show_job(world: World, job: SimJob) -> Job:
    job.settle(world.now)
    step, step_at = seen_step(world, job)
    return Job(
        id=job.id,
        nodes=job.nodes,
        phase=job.phase,
        attempt=job.attempt,
        checkpoint=job.newest_checkpoint(),
        checkpoints=tuple(job.checkpoints),
        step=step,
        step_at=step_at,
        step_s=job.spec.step_s,
        ranks=len(job.rank_nodes),
        exits=job.exits,
        silent=job.silent,
        rank_nodes=job.rank_nodes,
        owner=job.spec.owner,
        managed=job.spec.managed,
        fenced=job.spec.fenced,
        stopped_by=job.stopped_by,
        version=job.version,
        gpus_per_rank=1 if job.spec.gpus_per_node else 0,
        uid=job.uid,
    )


def seen_step(world: World, job: SimJob) -> tuple[int, float]:
    """The newest step that can be seen: what its pods would tell is not heard while its first one is out of reach."""
    told = job.told_step, job.told_at
    first = world.nodes[job.nodes[0]]
    if job.spec.told_by == "pods" and first.cuts and not first.reachable:
        return told if job.told_step >= 0 else (job.pace.from_step, job.pace.anchor)
    return job.last_step(world.now) if job.orphans else (job.step(world.now), job.pace.step_time(world.now))
