"""First steps of a turn: fold what the node shows into its record, and say what is worth a notice.

Called by core/decide.py.
"""

from __future__ import annotations

from sickbay.core import absence, explain, keeping, parts, suspicion, triage
from sickbay.core.frozen import replace
from sickbay.core.moment import how_long, moment
from sickbay.core.turn import Now, Turn
from sickbay.model import Done, Finding, Node, Place, Severity, Status

REPEAT_NOTICE_S = 86_400.0


def note_readiness(turn: Turn) -> None:
    """Remember since when a node has not been ready, and forget everything about a machine that was exchanged."""
    node, record, now = turn.s.node, turn.record, turn.ctx.now.watch
    if node is None:
        return
    if record.instance not in ("", node.instance, node.uid):
        doubts = suspicion.moved(record, node)
        record = replace(record, latched=(), seen={}, quiet={}, past=(), told={}, doubts=doubts, lemon="")
    known = turn.s.away_since if record.not_ready_since is None else record.not_ready_since
    since = None if node.ready else (known if known is not None else now)
    faults = turn.ctx.catalog.faults
    latched = tuple(la for la in record.latched if not (node.ready and faults[la.fault].cleared_by == "ready"))
    if (record.instance, record.not_ready_since, record.latched) != (node.instance, since, latched):
        turn.record = replace(record, instance=node.instance, not_ready_since=since, latched=latched)


def take_findings(turn: Turn) -> None:
    node = turn.s.node
    if node is None:
        return
    said = parts.believed((*node.findings, *turn.s.findings), node, turn.s.carriers)
    own = _our_own_findings(turn, node)
    done = turn.outcome.findings if isinstance(turn.outcome, Done) else ()
    triaged = triage.take(turn.record, node, (*said, *own), turn.ctx.catalog, turn.ctx.now.watch, turn.ctx.ceilings)
    turn.record, turn.fresh = triaged.record, triaged.fresh
    if turn.case is None and not triaged.fresh:  # beside a diagnosis the other lines are its family
        _tell_remarks(turn, triaged.remarks)
    _take_examination(turn, node, done)


def _take_examination(turn: Turn, node: Node, findings: tuple[Finding, ...]) -> None:
    """What an examination found is evidence too; what it passed is judged when the phase is."""
    sick = parts.believed((f for f in findings if f.status is Status.FAILED), node, turn.s.carriers)
    if not sick:
        return
    triaged = triage.take(turn.record, node, sick, turn.ctx.catalog, turn.ctx.now.watch, turn.ctx.ceilings)
    turn.record = triaged.record
    turn.fresh = (*turn.fresh, *triaged.fresh)


def _our_own_findings(turn: Turn, node: Node) -> list[Finding]:
    """What the controller itself sees: a node that stays away, a part that must not come back."""
    now, found = turn.ctx.now, []
    since = turn.record.not_ready_since
    missed = since is not None and now.watch >= absence.missed_at(since, turn.ctx.policy)
    if missed and since is not None and turn.case is None and not turn.s.absent and not _is_meant(node):
        began = moment(now.wall - (now.watch - since))  # evidence is read days later: no "for so long"
        away = f"{node.name} was not ready from {began} on"
        found.append(_monitor(node, "monitor.not-ready", away, int(since) + 1, now, Severity.REBOOT))
    for gpu in node.gpus if turn.s.condemned or node.gate else ():
        if not (node.gate or turn.s.condemned.keys() & {gpu.serial, gpu.uuid}):
            continue
        part = parts.name_of(gpu, node, turn.s.carriers)
        if part and (reason := _why_not_back(turn, node, part)):
            found.append(_monitor(node, "monitor.condemned-part", reason, 1, now, Severity.REPLACE, gpu.pci, part))
    if node.gate and turn.case is None:
        found.append(
            _monitor(node, "monitor.newcomer", f"{node.name} is new: it is examined before work lands on it", 1, now)
        )
    return found


def _why_not_back(turn: Turn, node: Node, part: str) -> str:
    """A part that was condemned, or that a person was to decide about when its machine went: a light check at the gate
    decides nothing for them (seed 50000349)."""
    if part in turn.s.condemned and node.instance not in turn.s.condemned[part]:
        return f"GPU {part} was condemned earlier and is back in {node.name}"
    third = suspicion.needs_a_person(turn.record, [part], turn.ctx.now.watch) if node.gate else ""
    return f"{third}; it is back with another machine" if third else ""


def _is_meant(node: Node) -> bool:
    """Its going is somebody's doing: scale-in, maintenance, a person who closed it. Then it is no fault."""
    return bool(node.leaving or node.others)


def agent_silent(node: Node, silent_s: float, now: Now) -> Finding:
    """What the controller says of a node whose agent it no longer hears: we cannot look, and that is all we know."""
    reason = (
        f"The agent of {node.name} has said nothing for {how_long(silent_s)}: we cannot see this node, which is "
        "not the same as it being down"
    )
    found = _monitor(node, "monitor.agent-silent", reason, int(now.watch) + 1, now)
    return replace(found, status=Status.UNKNOWN, evidence=())


def _monitor(
    node: Node, code: str, reason: str, seq: int, now: Now,
    severity: Severity = Severity.MONITOR, device: str = "", part: str = "",
) -> Finding:  # fmt: skip
    return Finding(
        id=f"{node.boot_id}/{seq}", source="monitor", check="monitor", place=Place(node.name, device),
        status=Status.FAILED, code=code, reason=reason, evidence=(reason,), severity=severity,
        boot_id=node.boot_id, at=now.wall, received_at=now.wall, part=part,
    )  # fmt: skip


def _tell_remarks(turn: Turn, remarks: tuple[Finding, ...]) -> None:
    """A sick instrument or an unknown code is a notice, once a day; it never touches a node."""
    now, told = turn.ctx.now, dict(turn.record.told)
    notices = list(turn.record.notices)
    for finding in remarks:
        fault = turn.ctx.catalog.fault_of(finding.code)
        if fault is not None and (fault.kind == "application" or (fault.kind == "instrument" and turn.s.mute)):
            continue
        if now.watch - told.get(finding.code, -REPEAT_NOTICE_S) < REPEAT_NOTICE_S:
            continue
        told[finding.code] = now.watch
        if fault is not None and fault.treats:  # its signs come in families, and each said the same of the node
            last, told[f"remark/{fault.name}"] = told.get(f"remark/{fault.name}", -REPEAT_NOTICE_S), now.watch
            if now.watch - last < REPEAT_NOTICE_S:
                continue
        notices.append(explain.remark(finding, fault, now.wall))
    if told == turn.record.told:
        return
    if len(told) > 64:
        told = dict(sorted(told.items(), key=lambda kv: kv[1])[-64:])
    turn.record = replace(turn.record, told=told, notices=keeping.owed(notices))


def explain_away(turn: Turn) -> None:
    """What a common cause explains makes no case better or worse. Its verdict stays: explained is not good."""
    if turn.s.explained:
        turn.fresh = tuple(d for d in turn.fresh if d.fault not in turn.s.explained)
