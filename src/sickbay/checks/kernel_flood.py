"""Counts the lines of a flood without reading them one by one: the kernel-log scan's answer to 100,000 equal lines.

`kernel_scan` hands it a block in which XIDs are dense. The lines of one logger have the same layout, so one line is
parsed and the bytes that decide its meaning (who wrote it, code, device, and the text where that matters) are noted by
position; lines with the same bytes there are the same line, and a Counter does the rest. Every distinct one is parsed
once, by the same grammar as any other line: a program that quotes an XID stays a quotation, however often. It must
never judge, and must count as a reading line by line would (tests/checks compares the two).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise

from sickbay.checks import kernel_lines as grammar
from sickbay.checks.kernel_hits import SAME_EVENT_S, Hit, Hits
from sickbay.checks.kernel_lines import Named
from sickbay.checks.kernel_template import Parts, Template

MARK = b"Xid ("
WORTH = 16  # a block is folded when it has so many marked lines, and one in so many of its lines is marked
MOST_TEMPLATES = 256
MOST_KNOWN = 1 << 14  # distinct lines remembered per template
MOST_REFUSALS = 12  # lines of other layouts looked at in one pass
WINDOW = 1 << 15
ORDER_SAMPLES = 128  # lines of a block whose clocks are compared
SAMPLED = 64  # lines of a block read for where on the chip the faults are

_EIGHTHS = (4, 7, 1, 0, 6, 2, 5, 3)  # where in a block a line is taken as an example, pass by pass
_SITE = re.compile(rb"\(GPC (\d+), TPC (\d+)\b|.GPC(\d+) GPCCLIENT_(T\d+_\d+)\b")


def worth(marked: int, lines: int) -> bool:
    """Are there enough marked lines to fold them?"""
    return marked >= WORTH and marked * WORTH >= lines


def dense(block: bytes) -> bool:
    """Is it worth folding this block? The stretch after its first mark tells, or else all of it."""
    at = block.find(MARK)
    if at < 0:
        return False
    return _dense(block, at, at + WINDOW) or _dense(block, 0, len(block))


def _dense(block: bytes, begin: int, end: int) -> bool:
    return worth(block.count(MARK, begin, end), block.count(b"\n", begin, end))


class Mark:
    """A line that is no hit."""


FOREIGN = Mark()  # quotes the kernel without being its own
REFUSED = Mark()  # an XID this template cannot judge
UNREAD = Mark()
What = Hit | Mark
Group = tuple[What, int, int | None]  # what, how many lines, when


@dataclass(slots=True)
class _Reader:
    """A template at work: its getter, and what the lines it has met are."""

    template: Template
    get: Callable[[bytes], Parts]
    before: bytes  # what stands before the second in the first part
    marked: int  # the part in which the mark stands
    begins: bytes  # how it begins, up to the mark: a line of another layout shows other bytes there
    text: (
        bytes | None
    )  # the part before the last hole, if that is one of the text: another text has its holes elsewhere
    known: dict[tuple[bytes, Parts], What] = field(default_factory=dict)

    @property
    def lead(self) -> int:
        return len(self.before)

    def clock(self, stamp: bytes) -> int | None:
        return grammar.number(stamp) if self.template.numeric else grammar.calendar(stamp)

    def may_be_mine(self, parts: Parts) -> bool:
        return parts[self.marked].startswith(self.begins) and (self.text is None or parts[-2] == self.text)

    def time(self, line: bytes) -> int | None:
        """When, if the line has this layout."""
        parts = self.get(line)
        if parts[0][: self.lead] != self.before or not parts[self.marked].startswith(self.begins):
            return None
        return self.clock(parts[0][self.lead :])

    def key(self, line: bytes) -> tuple[bytes, Parts]:
        parts = self.get(line)
        return parts[0][: self.lead], parts[1:]


@dataclass(slots=True)
class Folded:
    """A block being folded: the lines that are left with their indices in it, and what was counted."""

    size: int
    first_line: int  # number of the block's first line in the log
    lines: list[bytes]
    indices: Sequence[int]
    groups: list[Group] = field(default_factory=list)
    in_order: bool = True  # no clock was seen to go back
    rows: list[tuple[int, Hit]] | None = None  # (line, what it was), if somebody wants to know
    node: str = ""
    foreign: int = 0
    foreign_sample: bytes = b""

    def rest(self) -> bytes:
        """The block with the counted lines made empty, so that the others keep their numbers."""
        whole = [b""] * self.size
        for index, line in zip(self.indices, self.lines, strict=True):
            whole[index] = line
        return b"\n".join(whole)


class _Firsts:
    """The first line with given parts: among the first few, else from an index made when it is needed."""

    def __init__(self, get: Callable[[bytes], Parts], lines: list[bytes]) -> None:
        self._get, self._lines = get, lines
        self._index: dict[Parts, bytes] = {}

    def line(self, parts: Parts) -> bytes:
        get, lines = self._get, self._lines
        if not self._index:
            if found := next((line for line in lines[:256] if get(line) == parts), b""):
                return found
            self._index = dict(zip(map(get, reversed(lines)), reversed(lines), strict=True))
        return self._index[parts]


class Flood:
    def __init__(self, hits: Hits) -> None:
        self._hits = hits
        self._readers: dict[Template, _Reader] = {}

    def fold(self, block: bytes, first_line: int, *, rows: bool) -> Folded:
        """Count what can be counted."""
        lines = block.split(b"\n")
        folded = Folded(len(lines), first_line, lines, range(len(lines)), rows=[] if rows else None)
        for eighth in _EIGHTHS:
            line = _example(folded.lines, eighth)
            if template := Template.of(line):
                self._take(self._reader(template, line), folded)
            if not folded.in_order or not worth(sum(MARK in line for line in folded.lines), len(folded.lines)):
                break
        self._singles(folded)
        _count(folded)
        return folded

    def _reader(self, template: Template, line: bytes) -> _Reader:
        reader = self._readers.get(template)
        if reader is None:
            if len(self._readers) >= MOST_TEMPLATES:
                self._readers.clear()
            get = template.getter()
            marked = next(n for n, part in enumerate(get(line)) if MARK in part)
            begins = get(line)[marked].partition(MARK)[0] + MARK
            parts = get(line)
            text = parts[-2] if marked < len(parts) - 2 else None
            reader = self._readers[template] = _Reader(template, get, parts[0][: template.lead()], marked, begins, text)
        if len(reader.known) > MOST_KNOWN:
            reader.known.clear()
        return reader

    def _take(self, reader: _Reader, folded: Folded) -> None:
        """Take out one layout's lines."""
        if not _clock_goes_on(reader, folded.lines):  # a reboot: its seconds come again, so order matters
            folded.in_order = False
            return
        groups, left = self._groups(reader, folded, Counter(map(reader.get, folded.lines)))
        _note_sites(reader, {what for what, _, _ in groups if isinstance(what, Hit)}, folded.lines)
        folded.groups += groups
        _remove(reader, folded, left)

    def _groups(self, reader: _Reader, folded: Folded, counts: Counter[Parts]) -> tuple[list[Group], set[Parts]]:
        """What each distinct line is, and those that are left."""
        groups: list[Group] = []
        left: set[Parts] = set()
        known, clock, refusals = reader.known, reader.clock, 0
        lead, firsts = reader.lead, _Firsts(reader.get, folded.lines)
        for parts, count in counts.items():
            key = (parts[0][:lead], parts[1:])
            what = known.get(key, UNREAD)
            if what is UNREAD and reader.may_be_mine(parts) and refusals < MOST_REFUSALS:
                what = known[key] = self._read(reader.template, firsts.line(parts), folded)
                refusals += what is REFUSED
            if what is UNREAD or what is REFUSED:
                left.add(parts)
            else:
                groups.append((what, count, clock(parts[0][lead:])))
        left.discard(reader.get(b""))  # an empty line may go, whatever it was
        return groups, left

    def _singles(self, folded: Folded) -> None:
        """XIDs of no common layout, read one by one: here, so that they are counted in their place in time."""
        left = [
            (index, line)
            for index, line in zip(folded.indices, folded.lines, strict=True)
            if MARK not in line or not self._single(folded, index, line)
        ]
        folded.indices, folded.lines = [index for index, _ in left], [line for _, line in left]

    def _single(self, folded: Folded, index: int, line: bytes) -> bool:
        head, body = grammar.split(line)
        hit = self._named(folded, index, line, head, named) if (named := grammar.name(body)) else None
        if hit is None:
            return False
        folded.groups.append((hit, 1, grammar.seconds(head)))
        if folded.rows is not None:
            folded.rows.append((folded.first_line + index, hit))
        return True

    def _named(self, folded: Folded, index: int, line: bytes, head: bytes, named: Named) -> Hit | None:
        hit = self._hits.of(named, folded.first_line + index)
        if hit is not None:
            hit.quote(line, named)
            folded.node = folded.node or grammar.host(head)
        return hit

    def _read(self, template: Template, line: bytes, folded: Folded) -> What:
        """The one careful look at a line that stands for many."""
        if not template.covers(Template.of(line)):
            return REFUSED
        head, body = grammar.split(line)
        named = grammar.name(body)
        if named is None:
            folded.foreign_sample = folded.foreign_sample or line
            return FOREIGN if grammar.quotes(line) else REFUSED
        return self._named(folded, folded.indices[folded.lines.index(line)], line, head, named) or REFUSED


