"""Take one step of the machine within a turn, and add what entering a phase needs besides its action.

Called by core/decide.py and core/obey.py.
"""

from __future__ import annotations

from sickbay.core import (
    absence,
    admit,
    bystander,
    consent,
    explain,
    flaps,
    machine,
    overwritten,
    plan,
    quiet,
    recurring,
    successors,
    triage,
    undelivered,
)
from sickbay.core.frozen import replace
from sickbay.core.turn import Move, Turn
from sickbay.model import Case, Event, Failed, Phase, Verb, When


def step(turn: Turn, case: Case, move: Move) -> Case | None:
    event, why, by = move
    now, lacks = turn.ctx.now, isinstance(turn.outcome, Failed) and turn.outcome.lacks
    moved = machine.step(case, event, now=now.watch, at=now.wall, by=by, why=why, policy=turn.ctx.policy)
    if moved is None:
        return None
    turn.outcome = None
    turn.unheld = False
    if lacks and case.phase is Phase.DRAINING and moved.phase is Phase.ESCALATED:
        moved = _drained_later(turn, moved)
    return _entering(turn, case, moved, why)


def _drained_later(turn: Turn, case: Case) -> Case:
    """Only a right was missing: a person is told, and it is asked for again until that is back."""
    again = machine.action(case, Verb.DRAIN, _how_to_drain(turn, case))
    return replace(case, pending=replace(again, ask_at=turn.ctx.now.watch + machine.ESCALATED_ASK_S))


def _entering(turn: Turn, case: Case, moved: Case, why: str) -> Case:
    """What entering a phase adds to the case besides its action."""
    now, policy = turn.ctx.now, turn.ctx.policy
    if moved.phase is Phase.REPAIRING:
        verb = machine.next_rung(case, plan.allowed(case, policy, turn.ctx.verbs, turn.ctx.ceilings))
        assert verb is not None, "ADMITTED without a rung"
        moved = machine.start_rung(moved, verb, plan.timeout_of(case.plan, verb), now.watch, _unless_ready(turn, case))
    elif moved.phase is Phase.CORDONING:
        mark = turn.s.node.mark if turn.s.node else ""
        stood = consent.is_taken_up(case) or flaps.is_insisted_on(case)
        rung = case.rung if stood else moved.rung  # as retried, but where it stood
        moved = replace(moved, ours=True, rung=rung)
        moved = machine.adopt(moved, mark) if mark not in ("", moved.id) else moved
        moved = overwritten.told(case, moved, turn.s.node, now.wall)
        moved = _unless_opened(turn, case, moved)
    elif moved.phase is Phase.ESCALATED and moved.pending is not None and moved.pending.verb is Verb.CORDON:
        moved = _unless_opened_since(case, moved)
    elif moved.phase is Phase.QUEUED and moved.journal[-1].event == Event.UNREACHABLE:
        moved = _told_undelivered(turn, undelivered.waits(case, moved, now=now.watch, at=now.wall))
    elif moved.phase is Phase.HOLDING:
        moved = _ask_checkpoint(turn, moved)
    elif moved.phase is Phase.DRAINING and moved.pending is not None:
        moved = replace(moved, pending=replace(moved.pending, args=_how_to_drain(turn, moved)))
    elif moved.phase is Phase.VERIFYING and moved.pending is not None and case.phase is Phase.REPAIRING:
        settle = max((turn.ctx.catalog.faults[d.fault].settle_s for d in moved.diagnoses), default=0.0)
        moved = replace(moved, pending=replace(moved.pending, ask_at=now.watch + settle))
    elif moved.phase is Phase.RETURNING:
        moved = _in_this_boot(turn, moved)
    return _with_notice(turn, moved, why)


def _in_this_boot(turn: Turn, case: Case) -> Case:
    """What was found in this boot is what it is returned on: phases.py looks whether another one has begun."""
    if case.pending is None or turn.s.node is None:
        return case
    before = replace(case.pending.before, boot_id=turn.s.node.boot_id)
    return replace(case, pending=replace(case.pending, before=before))


def _unless_opened(turn: Turn, case: Case, moved: Case) -> Case:
    """What the door looks at before it closes a node. One that was out needed no place: is it in service again by then,
    it needs one. So may one whose object comes back without what had kept it out, and one that falls ill while it
    returns: its release may have landed. One that we had closed and somebody has opened, which our view may not show
    yet, is theirs."""
    out = case.phase is Phase.WAITING and turn.s.node is not None and admit.is_down(turn.s.node)
    out = out or (turn.s.beside and moved.journal[-1].event == Event.REJOINED)
    out = out or case.phase is Phase.RETURNING
    unless = "in service" if out else "opened" if case.cordon_version else ""
    if not unless or moved.pending is None:
        return moved
    return replace(moved, pending=replace(moved.pending, args={**moved.pending.args, "unless": unless}))


