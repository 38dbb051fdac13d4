"""What one pipe of a child said: the beginning, and when it said too much also the very end.

`child` feeds it. 8 MiB each is what ports.Host promises; a tool's result or its last words stand at one of both ends.
"""

from __future__ import annotations

import os

BOUND = 8 * 1024 * 1024
TAIL = 64 * 1024
CHUNK = 256 * 1024
MARK = "[sickbay: output cut here, {} bytes left out]"  # on a line of its own


class Stream:
    def __init__(self, number: int, bound: int = BOUND, tail: int = TAIL) -> None:
        self._number = number
        self._most, self._tail_most = bound - tail - 128, tail  # 128: room for the mark
        self._head, self._tail = bytearray(), bytearray()
        self._total = 0
        self._open = True
        os.set_blocking(number, False)

    def take(self) -> bool:
        """Read once; False when there will be no more."""
        try:
            data = os.read(self._number, CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self._open = self._open and bool(data)
        self._keep(data)
        return self._open

    def drain(self) -> None:
        """All that is there now, but no more than the bound: another writer may never stop."""
        end = self._total + BOUND
        while self._open and self._total < end:
            before = self._total
            self.take()
            if self._total == before:
                return

    def text(self) -> str:
        left_out = self._total - len(self._head) - len(self._tail)
        tail = self._tail.decode("utf-8", "replace")
        mark = "\n" + MARK.format(left_out) + "\n" if left_out else ""
        return self._head.decode("utf-8", "replace") + mark + tail

    def _keep(self, data: bytes) -> None:
        self._total += len(data)
        room = self._most - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        del self._tail[: -self._tail_most]
