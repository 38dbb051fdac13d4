"""A TCP proxy on loopback that can go silent (half-open) or cut: how networks fail between a controller and its server.

Called through Cluster.proxy. It knows nothing of TLS or HTTP: bytes only.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path
from typing import Self

RESET = struct.pack("ii", 1, 0)  # SO_LINGER of zero: close sends RST


class Proxy:
    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._open = threading.Event()
        self._open.set()
        self._pairs: set[socket.socket] = set()
        self._forgotten: set[socket.socket] = set()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self.kubeconfig = Path()
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """From now on no byte passes in either direction, on old and new connections, and nobody is told."""
        self._open.clear()

    def thaw(self) -> None:
        """What was held back passes again."""
        self._open.set()

    def forget(self) -> None:
        """As freeze, for good, on the connections there are; new ones are served: a balancer that lost its table."""
        with self._lock:
            self._forgotten |= self._pairs

    def cut(self) -> None:
        """Every connection there is ends with a reset; new ones are served."""
        with self._lock:
            doomed, self._pairs = self._pairs, set()
        for one in doomed:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def connections(self) -> int:
        with self._lock:
            return len(self._pairs) // 2

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.cut()
        self._closed.set()
        self._open.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._to, timeout=5.0)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._pairs |= {client, server}
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._wait(source)
                target.sendall(data)
        self._wait(source)  # the end of a connection is held back too
        with self._lock:
            self._pairs -= {source, target}
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _wait(self, source: socket.socket) -> None:
        self._open.wait()
        if source in self._forgotten:
            self._closed.wait()
