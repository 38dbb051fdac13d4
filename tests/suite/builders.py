"""Findings, checks and runs for the suite's tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from sickbay.checks import BY_NAME
from sickbay.checks.signs import Ask, Check, Reading, Sign
from sickbay.model import Finding, Place, Severity, Status
from sickbay.ports import Completed, Host
from sickbay.suite.result import CheckResult, Whose
from sickbay.suite.table import Suite

WHOSE = Whose("node-1", "p5.48xlarge", 1_700_000_000.0)
LOST = Sign("smi.gpu-lost", "a GPU is lost")
WARM = Sign("smi.persistence-off", "persistence mode is off", status=Status.DEGRADED)
BLIND = Sign("tool.missing", "no tool here", status=Status.UNKNOWN)
NARROW = Sign("smi.nvlink-narrow", "fewer links than there should be", "0000:3b:00")  # the catalog wants three looks


def found(status: Status, severity: Severity = Severity.NONE, reason: str = "so", **more: object) -> Finding:
    return Finding("boot/1", "agent", "c", Place("node-1"), status, "smi.gpu-lost", reason, severity=severity, **more)  # type: ignore[arg-type]


class Scripted:
    """A check that says, look by look, what a test wants; the last saying is repeated. Remembers its looks."""

    def __init__(self, name: str, *looks: Sequence[Sign], deep: bool = False, own_limit_s: float = 0.0) -> None:
        self.looks, self.asked, self.hosts = list(looks) or [()], 0, list[Host]()
        self.check = Check(name, None, self._collect, self._judge, deep=deep, own_limit_s=own_limit_s)

    def _collect(self, host: Host, ask: Ask) -> Reading:
        self.asked += 1
        self.hosts.append(host)
        return Reading(Completed(0, "", ""))

    def _judge(self, reading: Reading, ask: Ask) -> list[Sign]:
        return list(self.looks[min(self.asked, len(self.looks)) - 1])


@contextmanager
def registered(patch: pytest.MonkeyPatch, *scripted: Scripted) -> Iterator[None]:
    with patch.context() as during:
        for one in scripted:
            during.setitem(BY_NAME, one.check.name, one.check)
        yield


def suite_of(*scripted: Scripted, fail_fast: bool = False, then: Sequence[Scripted] = ()) -> Suite:
    first, after = (tuple(one.check.name for one in some) for some in (scripted, then))
    return Suite("test", "for a test", first, after, fail_fast)


def statuses(results: Sequence[CheckResult]) -> list[tuple[str, str]]:
    return [(one.name, one.status) for one in results]
