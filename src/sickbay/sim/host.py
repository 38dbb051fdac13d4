"""A simulated host behind the Host door: prints what the real tools print, so that the real checks run on it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sickbay.ports import Completed
from sickbay.sim import chassis, dcgm, net, smi, smi_links
from sickbay.sim.faults import Ailment, kinds
from sickbay.sim.hardware import SimGpu, SimNode
from sickbay.sim.kernel import as_dmesg

if TYPE_CHECKING:
    from sickbay.sim.world import World

_WRAPPERS = frozenset({"sudo", "-n", "nsenter", "chroot", "/host"})
DMESG_LINES = 2_000


class SimHost:
    def __init__(self, world: World, node: SimNode, dcgm_major: int = 4) -> None:
        self.world, self.node, self.dcgm_major = world, node, dcgm_major
        self.name = node.name

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        """A host that is down answers nothing; one that is up answers at once (time is the platform's concern)."""
        words = [word for i, word in enumerate(argv) if i or word not in _WRAPPERS]
        if not self.node.up:
            return Completed(None, "", "", timed_out=True)
        tool, rest = (words[0].rsplit("/", 1)[-1], words[1:]) if words else ("", [])
        if tool == "nvidia-smi":
            return smi.run(self.node, rest, self.world.now)
        if tool == "dcgmi":
            return dcgm.run(self.node, rest, self.world.illness.seen_by_diag, self.dcgm_major)
        if tool in ("systemctl", "pgrep"):
            return smi_links.service(tool, rest)
        if tool == "dmesg":
            return Completed(0, as_dmesg(self.node.kernel.tail(DMESG_LINES)), "")
        if tool in net.TOOLS or tool == "env":
            return net.run(self.node, words, self.world.now)
        if tool in chassis.TOOLS:
            return chassis.run(self.node, tool, rest)
        return Completed(None, "", f"{tool}: command not found", missing=True)

    def read(self, path: str) -> str | None:
        if not self.node.up:
            return None
        if path == "/proc/sys/kernel/random/boot_id":
            return self.node.boot_id + "\n"
        if path == "/proc/driver/nvidia/version":
            return f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {self.node.driver}  Release Build\n"
        if path == "/proc/uptime":
            up = self.world.now - self.node.boot_at
            return f"{up:.2f} {up * 90:.2f}\n"
        found = net.read(self.node, path, self.world.now)
        return found if found is not None else chassis.read(self.node, path, self.world.now)

    def names(self, path: str) -> tuple[str, ...] | None:
        if not self.node.up:
            return None
        found = net.names(self.node, path)
        return found if found is not None else chassis.names(self.node, path)

    def fetch(
        self, url: str, timeout_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> str | None:
        return chassis.fetch(self.node, url, method) if self.node.up else None

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        boot, _, sequence = cursor.rpartition(":")
        start = int(sequence) if boot == self.node.boot_id and sequence.isdigit() else 0
        if not self.node.up and start == 0 and not cursor:
            return [], cursor
        return self.node.kernel.after(start), f"{self.node.boot_id}:{self.node.kernel.last}"

    def boot_id(self) -> str:
        return self.node.boot_id


class _Garbled(SimHost):
    """As an agent sees a host whose tools print what it cannot read."""

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        done = super().run(argv, timeout_s)
        return Completed(done.code, done.stdout[:7], done.stderr, timed_out=done.timed_out, missing=done.missing)


def misread(world: World, node: SimNode) -> SimHost:
    """The host as a bad agent version takes it to be: unreadable, or with a lost GPU where none is."""
    if node.agent_fault != "lying" or not node.gpus:
        return _Garbled(world, node)
    first = node.gpus[0]
    lost = Ailment(0, kinds()["gpu_lost_silent"], "never", world.now, 1.0, {"index": first.slot})
    seen = copy.copy(node)
    seen.gpus = [SimGpu(first.serial, first.uuid, [lost], first.slot), *node.gpus[1:]]
    return SimHost(world, seen)
