"""What each phase waits for: one small rule per phase, saying which event has happened, if any, and why.

Here guards become events. Called by core/decide.py; a rule may note facts on the turn, only machine.step moves a case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sickbay.core import (
    absence,
    admit,
    comebacks,
    consent,
    explain,
    flaps,
    machine,
    plan,
    successors,
    suspicion,
    triage,
    undelivered,
    witness,
)
from sickbay.core.moment import how_long
from sickbay.core.turn import Said, Turn, latches_of
from sickbay.model import (
    Case,
    Done,
    Event,
    Failed,
    Latch,
    Lost,
    NodeRecord,
    Phase,
    Refuted,
    Severity,
    Status,
    Unguarded,
    Verb,
    When,
)
from sickbay.settings import Policy


def _suspected(turn: Turn, case: Case) -> Said:
    latches = latches_of(turn, case)
    if case.newcomer or case.factor:
        return (Event.CONFIRMED, "a new node is examined first")
    if not latches and triage.may_clear(turn.record, case, turn.ctx.policy, turn.ctx.now.watch):
        return (Event.CLEARED, "a later observation does not show it any more")
    sure = [la for la in latches if triage.is_confirmed(la, turn.ctx.catalog)]
    if sure:
        return (Event.CONFIRMED, f"{turn.ctx.catalog.faults[sure[0].fault].title} is certain enough to act on")
    if _persists(turn, case, latches):
        return (Event.CONFIRMED, "it has been shown without a break for as long as a suspicion may last")
    return None


def _persists(turn: Turn, case: Case, latches: Sequence[Latch]) -> bool:
    """An agent that says the same thing all the time does not say it anew: at the deadline that is enough."""
    node = turn.s.node
    if node is None or not node.ready or case.deadline is None or turn.ctx.now.watch < case.deadline:
        return False
    shown = {f.id for f in node.findings if f.status in (Status.FAILED, Status.DEGRADED)}
    return any(la.finding in shown for la in latches)


def _waiting(turn: Turn, case: Case) -> Said:
    cleared = not latches_of(turn, case) and not case.newcomer
    if cleared and triage.may_clear(turn.record, case, turn.ctx.policy, turn.ctx.now.watch):
        return (Event.CLEARED, "a later observation does not show it any more")
    if turn.s.granted:
        return (Event.ADMITTED, "a place is free within the limits")
    return None


def _ask_later(turn: Turn, case: Case, after_s: float) -> Case:
    """The same action again after a while: an answer that moves nothing must not be asked for in a tight circle."""
    assert case.pending is not None
    return replace(case, pending=replace(case.pending, ask_at=turn.ctx.now.watch + after_s))


def _cordoning(turn: Turn, case: Case) -> Said:
    if isinstance(turn.outcome, Done) and turn.s.node is not None:
        turn.case = case = replace(case, cordon_version=max(1, turn.s.node.version))
        return (Event.DONE, turn.outcome.detail or "no new work lands on it")
    if isinstance(turn.outcome, Refuted):
        return (Event.UNGUARDED, f"{turn.outcome.why}: closing it needs a place now")
    return _failure(turn)


def _failure(turn: Turn) -> Said:
    if isinstance(turn.outcome, Failed | Lost | Unguarded):
        return (Event.FAILED, turn.outcome.why)
    return None


def _holding(turn: Turn, case: Case) -> Said:
    now, policy = turn.ctx.now.watch, turn.ctx.policy
    settled = triage.settles_at(case, turn.record, policy)
    if now < settled and not case.newcomer:
        if turn.outcome is not None and case.pending is not None:
            turn.case = _ask_later(turn, case, settled - now)
        return None
    when = triage.soonest(case.diagnoses)
    empty = turn.s.node is None or not turn.s.node.jobs
    idle = empty or not turn.s.busy
    may_evict = Verb.DRAIN in plan.allowed(case, policy, turn.ctx.verbs, turn.ctx.ceilings) and policy.evict
    cleared = not latches_of(turn, case) and not case.newcomer
    if cleared and triage.may_clear(turn.record, case, policy, now):  # nothing is evicted for what is not there
        why = "a later observation does not show it any more; it is examined before it returns"
        return (Event.CLEARED, why) if idle else None
    if empty:
        return (Event.READY, "nothing that makes progress runs on it")
    return _evicting(turn, case, _why_evict(turn, case, when, idle) if may_evict else None)


def _why_evict(turn: Turn, case: Case, when: When, idle: bool) -> Said:
    if idle:
        return (Event.READY, "nothing that makes progress runs on it")
    if when is When.IDLE:
        return None
    if when is When.NOW:
        return (Event.READY, "this fault cannot wait for the work on the node")
    return (Event.READY, case.ready) if case.ready else _checkpointed(turn, case)


def _evicting(turn: Turn, case: Case, said: Said) -> Said:
    """Where drains are counted or need a person's word, it is noted that this one is due; then it waits for that."""
    if said is None or not admit.counts_drains(turn.ctx.policy) or turn.s.granted:
        turn.case = replace(case, ready="") if case.ready else turn.case
        return said
    pending = None if turn.outcome is not None else case.pending  # the job has answered: it is not asked again
    turn.case = replace(turn.case or case, ready=said[1], pending=pending)
    return None


