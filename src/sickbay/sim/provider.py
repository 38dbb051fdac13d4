"""The provider of machines: what it hands back when one is replaced. By default another one, with other parts.

Treatments ask it when a REPLACE has taken its time. Tests and storms set its `habits`, or what the next one shall be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sickbay.sim.hardware import SimNode

if TYPE_CHECKING:
    from sickbay.sim.treatments import Treatment
    from sickbay.sim.world import World

# What it may do instead of handing over a good machine that nobody has seen before:
#   same-parts     another instance id on the very same board: the serials and what ails them come back
#   same-instance  the same machine, started again: its id, its parts, a new boot
#   sick           another machine that is sick already, and shows it only under load
#   late           another machine, hours later
#   ill            another machine that is sick already, and says so from the first look on
#   never          the old one is gone and no other comes (no capacity): the call never ends
LATE_S = (3_600.0, 21_600.0)


class Provider:
    def __init__(self, world: World) -> None:
        self.world = world
        self.habits: dict[str, float] = {}  # habit -> chance at each replacement
        self.renames = False  # successors have names of their own, as Karpenter and Auto Scaling groups give them
        self.next: list[str] = []  # habits of the next replacements, in order; "" is a good one
        self._late: list[tuple[SimNode, Treatment]] = []

    def deliver(self, node: SimNode, treatment: Treatment) -> None:
        """A REPLACE has taken its time: what comes of it."""
        habit = self._habit()
        if habit:
            self.world.note("provider", node.name, habit=habit, key=treatment.key)
        if habit in ("late", "never"):
            self._leave_empty(node, treatment, late=habit == "late")
        elif habit == "same-instance":
            self._start_again(node, treatment)
        else:
            self._hand_over(node, treatment, habit)

    def _habit(self) -> str:
        if self.next:
            return self.next.pop(0)
        if not self.habits:
            return ""
        rng = self.world.stream("provider")
        return next((habit for habit in sorted(self.habits) if rng.random() < self.habits[habit]), "")

    def _hand_over(self, node: SimNode, treatment: Treatment, habit: str = "") -> None:
        world, parts, old = self.world, node.gpus, node.instance
        if node.name not in world.nodes:  # somebody ended it meanwhile, and its successor has a name of its own
            world.treatments.close(node, treatment, "done", f"{old} is gone; its place is taken")
            return
        if node.present:
            world.remove_object(node, gone=True)
        if habit != "same-parts":
            world.shelf.put(parts)
        new = world.treatments.new_instance(node, parts if habit == "same-parts" else None)
        if habit == "sick":
            world.strike("load_only", new.name)
        if habit == "ill":
            world.strike("row_remap_failed_64", new.name, 0, cure="replace")
        world.treatments.close(node, treatment, "done", f"{old} is gone; its successor is {new.instance}")

    def successor(self, node: SimNode) -> SimNode:
        """What the machine that takes this one's place is called: the same, or by a name of its own."""
        if not self.renames:
            return node
        place, number = node.place or node.name, node.generation + 1
        new = replace(
            node, name=f"{place}-{number}", place=place, findings={}, outside={}, jobs={}, stuck=[], orphans=[],
            agent_up=False, agent_silent_since=self.world.now, agent_muted=False, agent_fault="", cuts=[],
            cycle_at=None, out_s=0.0, shown=None, written=(0.0, "", False),
        )  # fmt: skip
        node.gone, node.up, node.ready = True, False, False
        self.world.rollouts.moved(node.name, new)
        self.world.nodes.succeed(node.name, new)
        return new

    def _start_again(self, node: SimNode, treatment: Treatment) -> None:
        """Stopped and started: a power cycle, and every answer says that all went well."""
        world = self.world
        world.treatments.cure(node, "power_cycle")
        world.treatments.boot(node)
        world.treatments.close(node, treatment, "done", f"{node.instance} was started again")

    def _leave_empty(self, node: SimNode, treatment: Treatment, *, late: bool) -> None:
        """The old machine is gone; the next one is not there, and the provider says only that it is being made."""
        world = self.world
        world.shelf.put(node.gpus)
        if node.present:
            world.remove_object(node, gone=True)
        node.up, node.gone, node.treating = False, True, ""
        wait = world.stream("provider").uniform(*LATE_S) if late else float("inf")
        treatment.ends = world.now + wait
        if late:
            self._late.append((node, treatment))
            world.after(wait, lambda: self._arrive(node, treatment))

    def _arrive(self, node: SimNode, treatment: Treatment) -> None:
        if (node, treatment) in self._late:
            self._late.remove((node, treatment))
            node.gpus = []
            self._hand_over(node, treatment)

    def calm(self) -> None:
        """It does as it should from now on, and what is late arrives."""
        self.habits, self.next, self.renames = {}, [], False
        for node, treatment in tuple(self._late):
            self._arrive(node, treatment)
