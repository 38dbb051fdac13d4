"""Findings in, diagnoses out: what is wrong with a node, in the words of the catalog, and the lines that say so.

`core/triage` and `sickbay diagnose` call it. Pure. The catalog names the fault of a code; this file only knows how
codes change each other's meaning (plan, section 6). It never makes UNKNOWN a sickness, and never treats a node for
an application fault alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sickbay.catalog import Catalog, Code, nvlink5
from sickbay.model import Diagnosis, Finding, Severity, Status, When

DAY_S = 86_400.0
SEPARATE_S = 60.0  # contained errors closer than this are one incident
MOST_QUOTES = 6

_URGENCY = {When.NOW: 0, When.CHECKPOINT: 1, When.IDLE: 2}

# A diagnosis on the right says nothing new once one on the left stands for the same device.
_SUBSUMES: Mapping[str, frozenset[str]] = {
    "gpu-lost": frozenset({"gpu-lost-silent", "rm-init-failed"}),
    "ecc-uncontained": frozenset({"ecc-double-bit", "ecc-contained", "ecc-contained-repeated", "row-remap-pending"}),
    "ecc-double-bit": frozenset({"ecc-contained", "row-remap-pending"}),
    "ecc-contained-repeated": frozenset({"ecc-contained", "row-remap-pending"}),
    "ecc-contained": frozenset({"row-remap-pending"}),
    "row-remap-failed": frozenset({"row-remap-pending", "row-remap-error"}),
}
# What an ill GPU does to its programs and what the driver then asks for: told with the illness, not beside it.
_COLLATERAL = frozenset({"application-fault", "inform", "reset-required", "reboot-required"})


@dataclass(frozen=True, slots=True)
class _Read:
    """One finding as the catalog and its surroundings read it."""

    finding: Finding
    fault: str
    severity: Severity
    when: When
    confidence: float
    notes: tuple[str, ...] = ()


def diagnose(findings: Sequence[Finding], catalog: Catalog, *, recent: Sequence[Finding] = ()) -> tuple[Diagnosis, ...]:
    """One diagnosis per fault and device, worst first. `recent`: what the node said in the last day."""
    ours = {finding.id for finding in findings}
    past = [f for f in recent if f.id not in ours and f.status is not Status.UNKNOWN]
    told = [f for f in findings if f.code and f.status is not Status.OK]
    facts = _facts([*findings, *recent])
    reads = [_read(f, catalog, facts) for f in told]
    reads = [_application(r, reads, past, catalog) for r in reads]
    reads = [_repeated(r, past, catalog) for r in reads]
    merged = _merged(_family(reads))
    return tuple(sorted(merged, key=_worst_first))


def says_nothing_new(d: Diagnosis, standing: Iterable[tuple[str, str]]) -> bool:
    """Is this told already by a (fault, device) that stands on the node? A later instrument may see the same illness
    from another side: nvidia-smi misses the GPU that XID 79 was about."""
    told = [(fault, device) for fault, device in standing if d.fault in _SUBSUMES.get(fault, frozenset())]
    return any(device == d.place.device or not d.place.device for _, device in told)


def _worst_first(d: Diagnosis) -> tuple[int, int, float, str, str]:
    return (-d.severity, _URGENCY[d.when], -d.confidence, d.fault, d.place.device)


def _facts(findings: Iterable[Finding]) -> dict[tuple[str, str], dict[str, str]]:
    """What any instrument said about a GPU (model, MIG) or its node (driver): others need it to be read right."""
    facts: dict[tuple[str, str], dict[str, str]] = {}
    for f in findings:
        own = facts.setdefault((f.place.node, f.place.device), {})
        own.update({k: f.traits[k] for k in ("gpu_model", "mig") if f.traits.get(k)})
        if f.traits.get("driver"):
            facts.setdefault((f.place.node, "driver"), {})["driver"] = f.traits["driver"]
    return facts


def _traits(f: Finding, facts: Mapping[tuple[str, str], dict[str, str]]) -> dict[str, str]:
    node, device = f.place.node, f.place.device
    return {**facts.get((node, "driver"), {}), **facts.get((node, device), {}), **f.traits}


def _read(f: Finding, catalog: Catalog, facts: Mapping[tuple[str, str], dict[str, str]]) -> _Read:
    traits = _traits(f, facts)
    row = catalog.refined(f.code, traits)
    if f.status is Status.UNKNOWN:
        return _blind(f, row, catalog)
    if row is None:
        note = f"{f.code} is not in the catalog: watched, not treated"
        return _as(f, "inform", catalog, notes=(note,), confidence=0.3)
    read = _as(f, row.fault, catalog, row=row)
    if f.status is Status.DEGRADED and read.severity > Severity.MONITOR:  # a warning beside a pass: not enough to treat
        return _as(f, "inform", catalog, notes=("only a warning",))
    read = _decoded(read, traits, catalog)
    if traits.get("sticky"):
        read = replace(
            read, confidence=read.confidence * 0.6, notes=(*read.notes, "the gauge keeps the last XID: it may be old")
        )
    return read


def _as(
    f: Finding,
    name: str,
    catalog: Catalog,
    *,
    row: Code | None = None,
    notes: tuple[str, ...] = (),
    confidence: float | None = None,
) -> _Read:
    fault = catalog.faults.get(name)
    if fault is None:
        return _Read(f, name, Severity.MONITOR, When.IDLE, 0.3, notes)
    severity = row.severity if row and row.severity is not None else fault.severity
    when = row.when if row and row.when is not None else fault.when
    return _Read(f, name, severity, when, fault.confidence if confidence is None else confidence, notes)


def _blind(f: Finding, row: Code | None, catalog: Catalog) -> _Read:
    """An instrument that cannot see is at most a sick instrument."""
    fault = catalog.faults.get(row.fault) if row else None
    name = fault.name if fault and fault.kind in ("instrument", "configuration") else "monitor-sick"
    return replace(_as(f, name, catalog), severity=Severity.MONITOR, when=When.IDLE)


def _word(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _decoded(read: _Read, traits: Mapping[str, str], catalog: Catalog) -> _Read:
    """XID 144-150: the bits decide; where the driver is unknown and matters, the milder reading."""
    xid = read.finding.code.partition(".")[2]
    intr, status = _word(traits.get("intr", "")), _word(traits.get("status") or "0")
    if intr is None or status is None or not xid.isdecimal() or not 144 <= int(xid) <= 150:
        return read
    found = nvlink5.decode(
        catalog.nvlink5, int(xid), intr, status, unit=traits.get("unit", ""), driver=traits.get("driver", "")
    )
    if found is None:
        return read
    notes: tuple[str, ...] = (f"{found.sub.unit}: {found.sub.meaning}",)
    if not found.sure:
        notes = (*notes, "driver version unknown: the milder of two readings")
    fatal = found.sub.severity > Severity.MONITOR
    base = _as(read.finding, "nvlink-error" if fatal else "inform", catalog, notes=notes)
    severity = max(base.severity, found.sub.severity) if fatal else Severity.MONITOR
    return replace(base, severity=severity, confidence=base.confidence * (1.0 if found.sure else 0.7))


def _application(read: _Read, reads: Sequence[_Read], past: Sequence[Finding], catalog: Catalog) -> _Read:
    """An application fault counts against a GPU only across users, images or programs, with the other GPUs clean."""
    if read.fault != "application-fault" or not read.finding.place.device:
        return read
    place = read.finding.place
    others = any(r.fault == "application-fault" and r.finding.place != place for r in reads)
    if others or not _suspicious(read.finding, [f for f in past if f.place == place and f.code == read.finding.code]):
        return read
    note = "different users or programs fail at the same place while the other GPUs are clean"
    return _as(read.finding, "gpu-degrading", catalog, notes=(note,), confidence=0.6)


def _suspicious(f: Finding, before: Sequence[Finding]) -> bool:
    all_of_them = (f, *before)
    for who in ("user", "image"):
        if len({g.traits[who] for g in all_of_them if g.traits.get(who)}) >= 2:
            return True
    sites = {g.traits.get("sites", "") for g in all_of_them}
    pids = {g.traits["pid"] for g in all_of_them if g.traits.get("pid")}
    return (
        len(before) >= 2
        and len(pids) >= 2
        and len(sites) == 1
        and sites.isdisjoint({""})
        and "," not in next(iter(sites))
    )


def _repeated(read: _Read, past: Sequence[Finding], catalog: Catalog) -> _Read:
    """Contained errors that keep coming on one GPU within a day."""
    f = read.finding
    if read.fault != "ecc-contained":
        return read
    span = f.traits.get("span_s", "0")
    within = f.traits.get("events", "1") not in ("", "0", "1") and span.isdecimal() and int(span) >= SEPARATE_S
    before = any(g.code == f.code and g.place == f.place and SEPARATE_S <= f.at - g.at <= DAY_S for g in past)
    if not (within or before):
        return read
    return _as(
        f, "ecc-contained-repeated", catalog, notes=("contained errors on this GPU more than once within a day",)
    )


def _family(reads: Sequence[_Read]) -> list[_Read]:
    """XIDs arrive in families: let the worst of a device speak, the driver's wish raise it, the rest be quoted."""
    kept: list[_Read] = []
    by_place: dict[tuple[str, str], list[_Read]] = {}
    for read in reads:
        by_place.setdefault((read.finding.place.node, read.finding.place.device), []).append(read)
    lost = {node for (node, _), group in by_place.items() if any(r.fault == "gpu-lost" for r in group)}
    for (node, device), group in by_place.items():
        if not device and node in lost:  # a count that is one short says nothing new once we know which GPU is gone
            group = [r for r in group if r.fault != "gpu-lost-silent"]
        kept += _one_device(group)
    return kept