def _checkpointed(turn: Turn, case: Case) -> Said:
    if isinstance(turn.outcome, Done):
        return (Event.READY, turn.outcome.detail or "the job has saved a newer checkpoint")
    if isinstance(turn.outcome, Failed | Lost | Unguarded):
        return (Event.READY, f"the job could not save: {turn.outcome.why}")
    waited = turn.ctx.now.watch - case.entered
    if turn.ctx.now.watch >= case.entered + turn.ctx.policy.checkpoint_s:
        return (Event.READY, f"no newer checkpoint within {how_long(waited)}")
    return None


SILENT_DRAIN_S = 60.0  # for the drain of a node that does not answer: its platform may know it down and empty it


def unreachable_at(case: Case, record: NodeRecord, policy: Policy) -> float | None:
    """When a drain is given up since nothing there can answer; None while the node does. Never before the drain was
    asked: a case that is about a silent node opens when that time is long over."""
    since = record.not_ready_since
    return None if since is None else max(since + policy.unreachable_s, case.entered + SILENT_DRAIN_S)


def _draining(turn: Turn, case: Case) -> Said:
    since, at = turn.record.not_ready_since, unreachable_at(case, turn.record, turn.ctx.policy)
    if isinstance(turn.outcome, Done):
        return (Event.DONE, turn.outcome.detail or "the node is empty")
    if since is not None and at is not None and turn.ctx.now.watch >= at:
        return (
            Event.UNREACHABLE,
            f"not ready for {how_long(turn.ctx.now.watch - since)}: nothing there can answer",
        )
    return _failure(turn)


def _collecting(turn: Turn, case: Case) -> Said:
    if isinstance(turn.outcome, Done):
        turn.case = replace(case, evidence=turn.outcome.detail, archive=turn.outcome.archive or case.archive)
        return (Event.DONE, f"evidence: {turn.outcome.detail}")
    return _failure(turn)


def is_refuted(turn: Turn, case: Case) -> bool:
    """What its row names has cleared everything that is held against the node, and that is still believed."""
    if case.newcomer or _is_held(turn, case) or not machine.may_be_refuted(case):
        return False
    return triage.may_clear(turn.record, case, turn.ctx.policy, turn.ctx.now.watch)


def _is_held(turn: Turn, case: Case) -> bool:
    """Is anything held against the node? That it is new is not."""
    return any(latch.fault != absence.NEWCOMER for latch in latches_of(turn, case))


NEXT = " is next"  # after the verb, of what was admitted to treatment: core/rebuild_limits.py reads it
REFUTED = "a later observation does not show it any more; it is examined instead of treated"


def _taken_back(turn: Turn, case: Case) -> str:
    """Why it is examined anew: what its fault had come with was taken off the node. Once for each such value."""
    why = f"{turn.s.taken_back} had come before it and is not on it any more; it is examined instead of treated"
    node = turn.s.node
    there = bool(turn.s.taken_back) and node is not None and node.ready and not case.cancelled
    return why if there and not any(entry.why == why for entry in case.journal) else ""


