"""Mutants of the table, of what is seen, of jobs, doors and time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sickbay.model import Done, Event, Phase, RecoveryPhase, Unguarded
from sickbay.sim.mutants.patch import Mutant, all_, door_, row_, rule_, set_, wrap_


def _not_counted(old: Any) -> Any:
    """Watch time without its bound: a gap counts in full."""

    def advance(self: Any) -> None:
        mono = self._clock.monotonic()
        self._watch += max(0.0, mono - self._last)
        self._last = mono

    return advance


def _by_wall(old: Any) -> Any:
    def now(self: Any) -> Any:
        made = old(self)
        return replace(made, watch=self._clock.now())

    return now


def _first_number(old: Any) -> Any:
    def open_case(record: Any, *args: Any, **kw: Any) -> Any:
        case, record = old(replace(record, last_n=0), *args, **kw)
        return case, record

    return open_case


def _key_without_step(old: Any) -> Any:
    def action(case: Any, verb: Any, args: Any) -> Any:
        return replace(old(case, verb, args), key=f"{case.id}/0")

    return action


def _resend_for_ever(old: Any) -> Any:
    def prepare(self: Any, desk: Any, owner: Any, action: Any, now: Any) -> Any:
        return replace(action, call=True) if action.sends else old(self, desk, owner, action, now)

    return prepare


def _blind_door(old: Any) -> Any:
    """A door that carries out every call again, whatever it did before."""

    def treat(self: Any, action: Any) -> Any:
        if action.sends and action.call:
            self.world.treatments.delivered.pop(action.key, None)
        return old(self, action)

    return treat


def two_lives(old: Any) -> Any:
    """A door that starts a gang beside its live attempt."""

    def refusal(self: Any, job: Any, nodes: Any, from_step: Any) -> str:
        if not job.live:
            return str(old(self, job, nodes, from_step))
        for name in job.nodes:
            self.world.nodes[name].job = ""
        return ""

    return refusal


def restart_anyway(old: Any) -> Any:
    """... and takes any call for a new one, whatever attempt it names."""

    def restart(world: Any, action: Any) -> Any:
        from sickbay.platforms.simulated import gang_door

        job = gang_door.job_of(world, action)
        return gang_door._restart(world, action, job, job.attempt + 1) if job and action.call else old(world, action)

    return restart


def _guard_says_yes(old: Any) -> Any:
    return lambda self, action, node: "" if node is not None else "gone"


def _no_record_of_seen(old: Any) -> Any:
    return lambda record, finding: True


def _only_new(old: Any) -> Any:
    return lambda record, catalog, now: tuple(la for la in record.latched if la.since == now)


def _verify_sees_nothing(old: Any) -> Any:
    return lambda *a: ("DONE", "nobody looked")


def _narrow_verify(old: Any) -> Any:
    return lambda diagnoses, catalog, before: ()


def _seat_freed(old: Any) -> Any:
    def needed(seat: Any, case: Any, now: float) -> bool:
        return bool(old(seat, case, now)) and case.phase is not Phase.ESCALATED

    return needed


def _no_room_check(old: Any) -> Any:
    return lambda *a: None


def _commands_lost(old: Any) -> Any:
    return lambda self, commands: self._records.consume([c.id for c in commands])


def _trusts_newest(old: Any) -> Any:
    def start_from(job: Any, r: Any) -> Any:
        return old(job, replace(r, distrust=False))

    return start_from


def _never_barren(old: Any) -> Any:
    def waiting(s: Any, r: Any, policy: Any, now: Any) -> Any:
        return old(s, replace(r, barren=-99), policy, now)

    return waiting


def _hasty_stall(old: Any) -> Any:
    def running(s: Any, r: Any, policy: Any, now: Any) -> Any:
        return old(s, r, replace(policy, stall_s=20.0, stall_steps=0.5, restarting_s=30.0), now)

    return running


def _stop_anyway(old: Any) -> Any:
    def stop(self: Any, action: Any) -> Any:
        return old(self, replace(action, args={k: v for k, v in action.args.items() if k != "last_step"}))

    return stop


def _unguarded_is_done(old: Any) -> Any:
    def repairing(turn: Any, case: Any) -> Any:
        if isinstance(turn.outcome, Unguarded):
            turn.outcome = Done("never mind")
        return old(turn, case)

    return repairing


def _reads_are_good(old: Any) -> Any:
    return lambda self, name, pools, now: True


def _free_cancel(old: Any) -> Any:
    return lambda case, event: None


def _from_the_bottom(old: Any) -> Any:
    return lambda case, allowed: old(replace(case, rung=None), allowed)


def _no_quiet(old: Any) -> Any:
    return lambda record, case, policy, **kw: replace(old(record, case, policy, **kw), quiet={})


def _whole_fault(old: Any) -> Any:
    """Quiet for the fault, whatever boot or device it shows on."""
    return lambda peace, latch: peace.fault == latch.fault


def _never(old: Any) -> Any:
    return lambda case, node: False


def _not_so(*args: Any) -> bool:
    return False


def _any_version(old: Any) -> Any:
    return lambda case, node: old(replace(case, cordon_version=1 if case.cordon_version else 0), node)


P, E = Phase, Event
BRAIN: tuple[Mutant, ...] = (
    # the table and its rules
    Mutant("the ladder never climbs", wrap_("core.machine", "next_rung", _from_the_bottom)),
    Mutant("an action key without the step", wrap_("core.machine", "action", _key_without_step)),
    Mutant("a failed examination returns the node", row_(P.VERIFYING, E.FAILED, P.RETURNING)),
    Mutant("a treated node returns unexamined", row_(P.REPAIRING, E.DONE, P.RETURNING)),
    Mutant("treated without being drained", row_(P.HOLDING, E.READY, P.QUEUED)),
    Mutant("evidence is not collected", row_(P.DRAINING, E.DONE, P.QUEUED)),
    Mutant("a hung node never drains", row_(P.DRAINING, E.UNREACHABLE, P.DRAINING)),
    Mutant("waiting too long takes the node", row_(P.WAITING, E.TIMED_OUT, P.CORDONING)),
    Mutant("a rejoined node is not closed again", row_(P.QUEUED, E.REJOINED, None)),
    Mutant("a worse finding while returning is ignored", row_(P.RETURNING, E.WORSENED, None)),
    Mutant("cancelling leaves the mark", row_(P.HOLDING, E.CANCELLED, P.DISMISSED)),
    Mutant("a hold freezes nothing", set_("core.machine", "THROUGH_HOLD", frozenset(Event))),
    Mutant("retry revives a cancelled case", set_("core.machine", "AFTER_CANCEL", {})),
    Mutant("no deadlines", wrap_("core.machine", "_deadline", lambda old: lambda case, now, policy: None)),
    Mutant("a cancel takes back nothing", set_("core.machine", "withdrawal", lambda sent: replace(sent, call=False))),
    Mutant("a sent treatment is forgotten when cancelled", wrap_("core.machine", "_unfinished", _free_cancel)),
    # what is seen
    Mutant("case numbers are reused", wrap_("core.triage", "open_case", _first_number)),
    Mutant("a latched sickness is forgotten", wrap_("core.triage", "openable", _only_new)),
    Mutant("every examination passes", wrap_("core.triage", "verify", _verify_sees_nothing)),
    Mutant("nothing is verified with", wrap_("core.plan", "_checks", _narrow_verify)),
    Mutant("the same finding is new every time", wrap_("core.triage", "_is_new", _no_record_of_seen)),
    Mutant("a relapse starts at the bottom", wrap_("core.triage", "_relapse_floor", lambda old: lambda *a: (None, ""))),
    Mutant("flaps are believed for ever", wrap_("core.triage", "may_clear", lambda old: lambda *a: True)),
    Mutant("an abort leaves no quiet time", wrap_("core.triage", "close", _no_quiet)),
    Mutant("a mark without a record is not looked for", set_("core.strays", "adopt", lambda turn: None)),
    Mutant("a deleted record is no cancel", set_("core.strays", "cancel_lost", lambda turn: None)),
    Mutant("a new case does not take an old mark over", set_("core.machine", "adopt", lambda case, mark: case)),
    Mutant("numbers begin anew after a lost store", wrap_(
        "core.triage", "next_number", lambda old: lambda record, mark="": old(record))),
    Mutant("a deleted ledger sets watch time back", set_("core.rebuild", "watched", lambda *known: 0.0)),
    Mutant("a deleted ledger gives grants away", set_("core.rebuild_limits", "with_windows", lambda x, *a: x)),
    Mutant("a deleted ledger closes the breaker", set_("core.rebuild_limits", "with_breaker", lambda x, *a: x)),
    Mutant("a deleted ledger takes people's words back", set_("core.rebuild", "with_words", lambda x, *a: x)),
    Mutant("a deleted ledger gives places away", set_("core.rebuild", "seats", lambda ledger, cases: ledger.seats)),
    Mutant("quiet swallows a new boot", wrap_("core.quiet", "Peace.covers", _whole_fault)),
    Mutant("a person's uncordon is not noticed", wrap_("core.decide", "_was_uncordoned", _never)),
    Mutant("an uncordon is believed from an old view", wrap_("core.decide", "_was_uncordoned", _any_version)),
    Mutant("a refused treatment counts as done", rule_("core.phases", P.REPAIRING, _unguarded_is_done)),
    # limits
    Mutant("no limit on nodes out", wrap_("core.admit", "_out_limits", _no_room_check)),
    Mutant("escalated nodes give back their seat", wrap_("core.admit", "is_needed", _seat_freed)),
    Mutant("approval is not asked", wrap_("core.admit", "_approval", _no_room_check)),
    Mutant("the breaker never opens", wrap_("core.admit", "trip", lambda old: lambda ledger, *a: ledger)),
    # jobs
    Mutant("restarts without limit", rule_("core.recover", RecoveryPhase.WAITING_FOR_CAPACITY, _never_barren)),
    Mutant("corrupted checkpoints are trusted", wrap_("core.capacity", "start_from", _trusts_newest)),
    Mutant("a slow step is a stall, and stop does not look", all_(
        rule_("core.recover", RecoveryPhase.RUNNING, _hasty_stall), door_("_stop_job", _stop_anyway))),
    Mutant("any node is good enough", wrap_("controller.jobs", "JobDesk._is_good", _reads_are_good)),
    # doors, time, leaders
    Mutant("no guard at the door", door_("_unguarded", _guard_says_yes)),
    Mutant("a re-send acts again", all_(
        wrap_("controller.loop", "Controller._prepare", _resend_for_ever), door_("_treat", _blind_door)), True),
    Mutant("a second attempt beside a live one", all_(
        wrap_("sim.gangs", "Gangs.refusal", two_lives),
        wrap_("platforms.simulated.gang_door", "restart", restart_anyway))),
    Mutant("time passes while nobody watches", wrap_("controller.loop", "Controller._advance", _not_counted), True),
    Mutant("deadlines by the wall clock", wrap_("controller.loop", "Controller._now", _by_wall), True),
    Mutant("a case times out while nobody can attend to it", set_("core.machine", "was_passed_over", _not_so)),
    Mutant("a job times out while nobody can attend to it", set_("core.recover", "was_passed_over", _not_so)),
    Mutant("commands are removed unread", wrap_("controller.desk", "Desk.take_commands", _commands_lost)),
)  # fmt: skip
