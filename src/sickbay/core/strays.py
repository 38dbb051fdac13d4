"""Marks without a record: a node that is closed in our name although no open case answers for it.

Such a mark is left behind when the record of an open case is deleted, when custom resources are removed and installed
anew, or when a store is restored from before the case. Nobody else would ever take it off, and nobody would know. So it
becomes a case: examined and returned, or left to a person where nothing may be done. A record that is deleted before
our eyes is a cancel: that is what deleting it says. Called by core/decide.py; the controller says what is a stray
(read directly, and standing for a while), for a mark may outlive its case for moments.
"""

from __future__ import annotations

from dataclasses import replace

from sickbay.core import absence, explain, plan, steps, triage
from sickbay.core.turn import Move, Turn
from sickbay.model import Case, Diagnosis, Entry, Event, Node, NodeRecord, Phase, Place, Severity, Verb, When
from sickbay.settings import Policy

UNTOUCHED = frozenset({Phase.SUSPECTED, Phase.WAITING})  # nothing was done to the node yet
FAULT, CODE = "stray-mark", "monitor.stray-mark"


def cancel_lost(turn: Turn) -> None:
    """The record of an open case was deleted: take our marks off under a record of its own, and say so."""
    lost, node = turn.s.lost, _there(turn)
    if lost is None or turn.case is not None or node is None or lost.factor:
        return
    why = f"somebody deleted the record of {lost.id}, which was {explain.PHASE_WORDS[lost.phase]}: that is a cancel"
    sent = lost.pending if lost.phase is Phase.REPAIRING and lost.pending and lost.pending.sends else lost.unfinished
    # One that was to take off an earlier case's mark may not have done it yet: that one stayed for ever (seed 1142).
    mark = lost.adopts if lost.adopts and node.mark == lost.adopts else lost.id
    case = _open(turn, node, mark, why, lost.diagnoses)
    case = replace(case, unfinished=sent, rung=lost.rung, rungs_tried=lost.rungs_tried, jobs_hurt=lost.jobs_hurt)
    left = f"{why}; our marks are taken off and the node is left as it is"
    turn.case = _told(turn, steps.step(turn, case, (Event.CANCELLED, left, "operator")) or case, left, "warning")


def adopt(turn: Turn) -> None:
    """A case of its own for a stray, unless one is open that has not closed the node yet: that answers for it."""
    mark, node = turn.s.stray, _there(turn)
    if mark and turn.case is not None and has_not_closed(turn.case):
        turn.case = _taking_over(turn.case, mark)
    if not mark or turn.case is not None or node is None or (turn.s.absent and not node.ready):
        return
    why = f"{node.name} carries our mark of {mark}, of which there is no record: it was deleted, or lost with its store"
    case = _open(turn, node, mark, why, (_diagnosis(node, why, turn.ctx.now.wall),))
    case = replace(case, cordon_version=max(1, node.version))  # read directly: it is closed
    move = _move(turn, node, case, why)
    moved = steps.step(turn, case, move) if move else None
    turn.case = moved or _left_to_a_person(turn, case, why)


def awaits_its_case(node: Node, record: NodeRecord | None, watch: float, policy: Policy) -> bool:
    """A node that does not answer gets a case for that, which takes the mark over. Not while others hold it, nor when
    it is opted out, nor when somebody acknowledged that it is away: its mark stayed for good (seed 1997)."""
    if node.ready or node.others or node.opted_out:
        return False
    since = record.not_ready_since if record is not None else None
    is_missed = since is not None and watch >= absence.missed_at(since, policy)
    return not is_missed or bool(record and record.latched)


def has_not_closed(case: Case) -> bool:
    """Its node is not closed in its name. Also where the door would not let it, for a mark that our view did not show
    yet: the case rested with a person, and nobody ever took that mark off (seed 70054)."""
    asks = case.pending is not None and case.pending.verb is Verb.CORDON
    return case.phase in UNTOUCHED or (case.phase is Phase.ESCALATED and asks and not case.cordon_version)


