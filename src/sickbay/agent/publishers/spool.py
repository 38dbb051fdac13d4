"""Reports on disk until somebody has taken them: bounded, in order, the oldest dropped first and counted.

Only the http publisher's lane uses it. A file a report, named by its number: what a kill leaves behind is whole and in
order. What the disk does not take (full, read-only, no folder) is kept in memory and still sent: a node whose disk is
full is one to hear of. It must never grow beyond its bound, never raise, and never lose the newest.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from pathlib import Path
from typing import NamedTuple

import msgspec

from sickbay import atomic

SUFFIX = ".json"
LARGEST = 1 << 20
IN_MEMORY = 4 << 20  # bytes: hours of reports, and no burden on a node that is ill already


class _Entry(NamedTuple):
    name: str
    size: int
    data: bytes | None = None  # where the disk did not take it


class Spool:
    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder, self._most = folder, most_bytes
        self.trouble = ""  # why the disk took nothing the last time; "" when it did
        self.dropped = self.unspooled = self.damaged = 0
        self._entries: deque[_Entry] = deque(self._found())
        self.bytes = sum(entry.size for entry in self._entries)
        self._held = 0  # of those, bytes in memory
        self._bound()

    def _found(self) -> list[_Entry]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.scandir(self.folder) as entries:
                return sorted(found for entry in entries if (found := self._seen(entry)) is not None)
        except OSError as error:
            self.trouble = f"{self.folder}: {error.strerror or error}"
            return []

    def _seen(self, entry: os.DirEntry[str]) -> _Entry | None:
        if entry.name.endswith(".tmp"):
            with contextlib.suppress(OSError):
                os.unlink(entry.path)  # half a report, from a kill
        elif entry.name.endswith(SUFFIX):
            with contextlib.suppress(OSError):
                seen = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(seen.st_mode) and seen.st_size <= LARGEST:
                    return _Entry(entry.name, seen.st_size)
            self.damaged += 1  # a folder, a link, a pipe, a file of that size: nothing that we wrote
        return None

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, number: int, data: bytes) -> None:
        name, kept = f"{number:020d}{SUFFIX}", None
        try:
            atomic.write(self.folder / name, data, sync=False, mode=0o600)
            self.trouble = ""
        except OSError as error:
            self.trouble = f"{self.folder}: {error.strerror or error}"
            self.unspooled += 1
            self._held += len(data)
            kept = data
        self._entries.append(_Entry(name, len(data), kept))
        self.bytes += len(data)
        self._bound()

    def oldest(self) -> tuple[str, bytes] | None:
        """The next one to send. What somebody else removed or damaged is passed over."""
        while self._entries:
            entry = self._entries[0]
            data = entry.data or self._read(entry.name)
            if data:
                return entry.name, data
            self.done(entry.name)
        return None

    def _read(self, name: str) -> bytes | None:
        path = self.folder / name
        data = atomic.read(path, LARGEST)
        if data is None and not path.exists():
            return None  # somebody emptied the folder
        try:
            msgspec.json.decode(data or b"")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.damaged += 1
            return None
        return data

    def done(self, name: str) -> None:
        """It has arrived, or never will."""
        if self._entries and self._entries[0].name == name:
            entry = self._entries.popleft()
            self.bytes -= entry.size
            self._held -= entry.size if entry.data else 0
        with contextlib.suppress(OSError):
            (self.folder / name).unlink(missing_ok=True)

    def _bound(self) -> None:
        while (self.bytes > self._most or self._held > IN_MEMORY) and len(self._entries) > 1:
            self.dropped += 1
            self.done(self._entries[0].name)
