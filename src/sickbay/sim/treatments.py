"""Reset, reboot, power-cycle, replace: what they take, how they fail, what they truly cure. Asked by the platform."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sickbay.model import Verb
from sickbay.sim.faults import Ailment, rates
from sickbay.sim.hardware import SimGpu, SimNode
from sickbay.sim.kernel import KernelRing, boot_lines

if TYPE_CHECKING:
    from sickbay.sim.world import World

FORCE = {
    Verb.RESET_GPU: "reset",
    Verb.REBOOT: "reboot",
    Verb.POWER_CYCLE: "power_cycle",
    Verb.REPLACE: "replace",
}


@dataclass(slots=True)
class Treatment:
    """One delivered call. The node (for REPLACE: the provider) remembers its key, so a second delivery does nothing."""

    key: str
    verb: Verb
    node: str
    device: str
    instance: str
    started: float
    ends: float
    state: str = "started"  # waiting | started | done | failed | withdrawn
    detail: str = ""
    boot_id: str = ""  # in which it was sent: it does nothing in another one


class Treatments:
    def __init__(self, world: World) -> None:
        self.world = world
        self.delivered: dict[str, Treatment] = {}

    def begin(self, key: str, verb: Verb, node: SimNode, device: str = "") -> Treatment:
        """Taken in, once per key. It acts at once, or after `world.waits_s` where what is sent waits in a line."""
        if key in self.delivered:
            return self.delivered[key]
        world = self.world
        treatment = Treatment(key, verb, node.name, device, node.instance, world.now, world.now, "waiting")
        treatment.boot_id = node.boot_id
        self.delivered[key] = treatment
        node.recorded.add(key)
        node.treating = key
        wait_s = world.stream("line").uniform(*world.waits_s) if world.waits_s[1] else 0.0
        if wait_s:
            treatment.ends = world.now + wait_s
            world.note("treat-waits", node.name, key=key, verb=verb.value)
            world.after(wait_s, lambda: self._leave_line(treatment))
        else:
            self._act(node, treatment)
        return treatment

    def withdraw(self, key: str) -> bool:
        """Taken out of the line. False when it is not in it (any more)."""
        treatment = self.delivered[key]
        if treatment.state != "waiting":
            return False
        node = self.world.nodes[treatment.node]
        self._strike_out(node, treatment, "withdrawn", "it was taken back before it had begun")
        return True

    def replaces(self, node: SimNode) -> bool:
        """Is this machine about to go for another one? Whatever else is done to it, others may get in its way."""
        known = self.delivered.get(node.treating)
        return known is not None and known.verb is Verb.REPLACE

    def _leave_line(self, treatment: Treatment) -> None:
        node = self.world.nodes[treatment.node]
        if treatment.state != "waiting":
            return
        if node.gone or (node.instance, node.boot_id) != (treatment.instance, treatment.boot_id):
            self._strike_out(node, treatment, "failed", "the machine has booted or gone since it was sent")
        else:
            self._act(node, treatment)

    def _strike_out(self, node: SimNode, treatment: Treatment, state: str, detail: str) -> None:
        """It never begins."""
        treatment.state, treatment.detail = state, detail
        self.world.stock += treatment.verb is Verb.REPLACE
        if node.treating == treatment.key:
            node.treating = ""
        self.world.note("treat-never", node.name, key=treatment.key, verb=treatment.verb.value, state=state)
        self.world.touch(node)

    def _act(self, node: SimNode, treatment: Treatment) -> None:
        """On the truth."""
        world, verb = self.world, treatment.verb
        low, high = rates()["repair"]["seconds"][FORCE[verb]]
        waited = round(world.now - treatment.started)
        treatment.state, treatment.ends = "started", world.now + world.stream("treat").uniform(low, high)
        world.note(
            "treat-start", node.name, key=treatment.key, verb=verb.value, mark=node.mark, cordoned=node.cordoned,
            jobs=",".join(node.jobs) or "-", stuck=",".join(node.stuck) or "-", ready=node.ready, boot=node.boot_id,
            **({"waited": waited} if waited else {}),
        )  # fmt: skip
        if verb is not Verb.RESET_GPU:
            self.take_down(node)
        world.touch(node)
        world.at(treatment.ends, lambda: self._end(treatment))

    def take_down(self, node: SimNode) -> None:
        """A boot begins: whatever ran here, unkillable or not, is gone with it."""
        world = self.world
        world.agents.silence(node)
        node.up, node.ready = False, node.ready and world.services.is_away("manager")
        world.gangs.node_lost(node)
        node.stuck.clear()

    def _end(self, treatment: Treatment) -> None:
        node = self.world.nodes[treatment.node]
        if node.instance != treatment.instance or (node.gone and treatment.verb is not Verb.REPLACE):
            return self.close(node, treatment, "failed", "the instance went away")
        if treatment.verb is Verb.RESET_GPU:
            return self._reset(node, treatment)
        if treatment.verb is Verb.REPLACE:
            return self.world.provider.deliver(node, treatment)
        return self._boot(node, treatment)

    def _reset(self, node: SimNode, treatment: Treatment) -> None:
        if node.boot_id != treatment.boot_id:
            return self.close(node, treatment, "failed", "the node was rebooted while it was being reset")
        if not node.up or node.hung:
            return self.close(node, treatment, "failed", "the node does not answer nvidia-smi --gpu-reset")
        gpus = [gpu for gpu in node.gpus if treatment.device in ("", gpu.pci)]
        if not gpus or any(gpu.lost for gpu in gpus):
            return self.close(node, treatment, "failed", f"no GPU answers at {treatment.device or 'any address'}")
        for gpu in gpus:
            self._cure_gpu(gpu, "reset")
            self.world.agents.forget_device(node, gpu.pci)
        return self.close(node, treatment, "done", "reset " + ", ".join(gpu.pci for gpu in gpus))

    def _boot(self, node: SimNode, treatment: Treatment) -> None:
        world, force = self.world, FORCE[treatment.verb]
        if not node.powered:
            return self.close(node, treatment, "failed", "the node did not come back: it has no power")
        is_up = node.up and node.boot_id != treatment.boot_id  # somebody has booted it meanwhile
        hangs = world.stream("boot").random() < world.reboot_hangs and not is_up
        self.cure(node, force)
        if force == "reboot" and hangs:
            world.illness.never_came_up(node)
        if node.node_sign("down"):
            return self.close(node, treatment, "failed", "the node did not come back")
        if not is_up:
            self.boot(node)
        return self.close(node, treatment, "done", f"booted, boot id {node.boot_id}")

    def cure(self, node: SimNode, force: str) -> None:
        """What this much force truly cures is gone, or, when the repair silently failed, asleep."""
        node.ailments = [a for a in node.ailments if not self._cured(a, force)]
        for gpu in node.gpus:
            self._cure_gpu(gpu, force)

    def _cure_gpu(self, gpu: SimGpu, force: str) -> None:
        gpu.ailments = [a for a in gpu.ailments if not self._cured(a, force)]

    def _cured(self, ailment: Ailment, force: str) -> bool:
        silent = self.world.stream("silent").random() < self.world.silent_failure[force]
        if not ailment.cured_by(force):
            ailment.dormant = ailment.dormant or ailment.kind.hides
            return False
        if silent and not ailment.signs.get("down") and not ailment.dormant:
            ailment.dormant = True  # looks cured; comes back under load
            self.world.note("silent-failure", what=ailment.kind.name)
            return False
        return True

    def boot(self, node: SimNode) -> None:
        """A boot completes: new boot id, empty kernel log, agent back after a few seconds."""
        world = self.world
        node.boots += 1
        node.boot_id = world.factory.boot_id(node.instance, node.boots)
        node.boot_at = world.now
        node.pinged = {}
        node.kernel = KernelRing(world.now)
        world.rollouts.booting(node, is_new=node.boots == 0)
        node.kernel.print(boot_lines(node.driver), world.now)
        node.up, node.ready = True, node.reachable
        world.network.tell_boot(node)
        world.note("boot", node.name, boot=node.boot_id)
        world.agents.rebooted(node)
        world.illness.booted(node)
        world.rollouts.booted(node)
        wake = partial(world.agents.wake, node, node.boot_id)
        is_new = node.boots == 0  # its agent's image must be pulled first
        world.after(world.agent_up_s, partial(world.services.when_there, "registry", wake) if is_new else wake)

    def new_instance(self, node: SimNode, parts: list[SimGpu] | None = None) -> SimNode:
        """Another machine joins under this name, or one of its own, behind the newcomer gate. `parts`: with these on
        its board."""
        world = self.world
        node = world.provider.successor(node)
        node.generation += 1
        node.objects += 1
        node.instance = world.factory.instance(node.name, node.generation)
        node.uid = world.factory.uid(node.name, node.objects)
        node.gpus, node.ailments, node.treating = parts or world.factory.gpus(node.expected), [], ""
        if not parts:
            self._bring_back(node)
        world.network.moved(node)
        node.mark, node.closed, node.others, node.gate, node.opted_out = "", False, [], True, False
        node.present, node.gone, node.recorded, node.boots = True, False, set(), -1
        node.gpu_map, node.pulled = (), set()
        place = {"place": node.place} if node.place else {}
        serials = ",".join(g.serial for g in node.gpus)
        world.note("joined", node.name, instance=node.instance, serials=serials, **place)
        self.boot(node)
        return node

    def _bring_back(self, node: SimNode) -> None:
        """Refurbished machines carry old parts: sometimes one that was taken out for good reason."""
        world, rng = self.world, self.world.stream("shelf")
        by_chance = rng.random() < world.part_returns and bool(world.shelf.parts)
        serial = world.shelf.owed.pop(0) if world.shelf.owed else ""
        if not serial and by_chance:
            serial = rng.choice(world.shelf.parts).serial
        part = world.shelf.take(serial) if serial else None
        if part is None:
            return
        part.slot = 0
        for ailment in part.ailments:  # its lines name the place where it is now
            ailment.dormant, ailment.values = True, {**ailment.values, "pci": part.pci, "index": part.slot}
        node.gpus[0] = part
        world.note("part-returned", node.name, serial=part.serial)

    def close(self, node: SimNode, treatment: Treatment, state: str, detail: str) -> None:
        treatment.state, treatment.detail = state, detail
        if node.treating == treatment.key:
            node.treating = ""
        self.world.note("treat-end", node.name, key=treatment.key, verb=treatment.verb.value, state=state)
        self.world.truth_changed(node)
