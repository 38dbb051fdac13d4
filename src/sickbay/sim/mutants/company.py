"""Mutants of what nodes and jobs have in common, of what comes back, and of whose word counts how much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sickbay.model import Cost, Event
from sickbay.model import RecoveryPhase as P
from sickbay.sim.mutants.patch import Mutant, rule_, set_, wrap_


def _is_nobodys_member(old: Any) -> Any:
    def member(*args: Any) -> Any:
        return type(old(*args))()

    return member


def _is_away_while_it_has_an_object(self: Any, names: Any) -> Any:
    """As it was: an object that is deleted while its node is out of reach was taken for the end of its ranks."""
    return {name: self.away[name] for name in names if name in self.away}


def _is_refused(case: Any, outcome: Any, now: float) -> Any:
    """As it was: what never arrived was a refusal, and the third one a person's case."""
    return (Event.UNGUARDED, f"it never arrived: {outcome.why}")


def _forgets_what_is_explained(old: Any) -> Any:
    """As it was: the verdict goes, and with it what keeps managed jobs away."""

    def explain_away(turn: Any) -> None:
        kept = tuple(la for la in turn.record.latched if la.fault not in turn.s.explained)
        turn.record = replace(turn.record, latched=kept)
        old(turn)

    return explain_away


def _forgets_it(old: Any) -> Any:
    """As it was: a job was given up when its nodes were back from the absence that had ended it."""

    def waiting(s: Any, r: Any, policy: Any, now: Any) -> Any:
        over = r.cost is Cost.SHARED and not s.outage
        return old(s, replace(r, cost=Cost.ONE) if over else r, policy, now)

    return waiting


def _gives_back(old: Any) -> Any:
    """As it was: what the restart had not cost was given back too."""

    def restarting(s: Any, r: Any, policy: Any, now: Any) -> Any:
        move, after = old(s, r, policy, now)
        refused = move is not None and move[0] == "REFUSED"
        return move, replace(after, barren=after.barren - 1) if refused else after

    return restarting


def _none(*args: Any) -> str:
    return ""


def _as_it_is(turn: Any, case: Any, *args: Any) -> Any:
    return case


def _same(r: Any, *args: Any) -> Any:
    return r


def _nothing(*args: Any) -> None:
    return None


def _no(*args: Any) -> bool:
    return False


COMPANY: tuple[Mutant, ...] = (
    # nodes that are away
    Mutant("absence of many is treated one by one", set_("core.absence", "scope_of", lambda *a: ())),
    Mutant("who is away with many is treated", wrap_("controller.absences", "Absences.member", _is_nobodys_member)),
    Mutant("who leaves is missed", set_("core.absence", "excuse", _none)),
    Mutant("stragglers are never treated", set_("core.absence", "MOSTLY_S", 1e12)),
    Mutant("a lone node is treated at once", set_("core.absence", "too_soon", _none)),
    Mutant("a second witness is not heard", set_("core.absence", "cut_off", _none)),
    Mutant("many that are away take every place", set_("core.admit", "_is_kept_for", _no)),
    Mutant("a node that is back is rebooted all the same", set_("core.phases", "is_refuted", _no)),
    Mutant("who is back from a power cut is taken for well", set_("core.proved", "is_proved", lambda *a: True)),
    Mutant("with which boots they went is forgotten with a leader", set_("core.proved", "rebooted", lambda *a: set())),
    Mutant("who was taken away is back", set_("core.absence_memory", "left", lambda *a: 0)),
    Mutant("who was left to people is theirs for ever", set_("controller.absences", "Absences._take_back", _nothing)),
    Mutant("a node that blinks is down", set_("core.absence", "blinks", _no)),
    Mutant("one after another is rebooted", set_("core.one_by_one", "forbids", _none)),
    Mutant("a blinking node is told to nobody", set_("core.blinking", "is_often", _no)),
    Mutant("what comes and goes is over each time", set_("core.absence_story", "goes_on", _no)),
    # what jobs share
    Mutant("ranks out of reach are no hindrance", set_("core.reach", "loose", lambda *a: ())),
    Mutant("a node that is back has ended its old ranks", set_("core.reach", "ending", lambda *a: "")),
    Mutant("a shared outage spends attempts", set_("controller.outages", "Outages.of", _none)),
    Mutant("an attempt that does not begin is spent", set_("core.outages", "_is_blameless", _no)),
    Mutant("a job that never begins is tried for ever", set_("core.outages", "TRIES", 10**6)),
    Mutant("what does not begin is tried again at once", set_("core.outages", "back_off", lambda r: 0.0)),
    Mutant(
        "a deleted object frees its ranks",
        set_("controller.view", "View.out_of_reach", _is_away_while_it_has_an_object),
    ),
    Mutant("an outage is forgotten when it is over", rule_("core.recover", P.WAITING_FOR_CAPACITY, _forgets_it)),
    Mutant("our own drain spends an attempt", set_("core.outages", "drained", lambda r: replace(r, cost=Cost.ONE))),
    Mutant("a refused restart gives an attempt back", rule_("core.recover", P.RESTARTING, _gives_back)),
    Mutant("an outsider explains a hang", set_("core.suspects", "_can_stop_work", lambda d: True)),
    Mutant("what came and brought the job down is asked for again", set_("core.arrivals", "brought_it_down", _same)),
    # common causes, comebacks, ceilings
    Mutant("explained is good", wrap_("core.sight", "explain_away", _forgets_what_is_explained)),
    Mutant("REPLACE for ever", set_("core.comebacks", "why_not_again", _none)),
    Mutant("ceilings are a union", set_("core.witness", "bounded", lambda d, ceilings: d), only="WithinCeilings"),
    Mutant("a weaker witness takes a verdict over", set_("core.witness", "outranks", _no)),
    Mutant("what did not arrive was refused", set_("core.undelivered", "said", _is_refused)),
    Mutant("a late approval is not heard", set_("core.consent", "is_taken_up", _no)),
    # what has no end by itself
    Mutant("a suspicion is told to nobody", set_("core.decide", "_tell_doubts", _nothing), only="EveryStateHasAnExit"),
    Mutant("a drain that lacks a right is a person's for good", set_("core.steps", "_drained_later", _as_it_is)),
    Mutant("nobody is asked for their word", set_("core.decide", "_asked", _as_it_is)),
    Mutant("each relapse is told anew", set_("core.recurring", "instead", lambda turn, case, notice: notice)),
    Mutant(
        "what people stopped is never brought to mind",
        set_("core.reminders", "due", lambda *a: ()),
        only="EveryStateHasAnExit",
    ),
    # who waits
    Mutant("a crowd before a full limit is told to nobody", set_("core.crowd", "is_news", _no)),
)
