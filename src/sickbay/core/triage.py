"""Findings in, latched verdicts and cases out: what is new, what stays, what has cleared, what opens a case.

Verdicts latch: a fault seen once stays on the node's record until the thing its catalog row names has cleared it
(a reset, a boot, a passed check, an operator). Absence is not clearing. Called by core/decide.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sickbay.catalog import Catalog
from sickbay.core import absence, machine, plan, quiet, suspicion, witness
from sickbay.core import diagnose as diagnosing
from sickbay.core.frozen import replace
from sickbay.core.witness import Ceilings
from sickbay.model import (
    TREATMENTS,
    Case,
    Diagnosis,
    Entry,
    Finding,
    Latch,
    Node,
    NodeRecord,
    Past,
    Phase,
    Severity,
    Status,
    Verb,
    When,
)
from sickbay.settings import CEILINGS, Policy

SEEN_MAX = 512
PAST_MAX = 32
MOST_LATCHES = 64


@dataclass(frozen=True, slots=True)
class Triaged:
    """What a look at a node's findings changed."""

    record: NodeRecord
    fresh: tuple[Diagnosis, ...] = ()  # newly latched or renewed
    cleared: tuple[Latch, ...] = ()
    remarks: tuple[Finding, ...] = ()  # new, worth a notice, never a case


def sequence(finding_id: str) -> int:
    tail = finding_id.rpartition("/")[2]
    return int(tail) if tail.isdigit() else 0


def take(
    record: NodeRecord, node: Node, findings: Sequence[Finding], catalog: Catalog, now: float,
    ceilings: Ceilings = CEILINGS,
) -> Triaged:  # fmt: skip
    """Fold a node's current findings into its record. The same findings again change nothing."""
    record = _note_boot(record, node, now)
    new = [f for f in findings if f.status is not Status.OK and _is_new(record, f)]
    if not new:
        return _clear(record, node, findings, catalog, now, (), ceilings)
    record = replace(record, seen=_remember(record.seen, new, node.boot_id))
    treated: tuple[Diagnosis, ...] = ()
    known: tuple[Diagnosis, ...] = ()
    for said in witness.groups(new, ceilings):
        sick = _sick(said, witness.at_least(findings, said[0].source, ceilings), catalog)
        found = _news(record, sick, said[0].source, node, ceilings)
        record = replace(record, latched=_latch(record.latched, found, said, now, ceilings))
        treated, known = treated + found, known + sick  # another sign of what is known is no remark either
    remarks = tuple(f for f in new if not _is_case_matter(f, known))
    fresh = tuple(witness.bounded(d, ceilings) for d in treated)
    return replace(_clear(record, node, findings, catalog, now, fresh, ceilings), remarks=remarks)


def _sick(said: Sequence[Finding], recent: Sequence[Finding], catalog: Catalog) -> tuple[Diagnosis, ...]:
    """What one source found that can be treated."""
    sick = [f for f in said if f.status in (Status.FAILED, Status.DEGRADED)]
    return tuple(d for d in diagnosing.diagnose(sick, catalog, recent=recent) if _treats(d, catalog))


def _news(
    record: NodeRecord, found: Sequence[Diagnosis], source: str, node: Node, ceilings: Ceilings
) -> tuple[Diagnosis, ...]:
    """Of that, what no witness as strong as it has told already."""
    strong = [la for la in record.latched if not _is_weaker(la, source, ceilings)]
    standing = [(la.fault, la.place.device) for la in strong if la.boot_id in ("", node.boot_id)]
    taken = {(la.fault, la.place.device) for la in strong if witness.outranks(la, source, ceilings)}
    return tuple(
        d for d in found
        if (d.fault, d.place.device) not in taken and not diagnosing.says_nothing_new(d, standing)
    )  # fmt: skip


def _is_weaker(latch: Latch, source: str, ceilings: Ceilings) -> bool:
    return witness.weight(latch.source, ceilings) < witness.weight(source, ceilings)


def _note_boot(record: NodeRecord, node: Node, now: float) -> NodeRecord:
    if not node.boot_id or record.boot_id == node.boot_id:
        return record
    return replace(record, boot_id=node.boot_id, boot_seen=now, uid=node.uid)


