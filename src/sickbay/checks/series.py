"""What earlier polls of a check measured: a bounded series per figure. For rates, flaps and "how long already".

The agent keeps one between cycles and across its own restarts; a single `sickbay check` starts with an empty one. It
holds numbers only, and must never hold a verdict: verdicts latch in agent/.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

POINTS = 160  # of one figure: twelve hours (the window of port flaps) at a poll every five minutes
FIGURES = 4_096  # in all: 8 GPUs x 18 links x a few counters, with room

Point = tuple[float, float]  # (at, value)


@dataclass(slots=True)
class Series:
    """name -> points, oldest first."""

    points: dict[str, list[Point]] = field(default_factory=dict)

    def add(self, at: float, samples: Mapping[str, float]) -> None:
        for name, value in samples.items():
            if name not in self.points and len(self.points) >= FIGURES:
                continue
            kept = self.points.setdefault(name, [])
            kept.append((at, value))
            del kept[:-POINTS]

    def since(self, name: str, at: float) -> list[Point]:
        """The points from `at` on."""
        return [point for point in self.points.get(name, ()) if point[0] >= at]

    def rise(self, name: str, at: float) -> float:
        """How much a counter grew from `at` on."""
        values = [value for _, value in self.since(name, at)]
        return sum(step(before, after) for before, after in pairwise(values))

    def held(self, name: str, at: float) -> float:
        """For how long the figure has been other than 0 without a break, seen from `at`; 0 if it is 0 now."""
        began = None
        for when, value in reversed(self.points.get(name, ())):
            if not value:
                break
            began = when
        return 0.0 if began is None else at - began

    def times(self, name: str, at: float) -> int:
        """Polls from `at` on in which the figure was other than 0."""
        return sum(1 for _, value in self.since(name, at) if value)

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.points.pop(name, None)


def step(before: float, after: float) -> float:
    """What a counter grew by between two looks. One that starts anew (reset, reboot) grew by what it shows."""
    return after - before if after >= before else after
