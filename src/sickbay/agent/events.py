"""What others tell the agent: a GPU was reset, an operator clears a verdict. One small file each in state_dir/events.

`sickbay agent clear` and whoever resets a GPU drop a file; the agent takes it up within a second, or when it next
starts. A file is removed once the chart that obeys it is on disk. It must never believe a file it cannot read: that one
is moved aside and said.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sickbay import atomic

log = logging.getLogger(__name__)

FOLDER = "events"
MOST_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Event:
    kind: str  # "reset" | "clear"
    devices: tuple[str, ...] = ()  # none: the whole node
    by: str = ""
    why: str = ""
    at: float = 0.0


def drop(state_dir: Path, event: Event) -> Path:
    """For whoever tells. Raises OSError if the folder cannot be written."""
    folder = state_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{time.time_ns():020d}-{os.getpid()}.json"
    atomic.write(path, msgspec.json.encode(event))
    return path


class Inbox:
    """For the agent. Looking costs one stat when nothing has come."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._seen = -1

    def new(self) -> Iterator[tuple[Path, Event]]:
        """Each event that waits, oldest first. The caller unlinks the file when it has obeyed."""
        changed = self._folder.stat().st_mtime_ns
        if changed == self._seen:
            return
        self._seen = changed
        for name in sorted(os.listdir(self._folder))[:1000]:
            if name.endswith(".json") and (event := self._read(self._folder / name)) is not None:
                yield self._folder / name, event

    def _read(self, path: Path) -> Event | None:
        event = decoded(atomic.read(path, MOST_BYTES) or b"")
        if isinstance(event, Event):
            return event
        try:
            atomic.move_aside(path)
            log.error("%s is no event and was moved aside: %s", path, event)
        except OSError as error:  # a folder by that name may stand in the way: the others are obeyed all the same
            log.error("%s is no event (%s) and cannot be moved aside: %s; remove it", path, event, error.strerror)
        return None


def decoded(data: bytes) -> Event | str:
    """The event in these bytes, or why there is none."""
    try:
        event = msgspec.json.decode(data, type=Event)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return str(error)[:200]
    return event if event.kind in ("reset", "clear") else f"there is no event {event.kind[:40]!r}"
