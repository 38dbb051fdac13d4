"""Reads a kernel log of any size in blocks and keeps one counter per event: the fast half of the kernel-log check.

`checks/kernel_log` and `sickbay diagnose` feed it bytes. A healthy line costs a few `bytes.find`; a block full of XIDs
goes through `kernel_flood` first; what is left is parsed. Memory is bounded whatever comes in. It must never judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from sickbay.checks import kernel_lines as grammar
from sickbay.checks.kernel_flood import MARK, Flood, dense
from sickbay.checks.kernel_hits import Hit, Hits
from sickbay.checks.kernel_lines import Named

MOST_LINE = 1 << 16
HUNG_REACH = 6144  # bytes of a hung task's stack that are searched for the driver's frames
LINES_AT_ONCE = 8192

# Every rule of `kernel_lines` is reached through one of these. Longer is faster: bytes.find skips by its length.
_KEYWORDS = (
    b"XID event received: code=",
    b"Uncorrect",
    b"DPC: containment event",
    b"EDAC MC",
    b"[Hardware Error]: ",
    b"Kernel panic - not syncing",
)
_SWITCH = (b"SXid (PCI:",)
_NIC = (b"health compromised", b"unrecoverable hardware error", b"cause a leak of a command")
# What a line of the driver that matters goes on with. The driver says much else, as the RPC history after an XID 119.
_DRIVER_SAYS = frozenset((b" Xid", b" GPU", b" The", b" (PC", b" fal", b" RmI", b" rm_", b" osI", b" loa"))
_HUNG = b"blocked for more than"
_OWN_TASKS = (b"task nvidia-", b"task nv_queue", b"task irq/nvidia", b"task nv-")

Sink = Callable[[int, Hit], None]


class Scan:
    """Feed it blocks, then `finish`; read `hits`, `foreign`, `lines`, `node`, `driver`."""

    def __init__(self, on_line: Sink | None = None) -> None:
        self._hits = Hits()
        self.hits = self._hits.by_key
        self.foreign = 0
        self.foreign_sample = ""
        self.lines = 0
        self.node = ""
        self.driver = ""
        self.dropped = 0  # lines beyond the first MOST_HITS different codes and devices
        self._on_line = on_line
        self._rows: list[tuple[int, Hit]] = []
        self._carry = b""
        self._flood = Flood(self._hits)
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
        if dense(block):
            block = self._without_flood(block)
        self._nvrm(block)
        self._keywords(block)
        self.lines += block.count(b"\n") + (not block.endswith(b"\n"))
        self._flush()

    def _without_flood(self, block: bytes) -> bytes:
        """The block with the lines of a flood counted and made empty."""
        folded = self._flood.fold(block, self.lines + 1, rows=self._on_line is not None)
        self.foreign += folded.foreign
        self.foreign_sample = self.foreign_sample or grammar.clean(folded.foreign_sample.decode("utf-8", "replace"))
        self._rows += folded.rows or ()
        self.node = self.node or folded.node
        return folded.rest()

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

    def _keywords(self, block: bytes) -> None:
        switch = _SWITCH if MARK in block else ()
        nic = _NIC if b"mlx5_core" in block else ()
        for keyword in (*_KEYWORDS, *switch, *nic):
            if (at := block.find(keyword)) >= 0:
                self._each(block, keyword, at, self._candidate)
        if (at := block.find(_HUNG)) >= 0:
            self._each(block, _HUNG, at, self._hung_task)

    def _each(self, block: bytes, keyword: bytes, at: int, do: Callable[[bytes, int, int], object]) -> None:
        self._count_at = (0, 0)
        while at >= 0:
            start = block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            do(block, start, end)
            at = block.find(keyword, end)

    def _nvrm(self, block: bytes) -> None:
        """The driver's own lines."""
        self._count_at = (0, 0)
        at = block.find(b"NVRM:")
        while at >= 0:
            end = at + 5
            if block[end : end + 4] in _DRIVER_SAYS or block[end : end + 2] == b"  ":
                start, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
                end = len(block) if end < 0 else end
                self._driver_line(block, start, at, end)
            at = block.find(b"NVRM:", end)

    def _driver_line(self, block: bytes, start: int, at: int, end: int) -> None:
        if block[at : at + 9] == b"NVRM: Xid" or not self._context(block[start:end], self._line_of(block, start)):
            self._candidate(block, start, end)

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

    def _candidate(self, block: bytes, start: int, end: int) -> None:
        line = block[start : min(end, start + MOST_LINE)]
        if line[:1] == b"{":
            self._journal(line, self._line_of(block, start))
            return
        head, body = grammar.split(line)
        named = grammar.name(body)
        if named is not None:
            self._record(self._line_of(block, start), line, head, named)
        elif grammar.quotes(line):
            self.foreign += 1
            self.foreign_sample = self.foreign_sample or grammar.clean(line.decode("utf-8", "replace"))

    def _journal(self, line: bytes, number: int) -> None:
        record = grammar.journal(line)
        named = grammar.name(record[0]) if record else None
        if record is None or named is None:
            self.foreign += grammar.quotes(line)
            return
        self.node = self.node or record[1]
        self._record(number, record[0], b"", named, record[2])

    def _record(self, number: int, line: bytes, head: bytes, named: Named, at: int | None = None) -> None:
        hit = self._hits.of(named, number)
        if hit is None:
            self.dropped += 1
            return
        self.node = self.node or grammar.host(head)
        hit.more(1, grammar.seconds(head) if at is None else at)
        hit.quote(line, named)
        if self._on_line:
            self._rows.append((number, hit))

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
    left = iter(lines)
    return scan(
        ("\n".join(some) + "\n").encode("utf-8", "replace")
        for some in iter(lambda: list(islice(left, LINES_AT_ONCE)), [])
    )
