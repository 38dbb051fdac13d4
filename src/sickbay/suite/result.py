"""What a check came to, in the original suite's words, and the summary of them all. Pure.

The original has PASS, FAIL, WARN and SKIP. A check that could not look is none of the first three: it is a SKIP that
says so (`unknown`), so that old readers neither pass nor drain a node for it, and new ones see it. The worst finding
decides, and nothing later erases it (originals 002.12 #1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sickbay import wire
from sickbay.model import Finding, Severity, Status

PASS, FAIL, WARN, SKIP, UNKNOWN = "PASS", "FAIL", "WARN", "SKIP", "UNKNOWN"
DETAILS = 2_000  # characters
MOST_FAILED = 123  # as an exit code
COULD_NOT_LOOK = 124  # exit code: nothing failed, and something could not be looked at
UNABLE = 126  # exit code: nothing was run, because what was asked is not possible
_MEASURE = "measure."


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Original fields first, in its order; ours after."""

    timestamp: str
    hostname: str
    instance_type: str
    check: str  # the original's CHECK_NAME, e.g. "1-dcgm-diag-l2"
    status: str
    details: str
    severity: str = ""
    name: str = ""  # our name of it, e.g. "dcgm-l2"
    unknown: bool = False  # could not look: neither health nor sickness
    seconds: float = 0.0
    measures: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def document(self) -> dict[str, Any]:
        names = ("timestamp", "hostname", "instance_type", "check", "status", "details", "severity")
        first = {name: getattr(self, name) for name in names}
        ours = {"name": self.name, "unknown": self.unknown, "seconds": round(self.seconds, 3)}
        findings = [wire.to_json(one) for one in self.findings]
        return {**first, **ours, "measures": dict(self.measures), "findings": findings}


@dataclass(frozen=True, slots=True)
class Whose:
    """The same for every result of one run."""

    hostname: str
    instance_type: str
    at: float

    @property
    def timestamp(self) -> str:
        return datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def result(whose: Whose, name: str, file: str, findings: Sequence[Finding], seconds: float) -> CheckResult:
    """From everything a check found."""
    ordered = tuple(sorted(findings, key=_badness, reverse=True))
    status, severity = _verdict(ordered)
    unknown = any(one.status is Status.UNKNOWN for one in ordered)
    blank = CheckResult(whose.timestamp, whose.hostname, whose.instance_type, file or name, status, "", name=name)
    return replace(
        blank, details=_details(ordered, status), severity=severity, unknown=unknown, seconds=seconds,
        measures=measures(ordered), findings=ordered,
    )  # fmt: skip


def skipped(whose: Whose, name: str, file: str, why: str) -> CheckResult:
    """Not run, on purpose."""
    return CheckResult(
        whose.timestamp, whose.hostname, whose.instance_type, file or name, SKIP, f"not run: {why}", name=name
    )


def measures(findings: Sequence[Finding]) -> dict[str, float]:
    """What was measured, by name: other nodes are compared with it."""
    found: dict[str, float] = {}
    for one in findings:
        for name, text in one.traits.items():
            if name.startswith(_MEASURE):
                try:
                    found[name.removeprefix(_MEASURE)] = float(text)
                except ValueError:
                    continue
    return {name: value for name, value in found.items() if abs(value) < float("inf")}


_ORDER = {Status.FAILED: 3, Status.DEGRADED: 2, Status.UNKNOWN: 1, Status.OK: 0}


def _badness(one: Finding) -> tuple[int, int]:
    return (_ORDER[one.status], int(one.severity))


def _verdict(ordered: Sequence[Finding]) -> tuple[str, str]:
    worst = max((one.severity for one in ordered if one.status is Status.FAILED), default=Severity.NONE)
    if worst > Severity.MONITOR:
        return FAIL, wire.to_originals(worst)
    if any(one.status in (Status.FAILED, Status.DEGRADED) for one in ordered):
        return WARN, wire.to_originals(Severity.MONITOR)
    sighted = ordered and all(one.status is Status.OK for one in ordered)
    return (PASS, "") if sighted else (SKIP, "")


def _details(ordered: Sequence[Finding], status: str) -> str:
    told = [one for one in ordered if one.status is not Status.OK] or list(ordered)
    said = "; ".join(_own_words(told))
    text = f"could not look: {said}" if status == SKIP else said
    return text if len(text) <= DETAILS else text[: DETAILS - 1] + "…"


def _own_words(told: Sequence[Finding]) -> list[str]:
    """Each once; the runner's "nothing found" only where the check itself said nothing better."""
    said = list(dict.fromkeys(one.reason for one in told))
    return [text for text in said if not text.endswith(": nothing found")] or ["nothing found"]


# --- the summary ------------------------------------------------------------------------------------------------------


def failures(results: Sequence[CheckResult]) -> int:
    return sum(one.status == FAIL for one in results)


def overall(results: Sequence[CheckResult]) -> str:
    """FAIL if one failed; UNKNOWN if one could not look (or none ran): that is no pass, whatever the others say."""
    statuses = {one.status for one in results}
    if FAIL in statuses:
        return FAIL
    if any(one.unknown for one in results) or not statuses - {SKIP}:
        return UNKNOWN
    return WARN if WARN in statuses else PASS


def exit_code(results: Sequence[CheckResult], *, lenient: bool = False) -> int:
    """The number of failed checks, as the original. `lenient` (a prolog): a missing tool must not drain a node."""
    failed = failures(results)
    if failed:
        return min(failed, MOST_FAILED)
    return COULD_NOT_LOOK if overall(results) == UNKNOWN and not lenient else 0


def summary(whose: Whose, suite: str, total: int, results: Sequence[CheckResult], folder: str) -> dict[str, Any]:
    """summary.json: original fields first."""
    worst = max((wire.from_originals(one.severity) for one in results if one.severity), default=Severity.NONE)
    return {
        "timestamp": whose.timestamp,
        "hostname": whose.hostname,
        "instance_type": whose.instance_type,
        "suite": suite,
        "total_checks": total,
        "completed_checks": len(results),
        "failures": failures(results),
        "status": overall(results),
        "results_dir": folder,
        "severity": wire.to_originals(worst) if worst else "",
        "warnings": sum(one.status == WARN for one in results),
        "unknown": [one.name for one in results if one.unknown],
        "skipped": [one.name for one in results if one.status == SKIP and not one.unknown],
    }
