"""What a reset has stopped and must start again, on disk before it is stopped: `reset.json` in the state folder.

reset.py writes it; whoever comes next puts things back: the reset itself in every ending, the agent at its next cycle
after a SIGKILL. Whether a reset is at work is told by a lock, which goes with its process, however that ends: as long
as it is held the agent asks the GPUs nothing (its own calls would be the client that keeps a GPU from being reset).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sickbay import atomic
from sickbay.ports import Host

FILE, LOCK = "reset.json", "reset.lock"
MOST_BYTES = 256 * 1024
LONGEST_S = 3_600.0  # from now: what claims more is a broken clock or not ours
SERVICE_S = 60.0


@dataclass(frozen=True, slots=True)
class Instance:
    """One GPU instance of MIG and the compute instances in it (profile ids), as nvidia-smi lists them."""

    gpu: int
    profile: int
    start: int
    compute: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Leftover:
    by: str  # the action's key
    boot_id: str
    until: float  # wall
    services: tuple[str, ...] = ()  # stopped by us, in this order
    mig: tuple[Instance, ...] = ()
    modes: dict[str, bool] = field(default_factory=dict)  # GPU index -> MIG was on


def write(state_dir: Path, left: Leftover) -> None:
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
    atomic.write(state_dir / FILE, msgspec.json.encode(left), mode=0o600)


def read(state_dir: Path) -> Leftover | None:
    try:
        return msgspec.json.decode(atomic.read(state_dir / FILE, MOST_BYTES) or b"", type=Leftover)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def clear(state_dir: Path) -> None:
    (state_dir / FILE).unlink(missing_ok=True)


def paused(state_dir: Path, now: float) -> str:
    """The key of the reset that is at work here now; "" when none is. One that is past its end is not waited for."""
    left = read(state_dir)
    if left is None or not now < left.until <= now + LONGEST_S:
        return ""
    with alone(state_dir) as free:
        return "" if free else left.by


@contextmanager
def alone(state_dir: Path) -> Iterator[bool]:
    """True while nobody else resets on this node, and then nobody else can."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
    handle = os.open(state_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(handle)


def start(host: Host, services: tuple[str, ...]) -> tuple[str, ...]:
    """Last stopped, first started: what others depend on was stopped last."""
    return tuple(name for name in reversed(services) if host.run(("systemctl", "start", name), SERVICE_S).code != 0)
