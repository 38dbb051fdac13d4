"""The life of a case: phases, events, the table, and `step`. Everything that changes a phase lives in this file.

Rule 1: a phase in -ING is under way, a phase in -ED is at rest, an event says what happened.
Rule 2: there are no guards here. Whether a limit has room, a ladder is used up or a check was conclusive is decided
        elsewhere and arrives as an event (ADMITTED, EXHAUSTED, INCONCLUSIVE ...), so the table is total and drawable.
Rule 3: every live phase but ESCALATED has a deadline and asks for at most one action; so every case ends
        or rests with a person.
Rule 4: `step` grows with each transition. An answer with an old step changes nothing. Case, opening and step name
        an action for ever, so a re-send is harmless and a second reboot is never mistaken for the first.

Called by core/decide.py only. It must never look at a clock, a node or a limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from sickbay.core.frozen import replace
from sickbay.model import TREATMENTS, Action, Before, Case, Entry, Event, Phase, Place, Undelivered, Verb
from sickbay.settings import Policy

P, E = Phase, Event

TABLE: dict[Phase, dict[Event, Phase]] = {
    P.SUSPECTED: {E.CONFIRMED: P.WAITING, E.CLEARED: P.DISMISSED, E.TIMED_OUT: P.DISMISSED,
                  E.CANCELLED: P.DISMISSED, E.GONE: P.DISMISSED},
    P.WAITING: {E.ADMITTED: P.CORDONING, E.CLEARED: P.DISMISSED, E.TIMED_OUT: P.DEFERRED,
                E.CANCELLED: P.DISMISSED, E.GONE: P.DISMISSED},
    P.CORDONING: {E.DONE: P.HOLDING, E.UNGUARDED: P.WAITING, E.FAILED: P.ESCALATED, E.TIMED_OUT: P.ESCALATED,
                  E.CANCELLED: P.CANCELLING, E.GONE: P.RESOLVED, E.REJOINED: P.CORDONING},
    P.HOLDING: {E.READY: P.DRAINING, E.WORSENED: P.DRAINING, E.CLEARED: P.DRAINING, E.TIMED_OUT: P.ESCALATED,
                E.CANCELLED: P.CANCELLING, E.GONE: P.RESOLVED, E.REJOINED: P.CORDONING},
    P.DRAINING: {E.DONE: P.COLLECTING, E.UNREACHABLE: P.COLLECTING, E.FAILED: P.ESCALATED, E.TIMED_OUT: P.ESCALATED,
                 E.CANCELLED: P.CANCELLING, E.GONE: P.RESOLVED, E.REJOINED: P.CORDONING},
    P.COLLECTING: {E.DONE: P.QUEUED, E.FAILED: P.QUEUED, E.TIMED_OUT: P.QUEUED,
                   E.CANCELLED: P.CANCELLING, E.GONE: P.RESOLVED, E.REJOINED: P.CORDONING},
    P.QUEUED: {E.ADMITTED: P.REPAIRING, E.UNTREATED: P.VERIFYING, E.CLEARED: P.CORDONING,
               E.EXHAUSTED: P.ESCALATED, E.TIMED_OUT: P.ESCALATED,
               E.CANCELLED: P.CANCELLING, E.GONE: P.RESOLVED, E.REJOINED: P.CORDONING},
    P.REPAIRING: {E.DONE: P.VERIFYING, E.REPLACED: P.RESOLVED, E.FAILED: P.QUEUED, E.TIMED_OUT: P.QUEUED,
                  E.UNGUARDED: P.CORDONING, E.CLEARED: P.CORDONING, E.UNREACHABLE: P.QUEUED, E.EXHAUSTED: P.ESCALATED,
                  E.CANCELLED: P.CANCELLING, E.GONE: P.RESOLVED, E.REJOINED: P.CORDONING},
    P.VERIFYING: {E.DONE: P.RETURNING, E.FAILED: P.QUEUED, E.TIMED_OUT: P.QUEUED, E.WORSENED: P.QUEUED,
                  E.INCONCLUSIVE: P.ESCALATED, E.UNHELD: P.VERIFYING,
                  E.CANCELLED: P.CANCELLING, E.GONE: P.RESOLVED, E.REJOINED: P.CORDONING},
    P.RETURNING: {E.DONE: P.RESOLVED, E.WORSENED: P.CORDONING, E.FAILED: P.ESCALATED, E.TIMED_OUT: P.ESCALATED,
                  E.UNHELD: P.CORDONING, E.CANCELLED: P.CANCELLING, E.GONE: P.RESOLVED, E.REJOINED: P.CORDONING},
    P.ESCALATED: {E.RETRIED: P.CORDONING, E.EXAMINED: P.CORDONING, E.DONE: P.HOLDING, E.UNGUARDED: P.WAITING,
                  E.CLEARED: P.RESOLVED, E.CANCELLED: P.CANCELLING, E.GONE: P.RESOLVED, E.REJOINED: P.CORDONING},
    P.CANCELLING: {E.DONE: P.DISMISSED, E.FAILED: P.ESCALATED, E.TIMED_OUT: P.ESCALATED, E.GONE: P.RESOLVED},
    P.RESOLVED: {},
    P.DISMISSED: {},
    P.DEFERRED: {},
}  # fmt: skip

ENDS = frozenset(phase for phase, row in TABLE.items() if not row)
LIVE = frozenset(TABLE) - ENDS

# The next visit of QUEUED verifies only, it tries no rung.
EXAMINES = frozenset({(P.HOLDING, E.CLEARED), (P.QUEUED, E.CLEARED), (P.REPAIRING, E.CLEARED),
                      (P.ESCALATED, E.EXAMINED), (P.RETURNING, E.UNHELD)})  # fmt: skip

# A hold freezes everything but these.
THROUGH_HOLD = frozenset({E.CANCELLED, E.GONE})

# Once cancelled, nothing a person asks for may take the node again: it is only let go.
AFTER_CANCEL = dict.fromkeys((E.RETRIED, E.EXAMINED, E.REJOINED, E.UNGUARDED, E.DONE), P.CANCELLING)

# A case about what many nodes share rests with a person until it is over: there is no node to close or examine.
OF_A_FACTOR = frozenset({E.CLEARED, E.CANCELLED, E.GONE})

# The action each phase asks for. REPAIRING asks for its rung; HOLDING for a checkpoint when the fault allows one.
VERB_OF: dict[Phase, Verb] = {
    P.CORDONING: Verb.CORDON,
    P.DRAINING: Verb.DRAIN,
    P.COLLECTING: Verb.COLLECT,
    P.VERIFYING: Verb.VERIFY,
    P.RETURNING: Verb.RELEASE,
    P.CANCELLING: Verb.RELEASE,
}

# The setting that bounds each phase, in watch time. ESCALATED has none: a person owns it.
DEADLINE_OF: dict[Phase, str] = {
    P.SUSPECTED: "suspect_s",
    P.WAITING: "waiting_s",
    P.CORDONING: "cordon_s",
    P.HOLDING: "hold_s",
    P.DRAINING: "drain_s",
    P.COLLECTING: "collect_s",
    P.QUEUED: "queued_s",
    P.VERIFYING: "verify_s",
    P.RETURNING: "return_s",
    P.CANCELLING: "cancel_s",
}

JOURNAL_MAX = 128
LATE_S = 360.0  # watch time: no pass is as late as that (controller.period_s is 300 at most)
ESCALATED_ASK_S = 60.0  # how often a cordon or drain that failed is asked for again while a person owns the case


def is_frozen(case: Case) -> bool:
    """Held or paused. Letting a node go is never frozen: a cancel passes a hold, so what it leads to must pass too."""
    return (case.held or case.paused) and case.phase is not P.CANCELLING


def was_passed_over(case: Case | None, now: float) -> bool:
    """Its time ended long ago, and nobody saw that: whoever led could not read it, or an error kept them from it. What
    it asked for may be done by now (seed 1462)."""
    if case is None or case.deadline is None or is_frozen(case):
        return False
    return now >= case.deadline + LATE_S


def goes_to(case: Case, event: Event) -> Phase | None:
    """Where this event takes the case; None if the row does not answer it, or a hold freezes it."""
    if is_frozen(case) and event not in THROUGH_HOLD:
        return None
    if case.factor and case.phase is P.ESCALATED and event not in OF_A_FACTOR:
        return None
    if case.cancelled and event in AFTER_CANCEL and case.phase is P.ESCALATED:
        return AFTER_CANCEL[event]
    return TABLE[case.phase].get(event)


def step(case: Case, event: Event, *, now: float, at: float, by: str, why: str, policy: Policy) -> Case | None:
    """The case after this event, or None when nothing changes. `now` is watch time, `at` is wall time."""
    phase = goes_to(case, event)
    if phase is None:
        return None
    moved = replace(
        case,
        phase=phase,
        step=case.step + 1,
        entered=now,
        deadline=None,
        pending=None,
        refusal="",
        retry_at=None,
        ready="",
        visits=case.visits + (phase is P.QUEUED),
        examine=phase is not P.VERIFYING and (case.examine or (case.phase, event) in EXAMINES),
        cancelled=case.cancelled or event is E.CANCELLED,
        unguarded=0 if event is E.RETRIED else case.unguarded + (event is E.UNGUARDED and case.phase is P.REPAIRING),
        unfinished=_unfinished(case, event),
        undelivered=_undelivered(case, event),
        cordon_version=0 if phase is P.CORDONING or case.phase is P.RETURNING else case.cordon_version,
        rung=_rung(case, event),
        rungs_tried=case.rungs_tried[:-1] if _was_refused(case, event) else case.rungs_tried,
        timeline=(*case.timeline, (phase.value, at))[-64:],
    )
    moved = note(moved, event.value, at=at, by=by, why=why)
    return replace(moved, deadline=_deadline(moved, now, policy), pending=_asks(moved))


def note(case: Case, event: str, *, at: float, by: str, why: str) -> Case:
    """A journal line without a transition: a person's command, a merged diagnosis."""
    entry = Entry(case.step, event, at, by, why, case.phase.value)
    journal = (*case.journal, entry)
    if len(journal) <= JOURNAL_MAX:
        return replace(case, journal=journal)
    return replace(case, journal=(*journal[:8], *journal[9:]), dropped_entries=case.dropped_entries + 1)


