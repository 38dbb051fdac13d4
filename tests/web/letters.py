"""Reports as an agent sends them, and a clock that stands still until it is moved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sickbay import wire
from sickbay.model import Finding, Place, Report, Severity, Status

NODE = "node-0001"
CLUSTER = "lab"
BOOT = "8b1f0c52-9c1e-4a57-8f7e-6f7f4d1f2a10"
SECRET = b"0123456789abcdef0123456789abcdef"


def xid_79(n: int = 1, *, node: str = NODE, boot: str = BOOT, **changed: Any) -> Finding:
    finding = Finding(
        f"{boot}/{n}", "agent", "kernel-log", Place(node, "0000:3b:00"), Status.FAILED, "xid.79",
        "GPU 0000:3b:00 has fallen off the bus.", ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus",),
        Severity.REBOOT, boot,
    )  # fmt: skip
    return replace(finding, **changed)


def a_report(*findings: Finding, node: str = NODE, boot: str = BOOT, sequence: int = 1, **changed: Any) -> Report:
    return replace(Report(node, boot, sequence, 1_800_000_000.0, findings, cluster=CLUSTER), **changed)


def body(report: Report) -> bytes:
    return wire.encode(report)
