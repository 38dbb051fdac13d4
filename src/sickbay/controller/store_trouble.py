"""A store that cannot be written (a full disk) is told to people, once for each time that it happens.

Called by controller/app.py whenever the store has failed. The notice is on no record, since there is nowhere to write
it: a restart of the process may tell it again. Sent from the loop's own thread, which has nothing else to do then.
"""

from __future__ import annotations

from collections.abc import Sequence

from sickbay.controller.outbox import Outbox
from sickbay.core import explain
from sickbay.ports import Clock, Notifier

LASTS_S = 120.0  # shorter ones are over before anybody has read of them
OFTEN = 4  # failures in that time: two blips are no trouble
OVER_S = 600.0  # without a failure: the next one is another time


class StoreTrouble:
    def __init__(self, notifiers: Sequence[Notifier], clock: Clock) -> None:
        self._box, self._clock = Outbox(notifiers), clock
        self._began = self._last = float("-inf")  # monotonic
        self._began_at, self._times = 0.0, 0

    def met(self, why: str) -> None:
        """The store has failed once more. Never raises."""
        now = self._clock.monotonic()
        if now - self._last >= OVER_S:
            self._began, self._began_at, self._times = now, self._clock.now(), 0
        self._last, self._times = now, self._times + 1
        if now - self._began >= LASTS_S and self._times >= OFTEN:
            self._box.put((explain.store_fails(why, self._began_at),))
        self._box.pump(now)
