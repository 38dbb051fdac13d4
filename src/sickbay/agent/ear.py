"""Hears kernel lines as they come and says what is new in them: the kernel-log check on a stream.

agent/follower feeds it batches. One scan goes on while lines keep coming, because a loss is told in three lines and a
hung task in a stack; what it found before is subtracted. After a pause it starts anew, so that memory and quotations
stay those of the present. It must never judge: severities come from the catalog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sickbay.checks.kernel_hits import MOST_HITS
from sickbay.checks.kernel_log import sign_of
from sickbay.checks.kernel_scan import Scan
from sickbay.checks.signs import Sign

PAUSE_S = 2.0  # the lines of one event follow each other in milliseconds
MOST_LINES = 1_000_000


class Ear:
    def __init__(self) -> None:
        self._scan = Scan()
        self._told: dict[tuple[str, str, str], int] = {}
        self._heard_at = 0.0

    def hear(self, lines: Sequence[bytes], now: float) -> list[Sign]:
        """What these lines add, one Sign per code, device and meaning; its count is that of the new lines."""
        if now - self._heard_at > PAUSE_S or self._scan.lines > MOST_LINES or len(self._told) > MOST_HITS // 2:
            self._scan, self._told = Scan(), {}
        self._heard_at = now
        if not lines:
            return []
        self._scan.feed(b"\n".join(lines) + b"\n")
        return [self._sign(key, told) for key, told in self._news()]

    def _news(self) -> list[tuple[tuple[str, str, str], int]]:
        fresh = [(k, self._told.get(k, 0)) for k, hit in self._scan.hits.items() if hit.count > self._told.get(k, 0)]
        return sorted(fresh, key=lambda one: self._scan.hits[one[0]].line)

    def _sign(self, key: tuple[str, str, str], before: int) -> Sign:
        hit = self._scan.hits[key]
        self._told[key] = hit.count
        return replace(sign_of(hit, self._scan.driver), count=hit.count - before)
