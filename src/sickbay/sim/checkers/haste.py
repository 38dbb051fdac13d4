"""Passes without end: a controller that has nothing to do sleeps.

A circle in which each pass calls for the next decides nothing, so no other checker sees it; on a real cluster it is a
core at work and an API server that is asked a hundred times a second (seed 566: a mark without a record on a node that
was away with many others was read directly in every pass). Called by the judge after each pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sickbay.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

HOUR_S = 3600.0
NEWS = 1_000  # passes an hour for what happens and for deadlines; a stormy hour of a seed has 700 of both kinds
FUTILE = 5  # times as many as an hour may have: the seed is not played to its end


class FewPasses(Checker):
    floor: ClassVar[float] = 300.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._since, self._passes = self.world.now, 0
        loop = self.run.settings.controller
        self._most = NEWS + HOUR_S / min(loop.period_s, loop.idle_period_s)  # and for the sleeps that it plans

    def passed(self) -> None:
        self._passes += 1
        if self.world.now - self._since >= HOUR_S:
            hours = (self.world.now - self._since) / HOUR_S
            self.expect(self._passes <= self._most * hours, None, self._words(hours))
            self._since, self._passes = self.world.now, 0
        elif self._passes > FUTILE * self._most and not self.judge.is_futile:
            self.complain(None, self._words((self.world.now - self._since) / HOUR_S))
            self.judge.is_futile = True

    def _words(self, hours: float) -> str:
        return f"{self._passes} passes in {hours:.2f} h, where {self._most:.0f} an hour are enough: it never rests"
