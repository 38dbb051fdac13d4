"""Where everything meets: findings come in, the chart is changed and saved, and only then is anybody told.

The follower and the collector call it from their threads; one lock orders them. Publishers take what it offers without
ever making it wait. It must never tell what is not on disk: that is what makes "once" true after a kill.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from sickbay.agent import report as reporting
from sickbay.agent import verdicts as judging
from sickbay.agent.chart import Chart, Shelf
from sickbay.agent.report import Self
from sickbay.agent.verdicts import NodeVerdict, Verdicts
from sickbay.catalog import Catalog
from sickbay.checks.signs import Sign, Stamp, finding
from sickbay.model import Finding, Report, Status

log = logging.getLogger(__name__)

GATHER_S = 1.0  # repeats of what is already known are told at most this often
Tell = Callable[[Report, NodeVerdict], None]


class Station:
    def __init__(
        self, shelf: Shelf, who: Self, boot_id: str, catalog: Catalog, tell: Tell, *,
        wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.who, self.catalog = who, catalog
        self._shelf, self._tell, self._wall, self._clock = shelf, tell, wall, clock
        self._lock = threading.RLock()
        self.chart = self._opened(boot_id)
        self._unsaved = False  # repeats that are counted and not yet on disk
        self._saved_at = float("-inf")
        self._cursor_at = float("-inf")
        self.save_errors = 0

    def _opened(self, boot_id: str) -> Chart:
        chart = self._shelf.load(boot_id)
        if chart.unreadable:
            log.error("%s", chart.unreadable)
        return replace(chart, boot_id=boot_id, born=chart.born or self._wall())

    # -- what comes in ------------------------------------------------------------------------------------------------

    def kernel(self, signs: Sequence[Sign], cursor: str) -> None:
        """New kernel lines have been heard. What is new is told at once, repeats within a second."""
        with self._lock:
            if not signs:
                self.chart = replace(self.chart, cursor=cursor or self.chart.cursor)
                return
            before = {judging.key_of(v.finding): v for v in self.chart.verdicts.latched}
            findings = self._findings("kernel-log", signs)
            taken = judging.take(self.chart.verdicts, findings, self.catalog)
            self.chart = replace(self.chart, verdicts=taken, cursor=cursor or self.chart.cursor)
            if any(_news(before.get(judging.key_of(v.finding)), v) for v in taken.latched):
                self.tell()
            else:
                self._unsaved = True

    def cycle(self, findings: Sequence[Finding], uptime_s: float = float("inf")) -> None:
        """All findings of one cycle of checks. Told whether anything changed or not: it is the heartbeat."""
        with self._lock:
            taken = judging.booted(self.chart.verdicts, self.chart.boot_id, uptime_s, self.catalog)
            taken = judging.take(taken, findings, self.catalog)
            self._becomes(taken)

    def glimpse(self, findings: Sequence[Finding]) -> None:
        """One check of a cycle has answered: what is new and grave does not wait for the others."""
        with self._lock:
            seen = judging.glimpse(self.chart.verdicts, findings, self.catalog)
            if seen.latched != self.chart.verdicts.latched:
                self._becomes(seen)

    def say(self, check: str, signs: Sequence[Sign]) -> None:
        """Something about the agent itself."""
        with self._lock:
            self._becomes(judging.take(self.chart.verdicts, self._findings(check, signs), self.catalog))

    def reset(self, devices: Iterable[str]) -> None:
        with self._lock:
            self._becomes(judging.reset(self.chart.verdicts, devices, self.catalog))

    def clear(self, device: str) -> int:
        """An operator's word; returns how many verdicts it ended."""
        with self._lock:
            before = len(self.chart.verdicts.latched)
            self._becomes(judging.cleared(self.chart.verdicts, device))
            return before - len(self.chart.verdicts.latched)

    def diagnosed(self) -> None:
        """A level-2 diagnostic has been run."""
        with self._lock:
            self.chart = replace(self.chart, l2_at=self._wall())

    def known(self, who: Self) -> None:
        self.who = who

    # -- what goes out ------------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Number it, save it, tell it. If the disk refuses, people are told all the same: a sick disk is no secret."""
        with self._lock:
            self.chart = replace(self.chart, reports=self.chart.reports + 1)
            self._save()
            made = reporting.made(self.chart, self.who, self._wall())
            self._tell(made, judging.verdict_of(self.chart.verdicts))

    def due_s(self) -> float | None:
        """Seconds until `flush` has something to do; None if it has nothing."""
        with self._lock:
            if self._unsaved:
                return max(0.0, self._saved_at + GATHER_S - self._clock())
            return max(0.0, self._cursor_at + GATHER_S - self._clock()) if self._behind() else None

    def flush(self, *, now: bool = False) -> None:
        """Tell the gathered repeats, and write down how far we have read."""
        with self._lock:
            if self._unsaved and (now or self._clock() >= self._saved_at + GATHER_S):
                self.tell()
            elif self._behind() and (now or self._clock() >= self._cursor_at + GATHER_S):
                self._save_cursor()

    def close(self) -> None:
        """Everything on disk, nothing cleared: a stopped agent is not a healed node (originals 002.12 #6)."""
        with self._lock:
            self.flush(now=True)
            self._save()

    def numbers(self) -> Iterator[int]:
        """The counter behind finding ids."""
        while True:
            yield self._number()

    def _number(self) -> int:
        with self._lock:
            self.chart = replace(self.chart, numbers=self.chart.numbers + 1)
            return self.chart.numbers

    @property
    def verdict(self) -> NodeVerdict:
        return judging.verdict_of(self.chart.verdicts)

    def _becomes(self, verdicts: Verdicts) -> None:
        self.chart = replace(self.chart, verdicts=verdicts)
        self.tell()

    def _findings(self, check: str, signs: Sequence[Sign]) -> list[Finding]:
        stamp, numbers = Stamp(check, self.who.node, self.chart.boot_id, self._wall()), self.numbers()
        return [finding(self._placed(sign), self.catalog, stamp, next(numbers)) for sign in signs]

    def _placed(self, sign: Sign) -> Sign:
        """A lost GPU can no longer say who it is: the map of the last healthy cycle can."""
        part = next((gpu.serial for gpu in self.who.gpus if sign.device and gpu.pci == sign.device), "")
        return replace(sign, part=part) if part and not sign.part else sign

    def _behind(self) -> bool:
        return self.chart.cursor != self._cursor_saved

    _cursor_saved = ""

    def _save(self) -> None:
        try:
            self._shelf.save(self.chart)
            self._cursor_saved = self.chart.cursor
        except OSError as error:
            self._complain(error)
        self._unsaved, self._saved_at = False, self._clock()

    def _save_cursor(self) -> None:
        try:
            self._shelf.save_cursor(self.chart.cursor)
        except OSError as error:
            self._complain(error)
        self._cursor_saved, self._cursor_at = self.chart.cursor, self._clock()

    def _complain(self, error: OSError) -> None:
        self.save_errors += 1
        if self.save_errors in (1, 10, 100) or self.save_errors % 1000 == 0:
            log.error(
                "the state folder cannot be written (%s): verdicts would not survive a restart; free space or check "
                "its rights: %s", error.strerror, self._shelf.folder,
            )  # fmt: skip


def _news(before: judging.Verdict | None, now: judging.Verdict) -> bool:
    """New, worse or now believed; a further count of the same is no news."""
    if now.finding.check != "kernel-log" or now.finding.status is Status.OK:
        return False
    return before is None or now.finding.severity > before.finding.severity or now.believed > before.believed
