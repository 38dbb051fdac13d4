"""Mutants: one rule of the brain or of a door removed at a time. One that no proof notices is a hole in the proofs.

`run_mutants` is behind `sickbay sim mutants`. Each mutant lives in a forked process: the patched modules are judged
first by the seeds (world-side checkers), then, where the seeds are blind by nature, by tests of core and
controller and the scenarios. Mutants of time and of sending must die by the seeds: nothing else looks at the truth.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sickbay.model import Done, Event, Phase, RecoveryPhase, Unguarded

Patch = Callable[[], None]

SEED_S = 90  # a seed takes about one second; a mutant that goes round in circles is caught too


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    patch: Patch
    seeds_only: bool = False  # the tests of core cannot see it by construction


def _set(module: str, name: str, value: Any) -> Patch:
    """Replace one attribute ("Class.method" too)."""

    def apply() -> None:
        owner: Any = importlib.import_module(f"sickbay.{module}")
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, value)

    return apply


def _row(phase: Phase, event: Event, to: Phase | None) -> Patch:
    def apply() -> None:
        from sickbay.core import machine

        if to is None:
            machine.TABLE[phase].pop(event)
        else:
            machine.TABLE[phase][event] = to

    return apply


def _wrap(module: str, name: str, make: Callable[[Any], Any]) -> Patch:
    def apply() -> None:
        owner: Any = importlib.import_module(f"sickbay.{module}")
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, make(getattr(owner, last)))

    return apply


def _rule(module: str, phase: Any, make: Callable[[Any], Any]) -> Patch:
    """Replace one rule in a module's RULES table."""

    def apply() -> None:
        rules = importlib.import_module(f"sickbay.{module}").RULES
        rules[phase] = make(rules[phase])

    return apply


def _door(name: str, make: Callable[[Any], Any]) -> Patch:
    """Replace one door of the simulated platform, in its table too."""

    def apply() -> None:
        from sickbay.platforms.simulated.platform import SimulatedPlatform as Doors

        old = getattr(Doors, name)
        setattr(Doors, name, make(old))
        Doors._doors = {verb: (getattr(Doors, name) if f is old else f) for verb, f in Doors._doors.items()}

    return apply


def _all(*patches: Patch) -> Patch:
    def apply() -> None:
        for patch in patches:
            patch()

    return apply


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
    return lambda case, record, findings, catalog: ("DONE", "nobody looked")


def _narrow_verify(old: Any) -> Any:
    return lambda diagnoses, catalog, before: ()


def _seat_freed(old: Any) -> Any:
    def needed(seat: Any, case: Any) -> bool:
        return bool(old(seat, case)) and case.phase is not Phase.ESCALATED

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


def _any_version(old: Any) -> Any:
    return lambda case, node: old(replace(case, cordon_version=1 if case.cordon_version else 0), node)