def _taking_over(case: Case, mark: str) -> Case:
    case = replace(case, adopts=mark)
    if case.pending is None:
        return case
    again = replace(case.pending, args={**case.pending.args, "adopts": mark}, ask_at=0.0)
    return replace(case, pending=again)


def _there(turn: Turn) -> Node | None:
    node = turn.s.node
    return node if node is not None and not node.gone and not turn.s.gone else None


def _move(turn: Turn, node: Node, case: Case, why: str) -> Move | None:
    if node.opted_out:
        return (Event.CANCELLED, f"{why}; the node is opted out, so only what is ours is taken off", "operator")
    if not node.cordoned:
        return (Event.CANCELLED, f"{why}; the node is open, so only what is left of ours is taken off", "sickbay")
    if not node.ready:
        held = f"is held by {', '.join(node.others)} and " if node.others else ""
        return (Event.CANCELLED, f"{why}; the node {held}does not answer, so only what is ours is taken off", "sickbay")
    if _hands_off(turn, case):
        return None
    return (Event.EXAMINED, f"{why}; it is examined, and returned if every check passes", "sickbay")


def _hands_off(turn: Turn, case: Case) -> str:
    """Why it is not for us to take it in hand, or nothing."""
    policy = turn.ctx.policy
    if turn.s.paused:
        return turn.s.paused
    if Verb.CORDON not in plan.allowed(case, policy, turn.ctx.verbs, turn.ctx.ceilings):
        return f"policy.max_verb is {policy.max_verb}: this install only watches"
    return "CORDON needs a person's approval here" if Verb.CORDON.value in policy.approval else ""


def is_left_to_a_person(case: Case) -> bool:
    """Nobody has taken it in hand yet: we may not close its node without a person's word."""
    return bool(case.adopts) and case.phase is Phase.ESCALATED and case.step == 0


def _left_to_a_person(turn: Turn, case: Case, why: str) -> Case:
    words = (
        f"{why}. Nothing is done about it, because {_hands_off(turn, case)}. To have it examined and returned: "
        f"sickbay case examine {case.id}; to have our marks taken off as it is: sickbay case abort {case.id}"
    )
    return _told(turn, replace(case, refusal="a person: examine or abort it"), words, "urgent")


def _told(turn: Turn, case: Case, why: str, level: str) -> Case:
    """At once, whatever phase it is in: nobody asked for this case."""
    known = "a mark without a record" if case.phase is Phase.ESCALATED else "its record was deleted"
    notice = explain.about(case, f"{case.node}: {known}", why, level, turn.ctx.now.wall)
    return replace(case, notices=(*case.notices, notice))


def _open(turn: Turn, node: Node, mark: str, why: str, diagnoses: tuple[Diagnosis, ...]) -> Case:
    now, n = turn.ctx.now, triage.next_number(turn.record, mark)
    turn.record = replace(turn.record, last_n=n, uid=node.uid)
    return Case(
        id=f"{node.name}.{n}", node=node.name, uid=node.uid, pool=node.pool, diagnoses=diagnoses,
        plan=plan.make(diagnoses, turn.ctx.catalog, node=node, ceilings=turn.ctx.ceilings),
        phase=Phase.ESCALATED, step=0, opened_at=now.wall,
        entered=now.watch, deadline=None, cluster=turn.ctx.cluster, instance=node.instance, ours=True, adopts=mark,
        first_evidence_at=now.wall, timeline=((Phase.ESCALATED.value, now.wall),), opened_version=node.version,
        journal=(Entry(0, "OPENED", now.wall, "sickbay", why, Phase.ESCALATED.value),),
    )  # fmt: skip


def _diagnosis(node: Node, why: str, at: float) -> Diagnosis:
    return Diagnosis(FAULT, Place(node.name), Severity.MONITOR, When.IDLE, 0.99, (why,), at, CODE, "monitor")