def start_rung(case: Case, verb: Verb, timeout_s: float, now: float, args: Mapping[str, str]) -> Case:
    """Name the rung of a case that has just entered REPAIRING, and ask for it."""
    assert case.phase is P.REPAIRING
    action = Action(_key(case), verb, _place(case, verb), args)
    tried = (*case.rungs_tried, verb)
    return replace(case, rung=verb, rungs_tried=tried, pending=action, deadline=now + timeout_s)


def renew(case: Case, *, now: float, policy: Policy) -> Case:
    """After a freeze: the phase gets its whole time again, and so do those of many who are not back yet."""
    if case.absence is not None:
        return replace(case, absence=replace(case.absence, mostly_back=None))
    if case.deadline is None:
        return case
    rung_s = case.deadline - case.entered if case.phase is P.REPAIRING else 0.0
    return replace(case, entered=now, deadline=now + rung_s if rung_s else _deadline(case, now, policy))


def _deadline(case: Case, now: float, policy: Policy) -> float | None:
    setting = DEADLINE_OF.get(case.phase)
    return now + float(getattr(policy, setting)) if setting else None


def _asks(case: Case) -> Action | None:
    """The action this phase asks for. A cancelled case first takes back its sent treatment, or sees it end."""
    if case.factor:
        return None
    if case.phase is P.CANCELLING and case.unfinished is not None:
        return withdrawal(case.unfinished)
    if case.phase is P.ESCALATED and not case.cordon_version and not case.cancelled and not case.newcomer:
        return _action(case, Verb.CORDON)  # escalated because the cordon failed: keep asking
    verb = VERB_OF.get(case.phase)
    return _action(case, verb) if verb else None


