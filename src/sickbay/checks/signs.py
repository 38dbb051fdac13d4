"""What a check says before it has a severity: a Sign. `finding` gives it one from the catalog, and only from there.

Checks return Signs, `checks/run` and `sickbay diagnose` turn them into Findings. It must never hold knowledge of a
code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sickbay.catalog import Catalog
from sickbay.model import Finding, Place, Severity, Status
from sickbay.ports import Completed


@dataclass(frozen=True, slots=True)
class Ask:
    """What the caller wants checked: how many GPUs there should be, and which kernel records are new."""

    expected_gpus: int | None = None
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an instrument printed, not yet judged."""

    done: Completed
    lines: tuple[str, ...] = ()
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class Sign:
    """One judged observation. `status` None: as bad as the catalog says the code is."""

    code: str
    reason: str
    device: str = ""
    evidence: tuple[str, ...] = ()
    status: Status | None = None
    count: int = 1
    part: str = ""
    traits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Whose finding it is and when: the same for every Sign of one run of one check."""

    check: str
    node: str
    boot_id: str = ""
    at: float = 0.0
    answers: str = ""
    source: str = "agent"


def severity_of(code: str, traits: Mapping[str, str], catalog: Catalog) -> Severity:
    """The row's own severity as these traits read it, else its fault's. An unknown code is watched, not treated."""
    row = catalog.refined(code, traits)
    if row is None:
        return Severity.MONITOR
    return row.severity if row.severity is not None else catalog.faults[row.fault].severity


def _status(severity: Severity) -> Status:
    if severity == Severity.NONE:
        return Status.OK
    return Status.DEGRADED if severity == Severity.MONITOR else Status.FAILED


def _severity(sign: Sign, catalog: Catalog) -> Severity:
    if sign.status in (Status.UNKNOWN, Status.OK):  # we do not know, or it is well: nothing to be severe about
        return Severity.NONE
    full = severity_of(sign.code, sign.traits, catalog)
    return min(full, Severity.MONITOR) if sign.status is Status.DEGRADED else full


def finding(sign: Sign, catalog: Catalog, stamp: Stamp, sequence: int) -> Finding:
    severity = _severity(sign, catalog)
    return Finding(
        id=f"{stamp.boot_id}/{sequence}",
        source=stamp.source,
        check=stamp.check,
        place=Place(stamp.node, sign.device),
        status=sign.status or _status(severity),
        code=sign.code,
        reason=sign.reason,
        evidence=sign.evidence,
        severity=severity,
        boot_id=stamp.boot_id,
        at=stamp.at,
        answers=stamp.answers,
        count=sign.count,
        part=sign.part,
        traits=sign.traits,
    )


def unusable(done: Completed, tool: str) -> Sign | None:
    """No tool, or no answer in time: we cannot see, which is neither health nor sickness."""
    if done.missing:
        return Sign("tool.missing", f"{tool} is not installed here, so we cannot tell", status=Status.UNKNOWN)
    if done.timed_out:
        return Sign("tool.timeout", f"{tool} did not answer in time, so we cannot tell", status=Status.UNKNOWN)
    return None


def quote(*lines: str, most: int = 4) -> tuple[str, ...]:
    """Lines fit to be quoted: not empty, printable, short, few."""
    kept = ("".join(c if c.isprintable() else " " for c in line[:400]).strip() for line in lines)
    return tuple(line[:240] for line in kept if line)[:most]