def _one_device(group: Sequence[_Read]) -> list[_Read]:
    faults = {r.fault for r in group}
    gone = frozenset[str]().union(*(_SUBSUMES.get(fault, frozenset()) for fault in faults))
    ill = [r for r in group if r.fault not in gone and r.fault not in _COLLATERAL and r.severity > Severity.MONITOR]
    rest = [r for r in group if r.fault not in gone and r not in ill]
    if not ill or not ill[0].finding.place.device:
        return [r for r in group if r.fault not in gone]
    swallowed = [r for r in group if r.fault in gone] + [r for r in rest if r.fault in _COLLATERAL]
    first = min(ill, key=lambda r: (-r.severity, _URGENCY[r.when]))
    led = _graceful(_raised(first, swallowed), faults)
    led = replace(led, notes=(*led.notes, *(quote for r in swallowed for quote in r.finding.evidence[:1])))
    return [led if r is first else r for r in ill] + [r for r in rest if r.fault not in _COLLATERAL]


def _raised(read: _Read, swallowed: Sequence[_Read]) -> _Read:
    """XID 154 and nvidia-smi's recovery action may raise a verdict, never lower or clear one."""
    for other in swallowed:
        if other.fault in ("reset-required", "reboot-required") and other.severity > read.severity:
            note = f"the driver asks for more: {other.finding.reason}"
            read = replace(
                read,
                severity=other.severity,
                when=min(read.when, other.when, key=_URGENCY.__getitem__),
                notes=(*read.notes, note),
            )
    return read


