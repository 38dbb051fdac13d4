"""When what is due: the light checks each interval, level 2 each few hours, each node at its own moment. Pure.

A node's share (a hash of its name) moves its cycles within the interval, so that a fleet started at once does not speak
at once for ever. Called by agent/collector. It must never let a diagnostic that occupies the GPUs run on a busy node.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

L2 = "dcgm-l2"


def share(node: str) -> float:
    """0 to 1, the same for this node for ever."""
    return int.from_bytes(hashlib.sha256(node.encode("utf-8", "replace")).digest()[:6], "big") / (1 << 48)


@dataclass(frozen=True, slots=True)
class Rota:
    """Times are monotonic seconds."""

    node: str
    started: float

    def next_cycle(self, after: float, interval_s: float) -> float:
        """The first cycle is due at once; later ones at this node's own phase, and a late one is not made up for."""
        phase = self.started + interval_s * (0.1 + 0.9 * share(self.node))
        if after < self.started:
            return self.started
        passed = math.floor((after - phase) / interval_s) + 1
        return phase + max(0, passed) * interval_s


def l2_due(node: str, *, born: float, last: float, interval_s: float, wall: float) -> bool:
    """Wall times. The first one comes within the first interval of a node's life, never at its very start
    (originals 002.12 #8). A clock that was set back far starts the waiting anew instead of ending it."""
    wait = interval_s if last else interval_s * (0.25 + 0.75 * share(node))
    since = last or born
    return wall - since >= wait or since - wall > interval_s
