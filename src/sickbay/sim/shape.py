"""The shape of a fleet in one trial: pools, racks, NVLink domains, switches, zones, instance types, jobs and sizes.

sim/check.py draws one where its weather has "shape"; without, every trial has `PLAIN`. A shape is plain data: worlds
are built from it, settings may be drawn for its pools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sickbay.sim.jobs import JobSpec
from sickbay.sim.world import Machine, World

H100, A100, L4 = Machine("p5.48xlarge", 8), Machine("p4d.24xlarge", 8), Machine("g6.12xlarge", 4)


@dataclass(frozen=True, slots=True)
class Shape:
    pools: Mapping[str, int]
    rack_size: int = 4
    domain_size: int = 0
    switch_size: int = 0
    zones: int = 0
    machines: Mapping[str, Machine] = field(default_factory=dict)  # pool -> what stands in it
    jobs: tuple[JobSpec, ...] = ()

    @property
    def nodes(self) -> int:
        return sum(self.pools.values())

    def build(self, seed: int, **options: Any) -> World:
        return World(
            seed, self.nodes, pools=self.pools, rack_size=self.rack_size, domain_size=self.domain_size,
            switch_size=self.switch_size, zones=self.zones, machines=self.machines, **options,
        )  # fmt: skip


def two_gangs(bug_at_step: int = -1) -> tuple[JobSpec, ...]:
    names = [f"node-{i:04d}" for i in range(8)]
    llama = JobSpec("llama", tuple(names[:4]), checkpoint_every=60, total_steps=40_000)
    return llama, JobSpec("mixtral", tuple(names[4:]), checkpoint_every=90, bug_at_step=bug_at_step)


PLAIN = Shape({"default": 14})


def draw(seed: int) -> Shape:
    """A pool of some size and up to three of one, two and three nodes; jobs on whole nodes and on parts of them."""
    rng = Random(f"{seed}/shape")
    small = rng.sample((1, 2, 3), rng.randint(0, 3))
    pools = {"default": rng.randint(9, 16), **{f"pool-{size}": size for size in small}}
    machines = {pool: rng.choice((A100, L4)) if pool != "default" else H100 for pool in pools}
    return Shape(
        pools, rack_size=rng.choice((2, 4, 8)), domain_size=rng.choice((0, 0, 2, 4)), switch_size=rng.choice((0, 4, 8)),
        zones=rng.choice((0, 1, 2)), machines=machines if rng.random() < 0.7 else {},
        jobs=_jobs(rng, pools, machines),
    )  # fmt: skip


def _jobs(rng: Random, pools: Mapping[str, int], machines: Mapping[str, Machine]) -> tuple[JobSpec, ...]:
    names = iter([f"node-{i:04d}" for i in range(sum(pools.values()))])
    gang = tuple(next(names) for _ in range(rng.choice((2, 4, 6))))
    jobs = [JobSpec("llama", gang, checkpoint_every=60, total_steps=40_000, pool="default")]
    shared = next(names)  # one node for two small jobs
    for i, gpus in enumerate(rng.choice(((4, 4), (2, 4), (1, 1)))):
        part = {"gpus_per_node": gpus, "ranks_per_node": gpus}
        jobs.append(JobSpec(f"eval-{i}", (shared,), checkpoint_every=90, pool="default", **part))  # type: ignore[arg-type]
    first = pools["default"]
    for pool, size in [*pools.items()][1:]:
        own = tuple(f"node-{i:04d}" for i in range(first, first + size))
        first += size
        if rng.random() < 0.7:
            gpus = machines[pool].gpus if rng.random() < 0.5 else 4
            part = {"gpus_per_node": 4, "ranks_per_node": 4} if gpus == 4 else {}
            jobs.append(JobSpec(f"own-{pool}", own, checkpoint_every=90, pool=pool, **part))  # type: ignore[arg-type]
    return tuple(jobs)