def _queued(turn: Turn, case: Case) -> Said:
    if turn.s.gone and comebacks.awaits_successor(case):
        return (Event.EXHAUSTED, comebacks.no_successor(case))
    if case.examine:
        return (Event.UNTREATED, "examined only, no treatment")
    if is_refuted(turn, case):
        return (Event.CLEARED, REFUTED)
    if why := _taken_back(turn, case):
        return (Event.CLEARED, why)
    verb = machine.next_rung(case, plan.allowed(case, turn.ctx.policy, turn.ctx.verbs, turn.ctx.ceilings))
    if verb is None and case.visits <= 1 and case.rung is None:
        return (Event.UNTREATED, "no treatment is allowed or known for this; the checks decide")
    if verb is None:
        tried = ", ".join(case.rungs_tried) or (f"{case.rung} in an earlier case" if case.rung else "nothing")
        return (Event.EXHAUSTED, f"no stronger treatment is left or allowed (tried: {tried})")
    if why := flaps.why_a_person(case, turn.s.node, verb):  # one that is away is examined when it answers again
        turn.case = replace(case, flaps=turn.s.node is not None and turn.s.node.ready)
        return (Event.EXHAUSTED, why)
    if why := _for_a_person(turn, case, verb):
        return (Event.EXHAUSTED, why)
    settled = turn.ctx.now.watch >= triage.settles_at(case, turn.record, turn.ctx.policy)
    if turn.s.granted and settled:
        return (Event.ADMITTED, f"{verb}{NEXT}")
    return None


def _for_a_person(turn: Turn, case: Case, verb: Verb) -> str:
    """A part that ends one job after another is not treated once more. Where the policy lets machines be replaced
    without asking, its owner has decided already."""
    policy = turn.ctx.policy
    if verb is Verb.REPLACE and verb in case.approved:
        return ""
    if verb is Verb.REPLACE:  # also where a person is asked each time: he was not told that it brings no better part
        again = comebacks.why_not_again(turn.record, case, turn.s.returned, policy, turn.ctx.now.watch)
        again = again or successors.why_not(case, turn.s.came_sick)
        if again or verb not in policy.approval:
            return again
    return suspicion.needs_a_person(turn.record, [d.part for d in case.diagnoses], turn.ctx.now.watch)


SEEN_S = 30.0  # until what a REPLACE has brought is looked for again


def _repairing(turn: Turn, case: Case) -> Said:
    outcome, verb = turn.outcome, case.rung
    if isinstance(outcome, Refuted):
        return (Event.CLEARED, f"{outcome.why}; it is examined instead of treated")
    if case.pending is not None and not case.pending.sends and is_refuted(turn, case):
        return (Event.CLEARED, REFUTED)
    if isinstance(outcome, Lost):
        return undelivered.said(case, outcome, turn.ctx.now.watch)
    if isinstance(outcome, Unguarded):  # nothing was done to the node, so nothing stronger is called for
        event = Event.EXHAUSTED if case.unguarded >= 2 else Event.UNGUARDED
        return (event, f"refused at the door: {outcome.why}")
    if not isinstance(outcome, Done):
        return _failure(turn)
    assert verb is not None
    if verb is Verb.REPLACE and comebacks.is_still_there(case, turn.s.node):
        turn.case = _ask_later(turn, case, SEEN_S)
        return None
    if verb is Verb.REPLACE and not comebacks.is_same_machine(case, turn.s.node):
        return (Event.REPLACED, outcome.detail or "the machine was replaced")
    catalog, now = turn.ctx.catalog, turn.ctx.now.watch
    devices = frozenset({case.pending.place.device} - {""}) if case.pending else frozenset()
    turn.record = triage.clear_by_treatment(turn.record, verb, devices, catalog, now)
    if turn.s.node is not None:
        turn.record = triage.clear_by_boot(turn.record, turn.s.node, catalog, now)
    return (Event.DONE, outcome.detail or f"{verb} is done")


def _verifying(turn: Turn, case: Case) -> Said:
    if turn.unheld:
        return (Event.UNHELD, "old evidence does not count after a hold: examined anew")
    again = _newly_sick(turn)
    if turn.worse or again:
        turn.worse = False
        return (Event.WORSENED, again or "it got worse during the examination")
    if not isinstance(turn.outcome, Done):
        return None if _is_not_let_in(turn, case) else _failure(turn)
    record, catalog, now = turn.record, turn.ctx.catalog, turn.ctx.now.watch
    if turn.s.node is not None:
        record = triage.clear_by_boot(record, turn.s.node, catalog, now)
    event, why = triage.verify(case, record, turn.outcome.findings, catalog, now, turn.ctx.ceilings)
    if event == "DONE":
        turn.record = triage.clear_verified(record, turn.outcome.findings, catalog, now)
    return (Event(event), why)


