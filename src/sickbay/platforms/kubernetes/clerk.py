"""One thread that does things later: what becomes due by time alone, and questions that may take long.

Made by `Eyes`. Keeps one wish per key, the soonest; a wish that fails is logged and forgotten. It must never hold up a
watch, and sleeps when nothing is wished for.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable

from sickbay.errors import SickbayError
from sickbay.ports import Clock

log = logging.getLogger(__name__)

LONGEST_NAP_S = 1.0  # while something waits: the clock that is asked need not be the one we sleep by
MOST_WISHES = 50_000

Key = tuple[str, str]


class Clerk:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wakes = threading.Condition()
        self._due: list[tuple[float, Key]] = []
        self._wishes: dict[Key, tuple[float, Callable[[], None]]] = {}
        self._stopped = False
        self._thread: threading.Thread | None = None

    def at(self, after_s: float, key: Key, wish: Callable[[], None]) -> None:
        """Do it in so many seconds, unless the same is wished for sooner."""
        due = self._clock.monotonic() + after_s
        with self._wakes:
            known = self._wishes.get(key)
            if self._stopped or (known is not None and known[0] <= due) or len(self._wishes) >= MOST_WISHES:
                return
            self._wishes[key] = (due, wish)
            heapq.heappush(self._due, (due, key))
            self._wakes.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="clerk", daemon=True)
                self._thread.start()

    def drop(self, key: Key) -> None:
        with self._wakes:
            self._wishes.pop(key, None)

    def stop(self) -> None:
        with self._wakes:
            self._stopped = True
            self._wakes.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)

    def _serve(self) -> None:
        while (wish := self._next()) is not None:
            try:
                wish()
            except SickbayError as error:
                log.warning("something that was due later could not be done: %s", error)
            except Exception:
                log.exception("something that was due later could not be done")

    def _next(self) -> Callable[[], None] | None:
        """The next wish whose time has come; None when stopped."""
        with self._wakes:
            while not self._stopped:
                now = self._clock.monotonic()
                if self._due and self._due[0][0] <= now:
                    due, key = heapq.heappop(self._due)
                    known = self._wishes.get(key)
                    if known is not None and known[0] == due:
                        del self._wishes[key]
                        return known[1]
                else:
                    self._wakes.wait(min(self._due[0][0] - now, LONGEST_NAP_S) if self._due else None)
        return None
