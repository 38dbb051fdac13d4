"""World-side invariants: judged by what truly happened (World.log, hardware), not by what the controller believes.

Each checker is a small class fed every new Fact and asked once at the end. Used by sim/check.py and the tour. A checker
must never read a counter that the controller keeps, nor ask core what a limit is: a prototype's mutant survived because
one did, and a limit of the product was wrong unseen because the other did.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from sickbay.errors import Unreadable
from sickbay.model import Case, Recovery
from sickbay.sim.checkers.ceilings import WithinCeilings
from sickbay.sim.checkers.checker import Bench, Checker
from sickbay.sim.checkers.commons import Commons
from sickbay.sim.checkers.consent import Approved, InMaintenance, PauseObeyed, WithinLevel, WorkLeftAlone
from sickbay.sim.checkers.diary import Diary
from sickbay.sim.checkers.ends import EndsOrRests, JobsMove
from sickbay.sim.checkers.exits import EveryStateHasAnExit, NoException
from sickbay.sim.checkers.fresh import FreshEvidence
from sickbay.sim.checkers.given_up import NoJobGivenUp
from sickbay.sim.checkers.haste import FewPasses
from sickbay.sim.checkers.jobs import HealthyJobsRun, PlacedSafely, Trustworthy
from sickbay.sim.checkers.limits import FewInAWindow, FewJobsHurt, TreatedFewAtOnce, WithinLimits
from sickbay.sim.checkers.loops import DisruptionsBounded, LemonsKillFewJobs
from sickbay.sim.checkers.nodes import Climbs, EvidenceFirst, ExaminedAlone, LeftAsFound, ReturnedWell, TreatedSafely
from sickbay.sim.checkers.notices import ToldOnce
from sickbay.sim.checkers.outages import HealthyLeftAlone, OneAttemptWrites, OwnersTold
from sickbay.sim.checkers.people import HoldObeyed, NumberedOnce, OptedOut, PersonObeyed, TimedFairly
from sickbay.sim.checkers.successors import FewSickSuccessors
from sickbay.sim.checkers.told import Told
from sickbay.sim.world import Fact

ALL: tuple[type[Checker], ...] = (
    TreatedSafely, PlacedSafely, WithinLimits, TreatedFewAtOnce, FewInAWindow, FewJobsHurt, Approved, WithinLevel,
    WorkLeftAlone, InMaintenance, PauseObeyed, ReturnedWell, LeftAsFound, PersonObeyed, HealthyJobsRun, Trustworthy,
    ExaminedAlone, HoldObeyed, Climbs, TimedFairly, NumberedOnce, EvidenceFirst, ToldOnce, EndsOrRests, JobsMove,
    HealthyLeftAlone, OneAttemptWrites, NoJobGivenUp, EveryStateHasAnExit, DisruptionsBounded, LemonsKillFewJobs,
    NoException, WithinCeilings, OwnersTold, FewSickSuccessors, OptedOut, FreshEvidence,
    FewPasses,
)  # fmt: skip

# Checkers of holes that are still open, with the reason: they look on, and what they say is not counted against a seed
# (`sickbay sim check --all-checkers` counts it). Whoever mends the hole takes its checker out of here.
PENDING: Mapping[str, str] = {}


def branch_of(checker: str, what: str) -> str:
    return f"{checker}: {what}"


@dataclass
class Judge:
    """Feeds facts to every checker and keeps what they complain about."""

    run: Bench
    violations: list[str] = field(default_factory=list)
    by: list[str] = field(default_factory=list)  # the checker behind each of them
    pending: list[str] = field(default_factory=list)  # what the checkers in PENDING say
    silent: frozenset[str] = frozenset(PENDING)
    open: tuple[Case, ...] = ()  # as they stand after the last turn
    ended: tuple[Case, ...] = ()  # the newest that have ended
    diary: Diary = field(init=False)
    told: Told = field(init=False)
    is_futile: bool = False  # a circle without an end: what was said so far is all that can be said of this seed
    watched: float = 0.0  # seconds in which somebody led, a gap counted as the longest sleep between two passes
    _turned: float = float("inf")  # when the last turn was
    _read: int = 0
    _token: int = -1  # of the store at the last look
    _led: frozenset[str] = frozenset()  # jobs with a record at the last look

    def __post_init__(self) -> None:
        self.commons = Commons(self.run.world)
        self.told = Told(self.run.world)
        self.diary = Diary(self.told.soonest)
        self.checkers = [make(self) for make in ALL]
        self._hearers = [each.fact for each in self.checkers if type(each).fact is not Checker.fact]
        self._lookers = [each.moment for each in self.checkers if type(each).moment is not Checker.moment]
        self._counters = [each.passed for each in self.checkers if type(each).passed is not Checker.passed]

    def look(self, *, anyway: bool = False) -> None:
        """Judge everything that happened since the last look, in order. `anyway`: also if no case has moved, and no job
        has a record more or less."""
        self._watch()
        for count in self._counters:
            count()
        if not self._facts() and self._is_unchanged() and not anyway:
            return
        self.open = tuple(c.value for c in self.run.store.list(Case))
        self.ended = tuple(self.run.store.history(Case, limit=12))
        self._date()
        for look in self._lookers:
            look()

    def _watch(self) -> None:
        now, loop = self.run.world.now, self.run.settings.controller
        self.watched += max(0.0, min(now - self._turned, loop.idle_period_s + loop.period_s))
        self._turned = now

    def _date(self) -> None:
        now = self.run.world.now
        self.diary.note(self.open, now, self.run.clock.now())
        jobs = [r.value for r in self.run.store.list(Recovery)]
        self._led = frozenset(r.job for r in jobs)
        self.diary.note_jobs(jobs, now)

    def _facts(self) -> bool:
        log, first = self.run.world.log, self._read
        while self._read < len(log):
            fact = log[self._read]
            self._read += 1
            self.commons.note(fact)
            self.told.fact(fact)
            for hear in self._hearers:
                hear(fact)
        return self._read > first

    def _is_unchanged(self) -> bool:
        """The store hands out the very objects it keeps: a case that is the same object has not moved. Of jobs it says
        when one was given up: what a node printed a quarter of an hour later explained why (seed 1806)."""
        token, before = self.run.store.token(), self._token
        self._token = token
        if token == before:
            return True
        now, led = self.run.store.list(Case), frozenset(r.value.job for r in self.run.store.list(Recovery))
        if led != self._led or len(now) != len(self.open):
            return False
        return all(a.value is b for a, b in zip(now, self.open, strict=True))

    def conclude(self) -> None:
        self.look(anyway=True)  # a job may have been given up since, or a pass have raised
        for checker in self.checkers:
            checker.end()

    def as_it_is(self, case: str) -> Case | None:
        """The case as it is written now, which may be after what is being judged: its diagnoses only grow."""
        with contextlib.suppress(Unreadable):  # of one that a newer controller wrote nobody knows more than before
            if stored := self.run.store.get(Case, case):
                return stored.value
        return next((c for c in self.open if c.id == case), None)

    def complain(self, fact: Fact | None, words: str, by: str = "") -> None:
        t = fact.t if fact else self.run.world.now
        said = f"at {(t - self.run.world.clock.start) / 3600:.2f} h: {words}"
        if by in self.silent:
            self.pending.append(f"{by}: {said}")
            return
        self.violations.append(said)
        self.by.append(by)

    def leapt_s(self, since: float) -> float:
        """What leaps of the monotonic clock may have added since: at most one planned sleep and one period each."""
        loop, leaps = self.run.settings.controller, getattr(self.run.clock, "leaps", ())
        return (loop.idle_period_s + loop.period_s) * sum(1 for at in leaps if at >= since)

    def exercised(self) -> dict[str, int]:
        """By checker, and by branch of it ("WithinLimits: domain")."""
        counts = {type(checker).__name__: checker.exercised for checker in self.checkers}
        for checker in self.checkers:
            counts |= {branch_of(type(checker).__name__, what): n for what, n in checker.reached.items()}
        return counts
