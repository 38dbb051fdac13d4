"""One node's turn: what it shows, what we know, what a person asked, what a door answered -> the next Case.

Pure: the controller gathers a NodeSlice, calls `decide`, commits the Decision, and only then performs. All transitions
of one turn are one write. Cost follows what changed: nothing here looks at another node.
"""

from __future__ import annotations

from collections.abc import Sequence

from sickbay.core import (
    absence,
    comebacks,
    consent,
    explain,
    flaps,
    keeping,
    machine,
    obey,
    overwritten,
    parts,
    sight,
    steps,
    strays,
    successors,
    suspicion,
    triage,
    undelivered,
)
from sickbay.core.frozen import replace
from sickbay.core.moment import how_long
from sickbay.core.phases import RULES, unreachable_at
from sickbay.core.turn import Context, Decision, Move, NodeSlice, Turn, latches_of
from sickbay.core.witness import may_treat
from sickbay.model import TREATMENTS, Case, Diagnosis, Event, Latch, Node, NodeRecord, Phase, Refuted, Verb

TURNS_MAX = 12  # transitions in one turn; the table has no cycle without an outcome or a deadline in it
UNMARKED = frozenset({Phase.SUSPECTED, Phase.WAITING})
UNTREATED = UNMARKED | {Phase.CORDONING, Phase.HOLDING, Phase.DRAINING, Phase.COLLECTING, Phase.QUEUED}
HELD_SAFE = frozenset({Phase.HOLDING, Phase.DRAINING, Phase.COLLECTING, Phase.QUEUED, Phase.REPAIRING, Phase.VERIFYING})


def decide(s: NodeSlice, ctx: Context) -> Decision:
    turn = Turn(s, ctx, s.record, s.case)
    if s.case is not None and s.case.pending is not None and s.answers == s.case.pending.key:
        turn.outcome = s.outcome
    sight.note_readiness(turn)
    sight.take_findings(turn)
    parts.disown(turn)
    sight.explain_away(turn)
    obey.reopen(turn)
    strays.cancel_lost(turn)
    if turn.case is None:
        _open(turn)
    flaps.note_witness(turn)
    _end_exchange(turn)
    strays.adopt(turn)
    overwritten.look(turn)
    obey.freeze(turn, s.paused or _stands_still(turn))
    obey.obey(turn)
    _run(turn)
    _note_load(turn)
    return _conclude(turn)


def _open(turn: Turn) -> None:
    node, ctx = turn.s.node, turn.ctx
    if node is None or node.gone or node.opted_out or turn.s.gone:
        return
    latches = triage.openable(turn.record, ctx.catalog, ctx.now.watch)
    latches = tuple(la for la in latches if la.fault not in turn.s.explained)
    if not latches or turn.s.absent:
        return
    latches = tuple(sorted(latches, key=lambda la: (-la.severity, la.since)))
    turn.case, turn.record = triage.open_case(
        turn.record, node, latches, ctx.catalog, ctx.policy, now=ctx.now.watch, at=ctx.now.wall, cluster=ctx.cluster,
        ceilings=ctx.ceilings, died=turn.s.died,
    )  # fmt: skip
    turn.case = replace(turn.case, newcomer=all(la.fault == "newcomer" for la in latches))
    turn.case = successors.noted(turn.case, turn.s.joined, ctx.now.watch, ctx.now.wall)
    if turn.s.exchange and absence.is_only_evidence(turn.case):
        turn.case = replace(turn.case, rung=Verb.POWER_CYCLE, approved=(Verb.REPLACE,))
    turn.fresh = ()
    _tell_doubts(turn)


def _end_exchange(turn: Turn) -> None:
    """A person had those exchanged that were away, and this one answers again before anything was sent: it is a node
    like any other, and its return is no flap. Where `flaps_accepted` was 0 a healthy machine was given back three
    minutes after the network was there again (seed 41018)."""
    case, node = turn.case, turn.s.node
    if case is None or node is None or not node.ready or turn.s.granted or not absence.is_exchange(case):
        return
    if case.phase in UNTREATED and not case.rungs_tried:
        why = "it answers again: that those who were away are to be exchanged is not about it any more"
        case = machine.note(case, "BACK", at=turn.ctx.now.wall, by="sickbay", why=why)
        turn.case = replace(case, rung=None, approved=(), alive=True)