def _example(lines: list[bytes], eighth: int) -> bytes:
    """A marked line from about there."""
    begin = len(lines) * eighth // 8
    return next((line for line in lines[begin:] if MARK in line), b"") or next(line for line in lines if MARK in line)


def _clock_goes_on(reader: _Reader, lines: list[bytes]) -> bool:
    """As far as every n-th line shows. Loggers shuffle lines a little; that makes no event."""
    times = filter(None, map(reader.time, lines[:: len(lines) // ORDER_SAMPLES + 1]))
    return all(then - now < SAME_EVENT_S for then, now in pairwise(times))


def _count(folded: Folded) -> None:
    """Lines of one code may have come in several layouts: one after the other in time, unless the clock went back."""
    if folded.in_order:
        folded.groups.sort(key=lambda group: group[2] or 0)
    for what, count, at in folded.groups:
        if isinstance(what, Hit):
            what.more(count, at)
        else:
            folded.foreign += count


def _remove(reader: _Reader, folded: Folded, left: set[Parts]) -> None:
    get = reader.get
    if folded.rows is not None:
        for index, line in zip(folded.indices, folded.lines, strict=True):
            if isinstance(hit := reader.known.get(reader.key(line)), Hit):
                folded.rows.append((folded.first_line + index, hit))
    stays = list(map(left.__contains__, map(get, folded.lines))) if left else []
    folded.indices, folded.lines = list(compress(folded.indices, stays)), list(compress(folded.lines, stays))


def _note_sites(reader: _Reader, hits: set[Hit], lines: list[bytes]) -> None:
    """Where on the chip the faults are. A sample of lines tells; but that all are in one place is only said after all
    were looked at, because a rule of core/diagnose rests on it."""
    placed = [hit for hit in hits if hit.named.code in grammar.PLACED]
    if not placed:
        return
    _sites_of(reader, lines[:: len(lines) // SAMPLED | 1])
    single = {site for hit in placed if len(hit.sites) == 1 for site in hit.sites}
    if single and not _only(single, b"\n".join(lines)):
        _sites_of(reader, lines)


def _sites_of(reader: _Reader, lines: list[bytes]) -> None:
    spots = ((line, line.find(b"GPC")) for line in lines)
    for key, where in {(reader.key(line), line[at - 1 : at + 24]) for line, at in spots if at > 0}:
        hit = reader.known.get(key)
        if isinstance(hit, Hit) and hit.named.code in grammar.PLACED and (found := _SITE.match(where)):
            gpc, tpc, gpc_31, tpc_31 = found.groups()
            hit.site((gpc or gpc_31).decode(), (tpc or tpc_31).decode())


def _only(single: set[str], block: bytes) -> bool:
    """Does the block name no place but this one? Several hits with a place each need the longer look."""
    gpc, _, tpc = next(iter(single)).partition("/")
    same = block.count(f"(GPC {gpc}, TPC {tpc}".encode()) + block.count(f"GPC{gpc} GPCCLIENT_{tpc} ".encode())
    return len(single) == 1 and same == block.count(b"(GPC ") + block.count(b" GPCCLIENT_T")