def _key(finding: Finding) -> str:
    return f"{finding.boot_id}|{finding.source}|{finding.check}|{finding.code}|{finding.place.device}"


def _is_new(record: NodeRecord, finding: Finding) -> bool:
    """New for its own code and device: a later answer of another check never hides an earlier line."""
    if record.boot_id and finding.boot_id and finding.boot_id != record.boot_id:
        return False  # from a boot that is over
    return sequence(finding.id) > record.seen.get(_key(finding), -1)


def _remember(seen: Mapping[str, int], new: Iterable[Finding], boot_id: str) -> dict[str, int]:
    kept = {key: n for key, n in seen.items() if key.startswith(f"{boot_id}|") or not boot_id}
    for finding in new:
        kept[_key(finding)] = max(sequence(finding.id), kept.get(_key(finding), -1))
    return dict(list(kept.items())[-SEEN_MAX:])


def _treats(diagnosis: Diagnosis, catalog: Catalog) -> bool:
    fault = catalog.faults.get(diagnosis.fault)
    return fault is not None and fault.treats


def _is_case_matter(finding: Finding, diagnoses: Sequence[Diagnosis]) -> bool:
    return any(finding.id == d.finding or finding.code == d.code for d in diagnoses)


def _latch(
    latched: tuple[Latch, ...], diagnoses: Sequence[Diagnosis], new: Sequence[Finding], now: float, ceilings: Ceilings
) -> tuple[Latch, ...]:
    """What a stronger witness says begins anew; who may cause no treatment cannot put one off by saying it again."""
    checks = {f.id: f.check for f in new}
    boots = {f.id: f.boot_id for f in new}
    kept = {(latch.fault, latch.place.device): latch for latch in latched}
    for d in diagnoses:
        old = kept.get((d.fault, d.place.device))
        old = None if old is not None and _is_weaker(old, d.source, ceilings) else old
        seen = now if old is None or witness.may_treat(d.source, ceilings) else old.seen
        kept[(d.fault, d.place.device)] = Latch(
            fault=d.fault, code=d.code, place=d.place, finding=d.finding, boot_id=boots.get(d.finding, ""),
            since=old.since if old else now, seen=seen, severity=max(d.severity, old.severity if old else d.severity),
            count=(old.count if old else 0) + 1, source=d.source, part=d.part or (old.part if old else ""),
            check=checks.get(d.finding, ""), because=d.because[:3], at=old.at if old else d.at,
        )  # fmt: skip
    return _worst(tuple(kept.values()))


def _worst(latched: tuple[Latch, ...]) -> tuple[Latch, ...]:
    """A node that keeps inventing device names cannot grow its record: the worst and oldest stay."""
    if len(latched) <= MOST_LATCHES:
        return latched
    return tuple(sorted(latched, key=lambda latch: (-latch.severity, latch.since))[:MOST_LATCHES])


def _clear(
    record: NodeRecord, node: Node, findings: Sequence[Finding], catalog: Catalog, now: float,
    fresh: tuple[Diagnosis, ...], ceilings: Ceilings,
) -> Triaged:  # fmt: skip
    """Nobody acquits what a stronger witness has said."""
    if not record.latched:
        return Triaged(record, fresh)
    passed = [f for f in findings if f.status is Status.OK]
    heard = {source: witness.at_least(passed, source, ceilings) for source in {la.source for la in record.latched}}
    gone = tuple(la for la in record.latched if _is_cleared(la, record, node, heard[la.source], catalog, now))
    if gone:
        record = replace(record, latched=tuple(la for la in record.latched if la not in gone))
    return Triaged(record, fresh, gone)


def _is_cleared(
    latch: Latch, record: NodeRecord, node: Node, passed: Sequence[Finding], catalog: Catalog, now: float
) -> bool:
    """Has the thing that clears it happened, observed later than the finding?"""
    fault = catalog.faults.get(latch.fault)
    if fault is None or fault.cleared_by == "operator":
        return False
    if not is_confirmed(latch, catalog) and any(f.check == latch.check and is_later(f, latch) for f in passed):
        return True  # not believed yet, and not seen in a row
    how = cleared_by(latch, record, catalog, now)
    rebooted = bool(latch.boot_id and node.boot_id) and latch.boot_id != node.boot_id
    if rebooted and how in ("boot", "reset"):
        return now - record.boot_seen >= fault.settle_s
    if how.startswith("pass:"):
        return any(f.check == how.removeprefix("pass:") and is_later(f, latch) for f in passed)
    return False


