"""Reading, deciding and writing again when somebody else wrote in between.

Called by everybody whose write names what it was decided on (a resourceVersion, or the tests of a JSON patch): none was
made when it is refused for that. It must never be given an `ask` that writes unconditionally.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sickbay.errors import ApiError

T = TypeVar("T")

TRIES = 5


def settle(ask: Callable[[], T]) -> T:
    """What `ask` answers, once nobody is faster. After TRIES the last refusal is the caller's."""
    for _ in range(TRIES - 1):
        try:
            return ask()
        except ApiError as error:
            if not error.stale:
                raise
    return ask()