def _newly_sick(turn: Turn) -> str:
    """A fault seen by the agent while we examine or return: the answer of an older check does not outweigh it."""
    if isinstance(turn.outcome, Done):
        return ""
    sick = [d for d in turn.fresh if d.severity >= Severity.RESET]
    turn.fresh = ()
    return f"{turn.ctx.catalog.faults[sick[0].fault].title} was seen while it was examined" if sick else ""


def _returning(turn: Turn, case: Case) -> Said:
    if turn.unheld:
        return (Event.UNHELD, "old evidence does not count after a hold: examined anew")
    again = _newly_sick(turn)
    if turn.worse or again:
        turn.worse = False
        return (Event.WORSENED, again or "it got worse while being returned")
    if isinstance(turn.outcome, Done):
        return (Event.DONE, turn.outcome.detail or "the node takes work again")
    if _has_booted_since(turn, case):
        return (Event.UNHELD, "it has booted since it was examined: examined anew")
    return None if _is_not_let_in(turn, case) else _failure(turn)


def _has_booted_since(turn: Turn, case: Case) -> bool:
    """Its release waits for a right, for hours, and somebody has rebooted it: nobody has looked at it in this boot
    (seed 50000271)."""
    node, before = turn.s.node, case.pending.before.boot_id if case.pending is not None else ""
    return node is not None and node.ready and bool(before) and node.boot_id not in ("", before)


LACKS = "LACKS"  # in the journal: a right is missing, or the examination is not let in, and people were told


def _is_not_let_in(turn: Turn, case: Case) -> bool:
    """Only a right is missing for a release, or an examination may not begin: told once, and asked for again every
    minute until it may. Meanwhile the time of the phase does not run: nothing is wrong with the node, nobody has to
    decide about it, and nothing stronger is done to a node that nobody could look at."""
    if not isinstance(turn.outcome, Failed) or not turn.outcome.lacks:
        return False
    why, now, turn.outcome = turn.outcome.why, turn.ctx.now, None
    case = machine.renew(_ask_later(turn, case, machine.ESCALATED_ASK_S), now=now.watch, policy=turn.ctx.policy)
    if not any(e.event == LACKS and e.step == case.step for e in case.journal):
        notice = explain.lacks(case, why, turn.ctx.catalog, now.wall)
        case = machine.note(case, LACKS, at=now.wall, by="sickbay", why=why)
        case = replace(case, notices=(*case.notices, notice)[-8:])
    turn.case = replace(case, refusal=why)
    return True


AGAIN_MOST = 2  # times that a node which answers again is examined by itself
AGAIN_S = 3_600.0  # after an examination that said nothing though the node answered: the next one would say no more


def _answers_again(turn: Turn, case: Case) -> bool:
    """It rests with a person only because it could not be asked while it was away; now it can be."""
    node = turn.s.node
    asked = sum(e.event == Event.EXAMINED and e.by == "sickbay" for e in case.journal)
    if node is None or not node.ready or case.cancelled or case.flaps or asked >= AGAIN_MOST or _is_disbelieved(turn):
        return False
    if case.newcomer:  # it went away while it was examined at its gate
        return bool(case.cordon_version) and any(e.event == Event.UNREACHABLE for e in case.journal)
    return absence.is_only_evidence(case) and not _is_held(turn, case) and bool(case.cordon_version)


def _has_just_answered(turn: Turn, case: Case) -> bool:
    """It rests since this very turn, and answers: its examination said nothing, or took too long. A node whose agent
    was blind was drained and examined three times within ten minutes, with a page each time (seed 101)."""
    now = turn.ctx.now.watch
    said_nothing = case.journal[-1].event in (Event.INCONCLUSIVE, Event.TIMED_OUT)
    if now <= case.entered and (said_nothing or (case.newcomer and not _was_away(case))):
        turn.case = case = replace(case, retry_at=now + AGAIN_S)
    return case.retry_at is not None and now < case.retry_at


def _was_away(case: Case) -> bool:
    """Since it was last examined or tried anew. A machine at its gate that has answered since says no more a moment
    later: it was drained again within the minute, and people were told the same words (seed 50000099)."""
    began = (Event.EXAMINED, Event.RETRIED, Event.UNREACHABLE)
    return next((e.event for e in reversed(case.journal) if e.event in began), "") == Event.UNREACHABLE


