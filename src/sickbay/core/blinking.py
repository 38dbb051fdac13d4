"""A node that goes away for a moment, again and again: too short each time to be missed, and no use to anybody.

Asked by controller/blinking.py. It is told, once a day; what is done about a node is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from sickbay.core.naming import named
from sickbay.model import Notice

OFTEN = 6  # times within WITHIN_S
WITHIN_S = 3_600.0
REPEAT_S = 86_400.0


def lately(times: Sequence[float], now: float) -> tuple[float, ...]:
    return tuple(t for t in times if now - t <= WITHIN_S)[-OFTEN:]


def is_often(times: Sequence[float]) -> bool:
    return len(times) >= OFTEN


def notice(nodes: Sequence[str], watch: float, wall: float) -> Notice:
    """One for all who began to blink since the last one."""
    one = len(nodes) == 1
    title = f"{nodes[0]} comes and goes" if one else f"{len(nodes)} nodes come and go"
    body = (
        f"{named(nodes)} stopped answering {OFTEN} times or more within an hour, each time for so short a while that "
        "it is not treated. Jobs on such a node may be evicted again and again. Look at its network and its kubelet. "
        f"To take {'it' if one else 'one'} out yourself, close it for new work on your platform."
    )
    return Notice(f"blinking/{nodes[0]}/{int(watch // REPEAT_S)}", "warning", title, body, "", wall)
