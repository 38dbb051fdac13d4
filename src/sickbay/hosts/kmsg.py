"""One record of /dev/kmsg, taken apart. Shared by LinuxHost.kernel_lines and the agent's follower.

Format: "<syslog prefix>,<sequence>,<microseconds>,<flags>[,...];<text>\\n KEY=value\\n ..." (kernel docs, dev-kmsg).
A program may write records too: only facility 0 is the kernel's own word. It must never raise on any bytes, and never
let one record become two lines: a process name may hold a line break, and with it a forged XID.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RECORD_BYTES = 8192  # the kernel's own bound (CONSOLE_EXT_LOG_MAX); a smaller buffer makes read() fail with EINVAL
KERNEL = 0  # facility

_HEAD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),([^,;\n]{0,16})[^;\n]{0,256};([^\n]*)")
_FIELD = re.compile(rb"^ ([A-Za-z_][A-Za-z0-9_]{0,63})=(.*)$", re.MULTILINE)
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class Record:
    """What the ring holds. `sequence` grows by one with each record of a boot; a gap means that some were lost."""

    priority: int  # 0 emergency ... 7 debug
    facility: int
    sequence: int
    usec: int  # since boot
    text: str  # one line, escapes undone, control characters made blanks
    continuation: bool = False  # the kernel says that this is a piece of a line
    fields: tuple[tuple[str, str], ...] = ()  # SUBSYSTEM, DEVICE ...

    @property
    def kernel(self) -> bool:
        return self.facility == KERNEL

    @property
    def line(self) -> str:
        """As the device prints it: the form that checks/kernel_log reads, with the facility it came with."""
        prefix = self.facility * 8 + self.priority
        return f"{prefix},{self.sequence},{self.usec},{'c' if self.continuation else '-'};{self.text}"


def parse(data: bytes) -> Record | None:
    """One record as os.read gave it; None if it is none."""
    found = _HEAD.match(data)
    if found is None:
        return None
    prefix, sequence, usec = int(found[1]), int(found[2]), int(found[3])
    tail = data[found.end() : found.end() + RECORD_BYTES]
    return Record(prefix & 7, prefix >> 3, sequence, usec, plain(found[5]), found[4] in (b"c", b"+"), _fields(tail))


def _fields(tail: bytes) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode("ascii"), plain(value)) for name, value in _FIELD.findall(tail)[:16])


def plain(text: bytes) -> str:
    """The kernel writes a backslash and whatever is not printable ASCII as \\xNN. Undone, and kept to one line."""
    raw = _ESCAPE.sub(lambda code: bytes((int(code[1], 16),)), text)
    return "".join(char if char.isprintable() else " " for char in raw.decode("utf-8", "replace")).rstrip()
