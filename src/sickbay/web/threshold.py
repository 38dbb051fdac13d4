"""The ingest's threshold: who may come in at all, before a byte is read. Connections are counted by source and in all.

Used by web/serve.py. Whoever is one too many is turned away at once; so strangers can neither take the files that the
store and the probes need, nor the places of agents. A handshake has its own time. It must never wait for anybody, nor
say more than a line a minute of each kind.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable

from sickbay.source import source_of
from sickbay.web.limits import Complaints

MOST_CONNECTIONS = 2_048
ROOM = 256  # files kept for the store, the platform, notifiers and probes
LEAST = 16
HANDSHAKE_S = 5.0
AT_ONCE = 64  # accepted in one go, then others have their turn
REST_S = 0.5  # after the system had no file left

Leave = Callable[[], None]
Make = Callable[[Leave], asyncio.BaseProtocol]


def most_connections() -> int:
    """As many as this process may have files, less what it needs for itself."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, soft - ROOM)
    return max(LEAST, allowed)


class Threshold:
    def __init__(
        self, listening: socket.socket, make: Make, tls: ssl.SSLContext | None, per_source: int, complaints: Complaints
    ) -> None:
        self._listening, self._make, self._tls, self._complaints = listening, make, tls, complaints
        self._most, self._per_source = most_connections(), per_source
        self._inside: Counter[str] = Counter()
        self._all = 0
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._listening)
        for task in self._tasks:
            task.cancel()

    def _listen(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                came, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file left: whoever waits at the door waits a moment longer
                self._complaints.hear("no-file", f"a connection could not be taken: {error.strerror}")
                self._loop.remove_reader(self._listening)
                self._again = self._loop.call_later(REST_S, self._listen)
                return
            self._meet(came, source_of(address[0]))

    def _meet(self, came: socket.socket, source: str) -> None:
        if self._all >= self._most:
            self._turn_away(came, "full", f"{self._most} connections are open; {source} was turned away")
        elif self._inside[source] >= self._per_source:
            said = f"{source} has {self._per_source} connections open (ingest.connections_per_source)"
            self._turn_away(came, "many-connections", said)
        else:
            task = self._loop.create_task(self._let_in(came, self._seat(source)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _turn_away(self, came: socket.socket, kind: str, said: str) -> None:
        self._complaints.hear(kind, said)
        came.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # at once, and nothing stays
        came.close()

    def _seat(self, source: str) -> Leave:
        self._inside[source] += 1
        self._all += 1
        taken = [source]

        def leave() -> None:
            if taken:
                self._inside[taken.pop()] -= 1
                self._all -= 1
                if not self._inside[source]:
                    del self._inside[source]

        return leave

    async def _let_in(self, came: socket.socket, leave: Leave) -> None:
        came.setblocking(False)
        patience = HANDSHAKE_S if self._tls else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(leave), came, ssl=self._tls, ssl_handshake_timeout=patience
            )
        except (OSError, asyncio.CancelledError):  # no handshake, or not in time: no news
            leave()
            came.close()
