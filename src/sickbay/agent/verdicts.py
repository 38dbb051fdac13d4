"""Findings in, latched verdicts out: what an agent believes about its node, and what ends that belief. Pure.

A verdict stays until the thing its fault row names has happened (a reset, a boot, a passed check, an operator). Absence
is not clearing, a later and weaker answer erases nothing, UNKNOWN neither sets nor clears. Called by agent/station; it
must never read a clock, a file or a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sickbay.catalog import Catalog
from sickbay.model import Fault, Finding, Severity, Status

MOST = 64  # verdicts kept, worst first: a node with more wrong with it than this needs no further reason
SAME_EVENT_S = 5.0  # lines of one code on one device that follow each other within this time are one event
SICK = (Status.FAILED, Status.DEGRADED)

Key = tuple[str, str, str]  # check, device, code


@dataclass(frozen=True, slots=True)
class Verdict:
    """One latched finding: its worst words under its newest id, and how often it was seen in a row."""

    finding: Finding
    since: float  # wall time of the first one, for people
    polls: int = 1  # in a row; for kernel lines: separate events
    believed: bool = False


@dataclass(frozen=True, slots=True)
class Verdicts:
    """All that is believed of a node: what is latched, and each check's newest answer (OK or UNKNOWN)."""

    latched: tuple[Verdict, ...] = ()
    answers: tuple[Finding, ...] = ()

    def believed(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.latched if verdict.believed)

    def findings(self) -> tuple[Finding, ...]:
        """For a Report: verdicts (also those not yet believed: the controller counts for itself), then answers."""
        told = [verdict.finding for verdict in self.latched] + list(self.answers)
        return tuple(sorted(told, key=_worst_first))


def key_of(finding: Finding) -> Key:
    return (finding.check, finding.place.device, finding.code)


def sequence(finding: Finding) -> int:
    tail = finding.id.rpartition("/")[2]
    return int(tail) if tail.isdecimal() else 0


def take(state: Verdicts, findings: Sequence[Finding], catalog: Catalog) -> Verdicts:
    """Fold in one whole cycle: all findings of each check that ran. What is sick is renewed before what passed clears,
    so that a check which passes early in a cycle cannot end what another one of the same cycle still sees."""
    kept = {key_of(verdict.finding): verdict for verdict in state.latched}
    sick = _folded(findings)
    for key, finding in sick.items():
        kept[key] = _renewed(kept.get(key), finding, catalog)
    shown, looked = set(sick), _looked(findings)
    kept = {key: v for key, v in kept.items() if v.believed or key in shown or key[0] not in looked}
    passed = [_newest(check, findings) for check in _passed(findings)]
    latched = tuple(v for v in kept.values() if not _passes(v, passed, shown, catalog))
    return Verdicts(_bounded(latched), _answers(state.answers, findings))


def glimpse(state: Verdicts, findings: Sequence[Finding], catalog: Catalog) -> Verdicts:
    """In the middle of a cycle: what is new and needs treatment is latched at once. `take` counts it at the end."""
    known = {key_of(verdict.finding) for verdict in state.latched}
    grave = {k: f for k, f in _folded(findings).items() if f.severity > Severity.MONITOR and k not in known}
    new = tuple(_judged(Verdict(f, f.at, polls=0, believed=confirm(f, catalog) <= 1), catalog) for f in grave.values())
    return replace(state, latched=_bounded(state.latched + new))


def _folded(findings: Sequence[Finding]) -> dict[Key, Finding]:
    """What is sick, one of each key: twice in one look is not twice in a row."""
    found: dict[Key, Finding] = {}
    for finding in findings:
        if finding.status in SICK and finding.code:
            old = found.get(key_of(finding))
            worst = old if old is not None and old.severity > finding.severity else finding
            count = finding.count + old.count if old is not None else finding.count
            found[key_of(finding)] = replace(worst, id=finding.id, at=finding.at, count=count)
    return found


def _renewed(old: Verdict | None, new: Finding, catalog: Catalog) -> Verdict:
    if old is None:
        return _judged(Verdict(new, new.at), catalog)
    lines = new.check == "kernel-log"
    again = not lines or new.at - old.finding.at >= SAME_EVENT_S or new.boot_id != old.finding.boot_id
    count = old.finding.count + new.count if lines else max(old.finding.count, new.count)
    worst = old.finding if old.finding.severity > new.severity else new
    said = replace(worst, id=new.id, at=new.at, boot_id=new.boot_id, count=count, part=new.part or old.finding.part)
    return _judged(Verdict(said, old.since, old.polls + again, old.believed), catalog)


def _judged(verdict: Verdict, catalog: Catalog) -> Verdict:
    return replace(verdict, believed=verdict.believed or verdict.polls >= confirm(verdict.finding, catalog))


def confirm(finding: Finding, catalog: Catalog) -> int:
    """Findings in a row before this one is believed: the code's own number, else its fault's."""
    row, fault = catalog.refined(finding.code, finding.traits), _fault(finding, catalog)
    return (row.confirm if row is not None else 0) or (fault.confirm if fault is not None else 1)


def _fault(finding: Finding, catalog: Catalog) -> Fault | None:
    row = catalog.refined(finding.code, finding.traits)
    return catalog.faults.get(row.fault) if row is not None else None


def _looked(findings: Sequence[Finding]) -> set[str]:
    """Checks that could see. The kernel log is a stream: a batch without a line says nothing about earlier ones."""
    blind = {finding.check for finding in findings if finding.status is Status.UNKNOWN}
    return {finding.check for finding in findings} - blind - {"kernel-log"}


def _passed(findings: Sequence[Finding]) -> set[str]:
    """Checks that could see and found nothing that needs treatment. One that found things to watch has no OK."""
    return _looked(findings) - {finding.check for finding in findings if finding.status is Status.FAILED}


