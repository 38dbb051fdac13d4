"""What a check says before it has a severity: a Sign. `finding` gives it one from the catalog, and only from there.

Checks return Signs, `checks/run` and `sickbay diagnose` turn them into Findings. It must never hold knowledge of a
code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sickbay.catalog import Catalog, Profile
from sickbay.catalog.thresholds import thresholds
from sickbay.checks.series import Series
from sickbay.model import Finding, Place, Severity, Status
from sickbay.ports import Completed, Host


@dataclass(frozen=True, slots=True)
class Ask:
    """What the caller wants checked, and what is known beforehand. A judge sees nothing of the world but this."""

    expected_gpus: int | None = None
    cursor: str = ""  # kernel-log: records after this one are new
    profile: Profile | None = None  # None: the type is not known, so counts are UNKNOWN and never "pass"
    uptime_s: float | None = None  # None: not known, which is no boot grace
    at: float = 0.0  # now, wall
    series: Series = field(default_factory=Series)  # this check's samples of earlier polls and of this one
    limits: Mapping[str, float] = field(default_factory=thresholds)
    suite: str = ""  # "prolog", "quarantine", ...: some things are a fault only there
    peers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # measure -> what other nodes reached
    nodes: int = 1  # nccl-allreduce: how many take part
    options: Mapping[str, str] = field(default_factory=dict)  # e.g. "shared-paths": "/fsx,/home"

    @property
    def young(self) -> bool:
        """Within the boot grace: links and fabrics are still training, and say so."""
        return self.uptime_s is not None and self.uptime_s < self.limits["boot-grace-s"]

    def number(self, option: str, default: float) -> float:
        """An option that is a number, not below 0; the default where it is absent or no such number."""
        try:
            value = float(self.options.get(option, default))
        except ValueError:
            return default
        return value if 0 <= value < 1e9 else default


@dataclass(frozen=True, slots=True)
class Reading:
    """What an instrument printed, not yet judged. A check that reads several things names them."""

    done: Completed
    lines: tuple[str, ...] = ()
    cursor: str = ""
    outputs: Mapping[str, Completed] = field(default_factory=dict)
    files: Mapping[str, str | None] = field(default_factory=dict)


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
    traits: Mapping[str, str] = field(default_factory=dict)  # a measured figure is "measure.<name>": "440.5"


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `collect` touches the Host, `judge` is pure, `samples` are the figures to remember between polls."""

    name: str
    number: int | None  # in the originals' suite; None: not one of theirs
    collect: Callable[[Host, Ask], Reading]
    judge: Callable[[Reading, Ask], list[Sign]]
    samples: Callable[[Reading], Mapping[str, float]] | None = None
    deep: bool = False  # occupies the GPUs or the network: only on an idle node, or when told --exclusive
    file: str = ""  # the originals' CHECK_NAME, e.g. "1-dcgm-diag-l2"; "": the name
    own_limit_s: float = 0.0  # > 0: this check's own time limit, which no outer one may cut (L4: 9000 s)
    keeps: Callable[[Reading], Mapping[str, str]] | None = None  # raw artefacts for --results-dir: file name -> text


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
    if done.stuck:
        said = f"{tool} hangs in the kernel and cannot even be killed"
        return Sign("smi.driver-hung" if tool == "nvidia-smi" else "tool.timeout", said, status=_stuck(tool))
    if done.timed_out:
        return Sign("tool.timeout", f"{tool} did not answer in time, so we cannot tell", status=Status.UNKNOWN)
    return None


def _stuck(tool: str) -> Status | None:
    """Only the driver's own tool says something about the driver; another one in D state is an instrument we lost."""
    return None if tool == "nvidia-smi" else Status.UNKNOWN


def quote(*lines: str, most: int = 4) -> tuple[str, ...]:
    """Lines fit to be quoted: not empty, printable, short, few."""
    kept = ("".join(c if c.isprintable() else " " for c in line[:400]).strip() for line in lines)
    return tuple(line[:240] for line in kept if line)[:most]