def _graceful(read: _Read, faults: set[str]) -> _Read:
    """A double-bit error whose row is remapped or that was contained: drain, then reset (NVIDIA's workflow)."""
    if (
        read.fault == "ecc-double-bit"
        and faults & {"row-remap-pending", "row-remap-error", "ecc-contained"}
        and read.severity <= Severity.RESET
    ):
        return replace(
            read, when=When.CHECKPOINT, notes=(*read.notes, "with remapping or containment: drain, then reset")
        )
    return read


def _merged(reads: Sequence[_Read]) -> list[Diagnosis]:
    groups: dict[tuple[str, str, str], list[_Read]] = {}
    for read in reads:
        groups.setdefault((read.fault, read.finding.place.node, read.finding.place.device), []).append(read)
    return [_diagnosis(group) for group in groups.values()]


def _diagnosis(group: Sequence[_Read]) -> Diagnosis:
    worst = min(group, key=lambda r: (-r.severity, _URGENCY[r.when], -r.confidence))
    newest = max(group, key=lambda r: (r.finding.at, _sequence(r.finding)))
    agree = len({r.finding.check for r in group}) > 1
    confidence = max(r.confidence for r in group)
    return Diagnosis(
        fault=worst.fault,
        place=worst.finding.place,
        severity=worst.severity,
        when=min((r.when for r in group), key=_URGENCY.__getitem__),
        confidence=round(min(0.99, confidence + (0.02 if agree else 0.0)), 2),
        because=_because(group),
        at=newest.finding.at,
        code=worst.finding.code,
        source=worst.finding.source,
        part=next((r.finding.part for r in group if r.finding.part), ""),
        finding=newest.finding.id,
    )


def _sequence(f: Finding) -> int:
    tail = f.id.rpartition("/")[2]
    return int(tail) if tail.isdecimal() else 0


def _because(group: Sequence[_Read]) -> tuple[str, ...]:
    quoted = [quote for r in group for quote in r.finding.evidence] or [r.finding.reason for r in group]
    many = [f for r in group if (f := r.finding).count > max(3, len(f.evidence))]
    counted = [f"{f.count:,} such lines in all" for f in many]
    notes = [note for r in group for note in r.notes]
    return tuple(dict.fromkeys([*quoted[: MOST_QUOTES - 2], *counted, *notes]))[:MOST_QUOTES]