def _tell_doubts(turn: Turn) -> None:
    """One notice when a suspicion begins: how it fades, and how a person ends it."""
    at, record = turn.ctx.now.wall, turn.record
    fresh = [explain.doubted(record.node, d, at) for d in record.doubts if d.strikes == 1 and d.at == at]
    if fresh:
        turn.record = replace(record, notices=keeping.owed(record.notices, fresh))


def _note_load(turn: Turn) -> None:
    """Hours of good work count only while nothing is held against the node."""
    if turn.record.lemon:
        turn.record = suspicion.adopt(turn.record, turn.ctx.now.wall)
        _tell_doubts(turn)
    loaded = turn.s.loaded and turn.case is None and not turn.record.latched
    turn.record = suspicion.note_load(turn.record, loaded=loaded, now=turn.ctx.now.watch)


def _run(turn: Turn) -> None:
    """Apply events until none is left. Every round consumes an outcome, a deadline or a fresh diagnosis."""
    _merge(turn)
    for _ in range(TURNS_MAX):
        case = turn.case
        if case is None or case.phase in machine.ENDS:
            return
        move = _from_outside(turn, case) or _from_phase(turn, case) or _from_time(turn, turn.case or case)
        if move is None:
            return
        moved = steps.step(turn, turn.case or case, move)  # not `case`: a rule may have noted facts on the turn's own
        if moved is None:
            return
        turn.case = moved


def _merge(turn: Turn) -> None:
    case = turn.case
    if case is None or not turn.fresh or case.phase in machine.ENDS or case.factor or case.cancelled:
        return  # what is found while a case is let go stays latched, and opens the next one
    if comebacks.is_successor(case, turn.s.node):
        return  # so does what another machine shows: its healthy part was condemned with the old one's (seed 50001073)
    known = {(d.fault, d.place.device) for d in case.diagnoses}
    merged, turn.worse = triage.merge(case, turn.fresh, turn.ctx.catalog, turn.s.node, turn.ctx.ceilings)
    new = [d for d in turn.fresh if (d.fault, d.place.device) not in known]
    for d in new:
        title = turn.ctx.catalog.faults[d.fault].title
        quote = d.because[0] if d.because else d.code
        merged = machine.note(merged, "MERGED", at=turn.ctx.now.wall, by="sickbay", why=f"also {title}: {quote}")
    merged = _above_what_failed(turn, _note_kills(turn, merged, new), new)
    turn.case = replace(merged, newcomer=False) if turn.worse else merged


def _above_what_failed(turn: Turn, case: Case, new: Sequence[Diagnosis]) -> Case:
    """A part that left with a replaced machine has had every milder treatment. Where it is ill from the first look on,
    no map of the node's parts tells that it is back, and it climbed the whole ladder at its gate each time (seed
    720250)."""
    return _at_least_replaced(case) if turn.s.condemned.keys() & {d.part for d in new} else case


def _at_least_replaced(case: Case) -> Case:
    """Only REPLACE is left, or a person, unless a treatment is under way or over."""
    weaker = case.rung is None or TREATMENTS.index(case.rung) < TREATMENTS.index(Verb.POWER_CYCLE)
    return replace(case, rung=Verb.POWER_CYCLE) if weaker and case.phase in UNTREATED else case


def _note_kills(turn: Turn, case: Case, new: Sequence[Diagnosis]) -> Case:
    """What joins an open case has ended a job as much as what opens one; the third is for a person, or a REPLACE."""
    now, node = turn.ctx.now.watch, turn.s.node
    if not turn.s.died and (node is None or not node.jobs):
        return case
    turn.record = suspicion.note_kills(turn.record, new, now)
    third = suspicion.needs_a_person(turn.record, [d.part for d in new], now)
    return _at_least_replaced(case) if third else case


