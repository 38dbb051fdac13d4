"""Maintenance windows in UTC, "Mon-Fri 02:00-05:00": is one open at this wall time, and when is the next?

Called by controller/desk.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

DAY_S = 86_400.0
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WINDOW = re.compile(r"^(?:(\w{3})(?:-(\w{3}))?\s+)?(\d\d):(\d\d)-(\d\d):(\d\d)$", re.IGNORECASE)


def is_open(windows: Sequence[str], wall: float) -> bool:
    """True when there are no windows at all, or one of them holds this moment."""
    return not windows or any(_holds(window, wall) for window in windows)


def opens_in(windows: Sequence[str], wall: float) -> float:
    """Seconds until one is open: 0 while one is, inf if none ever is."""
    if is_open(windows, wall):
        return 0.0
    midnight = wall - wall % DAY_S
    starts = [midnight + day * DAY_S + _begins(window) for window in windows for day in range(9)]
    return min((start - wall for start in starts if start > wall and is_open(windows, start)), default=float("inf"))


def _begins(window: str) -> float:
    """Seconds after midnight."""
    match = WINDOW.match(window.strip())
    return 60.0 * (int(match[3]) * 60 + int(match[4])) if match else 0.0


def _holds(window: str, wall: float) -> bool:
    match = WINDOW.match(window.strip())
    if match is None:
        return False
    first, last, h1, m1, h2, m2 = match.groups()
    at = datetime.fromtimestamp(wall, UTC)
    minute, begin, end = at.hour * 60 + at.minute, int(h1) * 60 + int(m1), int(h2) * 60 + int(m2)
    day = at.weekday()
    if end <= begin and minute < end:  # past midnight: it belongs to the day it began
        day, minute = (day - 1) % 7, minute + 1440
    if end <= begin:
        end += 1440
    return _is_day(first, last, day) and begin <= minute < end


def _is_day(first: str | None, last: str | None, day: int) -> bool:
    if first is None:
        return True
    begin = DAYS.index(first.lower())
    end = DAYS.index((last or first).lower())
    return (day - begin) % 7 <= (end - begin) % 7