def cleared_by(latch: Latch, record: NodeRecord, catalog: Catalog, now: float) -> str:
    """What its row names. Where its part has ended three jobs lately, only a person's word: a boot by somebody else
    had such a case dismissed while it waited for a place, and the part ended a fourth one (seed 1598)."""
    third = suspicion.needs_a_person(record, [latch.part], now)
    return "operator" if third else catalog.faults[latch.fault].cleared_by


def is_later(finding: Finding, latch: Latch) -> bool:
    """Newer than the latch without comparing clocks: another boot, or a higher sequence in the same one."""
    if finding.boot_id != latch.boot_id:
        return bool(finding.boot_id)
    return sequence(finding.id) > sequence(latch.finding)


def clear_by_treatment(
    record: NodeRecord, verb: Verb, devices: frozenset[str], catalog: Catalog, now: float
) -> NodeRecord:
    """A finished reset clears what a reset clears, on the devices it touched (none named: on all)."""
    if verb is not Verb.RESET_GPU:
        return record
    kept = tuple(
        la for la in record.latched
        if cleared_by(la, record, catalog, now) != "reset" or (devices and la.place.device not in devices)
    )  # fmt: skip
    return replace(record, latched=kept)


def clear_by_boot(record: NodeRecord, node: Node, catalog: Catalog, now: float) -> NodeRecord:
    """After our own reboot the active checks take the place of the settling time."""
    kept = tuple(
        la for la in record.latched
        if la.boot_id == node.boot_id or cleared_by(la, record, catalog, now) not in ("boot", "reset")
    )  # fmt: skip
    return replace(record, latched=kept)


def verify(
    case: Case, record: NodeRecord, findings: Sequence[Finding], catalog: Catalog, now: float,
    ceilings: Ceilings = CEILINGS,
) -> tuple[str, str]:  # fmt: skip
    """What an examination says: ("DONE"|"FAILED"|"INCONCLUSIVE", why). Only findings that answer its key are fresh."""
    key = case.pending.key if case.pending else ""
    findings = [f for f in findings if f.answers == key]
    sick = [f for f in findings if f.status is Status.FAILED and _finding_treats(f, catalog)]
    if sick:
        return "FAILED", f"{sick[0].check} on {sick[0].place.device or case.node}: {sick[0].reason}"
    for name in case.plan.verify_with:
        if not any(f.check == name and f.status in (Status.OK, Status.DEGRADED) for f in findings):
            why = next((f.reason for f in findings if f.check == name), "it did not run")
            return "INCONCLUSIVE", f"{name} gave no answer: {why}"
    stays = list(clear_verified(record, findings, catalog, now).latched)
    stays.sort(key=lambda la: not witness.may_treat(la.source, ceilings))
    if stays:
        fault = catalog.faults[stays[0].fault]
        where = stays[0].place.device or case.node
        if not witness.may_treat(stays[0].source, ceilings):  # a failed check would try the next rung for it
            said = f"{stays[0].source} said {fault.title} on {where}, whose word may cause no treatment"
            return "INCONCLUSIVE", f"all checks pass, but {said}: a person decides whether it is believed"
        how = cleared_by(stays[0], record, catalog, now)
        return "FAILED", f"checks pass, but {fault.title} on {where} is cleared only by {how}"
    return "DONE", "all checks passed: " + ", ".join(case.plan.verify_with)


def _finding_treats(finding: Finding, catalog: Catalog) -> bool:
    fault = catalog.fault_of(finding.code)
    return fault is not None and fault.treats


def _cleared_by_pass(latch: Latch, how: str, findings: Sequence[Finding]) -> bool:
    check = how.removeprefix("pass:")
    passed = [f for f in findings if f.check == check and f.status is Status.OK]
    # Our monitor counts for itself, so only an agent's sequence numbers can be compared with a check's.
    return how.startswith("pass:") and any(latch.source != "agent" or is_later(f, latch) for f in passed)


def clear_verified(record: NodeRecord, findings: Sequence[Finding], catalog: Catalog, now: float) -> NodeRecord:
    how = {la: cleared_by(la, record, catalog, now) for la in record.latched}
    kept = tuple(la for la in record.latched if not _cleared_by_pass(la, how[la], findings))
    return replace(record, latched=kept)


