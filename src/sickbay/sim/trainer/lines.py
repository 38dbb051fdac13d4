"""A socket that speaks in lines: the heartbeat and the commands between a Gang and one rank.

Used on both sides. It must never block on reading: callers poll first.
"""

from __future__ import annotations

import contextlib
import socket

CHUNK = 65536
LONGEST = 1 << 20  # a peer that sends this much without a newline is not one of ours


class Lines:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rest = b""

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, line: str) -> bool:
        """False when nobody is there any more."""
        try:
            self.sock.sendall(line.encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> list[str] | None:
        """The whole lines that one read brings; None when the other side has closed."""
        try:
            data = self.sock.recv(CHUNK)
        except InterruptedError:
            return []
        except OSError:
            return None
        if not data or len(self._rest) > LONGEST:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.close()
