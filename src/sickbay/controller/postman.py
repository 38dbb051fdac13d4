"""The outbox in a thread of its own, as a controller process uses it. Made by controller/app.py, one for each lead."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from sickbay.controller.outbox import Outbox
from sickbay.model import Notice
from sickbay.ports import Clock, Notifier


class Postman:
    """The outbox in a thread of its own: a slow notifier never holds up a pass."""

    def __init__(
        self, notifiers: Iterable[Notifier], clock: Clock, delivered: Callable[[], None], gather_s: float = 0.0
    ) -> None:
        self._box, self._clock = Outbox([*notifiers], gather_s=gather_s), clock
        self._told: deque[str] = deque()
        self._delivered, self._stop = delivered, threading.Event()
        self._thread = threading.Thread(target=self._serve, name="outbox", daemon=True)
        self._thread.start()

    def put(self, notices: Iterable[Notice]) -> int:
        return self._box.put(notices)

    def pump(self, now: float) -> list[str]:
        """What the thread has delivered since the last pass."""
        return [self._told.popleft() for _ in range(len(self._told))]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2.0)  # what is not out yet is still on its record

    def _serve(self) -> None:
        self._box.serve(self._clock, self._stop, self._hear)

    def _hear(self, keys: list[str]) -> None:
        self._told.extend(keys)
        self._delivered()