def withdrawal(sent: Action) -> Action:
    """What a cancelled case asks about the treatment it had sent: taken back if it has not begun, else how it fares."""
    return replace(sent, call=False, ask_at=0.0, args={**sent.args, "withdraw": "1"})


def action(case: Case, verb: Verb, args: Mapping[str, str]) -> Action:
    """Pinned to the machine the case is about: a node's name may belong to another one by the time it is asked."""
    return Action(_key(case), verb, Place(case.node), args, before=Before(instance=case.instance))


def _key(case: Case) -> str:
    """Says when the case was opened, for its name alone may come again: a store that is put back from a backup does not
    know of the last ones. The node still did, and answered the new case by what it had done for the old (seed 287)."""
    return f"{case.id}/{case.step}-{int(case.opened_at):x}"


def _action(case: Case, verb: Verb) -> Action:
    args = {}
    if case.phase is P.CANCELLING:
        args["cancel"] = "1"
    if case.adopts and verb in (Verb.CORDON, Verb.RELEASE):
        args["adopts"] = case.adopts
    if verb is Verb.VERIFY:
        args["checks"] = ",".join(case.plan.verify_with)
    return action(case, verb, args)


def adopt(case: Case, mark: str) -> Case:
    """A case that closes a node on which an older mark of ours still is, of a case without a record."""
    case = replace(case, adopts=mark)
    return replace(case, pending=_asks(case))


def release_after_cancel(case: Case, *, now: float, policy: Policy) -> Case:
    """The sent treatment is over or lost: take our marks off under a new step, so that its answer is not mistaken. It
    has its own time: of what a long treatment had left, a slow platform made a case for a person."""
    assert case.phase is P.CANCELLING
    case = replace(case, step=case.step + 1, unfinished=None, refusal="")
    return renew(replace(case, pending=_action(case, Verb.RELEASE)), now=now, policy=policy)


