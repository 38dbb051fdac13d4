"""The controller's word that a node is out of service and may be burnt in: `reserved.json` in the agent's state folder.

Written on the controller's behalf when a case has drained the node, read before every deep check in managed mode. It
ends by itself: a controller that died must not leave a node open to burn-ins for ever.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from sickbay import atomic

FILE = "reserved.json"
MOST_BYTES = 64 * 1024
LONGEST_S = 86_400.0  # from now: what claims more is a broken clock or not ours


@dataclass(frozen=True, slots=True)
class Reservation:
    by: str  # the case
    until: float  # wall


def reserve(state_dir: Path, by: str, until: float) -> None:
    atomic.write(state_dir / FILE, json.dumps({"by": by, "until": until}).encode() + b"\n", mode=0o600)


def release(state_dir: Path) -> None:
    (state_dir / FILE).unlink(missing_ok=True)


def reserved(state_dir: Path, now: float) -> Reservation | None:
    """The reservation that holds now; None if there is none, it has ended, or the file is no such thing."""
    try:
        found = json.loads(atomic.read(state_dir / FILE, MOST_BYTES) or b"")
    except (ValueError, RecursionError):
        return None
    match found:
        case {"by": str(by), "until": int(until) | float(until)} if by and now < until <= now + LONGEST_S:
            return Reservation(by, float(until))
    return None
