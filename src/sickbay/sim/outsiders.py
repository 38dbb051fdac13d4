"""Outsiders: alerts and webhooks that say things of nodes, true or not. `world.outsiders` is asked by tests and storms.

What one says stands until it takes it back, and is about the boot in which it was said, as the real doors have it
(web/outside.py, platforms/reported.py). It must never change the truth of a node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sickbay.model import Finding, Place, Severity, Status
from sickbay.sim.hardware import SimNode

if TYPE_CHECKING:
    from sickbay.sim.world import World

SOURCES = ("alertmanager", "webhook", "llm", "sweep", "condition")
GRAVE = ("xid.79", "xid.95", "xid.48", "xid.64", "xid.119", "xid.74", "smi.gpu-lost")
FIRST = 1_000_000  # its numbers are beyond any agent's: a repeat of theirs looks newer


class Outsiders:
    def __init__(self, world: World) -> None:
        self.world = world
        self._said = FIRST

    def accuse(self, source: str, name: str, code: str, gpu: int) -> None:
        """It says that this GPU has this, whether it has or not."""
        node = self.world.nodes[name]
        part = node.gpus[gpu % len(node.gpus)]
        reason = f"{source} says {code} of {name}"
        found = Finding(
            id="", source=source, check=source, place=Place(name, part.pci), status=Status.FAILED, code=code,
            reason=reason, evidence=(reason,), severity=Severity.REBOOT, at=self.world.now, received_at=self.world.now,
            part=part.serial,
        )  # fmt: skip
        self._say(node, found, "accuse")

    def repeat(self, source: str, name: str) -> None:
        """It says once more what the node's own agent says."""
        node = self.world.nodes[name]
        for found in [f for f in node.findings.values() if f.status is Status.FAILED]:
            self._say(node, replace(found, source=source, answers=""), "repeat")

    def _say(self, node: SimNode, found: Finding, act: str) -> None:
        self._said += 1
        said = replace(found, id=f"{node.told_boot}/{self._said}", boot_id=node.told_boot)
        node.outside[found.source, found.code, found.place.device] = said
        self.world.note("outsider", node.name, act=act, source=found.source, code=found.code)
        self.world.touch(node)

    def calm(self) -> None:
        """All of it is taken back."""
        for node in self.world.nodes.values():
            if node.outside:
                node.outside = {}
                self.world.touch(node)
