"""Wait for something to become true, with an end. Used by everybody here and by the tests; never a fixed sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(check: Callable[[], T | None], what: str, within_s: float = 15.0, every_s: float = 0.05) -> T:
    """The first true answer of `check`. AssertionError with `what` and the last answer when it never came."""
    end = time.monotonic() + within_s
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {within_s:g} s: {what} (last answer: {answer!r})")
        time.sleep(every_s)
