"""Builders for the agent's tests: findings, a station on a temporary folder, a clock that a test moves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sickbay.agent.chart import Shelf
from sickbay.agent.report import Self
from sickbay.agent.station import Station
from sickbay.agent.verdicts import NodeVerdict
from sickbay.catalog import load
from sickbay.checks.signs import severity_of
from sickbay.model import Finding, Gpu, Place, Report, Severity, Status

CATALOG = load()
BOOT = "boot-a"
GPU = "0000:3b:00"
NODE = "node-1"
WALL = 1_800_000_000.0

XID_79 = b"3,%d,5000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
XID_13 = b"3,%d,6000000,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, name=python, Graphics SM Warp Exception"


def a_finding(code: str = "xid.79", number: int = 1, *, check: str = "kernel-log", **changed: Any) -> Finding:
    """Sick as the catalog says its code is; "" is a check that passed."""
    severity = severity_of(code, {}, CATALOG) if code else Severity.NONE
    status = Status.OK if not code else Status.FAILED if severity > Severity.MONITOR else Status.DEGRADED
    given: dict[str, Any] = {
        "id": f"{BOOT}/{number}", "source": "agent", "check": check, "place": Place(NODE, GPU if code else ""),
        "status": status, "code": code, "reason": f"{code or check} is said", "severity": severity, "boot_id": BOOT,
        "at": WALL + number,
    }  # fmt: skip
    return Finding(**{**given, **changed})


def passed(check: str, number: int, **changed: Any) -> Finding:
    return a_finding("", number, check=check, **changed)


def blind(check: str, number: int, code: str = "tool.timeout", **changed: Any) -> Finding:
    return replace(a_finding("", number, check=check), status=Status.UNKNOWN, code=code, **changed)


@dataclass
class Moments:
    """Time as a test wants it."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Heard:
    """What the station told."""

    reports: list[Report] = field(default_factory=list)
    verdicts: list[NodeVerdict] = field(default_factory=list)

    def __call__(self, report: Report, verdict: NodeVerdict) -> None:
        self.reports.append(report)
        self.verdicts.append(verdict)

    def codes(self) -> list[str]:
        return [finding.code for finding in self.reports[-1].findings if finding.code]


def a_station(
    folder: Path, heard: Heard | None = None, *, boot: str = BOOT, clock: Moments | None = None,
    wall: Moments | None = None, gpus: tuple[Gpu, ...] = (),
) -> Station:  # fmt: skip
    return Station(
        Shelf(folder), Self(NODE, "trial", gpus=gpus), boot, CATALOG, heard or Heard(), wall=wall or Moments(WALL),
        clock=clock or Moments(),
    )  # fmt: skip
