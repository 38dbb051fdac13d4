"""Time for people: a wall time, always UTC and always saying so, and how long something lasts. Pure.

Called by all of core that writes sentences, and by cli/words.py.
"""

from __future__ import annotations

from datetime import UTC, datetime

ENDS = 253_402_300_800.0  # the year 10000, where calendars end


def moment(at: float) -> str:
    """Whatever anybody wrote: a pause `until` a number of milliseconds kept a whole fleet from being treated."""
    if not 0.0 <= at < ENDS:
        return f"a time that no calendar has ({at:g})"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


UNITS = ((60.0, 1.0, "second"), (7_170.0, 60.0, "minute"), (172_800.0, 3_600.0, "hour"))  # below, size, name


def how_long(seconds: float) -> str:
    """ "45 seconds", "90 minutes", "24 hours", "2.5 days": minutes up to two hours, hours up to two days."""
    left = max(0.0, seconds)
    size, name = next(((size, name) for below, size, name in UNITS if left < below), (86_400.0, "day"))
    number = round(left / size, 1 if size > 60.0 and left < 10 * size else 0)
    return f"{number:g} {name}" if number == 1 else f"{number:g} {name}s"
