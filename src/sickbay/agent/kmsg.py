"""Reads /dev/kmsg: everything new since a cursor, kernel-origin records only, without ever waiting.

agent/follower polls its descriptor and calls `read`. The device hands out one record a read and says EPIPE when the
ring has overtaken us; a FIFO in its place (tests, relays) hands out bytes, which are put together again. It must never
judge a line, and never let a program's record pass for the kernel's.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sickbay.agent.chart import position
from sickbay.hosts import kmsg

BATCH = 8_192  # records judged at once: bounds memory, and the time until the first of them is told
PIPE_BYTES = 1 << 16
MOST_BROKEN = 100
# Overtaken by the ring, or a record larger than any should be: the next read is the next record there is.
_NEXT = (errno.EPIPE, errno.EINVAL, errno.EINTR)
MOST_CARRY = kmsg.RECORD_BYTES * 2

Read = Callable[[int, int], bytes]
Accept = Callable[[str], bool]  # may this record of a program pass all the same? (a rehearsal)


@dataclass(slots=True)
class Batch:
    """What was new."""

    lines: list[bytes] = field(default_factory=list)
    rehearsed: list[bytes] = field(default_factory=list)  # written by a program, and allowed to
    cursor: str = ""
    lost: int = 0  # records that the ring forgot before we read them
    more: bool = False  # there is more to be read at once
    ended: bool = False  # the source is gone: open it anew


class KmsgSource:
    """The open device. Raises OSError if it cannot be opened."""

    def __init__(
        self, path: str, boot_id: str, cursor: str, *, first: int, accept: Accept | None = None, read: Read = os.read
    ) -> None:
        self._boot, self._accept, self._read_from = boot_id, accept, read
        self._last = position(cursor) if cursor.startswith(f"{boot_id}:") and cursor.count(":") == 1 else -1
        self._first: int | None = first if self._last < 0 else None  # without a cursor: only so many lines back
        kind = os.stat(path).st_mode
        self._records = stat.S_ISCHR(kind)
        access = os.O_RDWR if stat.S_ISFIFO(kind) else os.O_RDONLY  # our own writer, so that a FIFO never ends
        self._fd = os.open(path, access | os.O_NONBLOCK | os.O_CLOEXEC)
        self._carry = b""
        self._whole: deque[bytes] = deque()  # from a pipe: read, not yet taken

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)

    def read(self) -> Batch:
        batch = Batch()
        lines: deque[bytes] = deque(maxlen=self._first)
        for data in self._raw(batch):
            if (line := self._taken(data, batch)) is not None:
                lines.append(line)
        self._first = None
        batch.lines = list(lines)
        batch.cursor = f"{self._boot}:{self._last}" if self._last >= 0 else ""
        return batch

    def _taken(self, data: bytes, batch: Batch) -> bytes | None:
        """The record as a line, if it is new and the kernel's own."""
        prefix, _, rest = data[:64].partition(b",")
        number = rest.partition(b",")[0]
        if not (prefix.isdigit() and number.isdigit()):
            return None
        sequence = int(number)
        if sequence <= self._last:
            return None
        if self._last >= 0:
            batch.lost += sequence - self._last - 1
        self._last = sequence
        if int(prefix) >= 8:  # facility: not 0, so a program wrote it
            self._rehearsed(data, batch)
            return None
        return _line(data)

    def _rehearsed(self, data: bytes, batch: Batch) -> None:
        record = kmsg.parse(data) if self._accept is not None else None
        if record is not None and self._accept is not None and self._accept(record.line):
            batch.rehearsed.append(record.line.encode("utf-8", "replace"))

    def _raw(self, batch: Batch) -> Iterator[bytes]:
        read = self._device if self._records else self._pipe
        for taken, data in enumerate(read(batch), 1):
            yield data
            if taken >= BATCH and self._first is None:
                batch.more = True
                return

    def _device(self, batch: Batch) -> Iterator[bytes]:
        broken = 0
        while broken < MOST_BROKEN:
            try:
                data = self._read_from(self._fd, kmsg.RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _NEXT:
                    break
                broken += 1
            else:
                broken = 0
                yield data
        batch.ended = True

    def _pipe(self, batch: Batch) -> Iterator[bytes]:
        """Records end at a line break that no continuation (a blank) follows; the last may still be under way."""
        while self._whole or self._filled(batch):
            yield self._whole.popleft()

    def _filled(self, batch: Batch) -> bool:
        """Read until there is a whole record; False when there is none."""
        while not self._whole:
            try:
                data = self._read_from(self._fd, PIPE_BYTES)
            except BlockingIOError:
                return False
            except OSError:
                data = b""
            if not data:
                batch.ended = True
                return False
            whole, _, carry = (self._carry + data).rpartition(b"\n")
            self._carry = carry[-MOST_CARRY:]
            self._whole.extend(line for line in whole.split(b"\n") if line and not line.startswith(b" "))
        return True


def _line(data: bytes) -> bytes | None:
    """As the check reads it. Most records need no look inside; one with an escape is taken apart by the parser."""
    if b"\\x" in data:
        record = kmsg.parse(data)
        return record.line.encode("utf-8", "replace") if record is not None else None
    end = data.find(b"\n")
    return data if end < 0 else data[:end]