def _is_disbelieved(turn: Turn) -> bool:
    """A verdict stands by a word that may cause no treatment: who examines the node once more finds it well, and leaves
    it to a person once more (seed 38)."""
    return any(not witness.may_treat(la.source, turn.ctx.ceilings) for la in turn.record.latched)


def _escalated(turn: Turn, case: Case) -> Said:
    if consent.is_taken_up(case):
        return (Event.RETRIED, "a person has approved what it had waited for: it goes on where it stood")
    if bool(case.cordon_version) and (why := _taken_back(turn, case)):
        return (Event.EXAMINED, why)
    if _answers_again(turn, case):
        again = (Event.EXAMINED, "it was away and answers again: it is examined before it returns")
        return None if _has_just_answered(turn, case) else again
    if case.pending is not None and case.pending.verb is Verb.DRAIN and is_refuted(turn, case):
        turn.case, turn.outcome = replace(case, pending=None), None  # nothing is evicted for what is not there
        return None
    if isinstance(turn.outcome, Done) and turn.s.node is not None:
        done, turn.outcome = turn.outcome.detail, None
        if case.pending is not None and case.pending.verb is Verb.DRAIN:
            turn.case = replace(case, pending=None)
            return (Event.DONE, f"it could be emptied after all: {done or 'nothing runs on it'}")
        turn.case = replace(case, pending=None, cordon_version=max(1, turn.s.node.version))
        if _was_never_closed(case):
            return (Event.DONE, f"it could be closed after all: {done or 'no new work lands on it'}")
    elif isinstance(turn.outcome, Refuted) and _unless(case) == "in service":
        return (Event.UNGUARDED, f"{turn.outcome.why}: closing it needs a place now")
    elif turn.outcome is not None and case.pending is not None:
        turn.outcome = None
        turn.case = _ask_later(turn, case, machine.ESCALATED_ASK_S)
    return None


def _unless(case: Case) -> str:
    return case.pending.args.get("unless", "") if case.pending is not None else ""


def _noted_end(turn: Turn, case: Case, outcome: Done | Failed | Lost | Unguarded | Refuted) -> Case:
    """What became of the treatment that had been sent: whoever cancelled wants to know whether it still happened."""
    assert case.unfinished is not None
    said = outcome.detail if isinstance(outcome, Done) else outcome.why
    undone = isinstance(outcome, Lost | Unguarded | Refuted)
    words = f"{case.unfinished.verb} was not done to the node" if undone else f"{case.unfinished.verb} had begun"
    event = "WITHDRAWN" if undone else "ENDED"
    case = machine.not_begun(case) if undone else case
    return machine.note(case, event, at=turn.ctx.now.wall, by="sickbay", why=f"{words}: {said}" if said else words)


def _was_never_closed(case: Case) -> bool:
    """Escalated because the cordon failed: a right that was missing, a server that did not answer. Once it is made,
    there is nothing left for a person to decide."""
    return len(case.timeline) > 1 and case.timeline[-2][0] == Phase.CORDONING.value


def _cancelling(turn: Turn, case: Case) -> Said:
    if case.factor:
        return (Event.DONE, "closed")
    if case.unfinished is not None:
        if isinstance(turn.outcome, Done | Failed | Lost | Unguarded | Refuted):
            case, now = _noted_end(turn, case, turn.outcome), turn.ctx.now.watch
            turn.case = machine.release_after_cancel(case, now=now, policy=turn.ctx.policy)
            turn.outcome = None
        return None
    if isinstance(turn.outcome, Done):
        return (Event.DONE, turn.outcome.detail or "our marks are off; the node is as it was left")
    return None if _is_not_let_in(turn, case) else _failure(turn)


RULES: dict[Phase, Callable[[Turn, Case], Said]] = {
    Phase.SUSPECTED: _suspected,
    Phase.WAITING: _waiting,
    Phase.CORDONING: _cordoning,
    Phase.HOLDING: _holding,
    Phase.DRAINING: _draining,
    Phase.COLLECTING: _collecting,
    Phase.QUEUED: _queued,
    Phase.REPAIRING: _repairing,
    Phase.VERIFYING: _verifying,
    Phase.RETURNING: _returning,
    Phase.ESCALATED: _escalated,
    Phase.CANCELLING: _cancelling,
}
