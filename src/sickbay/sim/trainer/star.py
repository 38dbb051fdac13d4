"""The all-reduce: every rank sends its gradient to rank 0 over loopback TCP, gets the mean back.

Called by rank.py. Rank 0 adds in rank order, whatever order the messages arrive in, so the sum is the same to the last
bit in every run. While a rank waits for a peer it also listens to its Gang. It must never guess: a peer that dies is a
ConnectionResetError, a peer that hangs is waited for until the watchdog's time is up.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import select
import signal
import socket
import struct
import time

import numpy as np

from sickbay.sim.trainer.leash import Leash, Waiting
from sickbay.sim.trainer.mlp import Array
from sickbay.sim.trainer.spec import Spec

HEADER = struct.Struct("<4sII")  # kind, sequence number, length of what follows
HELLO = struct.Struct("<64sI")  # token, rank
LARGEST = 1 << 26
HELLO_S = 5.0  # a stranger on the port may hold up the meeting for so long at most


class Star:
    def __init__(self, spec: Spec, leash: Leash, listener: socket.socket | None) -> None:
        self.spec, self.leash, self.seq = spec, leash, 0
        self._peers = self._gather(listener) if listener else {0: self._join()}

    # --- meeting

    def _join(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.spec.port))
        _tune(sock)
        sock.sendall(HELLO.pack(self.spec.token.encode(), self.spec.rank))
        return sock

    def _gather(self, listener: socket.socket) -> dict[int, socket.socket]:
        peers: dict[int, socket.socket] = {}
        with listener:
            while len(peers) < self.spec.ranks - 1:
                self._wait(listener, select.POLLIN, Waiting(-1, "JOIN", 0, 0))
                sock, _ = listener.accept()
                rank = self._hello(sock)
                if rank is None or rank in peers:
                    sock.close()
                else:
                    peers[rank] = sock
        return peers

    def _hello(self, sock: socket.socket) -> int | None:
        """The rank that knows this attempt's token; None for a stranger."""
        sock.settimeout(HELLO_S)
        try:
            data = sock.recv(HELLO.size, socket.MSG_WAITALL)
        except OSError:
            return None
        if len(data) != HELLO.size:
            return None
        token, rank = HELLO.unpack(data)
        _tune(sock)
        return rank if hmac.compare_digest(token, self.spec.token.encode()) and 0 < rank < self.spec.ranks else None

    # --- collectives

    def all_reduce(self, vector: Array) -> Array:
        """The mean over all ranks: the same bits on every rank."""
        self.seq += 1
        if self.spec.rank:
            self._send(0, b"GRAD", vector.tobytes(), vector.size)
            return np.frombuffer(self._receive(0, b"MEAN", vector.size))
        total = vector.copy()
        for peer in range(1, self.spec.ranks):
            total += np.frombuffer(self._receive(peer, b"GRAD", vector.size))
        total /= self.spec.ranks
        for peer in range(1, self.spec.ranks):
            self._send(peer, b"MEAN", total.tobytes(), vector.size)
        return total

    def collect(self, mine: dict[str, object]) -> list[dict[str, object]]:
        """Rank 0 gets what every rank said, in rank order; the others get an empty list and go on."""
        self.seq += 1
        if self.spec.rank:
            self._send(0, b"SAVE", json.dumps(mine).encode(), 1)
            return []
        return [mine, *(json.loads(self._receive(peer, b"SAVE", 1)) for peer in range(1, self.spec.ranks))]

    # --- frames

    def _send(self, peer: int, kind: bytes, data: bytes, numel: int) -> None:
        left = memoryview(HEADER.pack(kind, self.seq, len(data)) + data)
        sock = self._peers[peer]
        while left:
            try:
                left = left[sock.send(left, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                self._wait(sock, select.POLLOUT, self._waiting(peer, kind, numel))
            except OSError:
                return  # the peer is gone: we notice when we next wait for it, always at the same place

    def _receive(self, peer: int, kind: bytes, numel: int) -> bytes:
        waiting = self._waiting(peer, kind, numel)
        got, seq, length = HEADER.unpack(self._exactly(peer, HEADER.size, waiting))
        if (got, seq) != (kind, self.seq) or length > LARGEST:
            raise RuntimeError(
                f"rank {peer} sent {got!r} number {seq}, expected {kind!r} number {self.seq}: out of step"
            )
        return self._exactly(peer, length, waiting)

    def _exactly(self, peer: int, size: int, waiting: Waiting) -> bytes:
        sock, parts = self._peers[peer], b""
        while len(parts) < size:
            try:
                part = sock.recv(size - len(parts), socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._wait(sock, select.POLLIN, waiting)
                continue
            except OSError:
                part = b""
            if not part:
                # End of file, broken pipe or reset is a matter of microseconds; the log says the same in every run.
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            parts += part
        return parts

    def _waiting(self, peer: int, kind: bytes, numel: int) -> Waiting:
        return Waiting(peer, "BARRIER" if kind == b"SAVE" else "ALLREDUCE", self.seq, numel)

    def _wait(self, sock: socket.socket, event: int, waiting: Waiting) -> None:
        """Until the socket is ready; meanwhile the Gang may ask, and the watchdog's real time may run out."""
        poll = select.poll()
        poll.register(sock, event)
        poll.register(self.leash.lines, select.POLLIN)
        started = time.monotonic()
        while True:
            left = started + self.spec.watchdog_s - time.monotonic()
            ready = [descriptor for descriptor, _ in poll.poll(max(0.0, left) * 1000)]
            if self.leash.lines.fileno() in ready:
                self.leash.serve(waiting)
            if sock.fileno() in ready:
                return
            if not ready and left <= 0:
                self._time_out(waiting, started)

    def _time_out(self, waiting: Waiting, started: float) -> None:
        ran_ms = int((time.monotonic() - started) * 1000)
        self.leash.watchdog(waiting, int(self.spec.watchdog_s * 1000), ran_ms)
        os.kill(os.getpid(), signal.SIGABRT)  # as PyTorch does: a rank that timed out must not go on with old gradients


def _tune(sock: socket.socket) -> None:
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
