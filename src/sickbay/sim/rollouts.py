"""Roll-outs: another driver, image or agent version spreads over the fleet, and may be bad.

`world.rollouts.begin(...)` is asked by tests and storms. It goes on by itself, one node after the other, and by every
boot or new machine that anybody causes: a REBOOT brings the new driver, a REPLACE the new image. It must never choose
nodes by what a controller believes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sickbay.sim.hardware import SimNode

if TYPE_CHECKING:
    from sickbay.sim.world import World

BAD_AGENTS = ("mute", "blind", "lying")  # says nothing; cannot read what the tools print; sees a lost GPU where none is


@dataclass(slots=True)
class Rollout:
    """A value that spreads. `harm`: a kind of faults.toml, or for an agent one of BAD_AGENTS."""

    factor: str  # driver | image | agent
    value: str
    bad_share: float = 0.0
    harm: str = "nvlink_down_after_boot"
    on: bool = True
    has: dict[str, str] = field(default_factory=dict)  # nodes that got it, and what they had before
    bad: set[str] = field(default_factory=set)  # those of them that it harms


class Rollouts:
    def __init__(self, world: World) -> None:
        self.world = world
        self.active: list[Rollout] = []

    def begin(
        self, factor: str, value: str, *, every_s: float | None = 600.0, bad_share: float = 0.0,
        harm: str = "nvlink_down_after_boot",
    ) -> Rollout:  # fmt: skip
        """From now on the fleet goes over to this value: one idle node every `every_s` (None: only as nodes boot)."""
        made = Rollout(factor, value, bad_share, harm)
        self.active.append(made)
        self.world.note("rollout", "", factor=factor, value=value, harm=harm, bad_share=bad_share)
        if every_s is not None:
            self.world.after(every_s, partial(self._next, made, every_s))
        return made

    def stop(self, rollout: Rollout) -> None:
        """No further node gets it; those that have it keep it."""
        rollout.on = False
        if rollout in self.active:
            self.active.remove(rollout)

    def undo(self, rollout: Rollout) -> None:
        """It is taken back: everybody has what he had before, at once and without a boot."""
        self.stop(rollout)
        for name, before in rollout.has.items():
            node = self.world.nodes[name]
            setattr(node, rollout.factor, before)
            self._heal(rollout, node)
        self.world.note("rolled-back", "", factor=rollout.factor, value=rollout.value, nodes=len(rollout.has))

    def _heal(self, rollout: Rollout, node: SimNode) -> None:
        if rollout.factor == "agent":
            node.agent_fault = ""
            self.world.agents.wake(node, node.boot_id)
        for gpu in node.gpus:
            gpu.ailments = [a for a in gpu.ailments if a.kind.name != rollout.harm]
        node.ailments = [a for a in node.ailments if a.kind.name != rollout.harm]
        self.world.truth_changed(node)

    # -- spreading ----------------------------------------------------------------------------------------------------

    def _next(self, rollout: Rollout, every_s: float) -> None:
        """The next idle node that has not got it; an agent is exchanged under running work as well."""
        if not rollout.on:
            return
        node = next((n for n in self.world.nodes.values() if self._may_get(rollout, n)), None)
        if node is not None and rollout.factor == "agent":
            self._take(rollout, node)
        elif node is not None and rollout.factor == "driver":
            self.world.people.reboot(node.name, by="rollout")  # the boot brings it
        elif node is not None:
            self.world.people.terminate(node.name, by="rollout", successor_after_s=300.0)
        self.world.after(every_s, partial(self._next, rollout, every_s))

    def _may_get(self, rollout: Rollout, node: SimNode) -> bool:
        new = getattr(node, rollout.factor) != rollout.value
        idle = rollout.factor == "agent" or not (node.jobs or node.stuck or node.cordoned)
        return new and idle and node.present and node.answers and not node.treating

    def booting(self, node: SimNode, *, is_new: bool) -> None:
        """A boot, whoever caused it, brings the driver that is being rolled out; a new machine the image too."""
        for rollout in self.active:
            taken = rollout.factor == "driver" or (is_new and rollout.factor == "image")
            if taken and getattr(node, rollout.factor) != rollout.value:
                self._take(rollout, node)

    def moved(self, before: str, node: SimNode) -> None:
        """A machine under another name takes the place of this one: it has what was there before the roll-out."""
        for rollout in self.active:
            if before in rollout.has:
                setattr(node, rollout.factor, rollout.has[before])

    def booted(self, node: SimNode) -> None:
        """What is bad is bad after each boot."""
        for rollout in self.active:
            if node.name in rollout.bad and rollout.factor != "agent":
                self._harm(rollout, node)

    def _take(self, rollout: Rollout, node: SimNode) -> None:
        rollout.has.setdefault(node.name, getattr(node, rollout.factor))
        setattr(node, rollout.factor, rollout.value)
        rollout.bad.discard(node.name)
        bad = self.world.stream("rollout").random() < rollout.bad_share
        self.world.note("rolled-out", node.name, factor=rollout.factor, value=rollout.value, bad=bad)
        if bad:
            rollout.bad.add(node.name)
        if bad and rollout.factor == "agent":
            self._harm(rollout, node)

    def _harm(self, rollout: Rollout, node: SimNode) -> None:
        if rollout.factor != "agent":
            known = any(a.kind.name == rollout.harm for _, a in node.all_ailments())
            if not known:
                self.world.illness.strike(rollout.harm, node)
            return
        node.agent_fault = rollout.harm
        if rollout.harm == "mute":
            self.world.agents.silence(node)
        else:
            self.world.agents.plan_cycle(node)

    def calm(self) -> None:
        """What is being rolled out is taken back: the owners have noticed."""
        for rollout in tuple(self.active):
            self.undo(rollout)
