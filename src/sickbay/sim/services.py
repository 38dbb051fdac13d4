"""What a whole fleet leans on and what may be away for an hour: API server, provider, registry, controller manager.

`world.services.fail(name, for_s)` is asked by tests and storms. The platform, treatments and gangs ask `is_away` at the
moment of use, or leave an act for the moment of return. It must never change hardware.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sickbay.sim.clock import Act

if TYPE_CHECKING:
    from sickbay.sim.world import World

# What is felt while it is away:
#   api       nothing is shown and nothing is taken; what happened meanwhile is told on its return
#   provider  no machine is started, ended or power-cycled, and nobody says whether one runs
#   registry  images that a node does not have cannot be had (also: no DNS): new machines have no agent, new ranks wait
#   manager   the controller manager is dead: whoever was Ready stays Ready, nobody is evicted
#   storage   every rank waits in D state (shared.py)
#   subnet    no gang that starts finds its peers; those that run go on (shared.py)
#   rights    our role may neither evict nor take marks off: who is asked to leave stays, what is closed stays closed,
#             and we are told which right is missing
#   marks     our role may put no mark on a node, so none is closed; no storm draws it
SERVICES = ("api", "provider", "registry", "manager", "storage", "subnet", "rights", "marks")


class Services:
    def __init__(self, world: World) -> None:
        self.world = world
        self._away: dict[str, int] = {}  # name -> outages in force
        self._waiting: dict[str, list[Act]] = {name: [] for name in SERVICES}

    def is_away(self, name: str) -> bool:
        return bool(self._away) and name in self._away

    def fail(self, name: str, for_s: float | None = None) -> None:
        """It is away from now; with `for_s` it comes back after that long."""
        if name not in SERVICES:
            raise ValueError(f"there is no service {name}; known are {', '.join(SERVICES)}")
        self._away[name] = self._away.get(name, 0) + 1
        self.world.note("service-away", "", what=name)
        if for_s is not None:
            self.world.after(for_s, lambda: self.back(name))

    def back(self, name: str) -> None:
        if not self.is_away(name):
            return
        self._away[name] -= 1
        if self._away[name]:
            return
        del self._away[name]
        self.world.note("service-back", "", what=name)
        waiting, self._waiting[name] = self._waiting[name], []
        for act in waiting:
            act()
        if name == "provider" and self.world.provider_tells:
            self._told_again()

    def _told_again(self) -> None:
        """What the provider says of machines that do not answer is shown again."""
        for node in self.world.nodes.values():
            if node.present and not node.ready:
                self.world.touch(node)

    def all_back(self) -> None:
        for name in tuple(self._away):
            self._away[name] = 1
            self.back(name)

    def forget(self, last_s: float) -> list[str]:
        """The platform's own store crashed and lost what it had acknowledged in the last so many seconds: marks that
        were put on are off, marks that were taken off are on again. Nobody did that. Returns whose."""
        world, lost = self.world, []
        for node in world.nodes.values():
            at, mark, closed = node.written
            if node.present and at and world.now - at <= last_s and (mark, closed) != (node.mark, node.closed):
                node.mark, node.closed, node.written = mark, closed, (0.0, "", False)
                lost.append(node.name)
                world.note("forgot", node.name, mark=mark or "-")
                world.touch(node)
        return lost

    def when_there(self, name: str, act: Act) -> None:
        """Now, or as soon as it is back."""
        if self.is_away(name):
            self._waiting[name].append(act)
        else:
            act()