def _newest(check: str, findings: Sequence[Finding]) -> Finding:
    return max((finding for finding in findings if finding.check == check), key=sequence)


def _passes(verdict: Verdict, passed: Sequence[Finding], shown: set[Key], catalog: Catalog) -> bool:
    """Is this what a passed check clears, and did it pass after the finding? What needs treatment is ended only by a
    plain OK, as in core/triage; what is merely watched also by an answer that finds other things to watch."""
    how, grave = cleared_by(verdict.finding, catalog), verdict.finding.severity > Severity.MONITOR
    if key_of(verdict.finding) in shown and verdict.finding.check == how.removeprefix("pass:"):
        return False
    good = [one for one in passed if one.status is Status.OK or not grave]
    return any(how == f"pass:{one.check}" and _later(one, verdict.finding) for one in good)


def cleared_by(finding: Finding, catalog: Catalog) -> str:
    """A code without a row is only noted, as `inform` is: the next good look at the GPUs ends it."""
    fault = _fault(finding, catalog)
    return fault.cleared_by if fault is not None else "pass:nvidia-smi"


def _later(one: Finding, other: Finding) -> bool:
    """Newer without comparing clocks: another boot, or a higher number in the same one."""
    return bool(one.boot_id) if one.boot_id != other.boot_id else sequence(one) > sequence(other)


def _answers(old: Sequence[Finding], findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The newest OK or UNKNOWN of each check; a check that found something has its verdicts instead. Of the kernel log
    only this is an answer: whether it can be followed at all."""
    said = {f.check for f in findings if f.check != "kernel-log" or f.status not in SICK}
    kept = {finding.check: finding for finding in old if finding.check not in said}
    for finding in findings:
        if finding.status not in SICK:
            before = kept.get(finding.check)
            kept[finding.check] = before if before and before.status is Status.UNKNOWN else finding
    return tuple(kept.values())[-MOST:]


def _worst_first(finding: Finding) -> tuple[int, int, str, str]:
    status = (Status.FAILED, Status.UNKNOWN, Status.DEGRADED, Status.OK).index(finding.status)
    return (-finding.severity, status, finding.check, finding.place.device)


def _bounded(latched: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    if len(latched) <= MOST:
        return latched
    return tuple(sorted(latched, key=lambda v: (*_worst_first(v.finding), v.since))[:MOST])


# --- what ends a verdict besides a passed check -----------------------------------------------------------------------


def booted(state: Verdicts, boot_id: str, uptime_s: float, catalog: Catalog) -> Verdicts:
    """Another boot ends what a boot (or the weaker reset) ends, once the machine has had its time to settle."""
    kept = tuple(v for v in state.latched if not _ended_by_boot(v, boot_id, uptime_s, catalog))
    answers = tuple(answer for answer in state.answers if answer.boot_id in ("", boot_id))
    return replace(state, latched=kept, answers=answers)


def _ended_by_boot(verdict: Verdict, boot_id: str, uptime_s: float, catalog: Catalog) -> bool:
    finding = verdict.finding
    if not boot_id or not finding.boot_id or finding.boot_id == boot_id:
        return False
    if not verdict.believed:
        return True  # "in a row" does not reach across a boot
    fault = _fault(finding, catalog)
    ends = fault is not None and fault.cleared_by in ("boot", "reset")
    return ends and uptime_s >= (fault.settle_s if fault is not None else 0.0)


def reset(state: Verdicts, devices: Iterable[str], catalog: Catalog) -> Verdicts:
    """A finished GPU reset ends what a reset ends, on the devices it touched (none named: on all)."""
    touched = frozenset(devices)
    kept = tuple(
        v for v in state.latched
        if cleared_by(v.finding, catalog) != "reset" or (touched and v.finding.place.device not in touched)
    )  # fmt: skip
    return replace(state, latched=kept)


def cleared(state: Verdicts, device: str = "") -> Verdicts:
    """An operator's word ends everything, on one device or on the whole node. What is still wrong is found again."""
    kept = tuple(v for v in state.latched if device and v.finding.place.device != device)
    return replace(state, latched=kept)


# --- the node's verdict -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The node in one word: pass, warn (MONITOR: stays in service, originals 002.12 #7), fail, or unknown."""

    status: str
    severity: Severity
    reason: str


def verdict_of(state: Verdicts) -> NodeVerdict:
    """The worst that is believed. A node whose GPUs we could not look at is unknown, never well."""
    worst = max(state.believed(), key=lambda v: (v.finding.severity, v.since), default=None)
    if worst is not None and worst.finding.severity > Severity.MONITOR:
        return NodeVerdict("fail", worst.finding.severity, worst.finding.reason)
    blind = _blind(state)
    if blind:
        return NodeVerdict("unknown", Severity.NONE, blind)
    if worst is not None and worst.finding.severity is Severity.MONITOR:
        return NodeVerdict("warn", Severity.MONITOR, worst.finding.reason)
    return NodeVerdict("pass", Severity.NONE, _well(state))


def _blind(state: Verdicts) -> str:
    """Why we cannot speak of the GPUs, or ""."""
    smi = next((answer for answer in state.answers if answer.check == "nvidia-smi"), None)
    if smi is not None and smi.status is Status.UNKNOWN:
        return smi.reason
    if smi is None and not any(v.finding.check == "nvidia-smi" for v in state.latched):
        return "the GPUs have not been looked at yet"
    return ""


def _well(state: Verdicts) -> str:
    blind = sum(answer.status is Status.UNKNOWN for answer in state.answers)
    good = sum(answer.status is Status.OK for answer in state.answers)
    return f"{good} checks pass" + (f", {blind} could not look" if blind else "")
