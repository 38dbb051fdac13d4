"""Reads a kernel log of any size in blocks and keeps one counter per event: the fast half of the kernel-log check.

`checks/kernel_log` and `sickbay diagnose` feed it bytes. A healthy line costs a few `bytes.find`; a line of a flood
costs a dictionary look-up; only the first line of an event is parsed. Memory is bounded whatever comes in. It must
never judge.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sickbay.checks import kernel_lines as grammar
from sickbay.checks.kernel_lines import Named

SAME_EVENT_S = 5.0
"""Lines of one code on one device that follow each other within this time are one event (plan, section 6)."""

MOST_HITS = 4096
MOST_LINE = 1 << 16
MOST_QUOTES = 3
HUNG_REACH = 6144  # bytes of a hung task's stack that are searched for the driver's frames

# Every rule of `kernel_lines` is reached through one of these. Longer is faster: bytes.find skips by its length.
_KEYWORDS = (
    b"SXid (PCI:",
    b"XID event received: code=",
    b"Uncorrect",
    b"DPC: containment event",
    b"EDAC MC",
    b"[Hardware Error]: ",
    b"Kernel panic - not syncing",
    b"health compromised",
    b"unrecoverable hardware error",
    b"cause a leak of a command",
)
_HUNG = b"blocked for more than"
_OWN_TASKS = (b"task nvidia-", b"task nv_queue", b"task irq/nvidia", b"task nv-")


@dataclass(slots=True)
class Hit:
    """One code on one device: how often, in how many separate events, and its first lines."""

    named: Named
    line: int
    count: int = 0
    events: int = 0
    first: float | None = None
    last: float | None = None
    evidence: list[str] = field(default_factory=list)
    sites: set[str] = field(default_factory=set)  # GPC/TPC seen, bounded
    pids: set[str] = field(default_factory=set)

    def seen(self, at: float | None, line: bytes, named: Named) -> None:
        self.more(1, at)
        self._quote(line)
        self._note(named)

    def more(self, count: int, at: float | None) -> None:
        """Another event if the last line was long ago (or from another boot), else the same one."""
        self.count += count
        late = at is not None and self.last is not None and abs(at - self.last) > SAME_EVENT_S
        if late or self.events == 0:
            self.events += 1
        if at is not None:
            self.first = at if self.first is None else self.first
            self.last = at

    def _quote(self, line: bytes) -> None:
        if len(self.evidence) < MOST_QUOTES:
            text = grammar.clean(line.decode("utf-8", "replace"))
            if text not in self.evidence:
                self.evidence.append(text)

    def _note(self, named: Named) -> None:
        traits = named.traits
        if traits.get("fatal") == "fatal" and self.named.traits.get("fatal") != "fatal":
            self.named.traits.update(traits)  # the line that says Fatal speaks for the event
        if "gpc" in traits and len(self.sites) < 64:
            self.sites.add(f"{traits['gpc']}/{traits.get('tpc', '')}")
        if "pid" in traits and len(self.pids) < 64:
            self.pids.add(traits["pid"])


@dataclass(frozen=True, slots=True)
class Run:
    """Lines that follow each other; with `counts` false they are not one flood and must be read one by one."""

    end: int
    counts: bool


class Flood:
    """Counts whole runs of known XIDs without looking at their lines one by one.

    A run is a stretch in which every line has the same kernel prefix down to the second and a code already parsed once.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Hit] = {}

    def learn(self, block: bytes, at: int, hit: Hit) -> None:
        if found := _CODE.match(block, at):
            if len(self._known) >= MOST_HITS:
                self._known.clear()
            self._known[found.group()] = hit

    def run(self, block: bytes, start: int, at: int) -> Run | None:
        found = _CODE.match(block, at)
        if found is None or found.group() not in self._known or start == 0:
            return None
        head = block[start:at]
        if _KMSG.match(head):
            return self._records(block, start)
        if len(grammar.split(head)[0]) != len(head):  # not the kernel's: read (and refused) line by line
            return None
        return self._seconds(block, start, at, head)

    def _seconds(self, block: bytes, start: int, at: int, head: bytes) -> Run | None:
        """Text logs: all lines of one second share the prefix before the fraction and what stands after it."""
        fraction = _FRACTION.search(head)
        stamp = block[start - 1 : start + fraction.start(1)] if fraction else block[start - 1 : at]
        after = (head[fraction.end(1) :] if fraction else b"") + b"NVRM: Xid ("
        end = _reach(block, stamp, start)
        lines = block.count(b"\n", start, end)
        if lines < 4:
            return None
        if block.count(stamp, start - 1, end) != lines or block.count(after, start, end) != lines:
            return Run(end, False)
        return self._count(Counter(_CODE.findall(block, start, end)), lines, end, grammar.seconds(head))

    def _count(self, found: Counter[bytes], lines: int, end: int, at: float | None) -> Run:
        if found.total() != lines or not found.keys() <= self._known.keys():
            return Run(end, False)
        for code, count in found.items():
            self._known[code].more(count, at)
        return Run(end, True)

    def _records(self, block: bytes, start: int) -> Run | None:
        """/dev/kmsg records carry a number and microseconds: group them by the second."""
        end = block.rfind(b"\n", start, start + _KMSG_RUN) + 1
        lines = block.count(b"\n", start, end)
        if lines < 4:
            return None
        found = Counter(_RECORD.findall(block, start, end))
        if found.total() != lines or any(code not in self._known for _, code in found):
            return Run(end, False)
        for (second, code), count in found.items():
            self._known[code].more(count, float(second or 0))
        return Run(end, True)


