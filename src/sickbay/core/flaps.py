"""A node that goes away and comes back by itself, again and again: one story with few notices, and no climbing.

A network that comes and goes says nothing about the machine. Where a second witness (its provider, its agent by another
road, its job's steps) called it alive, its return ends the matter, however often. Where none did, REBOOT is tried once
`policy.flaps_accepted` are used up; nothing stronger follows, here or in its next case, unless a treatment was asked
for and failed: a machine that boots and is still away may be cut off and well. Then a person decides.
Called by core/decide.py, core/phases.py and core/steps.py. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from sickbay.core import absence
from sickbay.core.moment import how_long
from sickbay.core.turn import Turn
from sickbay.model import TREATMENTS, Case, Event, Node, NodeRecord, Notice, Phase, Verb
from sickbay.settings import Policy

STORY = f"{absence.LONE_FAULT}/"  # what people were told of this incident, by phase, in NodeRecord.told
REMIND_S = 86_400.0


def note_witness(turn: Turn) -> None:
    """It is away, and somebody else says that it is alive: its absence is no evidence against the machine."""
    case = turn.case
    if case is not None and turn.s.witness and not case.alive and absence.is_only_evidence(case):
        turn.case = replace(case, alive=True)


def why_a_person(case: Case, node: Node | None, verb: Verb) -> str:
    """Why a node gets nothing stronger than REBOOT, or than what was done already, for being away; "" if it may."""
    weak = TREATMENTS.index(verb) <= TREATMENTS.index(Verb.REBOOT)
    if weak or verb in case.approved or node is None or not absence.is_only_evidence(case):
        return ""
    if node.ready:
        seen = f"{case.node} goes away and comes back by itself, and {case.rung or Verb.REBOOT} did not change that"
    elif case.rung is not None and not _has_failed(case):
        seen = f"{case.node} does not answer, and that is all: no {case.rung} of it is known to have failed"
    else:
        return ""
    return (
        f"{seen}: {verb} is no answer to it. Look at its network, its certificates and its kubelet; to do it all the "
        f"same: sickbay case approve {case.id} --verb {verb}, then sickbay case retry {case.id}"
    )


def _has_failed(case: Case) -> bool:
    """Was a treatment asked for, in this case, that the machine did not get through?"""
    after = zip(case.journal, case.journal[1:], strict=False)
    return any(now.phase == Phase.REPAIRING and then.event in (Event.FAILED, Event.TIMED_OUT) for now, then in after)


def is_insisted_on(case: Case) -> bool:
    """It rests with a person for its next treatment, and they approved that: it goes on where it stood."""
    entered = next((e for e in case.journal if e.step == case.step), None)
    asked = entered is not None and entered.event == Event.EXHAUSTED and absence.is_only_evidence(case)
    stronger = TREATMENTS[TREATMENTS.index(case.rung) + 1 :] if case.rung is not None else ()
    return asked and any(verb in case.approved for verb in stronger)


def told(turn: Turn, case: Case, notice: Notice | None) -> Notice | None:
    """The notice, unless people know: of one incident each phase is told once. That it is in a person's hands is told
    each time; that it was away for some minutes and is back, and nothing was done to it, not at all."""
    if case.factor or not absence.is_only_evidence(case):
        return notice
    turn.record = _same_story(turn.record, turn.ctx.now.watch)
    if case.phase is Phase.DISMISSED and not case.ours and case.journal[-1].event == Event.CLEARED:
        return _comes_and_goes(turn, case)
    if case.phase is Phase.RESOLVED and _was_only_examined(case):
        return None
    key = f"{STORY}{case.phase.value}"
    known = key in turn.record.told
    if notice is None or notice.level != "info":
        return notice
    turn.record = _noted(turn.record, key, turn.ctx.now.watch)
    return None if known else notice


def _was_only_examined(case: Case) -> bool:
    """Closed, found well and returned, and no person was ever asked: the first notice has said that it would be so."""
    asked = any(entry.phase == Phase.ESCALATED.value for entry in case.journal)
    return not case.rungs_tried and not asked and case.journal[-1].event == Event.DONE


def _same_story(record: NodeRecord, now: float) -> NodeRecord:
    """What was told counts while it goes on: an hour without anything ends the incident."""
    last = record.told.get(STORY, float("-inf"))
    kept = {key: at for key, at in record.told.items() if not _is_of_story(key) or now - last <= absence.SAME_S}
    return replace(record, told={**kept, STORY: now})


def _is_of_story(key: str) -> bool:
    return key.startswith(STORY) and key != f"{STORY}FLAPS"


def _noted(record: NodeRecord, key: str, now: float) -> NodeRecord:
    return replace(record, told={**record.told, key: now})


def _comes_and_goes(turn: Turn, case: Case) -> Notice | None:
    """Once a day, when it has been away more often than is believed to be chance."""
    now, policy, key = turn.ctx.now, turn.ctx.policy, f"{STORY}FLAPS"
    times = 1 + _absences(turn.record, policy, now.watch)
    if times <= policy.flaps_accepted or now.watch - turn.record.told.get(key, -REMIND_S) < REMIND_S:
        return None
    turn.record = _noted(turn.record, key, now.watch)
    left = "Somebody else called it alive each time, so it is left alone. " if case.alive else ""
    body = (
        f"{case.node} has gone away and come back {times} times within {how_long(policy.flap_window_s)}. {left}"
        "Work there is evicted whenever it stays away for long. Look at its network, its certificates and its kubelet; "
        f"to keep it out: kubectl cordon {case.node}, or what your platform has for that."
    )
    return Notice(
        f"{case.node}/flaps/{int(now.wall // REMIND_S)}", "warning", f"{case.node} comes and goes", body, "", now.wall
    )


def _absences(record: NodeRecord, policy: Policy, now: float) -> int:
    mine = [p for p in record.past if p.fault == absence.LONE_FAULT and now - p.ended <= policy.flap_window_s]
    return len(mine)
