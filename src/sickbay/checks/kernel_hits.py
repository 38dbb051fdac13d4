"""What a scan of a kernel log keeps: one counter per code and device, however many lines said it.

`kernel_scan` and `kernel_flood` fill it, `kernel_log` reads it. Bounded. It must never judge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sickbay.checks import kernel_lines as grammar
from sickbay.checks.kernel_lines import Named

SAME_EVENT_S = 5
"""Lines of one code on one device are one event until this many whole seconds lie between two (plan, section 6)."""

MOST_HITS = 4096
MOST_QUOTES = 3
MOST_SITES = 64


@dataclass(slots=True, eq=False)
class Hit:
    """One code on one device: how often, in how many separate events, and its first lines."""

    named: Named
    line: int
    count: int = 0
    events: int = 0
    first: int | None = None
    last: int | None = None
    evidence: list[str] = field(default_factory=list)
    sites: set[str] = field(default_factory=set)  # GPC/TPC seen

    def more(self, count: int, at: int | None) -> None:
        """Another event if the last line was long ago (or from another boot), else the same one."""
        self.count += count
        self.events = self.events or 1
        if at is None:
            return
        if self.last is None:
            self.first = at
        elif abs(at - self.last) >= SAME_EVENT_S:
            self.events += 1
        self.last = at

    def quote(self, line: bytes, named: Named) -> None:
        if len(self.evidence) < MOST_QUOTES:
            text = grammar.clean(line.decode("utf-8", "replace"))
            if text not in self.evidence:
                self.evidence.append(text)
        traits = named.traits
        if traits.get("fatal") == "fatal" and self.named.traits.get("fatal") != "fatal":
            self.named.traits.update(traits)  # the line that says Fatal speaks for the event
        if "gpc" in traits:
            self.site(traits["gpc"], traits.get("tpc", ""))

    def site(self, gpc: str, tpc: str) -> None:
        if len(self.sites) < MOST_SITES:
            self.sites.add(f"{gpc}/{tpc}")


class Hits:
    """All hits of one log. Past the first MOST_HITS different ones, lines are only counted."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str, str], Hit] = {}
        self.dropped = 0

    def of(self, named: Named, line: int) -> Hit | None:
        """The hit this line belongs to, or None if there are too many already."""
        key = (named.code, named.device, named.variant)
        hit = self.by_key.get(key)
        if hit is None and len(self.by_key) < MOST_HITS:
            hit = self.by_key[key] = Hit(named, line)
        if hit is not None:
            hit.line = min(hit.line, line)
        return hit