_CODE = re.compile(rb"NVRM: Xid \([^)]*\): \d+")  # kept bare: it runs over every line of a flood
_KMSG = re.compile(rb"[0-7],\d+,\d+,[^;\n]*;$")
_RECORD = re.compile(rb"[0-7],\d+,(\d*?)\d{6},[^;\n]*;(NVRM: Xid \([^)\n]*\): \d+)[^\n]*\n")
_KMSG_RUN = 1 << 16
_FRACTION = re.compile(rb"[.,](\d{6})(?=\D)")


def _reach(block: bytes, stamp: bytes, start: int) -> int:
    """End of the stretch whose lines begin with the stamp, looking ever further ahead as long as it goes on."""
    window, last = 4096, start - 1
    while True:
        limit = min(start + window, len(block))
        last = max(last, block.rfind(stamp, last, limit))
        if limit == len(block) or last < limit - 1024:
            break
        window *= 2
    return block.find(b"\n", last + 1) + 1 or len(block)


Sink = Callable[[int, Hit], None]


class Scan:
    """Feed it blocks, then `finish`; read `hits`, `foreign`, `lines`, `node`, `driver`."""

    def __init__(self, on_line: Sink | None = None) -> None:
        self.hits: dict[tuple[str, str, str], Hit] = {}
        self.foreign = 0
        self.foreign_sample = ""
        self.lines = 0
        self.node = ""
        self.driver = ""
        self.dropped = 0
        self._on_line = on_line
        self._rows: list[tuple[int, Hit]] = []
        self._carry = b""
        self._flood = Flood()
        self._losing = ("", 0, b"")  # device, line and text of a loss whose other lines are still to come
        self._hung: tuple[int, bytes, int] | None = None  # line, text, bytes still to search
        self._count_at = (0, 0)

    def feed(self, block: bytes) -> None:
        block = self._carry + block if self._carry else block
        end = block.rfind(b"\n") + 1
        if end == 0 and len(block) < MOST_LINE:
            self._carry = block
            return
        if end == 0:
            end = len(block)
        self._carry = block[end:][-MOST_LINE:]
        self._block(block[:end] if end < len(block) else block)

    def finish(self) -> None:
        if self._carry:
            self._block(self._carry)
            self._carry = b""

    def _block(self, block: bytes) -> None:
        self._drain_hung(block)
        at = 0
        for start, end in [*self._nvrm(block), (len(block), len(block))]:
            self._keywords(block, at, start)
            at = end
        self.lines += block.count(b"\n") + (not block.endswith(b"\n"))
        self._flush()

    def _flush(self) -> None:
        if self._on_line:
            for line, hit in sorted(self._rows, key=lambda row: row[0]):
                self._on_line(line, hit)
            self._rows.clear()

    def _line_of(self, block: bytes, start: int) -> int:
        """1-based line number of an offset; cheap because each pass asks in order."""
        at, count = self._count_at
        if start < at:
            at, count = 0, 0
        count += block.count(b"\n", at, start)
        self._count_at = (start, count)
        return self.lines + count + 1

    def _keywords(self, block: bytes, start: int, stop: int) -> None:
        for keyword in _KEYWORDS:
            if (at := block.find(keyword, start, stop)) >= 0:
                self._each(block, keyword, at, stop, self._candidate)
        if (at := block.find(_HUNG, start, stop)) >= 0:
            self._each(block, _HUNG, at, stop, self._hung_task)

    def _each(self, block: bytes, keyword: bytes, at: int, stop: int, do: Callable[[bytes, int, int], object]) -> None:
        self._count_at = (0, 0)
        while at >= 0:
            start = block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            do(block, start, end)
            at = block.find(keyword, end, stop)

    def _nvrm(self, block: bytes) -> list[tuple[int, int]]:
        """The driver's own lines; returns the spans of the block that were wholly counted as a flood."""
        floods: list[tuple[int, int]] = []
        self._count_at, no_flood_before = (0, 0), 0
        at = block.find(b"NVRM:")
        while at >= 0:
            start, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
            end = len(block) if end < 0 else end
            if start >= no_flood_before and not self._on_line and (run := self._flood.run(block, start, at)):
                if run.counts:
                    floods.append((start, run.end))
                    end = run.end - 1
                else:
                    no_flood_before = run.end
                    self._driver_line(block, start, at, end)
            else:
                self._driver_line(block, start, at, end)
            at = block.find(b"NVRM:", end)
        return floods

    def _driver_line(self, block: bytes, start: int, at: int, end: int) -> None:
        if block[at : at + 9] != b"NVRM: Xid" and self._context(block[start:end], self._line_of(block, start)):
            return
        hit = self._candidate(block, start, end)
        if hit is not None and hit.named.code not in grammar.TEXTUAL:
            self._flood.learn(block, at, hit)

    def _context(self, line: bytes, number: int) -> bool:
        """Driver lines that are only part of something: the first lines of a loss, the driver's version."""
        body = grammar.split(line)[1]
        if version := grammar.driver(body):
            self.driver = version
            return True
        if grammar.loss_ends(body) and self._losing[0] and number - self._losing[1] <= 4:
            text = self._losing[2] + b" ... " + line.strip()
            self._record(
                number, text, grammar.split(self._losing[2])[0], Named("kernel.fallen-off-bus", self._losing[0])
            )
            return True
        if (device := grammar.loss_begins(body)) and b"fallen off" not in body:
            self._losing = (device, number, line)
            return True
        return False

    def _candidate(self, block: bytes, start: int, end: int) -> Hit | None:
        line = block[start : min(end, start + MOST_LINE)]
        if line[:1] == b"{":
            return self._journal(line, self._line_of(block, start))
        head, body = grammar.split(line)
        named = grammar.name(body)
        if named is None:
            if grammar.quotes(line):
                self.foreign += 1
                self.foreign_sample = self.foreign_sample or grammar.clean(line.decode("utf-8", "replace"))
            return None
        return self._record(self._line_of(block, start), line, head, named)

    def _journal(self, line: bytes, number: int) -> Hit | None:
        record = grammar.journal(line)
        named = grammar.name(record[0]) if record else None
        if record is None or named is None:
            self.foreign += grammar.quotes(line)
            return None
        self.node = self.node or record[1]
        return self._record(number, record[0], b"", named, record[2])

    def _record(self, number: int, line: bytes, head: bytes, named: Named, at: float | None = None) -> Hit | None:
        key = (named.code, named.device, named.variant)
        hit = self.hits.get(key)
        if hit is None:
            if len(self.hits) >= MOST_HITS:
                self.dropped += 1
                return None
            hit = self.hits[key] = Hit(named, number)
            self.node = self.node or grammar.host(head)
        hit.seen(grammar.seconds(head) if at is None else at, line, named)
        if self._on_line:
            self._rows.append((number, hit))
        return hit

    def _hung_task(self, block: bytes, start: int, end: int) -> None:
        head, body = grammar.split(block[start:end])
        if not body.startswith(b"INFO: task "):
            return
        number, line = self._line_of(block, start), block[start:end]
        reach = block[end : end + HUNG_REACH]
        if any(task in body for task in _OWN_TASKS) or b" [nvidia" in reach.split(_HUNG, 1)[0]:
            self._record(number, line, head, Named("kernel.hung-task-nvidia"))
        elif len(reach) < HUNG_REACH and _HUNG not in reach:
            self._hung = (number, line, HUNG_REACH - len(reach))

    def _drain_hung(self, block: bytes) -> None:
        """A hung task's stack may go on in the next block."""
        if self._hung is None:
            return
        number, line, left = self._hung
        self._hung = None
        if b" [nvidia" in block[:left].split(_HUNG, 1)[0]:
            self._record(number, line, grammar.split(line)[0], Named("kernel.hung-task-nvidia"))


def scan(blocks: Iterable[bytes], on_line: Sink | None = None) -> Scan:
    """The whole log, block by block."""
    found = Scan(on_line)
    for block in blocks:
        found.feed(block)
    found.finish()
    return found


def scan_lines(lines: Iterable[str]) -> Scan:
    """Lines as a Host gives them. A record may hold newlines of its own: they are lines of the same record."""
    return scan(("\n".join(lines) + "\n").encode("utf-8", "replace") for _ in (0,))
