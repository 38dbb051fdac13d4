"""Mutants that do harm which the judge once let pass: each is seen by one checker (see docs/simulator.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sickbay.model import Event, Phase, RecoveryPhase, Verb, When
from sickbay.sim.mutants.patch import Mutant, Patch, all_, rule_, set_, wrap_
from sickbay.sim.outsiders import SOURCES


def _waits_for_nothing(old: Any) -> Any:
    """What can wait until the work is done is not waited for."""

    def why_evict(turn: Any, case: Any, when: When, idle: bool) -> Any:
        return old(turn, case, When.NOW if when is When.IDLE else when, idle)

    return why_evict


def _only_ours(old: Any) -> Any:
    """Who does not answer, or is held by somebody, takes no place."""

    def out_of_service(scope: str, ledger: Any, counts: Any) -> Any:
        return old(scope, ledger, replace(counts, down={}))

    return out_of_service


def _one_attempt(old: Any) -> Any:
    def waiting(s: Any, r: Any, policy: Any, now: Any) -> Any:
        return old(s, r, replace(policy, barren_limit=1), now)

    return waiting


def _two_attempts(old: Any) -> Any:
    def waiting(s: Any, r: Any, policy: Any, now: Any) -> Any:
        return old(s, r, replace(policy, barren_limit=min(2, policy.barren_limit)), now)

    return waiting


def _all_urgent(old: Any) -> Any:
    """What can wait is written down as what cannot."""
    return lambda d, ceilings: replace(old(d, ceilings), when=When.NOW)


def _as_the_agent_said(old: Any) -> Any:
    """Whatever an outsider said, the record has it from the node's own agent."""
    return lambda d, ceilings: replace(d, source="agent") if d.source in SOURCES else old(d, ceilings)


def _no(*args: Any) -> bool:
    return False


def _nothing_asked(*args: Any) -> dict[str, str]:
    return {}


def _as_if_collected(old: Any) -> Any:
    return lambda turn, case: (Event.DONE, "evidence: none was asked for")


def _elsewhere_at_once(old: Any) -> Any:
    """Its owner is told that ranks may still write, and it is started beside them all the same."""

    def waiting(s: Any, r: Any, policy: Any, now: Any) -> Any:
        return old(replace(s, unreachable={}), r, policy, now)

    return waiting


def _deaf_to_the_provider(old: Any) -> Any:
    def witness(self: Any, node: Any, since: float, heartbeats: Any) -> str:
        return str(old(self, replace(node, machine=""), since, heartbeats))

    return witness


def _is_not_heard(verb: str) -> Patch:
    def apply() -> None:
        from sickbay.core import obey

        obey.OBEY[verb] = lambda turn, case, command: case

    return apply


def _once_more(old: Any) -> Any:
    """What an examination said is not enough: again, twelve times."""

    def verifying(turn: Any, case: Any) -> Any:
        said = old(turn, case)
        again = said is not None and said[0] is Event.DONE
        again = again and sum(phase == Phase.VERIFYING for phase, _ in case.timeline) <= 12
        return (Event.UNHELD, "once more") if again else said

    return verifying


def _all_that_is_known(case: Any, record: Any, kind: str, now: float) -> list[str]:
    """As if nobody had been told of it yet."""
    return list(dict.fromkeys(d.fault for d in case.diagnoses))


def _raises_now_and_then(old: Any) -> Any:
    """About a node of which there is nothing to decide."""

    def note_load(turn: Any) -> None:
        old(turn)
        if turn.case is None and not turn.record.latched and turn.ctx.now.watch % 3600.0 < 60.0:
            raise LookupError("it is not there")

    return note_load


def _never_replaced(old: Any) -> Any:
    """And a case that is a relapse begins at the bottom again once everything else was tried."""

    def next_rung(case: Any, allowed: Any) -> Any:
        fewer = [verb for verb in allowed if verb is not Verb.REPLACE]
        return old(case, fewer) or (old(replace(case, rung=None), fewer) if case.visits <= 2 else None)

    return next_rung


def _at_once(old: Any) -> Any:
    """Whatever waits to be asked for again wants a pass now."""
    return lambda self: 0.0 if self.view.cases else old(self)


def _read_in_every_pass(old: Any) -> Any:
    def find(self: Any, name: str, now: Any) -> str:
        mark: str = old(self, name, now)
        self._due.update({name: now.watch} if mark else {})
        return mark

    return find


HARM: tuple[Mutant, ...] = (
    Mutant("work is stopped for what can wait", wrap_("core.phases", "_why_evict", _waits_for_nothing),
           only="WithinCeilings"),
    Mutant("who is out by others' doing takes no place", wrap_("core.admit", "out_of_service", _only_ours),
           only="WithinLimits"),
    Mutant("a job has one attempt", rule_("core.recover", RecoveryPhase.WAITING_FOR_CAPACITY, _one_attempt),
           only="NoJobGivenUp"),
    Mutant("a job has two attempts", rule_("core.recover", RecoveryPhase.WAITING_FOR_CAPACITY, _two_attempts),
           only="NoJobGivenUp"),
    # Either alone is made good by the other: the brain looks before it asks, and has the door look once more.
    Mutant("what was refuted is treated all the same", all_(
        set_("core.phases", "is_refuted", _no), set_("core.steps", "_unless_ready", _nothing_asked)),
        only="FreshEvidence"),
    Mutant("what can wait is written down as urgent", wrap_("core.witness", "bounded", _all_urgent),
           drawn='policy.windows = ["Sun', only="InMaintenance"),
    Mutant("whatever outsiders said, the agent did", wrap_("core.witness", "bounded", _as_the_agent_said)),
    Mutant("evidence is believed to be there", rule_("core.phases", Phase.COLLECTING, _as_if_collected),
           only="EvidenceFirst"),
    Mutant("a hold is not heard", _is_not_heard("hold"), only="HoldObeyed"),
    Mutant("an abort is not heard", _is_not_heard("abort"), only="PersonObeyed"),
    Mutant("an owner hears nothing of ranks out of reach", set_("core.reach", "told", lambda s, r, now: r),
           only="OwnersTold"),
    Mutant("an attempt begins beside ranks out of reach",
           rule_("core.recover", RecoveryPhase.WAITING_FOR_CAPACITY, _elsewhere_at_once), only="OneAttemptWrites"),
    Mutant("the provider's word is not heard", wrap_("controller.absences", "Absences._witness", _deaf_to_the_provider),
           only="HealthyLeftAlone"),
    Mutant("a node is examined over and over", rule_("core.phases", Phase.VERIFYING, _once_more),
           only="DisruptionsBounded"),
    Mutant("a part that ends one job after another is treated as ever", all_(
        set_("core.suspicion", "note_kills", lambda record, said, now: record),
        wrap_("core.machine", "next_rung", _never_replaced)),
           drawn="controller.silent_share = 1",  # seed 64: a part falls ill under work six times
           only="LemonsKillFewJobs"),
    Mutant("a pass raises, and that is contained", wrap_("core.decide", "_note_load", _raises_now_and_then),
           only="NoException"),
    Mutant("a hold is brought to mind every ten minutes", set_("core.reminders", "DAY_S", 600.0), only="ToldOnce"),
    Mutant("what nobody may touch is told again and again", set_("core.bystander", "_untold", _all_that_is_known),
           only="ToldOnce"),
    Mutant("whoever waits wants a pass at once", wrap_("controller.loop", "Controller._next_ask", _at_once),
           only="FewPasses"),
    Mutant("a mark without a record is read in every pass", wrap_("controller.strays", "Strays.find",
           _read_in_every_pass), only="FewPasses"),
)  # fmt: skip
