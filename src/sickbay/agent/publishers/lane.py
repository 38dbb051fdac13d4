"""One thread and one queue for one publisher, so that one that hangs delays nobody else.

agent/process makes a lane each; `offer` never waits. The queue is bounded: when it is full the oldest goes and is
counted, because each Report is whole and the newest is the one that matters.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from sickbay.agent.publishers import Item, Publisher

log = logging.getLogger(__name__)

MOST_WAITING = 256
SAY_AGAIN_S = 300.0


class Lane(threading.Thread):
    def __init__(self, publisher: Publisher) -> None:
        super().__init__(name=f"publisher-{publisher.name}", daemon=True)
        self.publisher = publisher
        self._waiting: deque[Item] = deque()
        self._news = threading.Condition()
        self._stopping = False
        self._said_at = float("-inf")
        self.dropped = 0
        self.failed = 0

    def offer(self, item: Item) -> None:
        if not isinstance(item, self.publisher.takes):
            return
        with self._news:
            self._waiting.append(item)
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self.dropped += 1
            self._news.notify()

    def stop(self, patience_s: float) -> None:
        """Deliver what waits, within the time; a publisher that hangs is left."""
        with self._news:
            self._stopping = True
            self._news.notify()
        self.join(patience_s)

    def run(self) -> None:
        due: float | None = 0.0
        while (item := self._next(due)) is not None or not self._over():
            if item is not None:
                self._guarded(partial(self.publisher.publish, item))
                if self._waiting:
                    continue  # whoever sends only the newest should see it first
            due = self._guarded(self.publisher.work)
        self._guarded(self.publisher.close)

    def _next(self, due: float | None) -> Item | None:
        with self._news:
            if not self._waiting and not self._stopping:
                self._news.wait(due)
            return self._waiting.popleft() if self._waiting else None

    def _over(self) -> bool:
        with self._news:
            return self._stopping and not self._waiting

    def _guarded(self, do: Callable[[], float | None]) -> float | None:
        try:
            return do()
        except Exception as error:  # a publisher's trouble is its own
            self.failed += 1
            if time.monotonic() - self._said_at > SAY_AGAIN_S:
                self._said_at = time.monotonic()
                log.error("publisher %s: %s", self.publisher.name, error)
            return 5.0

    def figures(self) -> dict[str, float]:
        waiting = float(len(self._waiting))
        mine = {"failed": float(self.failed), "dropped": float(self.dropped), "waiting": waiting}
        theirs = self.publisher.figures()
        return {**theirs, **{name: value + theirs.get(name, 0.0) for name, value in mine.items()}}
