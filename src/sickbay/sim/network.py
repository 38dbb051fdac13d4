"""Networks and power: any set of nodes is cut off from the control plane, from its peers or from power, and comes back.

`world.network.cut(...)` is asked by tests and by storms (sim/storm.py). It changes what is true, and what the platform
can see of it: a node that is out of reach is shown as it was last heard of, and its ranks work on where nobody reaches
them. It must never touch a mark or a case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sickbay.model import Verb
from sickbay.sim.clock import Act
from sickbay.sim.hardware import SimNode
from sickbay.sim.illness import NOT_READY_S

if TYPE_CHECKING:
    from sickbay.sim.world import World

KINDS = {"control": ("control",), "data": ("data",), "both": ("control", "data"), "power": ("power",)}
EVICT_AFTER_S = 300.0  # tolerationSeconds of the NoExecute taint "unreachable" that every pod gets
RIDES_S = 30.0  # what retransmits bridge (NCCL_IB_TIMEOUT and retries): then communicators are broken for good
HEARTBEAT_S = 10.0  # a kubelet that is back says so within this long
BOOT_S = 240.0  # from power to a kubelet that says Ready
GRACE_S = 30.0  # terminationGracePeriodSeconds: of ranks that were given up, when their kubelet is back


@dataclass(slots=True)
class Cut:
    """One incident: who lost what, and since when."""

    kind: str
    members: dict[str, str]  # node -> the instance that lost it
    since: float
    stays: bool = False  # it belongs to the place: a machine that takes a member's place has it too
    mended: set[str] = field(default_factory=set)

    @property
    def open(self) -> bool:
        return len(self.mended) < len(self.members)


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.cuts: list[Cut] = []  # those in force
        self._mended_at = float("-inf")  # all of them, and those still to come
        self.reboots_by = "provider"  # or "agent": then a REBOOT reaches no node that is down or out of reach

    # -- sets ---------------------------------------------------------------------------------------------------------

    def rack(self, rack: str) -> list[str]:
        return [n.name for n in self.world.nodes.values() if n.rack == rack]

    def switch(self, switch: str) -> list[str]:
        return [n.name for n in self.world.nodes.values() if n.switch == switch]

    def zone(self, zone: str) -> list[str]:
        return [n.name for n in self.world.nodes.values() if n.zone == zone]

    def share(self, share: float) -> list[str]:
        """So many of all nodes, drawn by the seed."""
        names = sorted(self.world.nodes)
        return sorted(self.world.stream("cut").sample(names, max(1, round(share * len(names)))))

    # -- cutting and mending ------------------------------------------------------------------------------------------

    def cut(self, names: Iterable[str], kind: str, for_s: float | None = None, *, stays: bool = False) -> Cut:
        """These nodes lose it now; with `for_s` they get it back after that long."""
        world = self.world
        nodes = [world.nodes[name] for name in names if not world.nodes[name].gone]
        made = Cut(kind, {node.name: node.instance for node in nodes}, world.now, stays)
        self.cuts.append(made)
        world.note("cut", "", what=kind, count=len(nodes), nodes=",".join(made.members))
        for node in nodes:
            self._lose(node, KINDS[kind])
        self._stall(nodes, KINDS[kind])
        if kind != "data":
            self._judged(NOT_READY_S, lambda: self._not_ready(made))
            self._judged(NOT_READY_S + EVICT_AFTER_S, lambda: self._evict(made))
        if for_s is not None:
            world.after(for_s, lambda: self.mend(made))
        return made

    def cut_one_by_one(self, names: Sequence[str], kind: str, every_s: float, for_s: float | None = None) -> None:
        """As certificates expire or disks fill: one node after the other, each for as long."""
        for i, name in enumerate(names):
            self.world.after(i * every_s, partial(self._cut_one, name, kind, for_s, self.world.now))

    def _cut_one(self, name: str, kind: str, for_s: float | None, since: float) -> None:
        if since > self._mended_at:  # else it was mended for good meanwhile, before this one's turn
            self.cut([name], kind, for_s)

    def mend(self, cut: Cut, names: Iterable[str] | None = None) -> None:
        """These members of a cut (all, if none are named) have it back."""
        world = self.world
        back = [n for n in (cut.members if names is None else names) if n in cut.members and n not in cut.mended]
        if not back:
            return
        world.note("mended", "", what=cut.kind, count=len(back), nodes=",".join(back))
        cut.mended.update(back)
        if not cut.open:
            self.cuts.remove(cut)
        nodes = [world.nodes[name] for name in back if cut.stays or world.nodes[name].instance == cut.members[name]]
        for node in nodes:
            self._regain(node, KINDS[cut.kind])
        if "data" in KINDS[cut.kind]:
            jobs = [world.jobs[name] for name in dict.fromkeys(job for node in nodes for job in node.jobs)]
            world.gangs.data_regained(jobs, RIDES_S)

    def mend_all(self) -> None:
        self._mended_at = self.world.now
        for cut in tuple(self.cuts):
            self.mend(cut)

    # -- losing -------------------------------------------------------------------------------------------------------

    def _lose(self, node: SimNode, what: Sequence[str]) -> None:
        world = self.world
        if node.reachable and "control" in what:
            node.dark_since = world.now
            world.agents.silence(node)
        node.cuts += what
        if "power" in what and node.up:
            world.agents.silence(node)
            node.up = False
            world.gangs.node_lost(node)
            node.stuck = []
            node.dark_since = world.now
            world.touch(node)

    def _stall(self, nodes: Sequence[SimNode], what: Sequence[str]) -> None:
        if "data" in what:
            for name in dict.fromkeys(job for node in nodes for job in node.jobs):
                self.world.gangs.data_lost(self.world.jobs[name])

    def _judged(self, after_s: float, act: Act) -> None:
        """It is the controller manager that calls a node not ready and evicts: nobody does while it is dead."""
        self.world.after(after_s, partial(self.world.services.when_there, "manager", act))

    def _silent(self, cut: Cut, at_least_s: float) -> list[SimNode]:
        """Members that nobody has heard of for so long."""
        world, found = self.world, []
        for name, instance in cut.members.items():
            node = world.nodes[name]
            silent = not node.reachable or not node.up
            if silent and node.instance == instance and world.now - node.dark_since >= at_least_s - 1e-6:
                found.append(node)
        return found

    def _not_ready(self, cut: Cut) -> None:
        for node in self._silent(cut, NOT_READY_S):
            if node.ready:
                node.ready = False
                self.world.note("not-ready", node.name)
                self.world.touch(node)

    def _evict(self, cut: Cut) -> None:
        nodes = self._silent(cut, NOT_READY_S + EVICT_AFTER_S)
        for name in dict.fromkeys(job for node in nodes for job in node.jobs):
            self.world.gangs.evict(self.world.jobs[name])

    # -- coming back --------------------------------------------------------------------------------------------------

    def _regain(self, node: SimNode, what: Sequence[str]) -> None:
        world, instance = self.world, node.instance
        for each in what:
            if each in node.cuts:
                node.cuts.remove(each)
        if "control" in what and node.reachable:
            self.hear(node)
        if "power" in what and node.powered and not node.up:
            world.after(BOOT_S + node.agent_phase, lambda: self._powered(node, instance))

    def hear(self, node: SimNode) -> None:
        """Its kubelet says within a few seconds that it is there, if it can."""
        instance = node.instance
        self.world.after(1.0 + node.agent_phase % HEARTBEAT_S, lambda: self._heard(node, instance))

    def _heard(self, node: SimNode, instance: str) -> None:
        """Its kubelet is back and says Ready; what was given up meanwhile it ends within its grace."""
        world = self.world
        if node.instance != instance or not node.answers or node.gone or not node.present:
            return
        self.tell_boot(node)
        if not node.ready:
            node.ready = True
            world.note("ready", node.name)
        world.touch(node)
        world.agents.wake(node, node.boot_id)
        if node.orphans:
            world.after(1.0 + node.agent_phase % GRACE_S, lambda: self._end_orphans(node, instance))

    def _end_orphans(self, node: SimNode, instance: str) -> None:
        """Unless it is cut off again: then nobody hears of their end."""
        if node.instance == instance and node.answers and node.reachable:
            self.world.gangs.orphans_end(node, "its kubelet is back")

    def _powered(self, node: SimNode, instance: str) -> None:
        """Power off and on is a power cycle, whoever did it: it cures what one cures, and gives a new boot id."""
        if node.instance == instance and not node.up and node.powered and not node.gone and not node.treating:
            self.world.treatments.cure(node, "power_cycle")
            self.world.treatments.boot(node)
            self.world.truth_changed(node)

    # -- what treatments and the platform ask -------------------------------------------------------------------------

    def tell_boot(self, node: SimNode) -> None:
        if node.reachable:
            node.told_boot = node.boot_id

    def moved(self, node: SimNode) -> None:
        """Another machine stands here now. Where the place itself is cut off, so is it; never from power, for no
        provider starts a machine without."""
        staying = [c for c in self.cuts if c.stays and node.name in c.members and node.name not in c.mended]
        node.cuts = [each for cut in staying for each in KINDS[cut.kind] if each != "power"]
        node.dark_since = self.world.now

    def reaches(self, verb: Verb, node: SimNode) -> bool:
        """A reset is done on the node, and so may a reboot be: by an agent that a dead host does not have. Power and
        machines are the provider's, or the BMC's, whatever the network."""
        by_agent = verb is Verb.REBOOT and not self.by_provider(verb)
        return self.by_provider(verb) or (node.answers if by_agent else node.reachable)

    def by_provider(self, verb: Verb) -> bool:
        return verb in (Verb.POWER_CYCLE, Verb.REPLACE) or (verb is Verb.REBOOT and self.reboots_by == "provider")