# --- opening and merging cases -------------------------------------------------------------------------------------


def diagnosis_of(latch: Latch, catalog: Catalog, at: float, ceilings: Ceilings = CEILINGS) -> Diagnosis:
    fault = catalog.faults[latch.fault]
    code = catalog.code(latch.code)
    when = code.when if code is not None and code.when is not None else fault.when
    said = Diagnosis(
        latch.fault, latch.place, latch.severity, when, fault.confidence, latch.because, at,
        latch.code, latch.source, latch.part, latch.finding,
    )  # fmt: skip
    return witness.bounded(said, ceilings)


def openable(record: NodeRecord, catalog: Catalog, now: float) -> tuple[Latch, ...]:
    """Latched verdicts that may open a case now: no quiet time is running for them."""
    return tuple(la for la in record.latched if now >= quiet.until(record, la))


def is_confirmed(latch: Latch, catalog: Catalog) -> bool:
    """Seen often enough in a row: the code's own number, else its fault's."""
    code = catalog.code(latch.code)
    needed = (code.confirm if code is not None else 0) or catalog.faults[latch.fault].confirm
    return latch.count >= needed


def open_case(
    record: NodeRecord, node: Node, latches: Sequence[Latch], catalog: Catalog, policy: Policy,
    *, now: float, at: float, cluster: str, ceilings: Ceilings = CEILINGS, died: bool = False,
) -> tuple[Case, NodeRecord]:  # fmt: skip
    """A new case under the next number of this node. A relapse starts above the highest rung ever tried for it."""
    n = next_number(record, node.mark)
    diagnoses = tuple(diagnosis_of(la, catalog, at, ceilings) for la in latches)
    floor, why_floor = _relapse_floor(record, latches, policy, now)
    ill = [la for la in latches if la.fault != absence.LONE_FAULT]  # that it was away says nothing about its parts
    again = suspicion.relapsed(record, ill, policy.relapse_s, now)
    record = suspicion.strike(record, again, at)
    if node.jobs or died:
        fresh = [d for la, d in zip(latches, diagnoses, strict=True) if not _stood_before(record, la)]
        record = suspicion.note_kills(record, fresh, now)
    if third := suspicion.needs_a_person(record, [la.part for la in latches], now):
        floor, why_floor = Verb.POWER_CYCLE, f"; {third}"
    made = plan.make(diagnoses, catalog, node=node, ceilings=ceilings)
    made = replace(made, verify_with=suspicion.with_deep_check(made.verify_with)) if again else made
    why = f"{catalog.faults[latches[0].fault].title}: {_quote(latches[0])}"
    case = Case(
        id=f"{node.name}.{n}", node=node.name, uid=node.uid, pool=node.pool, diagnoses=diagnoses,
        plan=made, phase=Phase.SUSPECTED, step=0, opened_at=at, entered=now,
        deadline=now + policy.suspect_s, cluster=cluster, instance=node.instance, rung=floor,
        first_evidence_at=min((la.at for la in latches if la.at), default=at),
        jobs_hurt=node.jobs,
        journal=(Entry(0, "OPENED", at, "sickbay", why + why_floor, Phase.SUSPECTED.value),),
        timeline=((Phase.SUSPECTED.value, at),), opened_version=node.version,
    )  # fmt: skip
    return case, replace(record, last_n=n, uid=node.uid)


def _stood_before(record: NodeRecord, latch: Latch) -> bool:
    """It stood already when its last case ended (left for later, let go): what it ended is counted. Each new case of a
    node that nobody could treat named one job more, until three were said to have died there and one still ran."""
    return any(p.fault == latch.fault and latch.since <= p.ended for p in record.past)


def next_number(record: NodeRecord, mark: str = "") -> int:
    """Never used before, also where a record was lost: a door, and the node itself, may remember actions by the number
    that an old mark still names."""
    tail = mark.rpartition(".")[2]
    return max(record.last_n, int(tail) if tail.isdecimal() and len(tail) < 10 else 0) + 1


def _quote(latch: Latch) -> str:
    return latch.because[0] if latch.because else latch.code


