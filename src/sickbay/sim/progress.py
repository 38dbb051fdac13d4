"""How far an attempt of a job is, at any moment, without an event per step. Used by jobs.py only.

An attempt works in cycles: `every` steps of `step_s`, then a blocking checkpoint write of `write_s`. So the step and
the checkpoints at a time are arithmetic, and 54 days of a 2,048-node job cost nothing until somebody asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

EPSILON = 1e-6  # virtual seconds: absorbs the rounding of sums of floats


@dataclass(slots=True)
class Pace:
    step_s: float
    every: int
    write_s: float
    from_step: int = 0
    work_s: float = 0.0  # worked until `anchor`
    anchor: float = 0.0  # when `work_s` was true
    slow: float = 1.0  # 2.0: everything takes twice as long
    frozen_at: float | None = None

    @property
    def cycle_s(self) -> float:
        return self.every * self.step_s + self.write_s

    def worked(self, now: float) -> float:
        until = now if self.frozen_at is None else min(now, self.frozen_at)
        return self.work_s + max(0.0, until - self.anchor) / self.slow

    def step(self, now: float) -> int:
        cycles, rest = divmod(self.worked(now) + EPSILON, self.cycle_s)
        return self.from_step + int(cycles) * self.every + min(self.every, int(rest / self.step_s))

    def when(self, step: int) -> float:
        """When this step will be finished at the present pace; never, if frozen before it."""
        return self._moment(self._work_for(step))

    def step_time(self, now: float) -> float:
        """When the newest finished step was finished."""
        step = self.step(now)
        return self.anchor if step <= self.from_step else min(now, self._moment(self._work_for(step)))

    def checkpoints(self, after_step: int, now: float) -> Iterator[tuple[int, float]]:
        """Complete checkpoints of this attempt beyond `after_step`, with the time each was complete."""
        done = int((self.worked(now) + EPSILON) // self.cycle_s)
        first = max(1, math.floor((after_step - self.from_step) / self.every) + 1)
        for n in range(first, done + 1):
            yield self.from_step + n * self.every, self._moment(n * self.cycle_s)

    def change_pace(self, now: float, slow: float) -> None:
        self._reanchor(now)
        self.slow = slow

    def pause(self, now: float, seconds: float) -> None:
        """Work stands still for this long (an extra checkpoint, a restore)."""
        self._reanchor(now)
        self.anchor = max(self.anchor, now) + seconds

    def freeze(self, now: float) -> None:
        if self.frozen_at is None:
            self.frozen_at = now

    def thaw(self, now: float) -> None:
        """What stood still goes on where it stood."""
        if self.frozen_at is not None:
            self.work_s, self.anchor, self.frozen_at = self.worked(now), max(self.anchor, now), None

    def _reanchor(self, now: float) -> None:
        self.work_s = self.worked(now)
        self.anchor = max(self.anchor, now)

    def _work_for(self, step: int) -> float:
        cycles, rest = divmod(step - self.from_step, self.every)
        return cycles * self.cycle_s + rest * self.step_s - (self.write_s if rest == 0 and cycles else 0.0)

    def _moment(self, work_s: float) -> float:
        when = self.anchor + (work_s - self.work_s) * self.slow
        return math.inf if self.frozen_at is not None and when > self.frozen_at + EPSILON else when
