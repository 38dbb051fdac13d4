"""What a check says before it has a severity: a Sign. `finding` gives it one from the catalog, and only from there.

Checks return Signs, `checks/run` and `sickbay diagnose` turn them into Findings. It must never hold knowledge of a code.
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


def severity_of(code: str, catalog: Catalog) -> Severity:
    """The code's own severity, else its fault's. A code nobody has heard of is watched, never treated."""
    row, fault = catalog.code(code), catalog.fault_of(code)
    if row and row.severity is not None:
        return row.severity
    return fault.severity if fault else Severity.MONITOR


def _status(severity: Severity) -> Status:
    if severity == Severity.NONE:
        return Status.OK
    return Status.DEGRADED if severity == Severity.MONITOR else Status.FAILED


def finding(sign: Sign, catalog: Catalog, stamp: Stamp, sequence: int) -> Finding:
    quiet = sign.status in (Status.UNKNOWN, Status.OK)  # we do not know, or it is well: nothing to be severe about
    severity = Severity.NONE if quiet else severity_of(sign.code, catalog)
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
