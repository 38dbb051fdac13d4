"""The grammar of one kernel log line: who wrote it, when, and which code and device its body names.

`kernel_scan` calls this for the few lines that carry a keyword. It must never judge (severity lives in the catalog)
and never accept a body that anything but a recognised kernel prefix precedes: log text is hostile, and a program
may quote an XID. Variants: the drivers' printf formats and recorded logs (open-gpu-kernel-modules kernel_rc.c,
common_nvswitch.h, osinit.c).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

BDF = rb"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?"

_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_STAMP = (
    rb"(?:\S{1,12}\s+\d{1,2}\s+(?:\d{4}\s+)?"
    + _CLOCK
    + rb"|\d{1,2}\s+\S{1,12}\s+"
    + _CLOCK  # syslog, month in any language
    + rb"|(?:\w{3} )?\d{4}-\d\d-\d\d[T ]"
    + _CLOCK
    + rb"(?:Z|[+-]\d\d:?\d\d| \w{3,5})?"  # iso, short-full
    + rb"|\d{9,11}\.\d+)"  # journalctl -o short-unix
)
_RING = rb"\[\s*\d+(?:\.\d+)?\]\s*"
# Facility 0 is the kernel's; a record with priority 8 or more was written by a program (kernel docs, dev-kmsg).
_HEAD = re.compile(
    rb"\s*(?:"
    rb"[0-7],\d+,\d+,[^;\n]{0,64};"
    rb"|(?:<[0-7]>(?:1 )?)?(?:kern\s*:\s*\w+\s*:\s*)?"
    rb"(?:(?:" + _STAMP + rb"\s+|" + _RING + rb")?(?:[^\s:\[\]]{1,255}\s+)?kernel(?:\[\d+\])?:?\s+(?:- - (?:- )?)?"
    rb"|" + _STAMP + rb"\s+)?"
    rb"(?:" + _RING + rb"|\[\w{3} \w{3}\s+\d+ " + _CLOCK + rb" \d{4}\]\s*)?(?:\[\s*[TC]\d+\]\s*)?(?:kernel:\s+)?"
    rb"(?:\[gpu-health\] \[\w+\] GPU-[0-9a-f-]+: XID: )?"  # a relay seen in the wild, of kernel lines only
    rb")"
)
_HOST = re.compile(
    _STAMP + rb"\s+([^\s:\[\]]{1,255})\s+kernel(?:\[\d+\])?:?\s|" + _RING + rb"([^\s:\[\]]{1,255})\s+kernel:\s"
)


TEXTUAL = frozenset((64, *range(144, 151), 154))
"""XIDs whose meaning is in the text."""

PLACED = frozenset(("xid.13", "xid.31"))
"""Codes whose text says where on the chip."""


def device(bdf: bytes | str) -> str:
    """0000:3b:00 whatever the spelling: domain of four digits, lower case, no function."""
    text = bdf.decode("ascii", "replace") if isinstance(bdf, bytes) else bdf
    domain, bus, dev = text.strip().lower().split(".")[0].split(":")[-3:]
    return f"{domain[-4:].rjust(4, '0')}:{bus}:{dev}"


def split(line: bytes) -> tuple[bytes, bytes]:
    """(head, body): the longest recognised kernel prefix, and what the kernel said."""
    found = _HEAD.match(line)
    end = found.end() if found else 0
    return line[:end], line[end:]


def host(head: bytes) -> str:
    found = _HOST.search(head)
    return (found.group(1) or found.group(2)).decode("utf-8", "replace") if found else ""


@dataclass(frozen=True, slots=True)
class Named:
    """What a body names. `variant` keeps apart lines of one code that mean different things."""

    code: str
    device: str = ""
    variant: str = ""
    traits: dict[str, str] = field(default_factory=dict)


def _text(raw: bytes, most: int = 300) -> str:
    return clean(raw.decode("utf-8", "replace"), most)


def clean(text: str, most: int = 300) -> str:
    """One printable line: control characters cannot reach an operator's terminal."""
    flat = "".join(c if c.isprintable() else " " for c in text[: most * 2]).strip()
    return flat if len(flat) <= most else flat[: most - 1] + "…"


