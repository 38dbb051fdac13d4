"""Machines that leave on purpose: an autoscaler's evening, spot reclaims, the end of a capacity block.

`world.capacity` is asked by tests and storms. None of it is absence or illness: the platform says who takes the machine
(a hold of theirs) where real ones do, and the provider says that it is terminated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sickbay.sim.world import World

AUTOSCALER, SPOT = "cluster-autoscaler", "aws-node-termination-handler"
SCALE_IN_S = 60.0  # from the autoscaler's taint to the end of the instance
SPOT_NOTICE_S = 120.0  # EC2 gives two minutes


class Capacity:
    def __init__(self, world: World) -> None:
        self.world = world

    def scale_in(self, names: Iterable[str], back_after_s: float | None = None) -> list[str]:
        """The evening: idle nodes among these are tainted and go. `back_after_s`: others join in the morning."""
        nodes = self.world.nodes
        idle = [n for n in names if nodes[n].present and not nodes[n].jobs and not nodes[n].treating]
        for name in idle:
            self._leave(name, AUTOSCALER, SCALE_IN_S, back_after_s)
        return idle

    def reclaim_spot(self, name: str, back_after_s: float | None = None) -> None:
        """Two minutes' notice, then the machine is gone with whatever runs on it."""
        self.world.nodes[name].capacity = "spot"
        self._leave(name, SPOT, SPOT_NOTICE_S, back_after_s)

    def block_ends(self, names: Iterable[str], next_after_s: float | None = None) -> None:
        """A capacity block is over: all of its machines end at once, and nobody has put a taint on them."""
        for name in names:
            self.world.nodes[name].capacity = "capacity block"
            self.world.people.terminate(name, by="capacity-block", successor_after_s=next_after_s)

    def _leave(self, name: str, by: str, notice_s: float, back_after_s: float | None) -> None:
        world, node = self.world, self.world.nodes[name]
        if node.gone or not node.present:
            return
        instance = node.instance
        world.people.cordon(name, by=by)
        world.after(notice_s, lambda: self._go(name, instance, by, back_after_s))

    def _go(self, name: str, instance: str, by: str, back_after_s: float | None) -> None:
        if self.world.nodes[name].instance == instance:
            self.world.people.terminate(name, by=by, successor_after_s=back_after_s)
