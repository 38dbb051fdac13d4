"""The agent's own pulse: when each of its parts last made progress. /healthz and the watchdog read it.

Times are monotonic. It must never hold a lock over anything slow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pulse:
    """Parts beat; others ask who has not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._beats: dict[str, tuple[float, float]] = {}  # part -> (last beat, seconds it may be silent)
        self._lock = threading.Lock()

    def beat(self, part: str, within_s: float) -> None:
        """`part` is well, and will say so again within this time."""
        with self._lock:
            self._beats[part] = (self.clock(), within_s)

    def rest(self, part: str) -> None:
        """`part` has ended on purpose."""
        with self._lock:
            self._beats.pop(part, None)

    def late(self) -> dict[str, float]:
        """Parts that should have said something, and for how many seconds they have been silent."""
        now = self.clock()
        with self._lock:
            return {part: now - at for part, (at, within) in self._beats.items() if now - at > within}