_XID = re.compile(
    rb"NVRM:\s+Xid \((?:PCI:)?" + BDF + rb"(?: GPU-I:(\d+))?(?: GPU-CI:\d+)?\):\s+(\d{1,4})\b[,.]?\s*(.*)", re.DOTALL
)
_EBPF = re.compile(rb"XID event received: code=(\d{1,4}) pci=" + BDF + rb" msg=(.*)", re.DOTALL)
_PID = re.compile(rb"pid=(?:'?<unknown>'?|(\d+))(?:, name=('?<unknown>'?|.{0,16}?)(?=,|$))?,?\s*")
_GPC = re.compile(rb"\(GPC (\d+), TPC (\d+)|\bGPC(\d+) GPCCLIENT_(T\d+_\d+)")
_ACTION = re.compile(rb"to 0x([0-9a-fA-F]+)")
_NVLINK5 = re.compile(
    rb"(\S+)\s+(Fatal|Nonfatal)\s+XC ?\d i ?\d(?:\s+Link (-?\d+))?(?:\s*[(\[]0x([0-9a-f]{8})(?: 0x([0-9a-f]{8}))?)?"
)
_CAUSED = re.compile(rb"caused by previous Xid (\d+)")
# Xid 64 says two opposite things (kernel_mem_mgr row remapper strings): out of spares, or simply not yet activated.
_NO_SPARE = re.compile(rb"All reserved rows|table is full|no spare|unable to retire|full inforom", re.IGNORECASE)
_PENDING = re.compile(rb"already pending|reset gpu to activate|will occur when", re.IGNORECASE)


def _xid_traits(code: int, text: bytes) -> tuple[str, dict[str, str]]:
    traits = {"text": _text(text, 200)}
    if code == 154:
        action = _ACTION.search(text)
        traits["hex"] = action.group(1).decode().lstrip("0") or "0" if action else ""
        return traits["hex"], traits
    if code == 64:
        traits["cause"] = "no-spare" if _NO_SPARE.search(text) else "pending" if _PENDING.search(text) else "other"
        return traits["cause"], traits
    if 144 <= code <= 150 and (found := _NVLINK5.search(text)):
        names = ("unit", "fatal", "link", "intr", "status")
        traits |= {
            n: g.decode().lower() if n != "unit" else g.decode("ascii", "replace")
            for n, g in zip(names, found.groups(), strict=True)
            if g
        }
        return "/".join(traits.get(n, "") for n in ("unit", "intr", "status")), traits
    if code in (13, 31) and (found := _GPC.search(text)):
        traits["gpc"] = (found.group(1) or found.group(3)).decode()
        traits["tpc"] = (found.group(2) or found.group(4)).decode()
    if found := _CAUSED.search(text):
        traits["caused_by"] = found.group(1).decode()
    return "", traits


def _xid_named(number: bytes, bdf: bytes, rest: bytes, instance: bytes | None = None) -> Named:
    code = int(number)
    process = _PID.match(rest)
    variant, traits = _xid_traits(code, rest[process.end() :] if process else rest)
    if process and process.group(1):
        traits["pid"] = process.group(1).decode()
    if process and process.group(2) and b"<unknown>" not in process.group(2):
        traits["name"] = _text(process.group(2), 16)
    if instance:
        traits["mig"] = "enabled"
    return Named(f"xid.{code}", device(bdf), variant, traits)


_SXID = re.compile(rb"nvidia-nvswitch\d+: SXid \(PCI:" + BDF + rb"\): (\d{4,5})\b,?\s*(.*)", re.DOTALL)


