"""Who carries out `perform`: a bounded pool keyed by node, or nobody but us (inline, for the simulator).

One node never has two calls under way at once. Answers come back through the callback, on whatever thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from sickbay.model import Outcome, Retry

log = logging.getLogger(__name__)

Work = Callable[[], Outcome]
Answer = Callable[[Outcome], None]


class Crew(Protocol):
    def submit(self, work: Work, answer: Answer) -> None: ...

    def close(self) -> None: ...


class InlineCrew:
    """Performs at once, on the caller's thread: virtual time stands still meanwhile."""

    def submit(self, work: Work, answer: Answer) -> None:
        answer(work())

    def close(self) -> None:
        pass


class PoolCrew:
    """A bounded thread pool. A door must never raise; if one does, it is a bug there and a Retry here."""

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="perform")

    def submit(self, work: Work, answer: Answer) -> None:
        def run() -> None:
            try:
                outcome = work()
            except Exception as error:
                log.exception("a platform raised instead of answering")
                outcome = Retry(30.0, f"the platform failed: {error}")
            answer(outcome)

        self._pool.submit(run)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
