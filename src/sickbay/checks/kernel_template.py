"""The layout of a logger's lines by position, so that equal lines can be told by a few slices instead of a parse.

`kernel_flood` makes a Template from one parsed line. Which bytes decide is the grammar's knowledge, not this file's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter

from sickbay.checks import kernel_lines as grammar

Parts = tuple[bytes, ...]  # something that ends with the second, then the other bytes that decide


@dataclass(frozen=True, slots=True)
class Template:
    """Where the second stands, which bytes say nothing (holes), and where those that decide end."""

    stamp: tuple[int, int]
    numeric: bool
    holes: tuple[tuple[int, int], ...]
    end: int | None  # None: the whole rest of the line decides

    @classmethod
    def of(cls, line: bytes) -> Template | None:
        """None for a line that must be read by itself."""
        head, body = grammar.split(line)
        decides = grammar.decisive(body)
        if decides is None:  # not the kernel's: a quotation, or nothing
            at = max(line.find(b"NVRM:"), line.find(b"nvidia-nvswitch"))
            head, decides = line[:at], grammar.decisive(line[at:]) if at > 0 else None
        if decides is None or line[:1] == b"{":
            return None
        layout, shift = grammar.layout(head), len(head)
        holes = (*layout.holes, *((a + shift, b + shift) for a, b in decides.holes))
        return cls(layout.stamp, layout.numeric, holes, None if decides.end is None else decides.end + shift)

    def getter(self) -> Callable[[bytes], Parts]:
        """The parts of a line of this layout, as fast as Python can cut: first the one that ends with the second."""
        edges: list[int | None] = [0]
        for gap in sorted(self.holes):
            edges += gap
        edges.append(self.end)
        spans = [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a != b]
        if self.stamp == (0, 0):
            return itemgetter(slice(0, 0), *spans)
        first = next(n for n, span in enumerate(spans) if span.start <= self.stamp[0] and self._ends_in(span))
        around = spans.pop(first)
        after = [slice(self.stamp[1], around.stop)] if around.stop != self.stamp[1] else []
        return itemgetter(slice(around.start, self.stamp[1]), *spans[:first], *after, *spans[first:])

    def _ends_in(self, span: slice) -> bool:
        return span.stop is None or self.stamp[1] <= span.stop

    def lead(self) -> int:
        """Bytes of the first part that stand before the second."""
        return (
            self.stamp[0] - max((b for _, b in self.holes if b <= self.stamp[0]), default=0) if any(self.stamp) else 0
        )

    def covers(self, other: Template | None) -> bool:
        """Does it look at every byte that decides a line of the other layout?"""
        if other is None or (other.stamp, other.holes, other.numeric) != (self.stamp, self.holes, self.numeric):
            return False
        return self.end is None or (other.end is not None and other.end <= self.end)