def _relapse_floor(record: NodeRecord, latches: Sequence[Latch], policy: Policy, now: float) -> tuple[Verb | None, str]:
    faults, parts = {la.fault for la in latches}, {la.part for la in latches if la.part}
    back = [
        p for p in record.past
        if p.rung is not None and now - p.ended <= policy.relapse_s and (p.fault in faults or p.part in parts)
    ]  # fmt: skip
    if not back:
        return None, ""
    worst = max(back, key=lambda p: TREATMENTS.index(p.rung or TREATMENTS[0]))
    return worst.rung, f"; it is a relapse of {worst.case}, so treatment starts above {worst.rung}"


def merge(
    case: Case, fresh: Sequence[Diagnosis], catalog: Catalog, node: Node | None = None, ceilings: Ceilings = CEILINGS
) -> tuple[Case, bool]:
    """New findings join the open case. True when they make it worse: a stronger first rung, or a sooner `when`."""
    known = {(d.fault, d.place.device): d for d in case.diagnoses}
    for d in fresh:  # the strongest witness of each stays, also where its verdict is cleared by now
        old = known.get((d.fault, d.place.device))
        if old is None or witness.weight(old.source, ceilings) <= witness.weight(d.source, ceilings):
            known[d.fault, d.place.device] = d
    diagnoses = tuple(known.values())
    made = plan.make(diagnoses, catalog, before=case.plan, node=node, ceilings=ceilings)
    worse = max((d.severity for d in fresh), default=0) > max((d.severity for d in case.diagnoses), default=0)
    sooner = URGENCY[soonest(fresh)] < URGENCY[soonest(case.diagnoses)] if fresh else False
    return replace(case, diagnoses=diagnoses, plan=made), worse or sooner


URGENCY = {When.NOW: 0, When.CHECKPOINT: 1, When.IDLE: 2}


def soonest(diagnoses: Sequence[Diagnosis]) -> When:
    return min((d.when for d in diagnoses), key=URGENCY.__getitem__, default=When.IDLE)


def urgency(case: Case, node: Node | None) -> When:
    """A fault whose dead job still has processes stuck on the node is `now`: the job cannot go on anywhere else."""
    return When.NOW if node is not None and node.stuck else soonest(case.diagnoses)


def settles_at(case: Case, record: NodeRecord, policy: Policy) -> float:
    """XIDs arrive in families: the choice of rung waits until nothing has been seen for a moment. What an agent only
    repeats does not put it off for ever: from the phase's begin, or from what is new, it is two such moments."""
    faults = {d.fault for d in case.diagnoses}
    mine = [la for la in record.latched if la.fault in faults]
    if not mine:
        return 0.0
    newest, first_said = max(la.seen for la in mine), max(la.since for la in mine)
    return min(newest, max(case.entered, first_said) + policy.settle_s) + policy.settle_s


def severity(case: Case) -> Severity:
    return max((d.severity for d in case.diagnoses), default=Severity.NONE)


def may_clear(record: NodeRecord, case: Case, policy: Policy, now: float) -> bool:
    """After two flaps of one fault in a day, a verdict that goes away by itself is no longer believed. That a node was
    away which somebody else called alive is none; and a case about two faults is one flap (seed 967)."""
    if case.alive:
        return True
    faults = {d.fault for d in case.diagnoses}
    flaps = {p.case for p in record.past if p.flap and p.fault in faults and now - p.ended <= policy.flap_window_s}
    return len(flaps) < policy.flaps_accepted


def close(record: NodeRecord, case: Case, policy: Policy, *, now: float, at: float) -> NodeRecord:
    """What the ended case leaves on the record: history, and quiet where it ended without proof of health."""
    last = case.journal[-1].event if case.journal else ""
    flap = not case.rungs_tried and not case.cancelled and not case.alive and last in ("CLEARED", "DONE")
    past = tuple(
        Past(case.id, d.fault, d.part, machine.rung_tried(case), case.phase.value, flap, now, at)
        for d in case.diagnoses
    )
    left = {key: until for key, until in record.quiet.items() if until > now}
    if quiet.is_left_by(case, last):
        left = dict(quiet.after(record, case, policy, now))
    before = tuple(p for p in record.past if p.case != case.id)  # closing twice after a crash counts once
    return replace(record, past=(*before, *past)[-PAST_MAX:], quiet=left)
