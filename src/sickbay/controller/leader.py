"""One brain at a time, on one machine: an flock on a file. The kernel frees it the moment its holder dies.

The controller asks `acquire()` before every pass. It must never block, and never believe a lock on a file that somebody
has since removed or replaced. For several machines use a store's own lock (Lease, advisory lock, lock item), for an
flock on a network file system is none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path

from sickbay.errors import StoreError

_FIRST_TRIES = 3  # the file may be replaced between our open and our lock


class SoloLeader:
    """Always leads: for tests, the simulator and a controller that is the only one by construction."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return None


class FileLeader:
    """ports.Leader on a lock file. Its content names the holder, for people; only the lock itself counts."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self._fd: int | None = None
        self._pid = 0

    def acquire(self) -> bool:
        if self._still_holds():
            return True
        self.release()
        return any(self._try() for _ in range(_FIRST_TRIES))

    def release(self) -> None:
        """The file stays: removing it would let two processes lock two files of the same name."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        if self._pid == os.getpid():  # a forked child must not free its parent's lock
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)

    def holder(self) -> str:
        """Who leads, as the holder wrote it ("pid 4711 on head-1"); "" if nobody ever did."""
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")[:200].strip()
        except OSError:
            return ""

    def _try(self) -> bool:
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._fd, self._pid = fd, os.getpid()
        if not self._still_holds():
            self.release()
            return False
        self._sign(fd)
        return True

    def _open(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot open the leader's lock file ({error.strerror}): set data_dir to a writable folder"
            ) from error

    def _still_holds(self) -> bool:
        """Held by this very process, and the name still leads to the file we locked."""
        if self._fd is None or self._pid != os.getpid():
            return False
        try:
            there = os.stat(self.path)
        except OSError:
            return False
        return os.path.samestat(os.fstat(self._fd), there)

    def _sign(self, fd: int) -> None:
        with contextlib.suppress(OSError):  # a full disk must not cost us the lead
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
