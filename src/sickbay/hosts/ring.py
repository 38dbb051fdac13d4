"""The kernel log read once, from a cursor to its end: /dev/kmsg, else the journal, else dmesg.

LinuxHost.kernel_lines calls it; the agent's follower (agent/) stays at the device instead. Kernel-origin records only.
A cursor is "<boot id>:<place>": a sequence number of /dev/kmsg, "j" and a journal cursor, or "d" and microseconds of
dmesg. One of another boot starts anew. A log that cannot be read is an error, never an empty log: silence from a place
we cannot look into is not health.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from sickbay.errors import CheckError
from sickbay.hosts.kmsg import RECORD_BYTES, Record, parse, plain
from sickbay.hosts.streams import MARK
from sickbay.ports import Completed

MOST = 200_000  # records in one go; the rest is read the next time
FIRST_LINES = 4_000  # of the journal, without a cursor
LIMIT_S = 20.0
_CUT = MARK.partition("{}")[0]
_DMESG = re.compile(r"<(\d{1,6})>\[\s*(\d{1,10})\.(\d{6})\] ?(.*)")
Run = Callable[[Sequence[str], float], Completed]


def read(device: str, boot: str, cursor: str, run: Run) -> tuple[list[str], str]:
    """(kernel lines after the cursor, the cursor to hand in next time). CheckError if no kernel log can be read."""
    place = cursor.rpartition(":")[2] if cursor.startswith(f"{boot}:") else ""
    doors = (partial(_device, device), partial(_journal, run), partial(_dmesg, run))
    refusals = []
    for door in doors:
        try:
            lines, reached = door(place)
            return lines, f"{boot}:{reached}"
        except CheckError as refused:
            refusals.append(str(refused))
    raise CheckError("the kernel log cannot be read: " + "; ".join(refusals))


# --- /dev/kmsg --------------------------------------------------------------------------------------------------------


def _device(path: str, place: str) -> tuple[list[str], str]:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as refused:
        raise CheckError(f"{path}: {refused.strerror}") from None
    try:
        after = int(place) if place.isdecimal() else -1
        lines: list[str] = []
        reached = after
        for record in _records(opened):
            if record.sequence > after and record.kernel:
                lines.append(record.line)
            reached = max(reached, record.sequence)
        return lines, str(reached) if reached >= 0 else ""
    finally:
        os.close(opened)


def _records(opened: int) -> Iterable[Record]:
    """Each read is one record. EPIPE: the ring overran us, and the next read goes on with the oldest one left."""
    for _ in range(MOST):
        try:
            data = os.read(opened, 2 * RECORD_BYTES)
        except BlockingIOError:
            return
        except OSError as broken:
            if broken.errno in (errno.EPIPE, errno.EINVAL):
                continue
            raise CheckError(f"/dev/kmsg: {broken.strerror}") from None
        if not data:
            return
        record = parse(data)
        if record is not None:
            yield record


# --- the journal ------------------------------------------------------------------------------------------------------


def _journal(run: Run, place: str) -> tuple[list[str], str]:
    since = (f"--after-cursor={place[1:]}",) if place.startswith("j") else ("-n", str(FIRST_LINES))
    done = run(("journalctl", "-k", "-b", "-o", "json", "--no-pager", "-q", *since), LIMIT_S)
    entries = list(_entries(done.stdout))
    if not entries and (done.code != 0 or not place.startswith("j")):
        raise CheckError(_why("journalctl", done, "it holds no kernel record of this boot"))
    reached = str(entries[-1].get("__CURSOR", "")) if entries else place[1:]
    return [record.line for entry in entries if (record := journal_record(entry)) is not None], f"j{reached}"


def _entries(text: str) -> Iterable[dict[str, Any]]:
    """Up to where the output was cut: the rest is read the next time, from the last cursor before it."""
    for line in text.splitlines():
        if line.startswith(_CUT):
            return
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield entry


def journal_record(entry: dict[str, Any]) -> Record | None:
    """A journal entry as the record it was; None if the kernel did not write it. MESSAGE is a list of bytes when it is
    not UTF-8, and null when it is too large (systemd, "Journal Export Formats")."""
    facility, said = str(entry.get("SYSLOG_FACILITY", "0")), entry.get("MESSAGE")
    if entry.get("_TRANSPORT") != "kernel" or facility != "0" or said is None:
        return None
    usec = _whole(entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry.get("__MONOTONIC_TIMESTAMP"))
    return Record(_whole(entry.get("PRIORITY")) & 7, 0, 0, usec, _one_line(said))


def _one_line(said: object) -> str:
    if isinstance(said, list):
        data = bytes(byte for byte in said if isinstance(byte, int) and 0 <= byte < 256)
    else:
        data = str(said).encode("utf-8", "replace")
    return plain(data.replace(b"\\", b"\\x5c"))


def _whole(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


# --- dmesg ------------------------------------------------------------------------------------------------------------


def _dmesg(run: Run, place: str) -> tuple[list[str], str]:
    """The last resort: dmesg splits a record at its line breaks, so what a program smuggled in cannot be told apart."""
    done = run(("dmesg", "-r"), LIMIT_S)
    found = [match for line in done.stdout.splitlines() if (match := _DMESG.match(line))]
    if not found:
        raise CheckError(_why("dmesg", done, "it printed nothing we can read"))
    after = int(place[1:]) if place.startswith("d") and place[1:].isdecimal() else -1
    records = [_dmesg_record(match) for match in found]
    fresh = [record.line for record in records if record.usec > after and record.kernel]
    return fresh, f"d{max(record.usec for record in records)}"


def _dmesg_record(match: re.Match[str]) -> Record:
    prefix, usec = int(match[1]), int(match[2]) * 1_000_000 + int(match[3])
    return Record(prefix & 7, prefix >> 3, 0, usec, _one_line(match[4]))


def _why(tool: str, done: Completed, otherwise: str) -> str:
    if done.missing:
        return f"{tool} is not installed"
    if done.timed_out:
        return f"{tool} did not answer in time"
    return f"{tool}: {done.stderr.strip().splitlines()[0][:160] if done.stderr.strip() else otherwise}"
