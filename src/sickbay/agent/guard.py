"""Runs work in a thread that can be given up: the collector's watchdog (originals 002.12 #11).

A Host's commands have their own limits; this is for what has none: a read that never returns, a library that hangs. A
stuck thread is abandoned, a new one takes its place, and the same work is not tried again while the old one hangs. It
must never wait longer than it was told to.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sickbay.errors import SickbayError

T = TypeVar("T")
MOST_STUCK = 4  # abandoned threads; with more than that only a new process helps


class TooManyStuck(SickbayError):
    """The agent ends with a code other than 0, so that whoever supervises it starts a new one. State is kept."""


@dataclass(slots=True)
class _Task(Generic[T]):
    name: str
    work: Callable[[], T]
    ended: threading.Event = field(default_factory=threading.Event)
    answer: T | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Stuck:
    """No answer: it hangs (or hung already when asked)."""

    name: str
    seconds: float


class Guard:
    """One thread at work at a time; the caller waits for it, but not for ever."""

    def __init__(self, most_stuck: int = MOST_STUCK, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most_stuck, clock
        self._tasks: queue.SimpleQueue[_Task[object] | None] | None = None
        self._left: dict[str, tuple[_Task[object], float]] = {}
        self._stopping = threading.Event()
        self._current: _Task[object] | None = None
        self.abandoned = 0

    def run(self, name: str, work: Callable[[], T], limit_s: float) -> T | Stuck:
        """What `work` returns or raises, or Stuck. TooManyStuck when too many have been left behind."""
        if (since := self._hanging(name)) is not None:
            return Stuck(name, self._clock() - since)
        begun = self._clock()
        task = _Task(name, work)
        self._hand_over(task)
        task.ended.wait(limit_s)
        if not task.ended.is_set() or (self._stopping.is_set() and task.answer is None and task.error is None):
            return self._abandon(task, begun)
        if task.error is not None:
            raise task.error
        return task.answer  # type: ignore[return-value]

    def stuck(self) -> tuple[str, ...]:
        return tuple(name for name in list(self._left) if self._hanging(name) is not None)

    def stop(self) -> None:
        """Whoever waits is let go; the thread ends with its work, if that ends."""
        self._stopping.set()
        if self._current is not None:
            self._current.ended.set()
        if self._tasks is not None:
            self._tasks.put(None)

    def _hanging(self, name: str) -> float | None:
        task, since = self._left.get(name, (None, 0.0))
        if task is not None and task.ended.is_set():
            del self._left[name]
            return None
        return since if task is not None else None

    def _hand_over(self, task: _Task[T]) -> None:
        if self._tasks is None:
            self._tasks = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(self._tasks,), name="collector", daemon=True).start()
        self._current = task  # type: ignore[assignment]
        self._tasks.put(task)  # type: ignore[arg-type]

    def _abandon(self, task: _Task[T], begun: float) -> Stuck:
        if not self._stopping.is_set():
            self._left[task.name] = (task, begun)  # type: ignore[assignment]
            self.abandoned += 1
            if self._tasks is not None:
                self._tasks.put(None)  # if it ever comes back it shall end, not serve on
            self._tasks = None
            if len(self.stuck()) > self._most:
                raise TooManyStuck(f"{len(self.stuck())} checks hang and were left behind: {', '.join(self.stuck())}")
        return Stuck(task.name, self._clock() - begun)


def _serve(tasks: queue.SimpleQueue[_Task[object] | None]) -> None:
    while (task := tasks.get()) is not None:
        try:
            task.answer = task.work()
        except BaseException as error:
            task.error = error
        task.ended.set()
