"""Runs a suite on a Host: in order, each with its time limit, deep ones only where they may, and says what came of it.

`cli/check` calls `run_suite`. A fault that needs several looks in a row to be believed (`confirm` in the catalog) is
looked at again here, seconds apart, before it fails a node. It must never raise for anything a node prints, and never
run a deep check on a node in use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from sickbay.catalog import Catalog
from sickbay.checks import BY_NAME
from sickbay.checks.run import Answer, Round
from sickbay.checks.signs import Ask, Check
from sickbay.model import Finding, Gpu, Severity, Status
from sickbay.ports import Host
from sickbay.suite.limit import LimitedHost
from sickbay.suite.result import FAIL, CheckResult, Whose, result, skipped
from sickbay.suite.table import Suite

AGAIN_S = 5.0  # between two looks at what needs several
MOST_LOOKS = 5
RECORDS = frozenset({"kernel-log"})  # reads what was written down: a second look at the same line proves nothing more

Progress = Callable[[str, CheckResult | None], None]  # a check begins (None), a check has ended
Keep = Callable[[str, Mapping[str, str]], None]  # raw texts of a check, as soon as it has ended


def _silent(name: str, ended: CheckResult | None) -> None:
    """Nobody watches."""


def _forget(name: str, texts: Mapping[str, str]) -> None:
    """Nobody keeps them."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How to run: what is the same for every suite and differs from caller to caller."""

    limit_s: float = 900.0
    refusal: Callable[[], str] = lambda: ""  # why a deep check may not run now; "" = it may
    progress: Progress = _silent
    keep: Keep = _forget
    again_s: float = AGAIN_S
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


def run_suite(
    host: Host, suite: Suite, catalog: Catalog, *, ask: Ask, whose: Whose, gpus: Sequence[Gpu] = (),
    manner: Manner | None = None,
) -> list[CheckResult]:  # fmt: skip
    """The results in the order in which they came; those that fail-fast left out are not among them."""
    turn = _Turn(host, catalog, ask, whose, gpus, manner or Manner())
    results: list[CheckResult] = []
    for name in suite.first:
        results.append(turn.take(name))
        if suite.fail_fast and results[-1].status == FAIL:
            break
    return results + [turn.take(name) for name in suite.then]


def limit_of(check: Check, limit_s: float) -> float:
    """A check's own limit is not cut by an outer one (originals 002.12 #9)."""
    return check.own_limit_s or limit_s


class _Turn:
    """One run over one host."""

    def __init__(
        self, host: Host, catalog: Catalog, ask: Ask, whose: Whose, gpus: Sequence[Gpu], manner: Manner
    ) -> None:
        self._host, self._catalog, self._whose, self._manner = host, catalog, whose, manner
        self._round = Round(host, catalog, ask, sequence=count(1), gpus=gpus)

    def take(self, name: str) -> CheckResult:
        self._manner.progress(name, None)
        ended = self._taken(BY_NAME[name])
        self._manner.progress(name, ended)
        return ended

    def _taken(self, check: Check) -> CheckResult:
        if check.deep and (why := self._manner.refusal()):
            return skipped(self._whose, check.name, check.file, why)
        began = self._manner.clock()
        answer = self._look(check)
        self._manner.keep(check.name, answer.kept)
        findings = answer.findings if check.deep else self._believed(check, answer.findings)
        return result(self._whose, check.name, check.file, findings, self._manner.clock() - began)

    def _look(self, check: Check) -> Answer:
        if check.own_limit_s:
            return self._round.answer(check.name)
        return self._round.answer(check.name, LimitedHost(self._host, self._manner.limit_s, self._manner.clock))

    def _believed(self, check: Check, first: Sequence[Finding]) -> tuple[Finding, ...]:
        """What one look does not prove is looked at again; what is then gone is only worth watching."""
        needed = {_key(one): looks for one in first if (looks := self._looks(one)) > 1}
        seen = dict.fromkeys(needed, 1)
        for look in range(2, max(needed.values(), default=1) + 1):
            open_ = [key for key in needed if seen[key] == look - 1 and needed[key] >= look]
            if not open_ or check.name in RECORDS:
                break
            self._manner.sleep(self._manner.again_s)
            again = {_key(one) for one in self._look(check).findings if one.status is Status.FAILED}
            seen.update({key: look for key in open_ if key in again})
        return tuple(_weighed(one, seen.get(_key(one), 1), needed.get(_key(one), 1)) for one in first)

    def _looks(self, one: Finding) -> int:
        """In how many looks in a row it must be seen."""
        row = self._catalog.refined(one.code, one.traits)
        if one.status is not Status.FAILED or one.severity <= Severity.MONITOR or row is None:
            return 1
        return min(row.confirm or self._catalog.faults[row.fault].confirm, MOST_LOOKS)


def _key(one: Finding) -> tuple[str, str]:
    return (one.code, one.place.device)


def _weighed(one: Finding, seen: int, needed: int) -> Finding:
    if seen >= needed:
        return one
    said = f"{one.reason} (seen in {seen} of {needed} looks, so only watched)"
    return replace(one, status=Status.DEGRADED, severity=min(one.severity, Severity.MONITOR), reason=said)


def plan(suite: Suite, limit_s: float) -> Iterator[tuple[Check, float]]:
    """What would run, and for how long at most: --dry-run. Touches nothing."""
    for name in suite.checks:
        yield BY_NAME[name], limit_of(BY_NAME[name], limit_s)
