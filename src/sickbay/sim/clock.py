"""Virtual time: a heap of things that will happen. The World owns one; it never sleeps and never reads a real clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Act = Callable[[], None]


class VirtualClock:
    """Events run in order of time, and in the order they were asked for within one instant: that is the determinism."""

    def __init__(self, start: float) -> None:
        self.time = start
        self.start = start
        self._heap: list[tuple[float, int, Act]] = []
        self._asked = 0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time - self.start

    def at(self, when: float, act: Act) -> None:
        """Ask for `act` at `when`; a time already past means now."""
        self._asked += 1
        heapq.heappush(self._heap, (max(when, self.time), self._asked, act))

    def next_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def run_instant(self) -> None:
        """Everything due at the next instant, including what those events add to the same instant."""
        self.time = self._heap[0][0]
        while self._heap and self._heap[0][0] <= self.time:
            heapq.heappop(self._heap)[2]()
