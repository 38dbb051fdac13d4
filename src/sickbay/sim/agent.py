"""The agents of all simulated nodes: judge kernel lines at once, run nvidia-smi every cycle, keep what they found.

What a host prints is a pure function of its truth, so a cycle on a host whose truth has not changed would repeat the
last answer word for word. Such cycles are not run, which makes 2,048 nodes x 54 days cheap. The heartbeat goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sickbay.model import Finding, Gpu, Status
from sickbay.sim import judge
from sickbay.sim.hardware import SimNode
from sickbay.sim.host import SimHost, misread

if TYPE_CHECKING:
    from sickbay.sim.world import World

LIGHT = ("nvidia-smi",)
KEPT_FINDINGS = 64
SAME_CYCLES = 4  # a sick answer is repeated this often under new ids (rules count cycles), then it is only a level


class Agents:
    def __init__(self, world: World) -> None:
        self.world = world
        # For the judge, who must not ask the controller: node -> code -> when a tool printed it last, here or because
        # somebody examined the node; and when a cycle of the agent last found nothing. No fact, so no trace moves.
        self.printed: dict[str, dict[str, float]] = {}
        self.well_at: dict[str, float] = {}
        world.on_truth(self.plan_cycle)
        world.on_kernel(self.read_kernel)
        if world.heartbeats:
            world.after(world.cycle_s, self._beat)

    def host(self, node: SimNode) -> SimHost:
        return SimHost(self.world, node) if not node.agent_fault else misread(self.world, node)

    def numbers(self, node: SimNode) -> Iterator[int]:
        """The agent's own counter: ids are ordered within a boot and never repeat."""
        while True:
            node.sequence += 1
            yield node.sequence

    def examine(self, node: SimNode, names: tuple[str, ...], answers: str = "") -> list[Finding]:
        """These checks on this node, now: by its own cycle, or because somebody asked for a verification."""
        host, numbers, now = self.host(node), self.numbers(node), self.world.now
        if node.ailments or node.agent_fault or "kernel-log" in names or any(gpu.ailments for gpu in node.gpus):
            found = judge.examine(
                host, names, at=now, expected_gpus=node.expected, sequence=numbers, answers=answers
            )  # fmt: skip
            self._note_printed(node, found)
            return found
        shape = (node.driver, node.image, len(node.gpus))
        return judge.examine_well(
            host, names, shape, at=now, expected_gpus=node.expected, sequence=numbers, answers=answers
        )  # fmt: skip

    def _note_printed(self, node: SimNode, found: Iterable[Finding]) -> None:
        """An instrument that could not look has said nothing."""
        sick = [f.code for f in found if f.code and f.status not in (Status.OK, Status.UNKNOWN)]
        if sick:
            self.printed.setdefault(node.name, {}).update(dict.fromkeys(sick, self.world.now))

    # -- heartbeat ----------------------------------------------------------------------------------------------------

    def last_check(self, node: SimNode) -> float:
        """When this agent last finished a cycle, run or skipped."""
        until = self.world.now if node.agent_silent_since is None else node.agent_silent_since
        beats = math.floor((until - self.world.clock.start - node.agent_phase) / self.world.cycle_s)
        return self.world.clock.start + node.agent_phase + beats * self.world.cycle_s

    def _beat(self) -> None:
        """Only when asked for: every node is shown again once per cycle, as an API server would show its heartbeat."""
        for node in self.world.nodes.values():
            if node.present and node.agent_up:
                self.world.touch(node)
        self.world.after(self.world.cycle_s, self._beat)

    def silence(self, node: SimNode) -> None:
        if node.agent_up:
            node.agent_up, node.agent_silent_since, node.cycle_at = False, self.world.now, None

    def wake(self, node: SimNode, boot: str) -> None:
        """The agent is back, after a boot or by itself: it looks at once."""
        if node.boot_id != boot or not node.answers or node.gone or node.agent_muted:
            return
        if node.agent_fault == "mute":
            return
        node.agent_up, node.agent_silent_since = True, None
        self.read_kernel(node)
        self._cycle(node, boot)

    def rebooted(self, node: SimNode) -> None:
        """What belonged to the last boot is over; the map of parts is kept on disk."""
        self.silence(node)
        node.agent_muted = False
        node.findings, node.sequence, node.cursor, node.same_cycles = {}, 0, "", 0

    # -- the kernel log -----------------------------------------------------------------------------------------------

    def read_kernel(self, node: SimNode) -> None:
        if not node.agent_up:
            return
        host = self.host(node)
        found = judge.examine(
            host, ("kernel-log",), at=self.world.now, expected_gpus=node.expected, sequence=self.numbers(node),
            cursor=node.cursor,
        )  # fmt: skip
        node.cursor = f"{node.boot_id}:{node.kernel.last}"
        sick = [f for f in found if f.code]
        self._note_printed(node, sick)
        for finding in sick:
            self._fold(node, self.named(node, finding))
        if sick:
            self._bound(node)
            self.world.touch(node)

    def _fold(self, node: SimNode, finding: Finding) -> None:
        key = (finding.check, finding.place.device, finding.code)
        before = node.findings.get(key)
        node.findings[key] = replace(finding, count=finding.count + before.count) if before else finding

    def _bound(self, node: SimNode) -> None:
        if len(node.findings) > KEPT_FINDINGS:
            worst = sorted(node.findings.items(), key=lambda item: (-item[1].severity, -item[1].at))
            node.findings = dict(worst[:KEPT_FINDINGS])

    def forget_device(self, node: SimNode, device: str) -> None:
        """After a GPU reset the agent starts that GPU's record anew; the boot and its counter go on."""
        node.findings = {key: f for key, f in node.findings.items() if key[1] != device}

    # -- the cycle ----------------------------------------------------------------------------------------------------

    def plan_cycle(self, node: SimNode) -> None:
        """The truth changed: the next cycle of this node is really run."""
        node.same_cycles = 0
        if not node.agent_up or node.cycle_at is not None:
            return
        node.cycle_at = self.last_check(node) + self.world.cycle_s
        boot = node.boot_id
        self.world.at(node.cycle_at, lambda: self._cycle(node, boot))

    def _cycle(self, node: SimNode, boot: str) -> None:
        if node.boot_id != boot or not node.agent_up:
            return
        node.cycle_at = None
        found = self._repeat(node) if node.same_cycles else self._look(node)
        kept = {key: f for key, f in node.findings.items() if f.check == "kernel-log"}
        for finding in found:
            kept[(finding.check, finding.place.device, finding.code)] = finding
        node.findings = kept
        self._bound(node)
        self.world.touch(node)
        self._again(node, found)

    def _look(self, node: SimNode) -> list[Finding]:
        found = self.examine(node, LIGHT)
        found += judge.instruments(self.host(node), at=self.world.now, sequence=self.numbers(node))
        if all(f.status is Status.OK for f in found):
            self.well_at[node.name] = self.world.now
            node.gpu_map = tuple(gpu.as_gpu() for gpu in node.gpus)
        return [self.named(node, f) for f in found]

    def _repeat(self, node: SimNode) -> list[Finding]:
        """The truth is as it was, so the answer is as it was, under new ids and at a new time."""
        numbers = self.numbers(node)
        last = [f for f in node.findings.values() if f.check != "kernel-log"]
        self._note_printed(node, last)
        return [replace(f, id=f"{node.boot_id}/{next(numbers)}", at=self.world.now) for f in last]

    def _again(self, node: SimNode, found: Iterable[Finding]) -> None:
        """Rules count cycles in a row: a bad answer is given again under new ids, a blind one as long as it lasts."""
        unknown = any(f.status is Status.UNKNOWN for f in found)
        sick = any(f.status is not Status.OK for f in found)
        node.same_cycles += 1
        if unknown or (sick and node.same_cycles < SAME_CYCLES):
            boot = node.boot_id
            node.cycle_at = self.world.now + self.world.cycle_s
            self.world.at(node.cycle_at, lambda: self._cycle(node, boot))

    def named(self, node: SimNode, finding: Finding) -> Finding:
        """Attach the serial from the map of the last healthy cycle: a lost GPU can no longer say who it is."""
        if finding.part or not finding.place.device:
            return finding
        gpu: Gpu | None = next((g for g in node.gpu_map if g.pci == finding.place.device), None)
        return replace(finding, part=gpu.serial) if gpu else finding