P, E = Phase, Event
MUTANTS: tuple[Mutant, ...] = (
    # the table and its rules
    Mutant("the ladder never climbs", _wrap("core.machine", "next_rung", _from_the_bottom)),
    Mutant("an action key without the step", _wrap("core.machine", "action", _key_without_step)),
    Mutant("a failed examination returns the node", _row(P.VERIFYING, E.FAILED, P.RETURNING)),
    Mutant("a treated node returns unexamined", _row(P.REPAIRING, E.DONE, P.RETURNING)),
    Mutant("treated without being drained", _row(P.HOLDING, E.READY, P.QUEUED)),
    Mutant("evidence is not collected", _row(P.DRAINING, E.DONE, P.QUEUED)),
    Mutant("a hung node never drains", _row(P.DRAINING, E.UNREACHABLE, P.DRAINING)),
    Mutant("waiting too long takes the node", _row(P.WAITING, E.TIMED_OUT, P.CORDONING)),
    Mutant("a rejoined node is not closed again", _row(P.QUEUED, E.REJOINED, None)),
    Mutant("a worse finding while returning is ignored", _row(P.RETURNING, E.WORSENED, None)),
    Mutant("cancelling leaves the mark", _row(P.HOLDING, E.CANCELLED, P.DISMISSED)),
    Mutant("a hold freezes nothing", _set("core.machine", "THROUGH_HOLD", frozenset(Event))),
    Mutant("retry revives a cancelled case", _set("core.machine", "AFTER_CANCEL", {})),
    Mutant("no deadlines", _wrap("core.machine", "_deadline", lambda old: lambda case, now, policy: None)),
    Mutant("a cancel takes back nothing", _set("core.machine", "withdrawal", lambda sent: replace(sent, call=False))),
    Mutant("a sent treatment is forgotten when cancelled", _wrap("core.machine", "_unfinished", _free_cancel)),
    # what is seen
    Mutant("case numbers are reused", _wrap("core.triage", "open_case", _first_number)),
    Mutant("a latched sickness is forgotten", _wrap("core.triage", "openable", _only_new)),
    Mutant("every examination passes", _wrap("core.triage", "verify", _verify_sees_nothing)),
    Mutant("nothing is verified with", _wrap("core.plan", "_checks", _narrow_verify)),
    Mutant("the same finding is new every time", _wrap("core.triage", "_is_new", _no_record_of_seen)),
    Mutant("a relapse starts at the bottom", _wrap("core.triage", "_relapse_floor", lambda old: lambda *a: (None, ""))),
    Mutant("flaps are believed for ever", _wrap("core.triage", "may_clear", lambda old: lambda *a: True)),
    Mutant("an abort leaves no quiet time", _wrap("core.triage", "close", _no_quiet)),
    Mutant("a mark without a record is not looked for", _set("core.strays", "adopt", lambda turn: None)),
    Mutant("a deleted record is no cancel", _set("core.strays", "cancel_lost", lambda turn: None)),
    Mutant("a new case does not take an old mark over", _set("core.machine", "adopt", lambda case, mark: case)),
    Mutant("numbers begin anew after a lost store", _wrap(
        "core.triage", "next_number", lambda old: lambda record, mark="": old(record))),
    Mutant("a deleted ledger sets watch time back", _set("core.rebuild", "watched", lambda *known: 0.0)),
    Mutant("a deleted ledger gives places away", _set("core.rebuild", "seats", lambda ledger, cases: ledger.seats)),
    Mutant("quiet swallows a new boot", _wrap("core.quiet", "Peace.covers", _whole_fault)),
    Mutant("a person's uncordon is not noticed", _wrap("core.decide", "_was_uncordoned", _never)),
    Mutant("an uncordon is believed from an old view", _wrap("core.decide", "_was_uncordoned", _any_version)),
    Mutant("a refused treatment counts as done", _rule("core.phases", P.REPAIRING, _unguarded_is_done)),
    # limits
    Mutant("no limit on nodes out", _wrap("core.admit", "_out_limits", _no_room_check)),
    Mutant("escalated nodes give back their seat", _wrap("core.admit", "is_needed", _seat_freed)),
    Mutant("approval is not asked", _wrap("core.admit", "_approval", _no_room_check)),
    Mutant("the breaker never opens", _wrap("core.admit", "trip", lambda old: lambda ledger, *a: ledger)),
    # jobs
    Mutant("restarts without limit", _rule("core.recover", RecoveryPhase.WAITING_FOR_CAPACITY, _never_barren)),
    Mutant("corrupted checkpoints are trusted", _wrap("core.capacity", "start_from", _trusts_newest)),
    Mutant("a slow step is a stall, and stop does not look", _all(
        _rule("core.recover", RecoveryPhase.RUNNING, _hasty_stall), _door("_stop_job", _stop_anyway))),
    Mutant("any node is good enough", _wrap("controller.jobs", "JobDesk._is_good", _reads_are_good)),
    # doors, time, leaders
    Mutant("no guard at the door", _door("_unguarded", _guard_says_yes)),
    Mutant("a re-send acts again", _all(
        _wrap("controller.loop", "Controller._prepare", _resend_for_ever), _door("_treat", _blind_door)), True),
    Mutant("a second attempt beside a live one", _all(
        _wrap("sim.gangs", "Gangs.refusal", two_lives),
        _wrap("platforms.simulated.gang_door", "restart", restart_anyway))),
    Mutant("time passes while nobody watches", _wrap("controller.loop", "Controller._advance", _not_counted), True),
    Mutant("deadlines by the wall clock", _wrap("controller.loop", "Controller._now", _by_wall), True),
    Mutant("commands are removed unread", _wrap("controller.desk", "Desk.take_commands", _commands_lost)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fate:
    name: str
    killed_by: str  # "" when it survived
    took_s: float


def _try(number: int, seeds: int) -> Fate:
    """Runs in a process of its own: what it patches, it takes with it."""
    mutant, began = MUTANTS[number], time.monotonic()
    mutant.patch()
    from sickbay.sim.check import play

    signal.signal(signal.SIGALRM, _too_long)
    for seed in range(seeds):
        signal.alarm(SEED_S)
        verdict = play(seed)
        signal.alarm(0)
        if verdict.violations:
            return Fate(mutant.name, f"seed {seed}: {verdict.violations[0]}", time.monotonic() - began)
    by = "" if mutant.seeds_only else _by_tests()
    return Fate(mutant.name, by, time.monotonic() - began)


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"the seed did not end within {SEED_S} s: the brain goes round in circles")


def _by_tests() -> str:
    tests = Path(__file__).parents[3] / "tests"
    if not tests.is_dir():
        return ""
    judges = [
        str(tests / "core"),
        str(tests / "controller"),
        *sorted(map(str, (tests / "sim").glob("test_scenarios_*.py"))),
    ]
    import pytest

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", *judges])
    failed = [line for line in said.getvalue().splitlines() if line.startswith(("FAILED", "ERROR"))]
    return f"tests: {failed[0] if failed else said.getvalue()[-200:]}" if code != 0 else ""


def run_mutants(seeds: int, processes: int) -> int:
    """Try every mutant; 0 if each one dies. Prints who killed it."""
    began, survivors = time.monotonic(), []
    context = multiprocessing.get_context("fork")
    with context.Pool(processes, maxtasksperchild=1) as pool:
        fates = [pool.apply_async(_try, (n, seeds)) for n in range(len(MUTANTS))]
        for pending in fates:
            fate = pending.get()
            word = "killed  " if fate.killed_by else "SURVIVED"
            print(f"{word} {fate.name} ({fate.took_s:.0f} s)  {fate.killed_by[:140]}")
            sys.stdout.flush()
            survivors += [] if fate.killed_by else [fate.name]
    took = time.monotonic() - began
    print(f"{len(MUTANTS)} mutants, {len(MUTANTS) - len(survivors)} killed, {len(survivors)} survived, {took:.0f} s")
    return 1 if survivors else 0
