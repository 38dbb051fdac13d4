"""What the records said and when, by the world's clock: the judge's own dates, for no clock of the brain is trusted.

Kept by the Judge after every turn. A case's own times are in watch time or in a wall time that jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sickbay.model import Case, Phase, Recovery, When


@dataclass(frozen=True, slots=True)
class Seen:
    """A case entered a phase."""

    at: float  # world time
    wall: float  # as the brain's wall clock showed it
    when: When  # how urgent what had truly been said was then (told.py)


@dataclass
class Diary:
    soonest: Callable[[Case], When]
    taken: dict[str, Seen] = field(default_factory=dict)  # case -> first seen with a seat: CORDONING or later
    entered: dict[tuple[str, int], Seen] = field(default_factory=dict)  # (case, step)
    jobs: dict[tuple[str, int], float] = field(default_factory=dict)  # (job, step) -> world time
    _last: dict[str, Case] = field(default_factory=dict)

    def note(self, cases: Iterable[Case], now: float, wall: float) -> None:
        for case in cases:
            before = self._last.get(case.node)
            if before is case:
                continue
            self._last[case.node] = case
            if before is not None and is_frozen(before) and not is_frozen(case):
                self.entered.pop((case.id, case.step), None)  # after a freeze a phase has its whole time again
            seen = self.entered.setdefault((case.id, case.step), Seen(now, wall, self.soonest(case)))
            if case.phase not in (Phase.SUSPECTED, Phase.WAITING) and not case.factor:
                self.taken.setdefault(case.id, seen)

    def note_jobs(self, recoveries: Iterable[Recovery], now: float) -> None:
        for recovery in recoveries:
            self.jobs.setdefault((recovery.job, recovery.step), now)

    def granted(self, case: str, key: str, otherwise: Seen) -> Seen:
        """When this was let happen: a treatment when its step began, a cordon or a drain when the node was taken. What
        happened in the very turn that allowed it is not written here yet: then `otherwise`, now."""
        if key:
            name, _, step = key.rpartition("/")
            return self.entered.get((name, int(step.partition("-")[0])), otherwise)
        return self.taken.get(case, otherwise)


def is_frozen(case: Case) -> bool:
    return case.held or case.paused
