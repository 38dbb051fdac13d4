"""A person's word: pause, hold, approve, abort, retry, examine, acknowledge, reopen.

Every command is journalled with who and why.

Called by core/decide.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sickbay.core import comebacks, consent, machine, parts, plan, steps, suspicion
from sickbay.core.frozen import replace
from sickbay.core.turn import Turn
from sickbay.model import Case, Command, Event, Phase, Verb

REFUSED = "REFUSED"  # in a journal: a command that nobody knows


def freeze(turn: Turn, why: str) -> None:
    """A pause freezes like a hold; when it ends the phase gets its whole time again. Why it is frozen may change
    meanwhile, and who holds it is told before that."""
    case, turn.still = turn.case, why
    if case is None:
        return
    if turn.s.read_again:  # nobody could attend to it: that time is not counted
        case = machine.renew(case, now=turn.ctx.now.watch, policy=turn.ctx.policy)
    if case.paused or why:
        case = case if case.held or case.refusal == why else replace(case, refusal=why)
    if case.paused != bool(why):
        event, said = ("PAUSED", why) if why else ("RESUMED", "it goes on")
        case = machine.note(case, event, at=turn.ctx.now.wall, by="sickbay", why=said)
        case = replace(case, paused=True) if why else _thaw(turn, replace(case, paused=False))
    turn.case = case


def _thaw(turn: Turn, case: Case) -> Case:
    turn.unheld = True
    return machine.renew(case, now=turn.ctx.now.watch, policy=turn.ctx.policy)


def reopen(turn: Turn) -> None:
    """A person ends the quiet time of a node: what still stands against it opens a case in this very turn."""
    if turn.case is None and any(command.verb == "reopen" for command in turn.s.commands):
        turn.record = replace(turn.record, quiet={})


def obey(turn: Turn) -> None:
    for command in turn.s.commands:
        turn.consumed.append(command.id)
        if command.verb == "acknowledge":
            parts.pardon(turn, command)
        if turn.case is not None:
            turn.case = OBEY.get(command.verb, _refuse)(turn, turn.case, command)
        elif command.verb == "acknowledge":
            turn.record = suspicion.forgive(replace(turn.record, latched=()))


def _note(turn: Turn, case: Case, command: Command, why: str = "", event: str = "") -> Case:
    event = event or command.verb.upper()
    return machine.note(case, event, at=turn.ctx.now.wall, by=command.by, why=why or command.why)


def _approve(turn: Turn, case: Case, command: Command) -> Case:
    named = [word.strip().upper() for word in command.args.get("verb", "").split(",") if word.strip()]
    if unknown := [word[:64] for word in named if word not in Verb.__members__]:
        return _note(turn, case, command, f"nothing is approved: {', '.join(map(repr, unknown))} is no verb", REFUSED)
    verbs = [Verb(word) for word in named] or _meant(turn, case)
    if not verbs:
        return _note(turn, case, command, _nothing_meant(case))
    if why := consent.in_vain(case, verbs):
        return _note(turn, case, command, f"nothing is approved: the case {why}")
    tail = consent.TAKEN_UP if consent.takes_up(case, verbs) else consent.but(case, verbs)
    words = f"{', '.join(verbs)} is approved: {command.why or 'no reason given'}"
    case = _note(turn, case, command, f"{words}; {tail}" if tail else words)
    if case.absence is not None and Verb.REPLACE in verbs:
        case = replace(case, absence=replace(case.absence, decided=turn.ctx.now.watch))
    every = tuple(dict.fromkeys((*case.approved, *verbs)))
    return replace(_may_evict(case, verbs), approved=every, retry_at=None)


def _meant(turn: Turn, case: Case) -> list[Verb]:
    """Where no verb is named: what a case at rest was asked for, else the next that needs a word."""
    return consent.meant(case, plan.needs_approval(case, turn.ctx.policy.approval))


def _nothing_meant(case: Case) -> str:
    if case.phase is Phase.ESCALATED and (ahead := plan.ahead(case)):
        return f"nothing is approved: it rests with a person and asked for nothing; name one of {', '.join(ahead)}"
    return "nothing ahead of it waits for approval"


def _may_evict(case: Case, verbs: Sequence[Verb]) -> Case:
    """A drain that was under way for the empty may go on with those that are there."""
    pending = case.pending
    if Verb.DRAIN not in verbs or pending is None or pending.verb is not Verb.DRAIN:
        return case
    return replace(case, pending=replace(pending, args={**pending.args, "evict": "1"}))


def _hold(turn: Turn, case: Case, command: Command) -> Case:
    return replace(_note(turn, case, command), held=True, refusal=f"held by {command.by}: {command.why}")


def _unhold(turn: Turn, case: Case, command: Command) -> Case:
    if not case.held:
        return _note(turn, case, command, "it was not held")
    return _thaw(turn, replace(_note(turn, case, command), held=False, refusal=turn.still))


def _by_command(event: Event) -> Callable[[Turn, Case, Command], Case]:
    def apply(turn: Turn, case: Case, command: Command) -> Case:
        why = command.why or f"{command.by} said so"
        if event is not Event.CANCELLED and turn.s.gone and comebacks.awaits_successor(case):
            return _note(turn, case, command, f"there is nothing to {command.verb}: {comebacks.no_successor(case)}")
        moved = steps.step(turn, case, (event, why, command.by))
        if moved is not None and event is not Event.CANCELLED:
            turn.record = suspicion.decided(turn.record, [d.part for d in case.diagnoses])
        return moved if moved is not None else _note(turn, case, command, f"nothing to {command.verb} in {case.phase}")

    return apply


def _acknowledge(turn: Turn, case: Case, command: Command) -> Case:
    faults = {d.fault for d in case.diagnoses}
    record = replace(turn.record, latched=tuple(la for la in turn.record.latched if la.fault not in faults))
    turn.record = suspicion.forgive(record)
    return _note(turn, case, command)


def _reopened(turn: Turn, case: Case, command: Command) -> Case:
    return _note(turn, case, command, command.why if turn.s.case is None else "a case is open already")


def _split(turn: Turn, case: Case, command: Command) -> Case:
    if case.absence is None:
        return _note(turn, case, command, "it is not about many nodes that are away: there is nothing to split")
    decided = replace(case.absence, split=True, decided=turn.ctx.now.watch)
    return replace(_note(turn, case, command), absence=decided)


def _refuse(turn: Turn, case: Case, command: Command) -> Case:
    """Under a name of our own: what the journal says has happened is not for everybody to say."""
    return _note(turn, case, command, f"unknown command {command.verb[:64]!r}, nothing done", REFUSED)


OBEY: dict[str, Callable[[Turn, Case, Command], Case]] = {
    "approve": _approve,
    "hold": _hold,
    "unhold": _unhold,
    "acknowledge": _acknowledge,
    "reopen": _reopened,
    "split": _split,
    "abort": _by_command(Event.CANCELLED),
    "retry": _by_command(Event.RETRIED),
    "examine": _by_command(Event.EXAMINED),
}