ANSWERED = frozenset({E.DONE, E.FAILED, E.REPLACED, E.GONE})


def _unfinished(case: Case, event: Event) -> Action | None:
    """A treatment that was sent from REPAIRING and has no final answer yet. One that was not made leaves an earlier one
    as it is: the door refuses the next while that goes on, and its place was given to another node (seed 70020122)."""
    sent = case.pending is not None and case.pending.sends > 0
    if case.phase is not P.REPAIRING or not sent or _was_refused(case, event):
        return case.unfinished
    return case.pending if event not in ANSWERED else None


def _undelivered(case: Case, event: Event) -> Undelivered | None:
    """Kept from try to try; whatever else becomes of a treatment ends it, and so does a person's retry."""
    over = event is E.RETRIED or (case.phase is P.REPAIRING and event is not E.UNREACHABLE)
    return None if over else case.undelivered


def _was_refused(case: Case, event: Event) -> bool:
    """It was not let in at the door, never arrived, or was not sent before the node came back or people let it go: it
    was not tried."""
    unsent = event in (E.REJOINED, E.CANCELLED) and case.pending is not None and not case.pending.sends
    return case.phase is P.REPAIRING and (unsent or event in (E.UNGUARDED, E.UNREACHABLE, E.CLEARED, E.EXHAUSTED))


def _rung(case: Case, event: Event) -> Verb | None:
    if event is E.RETRIED or case.rung is None:
        return None
    return _below(case.rung) if _was_refused(case, event) else case.rung


def _below(rung: Verb) -> Verb | None:
    """So a rung that was refused is the next one again."""
    weaker = TREATMENTS[: TREATMENTS.index(rung)]
    return weaker[-1] if weaker else None


def not_begun(case: Case) -> Case:
    """What a cancelled case had sent was not done to the node: it was not tried. The next case of the node took it for
    a rung that had not helped, and rebooted where a reset would have done (found by an outsider)."""
    tried = case.rungs_tried
    if case.unfinished is None or tried[-1:] != (case.unfinished.verb,):
        return case
    rung = case.rung if case.rung is not tried[-1] else _below(tried[-1])
    return replace(case, rung=rung, rungs_tried=tried[:-1])


def rung_tried(case: Case) -> Verb | None:
    """The strongest rung tried, up to where it stands: that may be one that only lies below what was not delivered."""
    rung = case.rung
    tried = [v for v in case.rungs_tried if rung is not None and TREATMENTS.index(v) <= TREATMENTS.index(rung)]
    return max(tried, key=TREATMENTS.index, default=None)


def may_be_refuted(case: Case) -> bool:
    """May its evidence still turn out not to be so? Not once it was examined, and not where a person said: treat it."""
    just_admitted = case.phase is P.REPAIRING and bool(case.journal) and case.journal[-1].phase == P.REPAIRING
    undelivered = False
    for entry in reversed(case.journal[:-1] if just_admitted else case.journal):
        if entry.event == E.RETRIED or entry.phase == P.VERIFYING:
            return False
        if entry.phase == P.REPAIRING and not undelivered:
            return True
        kept_out = entry.phase == P.QUEUED and entry.event == E.UNREACHABLE  # what was not tried says nothing
        undelivered = kept_out or (undelivered and entry.phase == P.REPAIRING)
    return True


def _place(case: Case, verb: Verb) -> Place:
    """A reset is for the sick device if there is exactly one; every stronger rung is for the node."""
    devices = {d.place.device for d in case.diagnoses if d.place.device}
    if verb is Verb.RESET_GPU and len(devices) == 1:
        return Place(case.node, devices.pop())
    return Place(case.node)


def is_asked_again(case: Case) -> bool:
    """It rests with a person over a cordon or drain that is still asked for, every minute: that has not failed yet."""
    if case.phase is not P.ESCALATED or case.pending is None or len(case.timeline) < 2:
        return False
    return VERB_OF.get(P(case.timeline[-2][0])) is case.pending.verb


def next_rung(case: Case, allowed: frozenset[Verb]) -> Verb | None:
    """The weakest rung of the plan that is allowed and stronger than everything tried; None when there is none."""
    above = TREATMENTS.index(case.rung) + 1 if case.rung is not None else 0
    stronger = TREATMENTS[above:]
    return next((r.verb for r in case.plan.rungs if r.verb in stronger and r.verb in allowed), None)