def _from_outside(turn: Turn, case: Case) -> Move | None:
    """What people and providers did to the node."""
    node = turn.s.node
    if turn.s.gone or (node is not None and node.gone):
        if comebacks.awaits_successor(case):
            return None
        return (Event.GONE, "the provider says the machine no longer exists", "platform")
    if case.factor and turn.s.over and not case.cancelled:
        return (Event.CLEARED, turn.s.over, "sickbay")
    if node is None or case.factor or node.version < case.opened_version:
        return None
    if comebacks.is_successor(case, node):
        event = Event.REPLACED if case.rung is Verb.REPLACE and case.phase is Phase.REPAIRING else Event.GONE
        return (event, f"{case.node} is another machine now ({node.instance})", "platform")
    if node.uid != case.uid:
        turn.case = replace(case, uid=node.uid)
        return _rejoined(turn, turn.case)
    if case.phase in UNMARKED and (cause := _explained_by(turn, case)):
        return (Event.CANCELLED, f"a common cause explains it ({cause}); no node is treated for that", "sickbay")
    if turn.s.absent and _is_mere_absence(case):
        return (Event.CANCELLED, turn.s.absent, "sickbay")
    if node.opted_out and not case.cancelled:
        return (Event.CANCELLED, "the node was opted out", "operator")
    if _was_uncordoned(case, node) or _was_opened_at_once(turn, case, node):
        return (Event.CANCELLED, "somebody uncordoned the node; it is left as they left it", "operator")
    return None if strays.is_left_to_a_person(case) else overwritten.move(case, node)


def _rejoined(turn: Turn, case: Case) -> Move | None:
    if Event.REJOINED not in machine.TABLE[case.phase]:
        return None
    if strays.is_left_to_a_person(case):
        return (
            Event.CLEARED,
            "the node object was deleted and is back, without the mark that was left on it",
            "platform",
        )
    return (Event.REJOINED, "the node object was deleted and is back, the machine is the same", "platform")


def _explained_by(turn: Turn, case: Case) -> str:
    """The open case about a common cause that explains all of this one; "" if none does."""
    explained = turn.s.explained
    if not explained or case.factor or case.cancelled:
        return ""
    faults = [d.fault for d in case.diagnoses]
    if not latches_of(turn, case) and turn.record.latched:  # it was opened for what is over: what stands now counts
        faults = [latch.fault for latch in _treatable(turn)]
    return explained[faults[0]] if faults and all(fault in explained for fault in faults) else ""


def _treatable(turn: Turn) -> Sequence[Latch]:
    """What the node could be treated for. The word of one who may cause no treatment makes nothing less explained."""
    latched, ceilings = turn.record.latched, turn.ctx.ceilings
    return [latch for latch in latched if may_treat(latch.source, ceilings)] or latched


def _is_mere_absence(case: Case) -> bool:
    """Nothing was done for it yet, and nothing is held against the node but that it is away: then it is let go. Not
    one that a person holds: their hold would be gone when the others are back."""
    untreated = case.phase in UNTREATED and not (case.cancelled or case.held or case.rungs_tried)
    return untreated and absence.is_only_evidence(case)


def _stands_still(turn: Turn) -> str:
    """Why nothing is done in an open case, though nobody has paused it: its node is away with many others, or a common
    cause explains its fault. It keeps its verdict, its mark and its rung, and goes on when that is over."""
    case = turn.case
    if case is None or case.factor or case.phase in machine.ENDS:
        return ""
    if turn.s.absent and not _is_mere_absence(case):
        return turn.s.absent
    if case.phase is Phase.REPAIRING and case.pending is not None and case.pending.sends:
        return ""  # what was sent goes on whatever we think of it: its end is heard, or nobody looks after the node
    if why := overwritten.stands_still(case, turn.s.node):
        return why
    cause = _explained_by(turn, case) if case.phase not in UNMARKED else ""
    return f"a common cause explains it ({cause}): it is not treated while that case is open" if cause else ""


def _was_uncordoned(case: Case, node: Node) -> bool:
    """Believed only at a resource version later than our cordon, and never while we ourselves are returning it."""
    if not case.cordon_version or node.version <= case.cordon_version or case.cancelled:
        return False
    watched = case.phase in HELD_SAFE or case.phase is Phase.ESCALATED
    return watched and not (node.cordoned and node.mark)


def _was_opened_at_once(turn: Turn, case: Case, node: Node) -> bool:
    """The door found our mark on an open node: it was closed, and opened before we heard that."""
    refuted = case.phase in (Phase.CORDONING, Phase.ESCALATED) and isinstance(turn.outcome, Refuted)
    return refuted and node.mark in (case.id, case.adopts or case.id)


