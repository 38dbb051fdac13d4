"""Counters and histograms that are written from several threads and read, copied whole, by a scrape that takes no lock.

Owned by controller/accounts.py. Bounded: label sets past `most` are counted together as "other", so that no name that
comes from outside (a pool, a fault, a job) can fill the memory.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass

MOST = 1_000  # label sets of one figure
OTHER = "other"

Labels = tuple[str, ...]


class Tally:
    """A counter by labels."""

    def __init__(self, most: int = MOST) -> None:
        self._counts: dict[Labels, float] = {}
        self._most, self._lock = most, threading.Lock()

    def add(self, *labels: str, by: float = 1.0) -> None:
        with self._lock:
            if labels not in self._counts and len(self._counts) >= self._most:
                labels = (OTHER,) * len(labels)
            self._counts[labels] = self._counts.get(labels, 0.0) + by

    def begin(self, *labels: str) -> None:
        """There from now on, as 0: Prometheus sees no increase from nothing to 1."""
        self.add(*labels, by=0.0)

    def items(self) -> list[tuple[Labels, float]]:
        return sorted(self._counts.copy().items())  # a copy of a dict of strings is one step: no lock

    def value(self, *labels: str) -> float:
        return self._counts.get(labels, 0.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """How many were at most each bound (the last: all), and their sum."""

    counts: tuple[int, ...]
    sum: float


class Histogram:
    """A histogram by labels. Each value is replaced whole, so that a reader never sees half an observation."""

    def __init__(self, bounds: tuple[float, ...], most: int = 200) -> None:
        self.bounds = bounds
        self._spreads: dict[Labels, Spread] = {}
        self._most, self._lock = most, threading.Lock()

    def begin(self, *labels: str) -> None:
        """There from now on, empty."""
        with self._lock:
            self._find(labels)

    def observe(self, value: float, *labels: str) -> None:
        with self._lock:
            labels, old = self._find(labels)
            at = bisect_left(self.bounds, value)
            counts = tuple(n + (i >= at) for i, n in enumerate(old.counts))
            self._spreads[labels] = Spread(counts, old.sum + value)

    def _find(self, labels: Labels) -> tuple[Labels, Spread]:
        if labels not in self._spreads and len(self._spreads) >= self._most:
            labels = (*labels[:1], *(OTHER for _ in labels[1:]))  # the first label is ours and few
        return labels, self._spreads.setdefault(labels, Spread((0,) * (len(self.bounds) + 1), 0.0))

    def items(self) -> list[tuple[Labels, Spread]]:
        return sorted(self._spreads.copy().items())
