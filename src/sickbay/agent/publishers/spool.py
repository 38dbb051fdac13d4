"""Reports on disk until somebody has taken them: bounded, in order, the oldest dropped first and counted.

Only the http publisher's lane uses it. A file a report, named by its number: what a kill leaves behind is whole and in
order. It must never grow beyond its bound, whatever the network does, and never lose the newest.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from pathlib import Path

from sickbay import atomic

SUFFIX = ".json"


class Spool:
    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder, self._most = folder, most_bytes
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._files: deque[tuple[str, int]] = deque(self._found())
        self.bytes = sum(size for _, size in self._files)
        self.dropped = 0
        self._bound()

    def _found(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith(".tmp"):
                    Path(entry.path).unlink(missing_ok=True)  # half a report, from a kill
                elif entry.name.endswith(SUFFIX):
                    found.append((entry.name, entry.stat().st_size))
        return sorted(found)

    def __len__(self) -> int:
        return len(self._files)

    def add(self, number: int, data: bytes) -> None:
        name = f"{number:020d}{SUFFIX}"
        atomic.write(self.folder / name, data, sync=False, mode=0o600)
        self._files.append((name, len(data)))
        self.bytes += len(data)
        self._bound()

    def oldest(self) -> tuple[str, bytes] | None:
        """The next one to send. What somebody else removed is passed over."""
        while self._files:
            name = self._files[0][0]
            data = atomic.read(self.folder / name, 1 << 20)
            if data:
                return name, data
            self.done(name)
        return None

    def done(self, name: str) -> None:
        """It has arrived, or never will."""
        if self._files and self._files[0][0] == name:
            self.bytes -= self._files.popleft()[1]
        with contextlib.suppress(OSError):
            (self.folder / name).unlink(missing_ok=True)

    def _bound(self) -> None:
        while self.bytes > self._most and len(self._files) > 1:
            self.dropped += 1
            self.done(self._files[0][0])