def _sxid_named(found: re.Match[bytes]) -> Named:
    text = found.group(3)
    word = text[:9].lower()
    traits = {"text": _text(text, 200)}
    if word.startswith((b"fatal", b"non-fatal")):
        traits["fatal"] = "fatal" if word.startswith(b"fatal") else "nonfatal"
    return Named(f"sxid.{int(found.group(2))}", device(found.group(1)), "", traits)


_DEV = rb"(?:[\w.-]+ )?" + BDF + rb"(?: [\w.-]+)?: "
_AER = re.compile(
    _DEV + rb"(?:AER: )?(?:PCIe Bus Error: severity=|(?:Multiple )?)Uncorrect(?:ed|able) \((Fatal|Non-Fatal)\)",
    re.DOTALL,
)
_AER_FROM = re.compile(rb"(?:message )?received(?: from|:) " + BDF)
_DPC = re.compile(_DEV + rb"DPC: containment event")
_OFF_BUS = re.compile(rb"NVRM: (?:GPU )?" + BDF + rb":? ?(?:GPU )?has fallen off the bus")
_OFF_BUS_END = re.compile(
    rb"NVRM: (?:\(PCI ID: \S+\) installed in this system has )?fallen off the bus and is not responding"
)
_OFF_BUS_ONE = re.compile(rb"NVRM: The NVIDIA GPU " + BDF + rb".{0,200}?fallen off the bus", re.DOTALL)
_RM_INIT = re.compile(
    rb"NVRM: (?:GPU " + BDF + rb": )?(?:RmInitAdapter failed!|rm_init_adapter failed|RmInitAdapter: Cannot initialize)"
    rb"|NVRM: osInitNvMapping: \*\*\* Cannot attach gpu"
)
_EDAC = re.compile(rb"EDAC MC\d+: (?:\d+ )?UE\b|mce: Uncorrected hardware memory error")
_HARDWARE = re.compile(
    rb"(?:mce: )?(?:\{\d+\})?\[Hardware Error\]:\s+(?:"
    rb"(?P<fatal>Machine check: Processor context corrupt|System Fatal error|event severity: fatal"
    rb"|.{0,80}Fatal machine check)"
    rb"|(?P<uncorrected>event severity: recoverable|.{0,80}MC\d+_STATUS\[[^\]]*\b(?:UE|UC)\b))"
)
_PANIC = re.compile(rb"Kernel panic - not syncing")
_NIC = re.compile(
    rb"mlx5_core(?: " + BDF + rb")?(?: [\w.-]+)?: (?:.{0,60}health compromised|.{0,40}unrecoverable hardware error"
    rb"|.{0,60}Will cause a leak of a command resource)"
)
_FOREIGN = re.compile(
    rb"NVRM:\s+Xid \((?:PCI:)?"
    + BDF
    + rb"[^)\n]{0,40}\):\s+\d|SXid \(PCI:"
    + BDF
    + rb"\): \d|NVRM: .{0,60}fallen off the bus"
    rb"|NVRM: .{0,40}RmInitAdapter failed|severity=Uncorrect(?:ed|able) \(Fatal\)|Kernel panic - not syncing"
)


def _at(code: str, group: int = 1) -> Callable[[re.Match[bytes]], Named]:
    def named(found: re.Match[bytes]) -> Named:
        where = found.group(group)
        return Named(code, device(where) if where else "")

    return named


def _aer_named(found: re.Match[bytes]) -> Named:
    sender = _AER_FROM.search(found.string, found.end())
    code = "kernel.pcie-aer-fatal" if found.group(2) == b"Fatal" else "kernel.pcie-aer-nonfatal"
    return Named(code, device(sender.group(1) if sender else found.group(1)))