def _unless_opened_since(case: Case, moved: Case) -> Case:
    """A cordon that is asked for again while a person owns the case looks at the same; what somebody has opened since
    it was closed, or its release was asked for, is theirs."""
    assert moved.pending is not None
    asked = case.pending.args.get("unless", "") if case.pending is not None else ""
    if not asked and moved.adopts:  # a mark of an earlier case: who opened that node, opened it before ours
        return moved
    unless = asked or "opened"
    return replace(moved, pending=replace(moved.pending, args={**moved.pending.args, "unless": unless}))


def _told_undelivered(turn: Turn, case: Case) -> Case:
    if case.undelivered is None or not undelivered.is_to_be_told(case, turn.ctx.now.watch):
        return case
    notice = explain.undelivered(case, case.undelivered, undelivered.LASTS_S, turn.ctx.now.wall)
    told = replace(case.undelivered, told=True)
    return replace(case, undelivered=told, notices=(*case.notices, notice)[-8:])


def _unless_ready(turn: Turn, case: Case) -> dict[str, str]:
    """Where absence is all there is, the door looks once more whether the node is still away. Not once it was there
    and failed its examination: the same answer again would be a round without an end."""
    believed = triage.may_clear(turn.record, case, turn.ctx.policy, turn.ctx.now.watch) or absence.is_exchange(case)
    alone = absence.is_only_evidence(case) and not _failed_its_examination(case)
    return {"unless": "ready"} if believed and alone else {}


def _failed_its_examination(case: Case) -> bool:
    after = zip(case.journal, case.journal[1:], strict=False)
    last = [then.event for now, then in after if now.phase == Phase.VERIFYING and then.phase != Phase.VERIFYING]
    return bool(last) and last[-1] == Event.FAILED


def _how_to_drain(turn: Turn, case: Case) -> dict[str, str]:
    """May anybody be evicted, and whom does the next rung need gone: a reset frees GPUs, the others end all there is.
    Should a stronger rung come after all, its door refuses it and the node is drained once more."""
    allowed = plan.allowed(case, turn.ctx.policy, turn.ctx.verbs, turn.ctx.ceilings)
    approved = Verb.DRAIN.value not in turn.ctx.policy.approval or Verb.DRAIN in case.approved
    evict = Verb.DRAIN in allowed and turn.ctx.policy.evict and approved
    rung = None if case.examine else machine.next_rung(case, allowed)
    scope = {} if rung in (None, Verb.RESET_GPU) else {"scope": "all"}
    return {"evict": "1" if evict else "0", "case": case.id, **scope}


def _ask_checkpoint(turn: Turn, case: Case) -> Case:
    jobs = turn.s.node.jobs if turn.s.node else ()
    may_evict = (
        Verb.DRAIN in plan.allowed(case, turn.ctx.policy, turn.ctx.verbs, turn.ctx.ceilings) and turn.ctx.policy.evict
    )
    if triage.soonest(case.diagnoses) is not When.CHECKPOINT or not jobs or not may_evict:
        return case
    return replace(case, pending=machine.action(case, Verb.CHECKPOINT_JOB, {"jobs": ",".join(jobs)}))


def _is_theirs_as_before(case: Case, why: str) -> bool:
    """It rested with a person for this very reason, was examined by us alone, and is as it was: they know. A node that
    came back blind from three short absences was three urgent messages of the same words (seed 717)."""
    before = [n for n, e in enumerate(case.journal[:-1]) if e.phase == Phase.ESCALATED and e.why == why]
    since = case.journal[before[-1] + 1 :] if before and case.phase is Phase.ESCALATED else ()
    return bool(since) and all(e.by == "sickbay" and e.event != "MERGED" for e in since)


def _with_notice(turn: Turn, case: Case, why: str) -> Case:
    if (case.phase is Phase.DEFERRED and bystander.is_known(case, turn.ctx)) or _is_theirs_as_before(case, why):
        return case
    notice = explain.notice_of(case, why, turn.ctx.catalog, turn.ctx.now.wall)
    if notice is not None and case.phase in machine.ENDS and quiet.is_left_by(case, case.journal[-1].event):
        notice = explain.with_quiet(notice, case, turn.ctx.now.wall + quiet.length(case, turn.ctx.policy))
    notice = recurring.instead(turn, case, notice) if notice is not None else None
    notice = flaps.told(turn, case, notice)
    if notice is not None and machine.is_asked_again(case):
        notice = explain.asked_again(notice, case)
    elif notice is not None and successors.IN_A_ROW in why:
        notice = explain.came_sick(notice, case, known=turn.s.came_sick > successors.MOST)
    return replace(case, notices=(*case.notices, notice)[-8:]) if notice else case
