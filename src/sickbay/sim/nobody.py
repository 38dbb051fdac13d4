"""A fleet that nobody looks after: what `sickbay sim compare` measures every controller against.

A job's own operator restarts what fails (JobSpec.requeue_s) on whatever looks open; a trainer whose watchdog has spoken
ends itself; a new machine takes work as soon as it has joined. Nothing else happens unless a person comes (Staff).
It must never treat, cordon or examine a node.
"""

from __future__ import annotations

from sickbay.model import JobPhase
from sickbay.sim.hardware import SimNode
from sickbay.sim.world import Watcher, World

LOOK_S = 300.0  # how late the end of a hung gang is at most: as in sim/originals.py, so that both stand alike


class Nobody:
    def __init__(self, world: World) -> None:
        self.world = world
        world.watch(Watcher(lambda nodes, _removed, _jobs: self._joined(nodes)))
        world.after(LOOK_S, self._round)

    def _round(self) -> None:
        end_hangs(self.world)
        self.world.after(LOOK_S, self._round)

    def _joined(self, nodes: list[SimNode]) -> None:
        for node in nodes:
            if node.gate:
                self.world.after(0.0, lambda node=node: open_gate(self.world, node))  # type: ignore[misc]


def open_gate(world: World, node: SimNode) -> None:
    """Nobody holds a new machine back."""
    if node.gate:
        node.gate = False
        world.note("gate-opened", node.name, by="nobody")
        world.touch(node)


def end_hangs(world: World) -> None:
    """TORCH_NCCL_ASYNC_ERROR_HANDLING, which is on by default: after the watchdog's word the ranks abort."""
    for job in world.jobs.values():
        if job.live and job.silent:
            world.gangs.stop(job, "nccl-watchdog", JobPhase.FAILED)
