"""What one node, job, command, notice or rule raised stays with it: the pass goes on for all others.

Kept by controller/loop.py and asked by both desks. Whoever raised is left alone, tried again with back-off, told once a
day in words, counted, and named for the simulator's judge. It must never contain what is about the whole process: a
lost lead, a broken store. A process that dies (sim/swarm.Crash) is no Exception, so it passes by itself.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from sickbay.controller.tallies import Tally
from sickbay.core import explain
from sickbay.core.naming import MOST_NAMED
from sickbay.core.turn import Now
from sickbay.errors import NotLeader, StoreError
from sickbay.model import Notice

log = logging.getLogger(__name__)

THROUGH = (NotLeader, StoreError)
FIRST_S, LONGEST_S = 10.0, 600.0  # watch time until the next try: the first, and after many
LOG_S = 3_600.0  # a traceback of one kind is logged at most this often
DAY_S = 86_400.0
MOST_TOLD = 5  # with the same error that are told one by one; more are told together
MOST_KEPT = 1_000
LONGEST_WHY = 300
PACKAGE = f"{os.sep}sickbay{os.sep}"


@dataclass(slots=True)
class Rest:
    """Somebody who raised, and is left alone until this watch time."""

    until: float
    tries: int
    why: str
    fault: str  # what was raised, and where: the kind of error
    well: bool = False  # it went well since then; should it raise again soon, the waits go on where they were

    def is_over(self, now: Now) -> bool:
        return self.well and now.watch >= self.until + LONGEST_S


class Containment:
    def __init__(self) -> None:
        self.seen: list[str] = []  # one line for each, oldest first: the simulator's judge reads them
        self.counts = Tally()
        self._resting: dict[tuple[str, str], Rest] = {}
        self._logged: dict[str, float] = {}  # kind of error -> watch time of its last traceback
        self._told: set[str] = set()
        self._day, self._news = 0, False

    def run(self, kind: str, name: str, now: Now, work: Callable[[], object]) -> bool:
        """Do it. False if it raised: then it is contained."""
        try:
            work()
        except THROUGH:
            raise
        except Exception as error:
            self.contain(kind, name, error, now)
            return False
        if self._resting:
            self.went_well(kind, name)
        return True

    def contain(self, kind: str, name: str, error: Exception, now: Now) -> None:
        """Take it down, and when it is tried again."""
        why, where = f"{type(error).__name__}: {error}"[:LONGEST_WHY], _where(error)
        self._resting = {who: rest for who, rest in self._resting.items() if not rest.is_over(now)}
        known = self._resting.get((kind, name))
        tries = known.tries + 1 if known else 1
        until = now.watch + min(LONGEST_S, FIRST_S * 2.0 ** min(tries - 1, 10))
        self._resting[kind, name] = Rest(until, tries, why, f"{type(error).__name__} in {where}")
        self.counts.add(kind)
        self.seen = [*self.seen[1 - MOST_KEPT :], f"{kind} {name}: {why} ({where})"]
        self._log(kind, name, error, now)
        self._news = True

    def went_well(self, kind: str, name: str) -> None:
        rest = self._resting.get((kind, name))
        if rest is not None:
            rest.well = True

    def again_at(self, kind: str, name: str) -> float:
        """Watch time of the next try."""
        return self._resting[kind, name].until

    def rests(self, kind: str, name: str, now: Now) -> bool:
        """Is it too soon to try it again?"""
        rest = self._resting.get((kind, name)) if self._resting else None
        return rest is not None and now.watch < rest.until

    def unattended(self) -> dict[str, str]:
        """Nodes and jobs that are left alone for now, and what was raised about them."""
        found = list(self._resting.items())  # at once: a scrape reads it from another thread
        return {f"{kind} {name}": rest.why for (kind, name), rest in found if kind in ("node", "job") and not rest.well}

    def named(self) -> dict[str, str]:
        """The first of them, for the record: whoever lists nodes shall not take them for attended."""
        return dict(sorted(self.unattended().items())[:MOST_NAMED]) if self._resting else {}

    def notices(self, now: Now) -> list[Notice]:
        """What is to be told now: each once a day, and many alike as one. They are on no record, for a record may be
        what is broken; whoever leads next meets the same error and tells it again."""
        if not self._news:
            return []
        self._news, today = False, int(now.watch // DAY_S)
        if today != self._day:
            self._day, self._told = today, set()
        fresh = [n for group in self._alike().items() for n in self._words(*group, now) if n.key not in self._told]
        self._told.update(n.key for n in fresh)
        return fresh

    def _alike(self) -> dict[tuple[str, str], list[str]]:
        groups: dict[tuple[str, str], list[str]] = defaultdict(list)
        for (kind, name), rest in ((who, rest) for who, rest in self._resting.items() if not rest.well):
            groups[kind, rest.fault].append(name)
        return groups

    def _words(self, group: tuple[str, str], names: list[str], now: Now) -> list[Notice]:
        kind, fault = group
        if len(names) > MOST_TOLD:  # told again when they are twice as many
            why, key = self._resting[kind, names[0]].why, f"contained/{kind}/{len(names).bit_length()}/{fault}"
            return [explain.many_unattended(kind, sorted(names), why, f"{key}/{self._day}", now.wall)]
        keys = {name: f"contained/{kind}/{name}/{fault}/{self._day}" for name in names}
        return [explain.unattended(kind, n, self._resting[kind, n].why, key, now.wall) for n, key in keys.items()]

    def _log(self, kind: str, name: str, error: Exception, now: Now) -> None:
        rest = self._resting[kind, name]
        due = now.watch - self._logged.get(rest.fault, -LOG_S) >= LOG_S
        if due:
            self._logged[rest.fault] = now.watch
        if due or rest.tries == 1:
            trace = error if due else None
            log.error("%s=%s is left alone and tried again later: %s", kind, name, rest.why, exc_info=trace)


def _where(error: Exception) -> str:
    """The innermost line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if PACKAGE in f.filename] or frames
    if not ours:
        return "an unknown place"
    return f"{ours[-1].filename.rpartition(PACKAGE)[2]}:{ours[-1].lineno} {ours[-1].name}"
