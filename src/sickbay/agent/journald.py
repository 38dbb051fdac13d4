"""Follows the kernel's messages through `journalctl -k -f -o json`, where /dev/kmsg cannot be read.

The same shape as agent/kmsg: a descriptor to poll and a `read` that never waits. Journald's own cursor survives
rotation and our restarts; where it has been rotated away the time since boot takes its place, so that nothing is read
twice. It must never believe a message that did not come over the kernel's own transport.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence

import msgspec

from sickbay.agent.chart import position
from sickbay.agent.kmsg import Batch
from sickbay.hosts.kmsg import plain

PIPE_BYTES = 1 << 16
MOST_CARRY = 1 << 20  # of one message: journald's own bound is below it
ARGV = ("journalctl", "-k", "-f", "-o", "json", "--no-pager")


class JournalSource:
    """A running journalctl. Raises OSError if it cannot be started."""

    def __init__(self, boot_id: str, cursor: str, *, first: int, argv: Sequence[str] = ARGV) -> None:
        self._boot = boot_id
        mine = cursor.startswith(f"{boot_id}:") and cursor.count(":") >= 2
        self._usec = position(cursor) if mine else -1
        self._own = cursor.split(":", 2)[2] if mine else ""
        self._carry = b""
        self._argv, self._first = tuple(argv), first
        self._child = self._started(self._where())

    def _where(self) -> tuple[str, ...]:
        if self._own:
            return (f"--after-cursor={self._own}", "-n", "all")
        return ("-n", str(self._first) if self._usec < 0 else "all")

    def _started(self, where: tuple[str, ...]) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [*self._argv, *where], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.set_blocking(self._out(child), False)
        return child

    @staticmethod
    def _out(child: subprocess.Popen[bytes]) -> int:
        assert child.stdout is not None
        return child.stdout.fileno()

    def fileno(self) -> int:
        return self._out(self._child)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()
        if self._child.stdout is not None:
            self._child.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(2.0)

    def read(self) -> Batch:
        batch = Batch()
        try:
            data = os.read(self.fileno(), PIPE_BYTES)
        except BlockingIOError:
            data = None
        except OSError:
            data = b""
        if data == b"":
            self._gone(batch)
        elif data:
            self._take(data, batch)
        batch.cursor = f"{self._boot}:{self._usec}:{self._own}" if self._usec >= 0 else ""
        return batch

    def _gone(self, batch: Batch) -> None:
        """It ended. If that was about the cursor (rotated away), the next one reads this boot and skips by time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._child.wait(2.0) != 0:
                self._own = ""
        batch.ended = True

    def _take(self, data: bytes, batch: Batch) -> None:
        *whole, carry = (self._carry + data).split(b"\n")
        self._carry = carry[-MOST_CARRY:]
        for row in whole:
            if (line := self._line(row)) is not None:
                batch.lines.append(line)
        batch.more = len(data) == PIPE_BYTES

    def _line(self, row: bytes) -> bytes | None:
        try:
            entry = msgspec.json.decode(row)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        if not isinstance(entry, dict) or not _kernels_own(entry):
            return None
        usec = _usec(entry)
        if usec < self._usec or (usec == self._usec and not self._own):
            return None  # read before the restart
        self._usec, self._own = usec, str(entry.get("__CURSOR", ""))[:1024]
        return f"{_priority(entry)},0,{usec},-;{_message(entry.get('MESSAGE'))}".encode("utf-8", "replace")


def _kernels_own(entry: dict[str, object]) -> bool:
    """What a program wrote to /dev/kmsg comes over the same transport: only its facility tells."""
    return entry.get("_TRANSPORT") == "kernel" and str(entry.get("SYSLOG_FACILITY", "")) == "0"


def _usec(entry: dict[str, object]) -> int:
    text = str(entry.get("__MONOTONIC_TIMESTAMP", ""))[:20]
    return int(text) if text.isdecimal() else 0


def _priority(entry: dict[str, object]) -> int:
    text = str(entry.get("PRIORITY", ""))
    return int(text) if text in {"0", "1", "2", "3", "4", "5", "6", "7"} else 6


def _message(message: object) -> str:
    """Text, or a list of byte values where it is not UTF-8 (journal JSON format). One line, whatever it holds."""
    if isinstance(message, list):
        return plain(bytes(byte & 255 for byte in message[:MOST_CARRY] if isinstance(byte, int)))
    text = message if isinstance(message, str) else ""
    return "".join(char if char.isprintable() else " " for char in text[:MOST_CARRY]).rstrip()
