"""World-side invariants: judged by what truly happened (World.log, hardware), not by what the controller believes.

Each checker is a small class fed every new Fact and asked once at the end. Used by sim/check.py and the tour. A checker
must never read a counter that the controller keeps: a prototype's mutant survived because one did.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sickbay.model import Case
from sickbay.sim.checkers.checker import Checker
from sickbay.sim.checkers.ends import EndsOrRests, JobsMove
from sickbay.sim.checkers.jobs import HealthyJobsRun, PlacedSafely, Trustworthy
from sickbay.sim.checkers.nodes import (
    Climbs,
    EvidenceFirst,
    ExaminedAlone,
    LeftAsFound,
    ReturnedWell,
    TreatedSafely,
    WithinLimits,
)
from sickbay.sim.checkers.people import HoldObeyed, NumberedOnce, PersonObeyed, TimedFairly, ToldOnce
from sickbay.sim.run import SimRun
from sickbay.sim.world import Fact

ALL: tuple[type[Checker], ...] = (
    TreatedSafely, PlacedSafely, WithinLimits, ReturnedWell, LeftAsFound, PersonObeyed, HealthyJobsRun, Trustworthy,
    ExaminedAlone, HoldObeyed, Climbs, TimedFairly, NumberedOnce, EvidenceFirst, ToldOnce, EndsOrRests, JobsMove,
)  # fmt: skip


@dataclass
class Judge:
    """Feeds facts to every checker and keeps what they complain about."""

    run: SimRun
    violations: list[str] = field(default_factory=list)
    open: tuple[Case, ...] = ()  # as they stand after the last turn
    ended: tuple[Case, ...] = ()  # the newest that have ended
    _read: int = 0

    def __post_init__(self) -> None:
        self.checkers = [make(self) for make in ALL]

    def look(self) -> None:
        """Judge everything that happened since the last look, in order."""
        if not self._facts() and self._is_unchanged():
            return
        self.open = tuple(c.value for c in self.run.store.list(Case))
        self.ended = tuple(self.run.store.history(Case, limit=12))
        for checker in self.checkers:
            checker.moment()

    def _facts(self) -> bool:
        log, first = self.run.world.log, self._read
        while self._read < len(log):
            fact = log[self._read]
            self._read += 1
            for checker in self.checkers:
                checker.fact(fact)
        return self._read > first

    def _is_unchanged(self) -> bool:
        """The store hands out the very objects it keeps: a case that is the same object has not moved."""
        now = self.run.store.list(Case)
        return len(now) == len(self.open) and all(a.value is b for a, b in zip(now, self.open, strict=True))

    def conclude(self) -> None:
        self.look()
        for checker in self.checkers:
            checker.end()

    def complain(self, fact: Fact | None, words: str) -> None:
        t = fact.t if fact else self.run.world.now
        hours = (t - self.run.world.clock.start) / 3600
        self.violations.append(f"at {hours:.2f} h: {words}")
