"""How often somebody may speak, and how often we say that somebody may not. Bounded, whoever comes.

Called by web/ingest.py from its one thread.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from dataclasses import dataclass

from sickbay.ports import Clock

log = logging.getLogger(__name__)

PER_SECOND = 20.0
BURST = 100.0
MOST_NODES = 65_536
COMPLAIN_S = 60.0


class Rates:
    """A bucket per node: `burst` at once, then so many a second. An agent that empties its spool fits in."""

    def __init__(self, clock: Clock, per_second: float = PER_SECOND, burst: float = BURST) -> None:
        self._clock, self._per_second, self._burst = clock, per_second, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # node -> (left, at)

    def wait(self, node: str) -> int:
        """0 when it may go on; otherwise whole seconds to wait."""
        now = self._clock.monotonic()
        left, at = self._left.pop(node, (self._burst, now))
        left = min(self._burst, left + max(0.0, now - at) * self._per_second)
        allowed = left >= 1.0
        self._left[node] = (left - 1.0 if allowed else left, now)
        if len(self._left) > MOST_NODES:
            self._left.popitem(last=False)
        return 0 if allowed else math.ceil((1.0 - left) / self._per_second)


@dataclass(slots=True)
class _Kind:
    until: float
    unsaid: int = 0


class Complaints:
    """One line a minute for each kind of refusal, with how many it stands for: a flood must not fill a disk."""

    def __init__(self, clock: Clock, every_s: float = COMPLAIN_S) -> None:
        self._clock, self._every_s = clock, every_s
        self._kinds: dict[str, _Kind] = {}

    def hear(self, kind: str, words: str) -> None:
        now = self._clock.monotonic()
        known = self._kinds.get(kind)
        if known is not None and now < known.until:
            known.unsaid += 1
            return
        also = f" ({known.unsaid} more in the last minute)" if known is not None and known.unsaid else ""
        self._kinds[kind] = _Kind(now + self._every_s)
        log.warning("report refused kind=%s %s%s", kind, words, also)
