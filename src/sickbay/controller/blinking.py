"""Counts how often each node went away within the last hour. Called by controller/desk.py once a pass.

core/blinking.py says what is often, and the words. What it remembers, a new leader counts anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sickbay.controller.view import View
from sickbay.core import blinking
from sickbay.core.turn import Now
from sickbay.model import Notice


class Blinking:
    def __init__(self, view: View) -> None:
        self._view = view
        self._away: frozenset[str] = frozenset()
        self._times: dict[str, tuple[float, ...]] = {}
        self._told: dict[str, float] = {}

    def notices(self, excused: Collection[str], now: Now) -> Iterator[Notice]:
        """`excused`: away together with many, which one case is about."""
        away = frozenset(self._view.away)
        fresh = away - self._away - frozenset(excused)
        self._away = away
        if not fresh:
            return
        for name in fresh:
            self._times[name] = blinking.lately((*self._times.get(name, ()), now.watch), now.watch)
        self._forget(now)
        often = sorted(n for n in fresh if blinking.is_often(self._times[n]) and n not in self._told)
        self._told.update(dict.fromkeys(often, now.watch))
        if often:
            yield blinking.notice(often, now.watch, now.wall)

    def _forget(self, now: Now) -> None:
        self._times = {n: kept for n, times in self._times.items() if (kept := blinking.lately(times, now.watch))}
        self._told = {n: at for n, at in self._told.items() if now.watch - at < blinking.REPEAT_S}
