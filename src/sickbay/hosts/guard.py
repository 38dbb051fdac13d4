"""A call into the kernel that may never come back: a thread makes it, and is given up when it does not.

LinuxHost reads files, lists folders and asks NVML and the machine's metadata through one Guard. While a given-up call
is still out, the same question answers "no answer" at once; with too many out, every question does. It must never
raise what the call raises: that, too, is no answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

MOST_OUT = 16  # threads given up and still out


class Guard:
    def __init__(self, most_out: int = MOST_OUT) -> None:
        self._most_out = most_out
        self._lock = threading.Lock()
        self._idle: _Worker | None = None
        self._out: dict[str, _Worker] = {}

    def call(self, question: str, work: Callable[[], T], limit_s: float) -> T | None:
        """What `work` returns, or None: it raised, did not come back in time, or was still out from before."""
        worker = self._worker(question)
        if worker is None:
            return None
        try:
            good, answer = worker.ask(work).get(timeout=max(limit_s, 0.0))
        except Empty:
            self._give_up(question, worker)
            return None
        self._rest(worker)
        return answer if good else None

    def out(self) -> tuple[str, ...]:
        """The questions that have not come back."""
        with self._lock:
            self._out = {question: worker for question, worker in self._out.items() if worker.busy()}
            return tuple(self._out)

    def _worker(self, question: str) -> _Worker | None:
        out = self.out()
        if question in out or len(out) >= self._most_out:
            return None
        with self._lock:
            worker, self._idle = self._idle, None
        try:
            return worker or _Worker()
        except RuntimeError:  # no more threads to be had
            return None

    def _give_up(self, question: str, worker: _Worker) -> None:
        worker.dismiss()
        with self._lock:
            self._out[question] = worker

    def _rest(self, worker: _Worker) -> None:
        with self._lock:
            spare, self._idle = self._idle, worker
        if spare is not None:  # two callers at once: one thread waits for the next, the other may go
            spare.dismiss()


class _Worker:
    """One thread that does one thing after another until it is dismissed."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Callable[[], Any], SimpleQueue[tuple[bool, Any]]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="sickbay-guarded", daemon=True)
        self._thread.start()

    def ask(self, work: Callable[[], T]) -> SimpleQueue[tuple[bool, Any]]:
        answer: SimpleQueue[tuple[bool, Any]] = SimpleQueue()
        self._asked.put((work, answer))
        return answer

    def dismiss(self) -> None:
        self._asked.put(None)

    def busy(self) -> bool:
        return self._thread.is_alive()

    def _loop(self) -> None:
        while (job := self._asked.get()) is not None:
            work, answer = job
            try:
                answer.put((True, work()))
            except Exception:  # a question that cannot be answered: the asker sees None
                answer.put((False, None))