def _from_time(turn: Turn, case: Case) -> Move | None:
    if machine.is_frozen(case) or case.deadline is None or turn.ctx.now.watch < case.deadline:
        return None
    lasted = how_long(turn.ctx.now.watch - case.entered)
    tail = f"; {case.refusal}" if case.refusal else ""
    why = f"{case.node} was {explain.PHASE_WORDS[case.phase]} for {lasted}, longer than allowed"
    if case.phase is Phase.VERIFYING and absence.is_only_evidence(case):
        return (Event.INCONCLUSIVE, f"{why}: that says nothing against a node that was only away", "sickbay")
    return (Event.TIMED_OUT, why + tail, "sickbay")


def _from_phase(turn: Turn, case: Case) -> Move | None:
    rule = RULES.get(case.phase)
    move = rule(turn, case) if rule else None
    if move is not None and len(move) == 2:
        return (move[0], move[1], "sickbay")
    return None


def _conclude(turn: Turn) -> Decision:
    case, now, record = turn.case, turn.ctx.now, turn.record
    ended = case is not None and case.phase in machine.ENDS
    condemn: tuple[tuple[str, str], ...] = ()
    if case is not None and ended:
        record = triage.close(record, case, turn.ctx.policy, now=now.watch, at=now.wall)
        if case.phase is Phase.RESOLVED and case.journal[-1].event == Event.DONE:
            record = suspicion.note_check(record, case.plan.verify_with)
        if comebacks.is_successor(case, turn.s.node):
            record = replace(record, past=())  # the record is about the new machine by now
        elif case.phase is Phase.RESOLVED and (comebacks.has_left(case) or turn.s.gone):
            doubts = tuple(d for d in record.doubts if d.part)  # its parts may come back in its successor
            record = replace(record, latched=(), doubts=doubts, lemon="")
        record = comebacks.note(record, case, now.watch)
        condemn = _condemned(turn, case)
    if case is not None and turn.s.refusal is not None and not ended and not turn.s.granted:
        case = replace(case, refusal=turn.s.refusal.why, retry_at=turn.s.refusal.again_at)
        case = _asked(turn, case, turn.s.refusal.asks)
    opened = turn.s.case is None and case is not None
    return Decision(record, case, opened, ended, tuple(turn.consumed), condemn, turn.pardon)


def _asked(turn: Turn, case: Case, verb: Verb | None) -> Case:
    """Who is not told cannot give their word: once for each verb, and once more after they had it begin anew."""
    if verb is None or consent.was_asked(case, verb):
        return case
    at, notice = turn.ctx.now.wall, explain.asks(case, verb, turn.ctx.catalog, turn.ctx.now.wall)
    case = machine.note(case, consent.ASKED, at=at, by="sickbay", why=f"{verb} waits for a person's word")
    return replace(case, notices=(*case.notices, notice)[-8:])


def _condemned(turn: Turn, case: Case) -> tuple[tuple[str, str], ...]:
    """Parts that left with a replaced machine. Should one of them come back, it is refused. Not by the word of one who
    may cause no REPLACE: it would cause that of the next machine that the part is in. So is one that had ended three
    jobs when somebody took its machine away, before anybody decided about it: in a machine of another name it ended
    three more (seed 50001167)."""
    ill = [d for d in case.diagnoses if d.part and Verb.REPLACE in turn.ctx.ceilings.get(d.source, ())]
    if comebacks.has_left(case):
        return tuple((d.part, f"{d.fault} in case {case.id}") for d in ill)
    if case.phase is not Phase.RESOLVED or case.journal[-1].event != Event.GONE:
        return ()
    lethal = [(d.part, suspicion.needs_a_person(turn.record, [d.part], turn.ctx.now.watch)) for d in ill]
    return tuple((part, f"{why}, and its machine left first ({case.id})") for part, why in lethal if why)


def wake_at(case: Case, record: NodeRecord, ctx: Context) -> float | None:
    """The next watch time at which this case wants a turn by itself."""
    times = [t for t in (case.deadline, case.retry_at) if t is not None]
    if case.phase in (Phase.HOLDING, Phase.QUEUED):
        times.append(triage.settles_at(case, record, ctx.policy))
    times.append(undelivered.again_at(case))
    if case.phase is Phase.HOLDING:
        times.append(case.entered + ctx.policy.checkpoint_s)
    if case.phase is Phase.DRAINING and (at := unreachable_at(case, record, ctx.policy)) is not None:
        times.append(at)
    ahead = [t for t in times if t > ctx.now.watch]
    return min(ahead) if ahead else None