_RULES: tuple[tuple[re.Pattern[bytes], Callable[[re.Match[bytes]], Named]], ...] = (
    (_XID, lambda m: _xid_named(m.group(3), m.group(1), m.group(4), m.group(2))),
    (_SXID, _sxid_named),
    (_EBPF, lambda m: _xid_named(m.group(1), m.group(2), m.group(3))),
    (_OFF_BUS, _at("kernel.fallen-off-bus")),
    (_OFF_BUS_ONE, _at("kernel.fallen-off-bus")),
    (_RM_INIT, _at("kernel.rm-init-failed")),
    (_AER, _aer_named),
    (_DPC, _at("kernel.pcie-dpc")),
    (_EDAC, lambda m: Named("kernel.edac-uncorrected")),
    (_HARDWARE, lambda m: Named("kernel.mce-fatal" if m.group("fatal") else "kernel.mce-uncorrected")),
    (_PANIC, lambda m: Named("kernel.panic")),
    (_NIC, _at("kernel.nic-fatal")),
)


def name(body: bytes) -> Named | None:
    """The code this body carries, or None. Anchored: a body that quotes a line does not carry it."""
    for pattern, named in _RULES:
        if found := pattern.match(body):
            return named(found)
    return None


def quotes(line: bytes) -> bool:
    """A line that mentions a code without being a kernel record: to be counted, never believed."""
    return _FOREIGN.search(line) is not None


@dataclass(frozen=True, slots=True)
class Decisive:
    """The bytes of a body that decide what `name` says of it: up to `end` (None: all), but for the holes."""

    end: int | None
    holes: tuple[Span, ...] = ()


_ADDRESS = re.compile(rb"\(0x[0-9a-fA-F]+\)")


def decisive(body: bytes) -> Decisive | None:
    """For codes that come in floods; None for any other body."""
    if found := _XID.match(body):
        if int(found.group(3)) in TEXTUAL:
            return _decisive_text(body, int(found.group(3)), found.start(4))
        return Decisive(found.start(3) + 5)  # the number has up to four digits and something that ends it
    found = _SXID.match(body)
    return Decisive(found.start(3) + len(b"non-fatal")) if found else None


def _decisive_text(body: bytes, code: int, at: int) -> Decisive:
    process = _PID.match(body, at)
    holes = (process.span(1),) if process and process.group(1) else ()
    if code == 154 and (action := _ACTION.search(body, at)):
        return Decisive(action.end() + 1, holes)
    if code == 64 and (address := _ADDRESS.search(body, at)):
        return Decisive(None, (*holes, address.span()))
    if code not in (64, 154) and (found := _NVLINK5.search(body, at)) and found.group(5):
        link = (found.span(3),) if found.group(3) else ()  # which of the links decides nothing
        return Decisive(found.end(), (*holes, *link))
    return Decisive(None, holes)


_OFF_BUS_BEGIN = re.compile(rb"NVRM: The NVIDIA GPU " + BDF)
_LOADING = re.compile(rb"NVRM: loading NVIDIA UNIX.{0,40}?Kernel Module(?: for \S+)?\s+(\d+\.[\d.]+)")


def loss_begins(body: bytes) -> str:
    """The device in the first of the three lines of a loss without an XID (one printk with newlines in it)."""
    found = _OFF_BUS_BEGIN.match(body)
    return device(found.group(1)) if found else ""


def loss_ends(body: bytes) -> bool:
    return _OFF_BUS_END.match(body) is not None


def driver(body: bytes) -> str:
    found = _LOADING.match(body)
    return found.group(1).decode() if found else ""


