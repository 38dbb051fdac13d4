"""Faults arriving by themselves, at published rates. Give one to a World; it strikes until told to stop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sickbay.errors import UserError
from sickbay.sim.faults import rates

if TYPE_CHECKING:
    from sickbay.sim.hardware import SimNode
    from sickbay.sim.world import World

DAY = 86_400.0


def presets() -> list[str]:
    return [name for name, row in rates().items() if "per_1000_node_days" in row]


class FaultArrivals:
    """A Poisson process over the whole fleet: one draw for when, one for what, one for where."""

    def __init__(self, preset: str = "llama3", scale: float = 1.0, kinds: Iterable[str] = ()) -> None:
        if preset not in presets():
            raise UserError(f"no fault preset {preset!r}; known: {', '.join(presets())}")
        row = rates()[preset]
        only = set(kinds)
        share = {kind: weight for kind, weight in row["share"].items() if not only or kind in only}
        self.per_node_s = row["per_1000_node_days"] * scale / 1000 / DAY
        self.kinds, self.weights = list(share), list(share.values())
        self.struck = 0
        self._stopped = False

    def start(self, world: World) -> None:
        self._stopped = False
        self._next(world)

    def stop(self) -> None:
        self._stopped = True

    def _next(self, world: World) -> None:
        rate = self.per_node_s * max(1, len(world.nodes))
        world.after(world.stream("arrivals").expovariate(rate), lambda: self._strike(world))

    def _strike(self, world: World) -> None:
        if self._stopped:
            return
        rng = world.stream("arrivals")
        kind, name = rng.choices(self.kinds, self.weights)[0], rng.choice(list(world.nodes))
        node: SimNode = world.nodes[name]
        if node.up and not node.gone and not node.treating:
            self.struck += 1
            world.strike(kind, name)
        self._next(world)