_RING_TIME = re.compile(rb"(?<!\w)\[(\s*\d+)(?:\.\d+)?\]")
_KMSG_TIME = re.compile(rb"\s*\d+,(\d+),(\d+),")
_ISO_TIME = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[T ]\d\d:\d\d:\d\d")
_DATE_TIME = re.compile(rb"(\S{1,12})\s+(\d{1,2})\s+(?:(\d{4})\s+)?\d\d:\d\d:\d\d(?:\s+(\d{4})\])?")
_UNIX_TIME = re.compile(rb"\s*(\d{9,11})\.\d+\s")
_FRACTION = re.compile(rb"[.,]?\d+")
_THREAD = re.compile(rb"\[(\s*[TC]\d+)\]")
_MONTHS = {
    m: i + 1
    for i, m in enumerate(
        (b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec")
    )
}

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a head says the second (an empty span if it says none), and its other bytes that differ line by line."""

    stamp: Span = (0, 0)
    numeric: bool = False
    holes: tuple[Span, ...] = ()


def layout(head: bytes) -> Layout:
    date = _ISO_TIME.search(head) or _DATE_TIME.search(head)
    holes = [found.span(1) for found in _THREAD.finditer(head)]
    if ring := _RING_TIME.search(head):
        if date:
            holes.append((date.start(), _past_fraction(head, date.end())))
        return _timed(head, ring.span(1), True, holes)
    if unix := _UNIX_TIME.match(head):
        return _timed(head, unix.span(1), True, holes)
    if kmsg := _KMSG_TIME.match(head):
        begin, end = kmsg.span(2)
        return _timed(head, (begin, max(begin, end - 6)), True, [*holes, kmsg.span(1)])
    return _timed(head, date.span(), False, holes) if date else Layout((0, 0), False, tuple(holes))


def _timed(head: bytes, stamp: Span, numeric: bool, holes: list[Span]) -> Layout:
    fraction = (stamp[1], _past_fraction(head, stamp[1]))
    return Layout(stamp, numeric, tuple(sorted(hole for hole in (*holes, fraction) if hole[0] < hole[1])))


def _past_fraction(head: bytes, at: int) -> int:
    found = _FRACTION.match(head, at)
    return found.end() if found else at


def seconds(head: bytes) -> int | None:
    """A whole second that can be compared with that of the next line of the same log; None if the line has none."""
    found = layout(head)
    stamp = head[slice(*found.stamp)]
    if found.numeric:
        return number(stamp)
    return calendar(stamp) if stamp else None


def number(stamp: bytes) -> int | None:
    try:
        return int(stamp or b"0")  # a /dev/kmsg record of the first second has no digits before its microseconds
    except ValueError:
        return None


def calendar(stamp: bytes) -> int | None:
    """`stamp` holds a date and a clock, in any of the ways loggers write them."""
    clock = stamp.find(b":") - 2
    midnight = _midnight(stamp[:clock], stamp[clock + 8 :])
    if midnight is None:
        return None
    try:
        hour, minute, second = int(stamp[clock : clock + 2]), int(stamp[clock + 3 : clock + 5]), stamp[clock + 6 :][:2]
        return midnight + hour * 3600 + minute * 60 + int(second)
    except ValueError:
        return None


@lru_cache(maxsize=512)
def _midnight(before: bytes, after: bytes) -> int | None:
    """The day named around the clock. Another language's month: the day and the clock still order the lines."""
    try:
        if found := _ISO_TIME.search(before + b"00:00:00"):
            year, month, day = (int(found.group(n)) for n in (1, 2, 3))
        elif found := _DATE_TIME.search(before + b"00:00:00" + after):
            month, day = _MONTHS.get(found.group(1)[:3].lower(), 1), int(found.group(2))
            year = int(found.group(3) or found.group(4) or 2000)
        else:
            return None
        return int(datetime(year, month, day, tzinfo=UTC).timestamp())
    except ValueError:
        return None


def journal(line: bytes) -> tuple[bytes, str, int | None] | None:
    """`journalctl -o json`: (body, host, time) of a kernel record; None for anything else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or "kernel" not in (record.get("_TRANSPORT"), record.get("SYSLOG_IDENTIFIER")):
        return None
    if record.get("_TRANSPORT", "kernel") != "kernel" or not isinstance(record.get("MESSAGE"), str):
        return None
    stamp = str(record.get("__REALTIME_TIMESTAMP", ""))
    at = int(stamp) // 1_000_000 if stamp.isascii() and stamp.isdigit() and len(stamp) < 20 else None
    return record["MESSAGE"].encode("utf-8", "replace"), str(record.get("_HOSTNAME", "")), at
