"""Maintenance windows, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.controller.windows import DAYS, is_open, opens_in


def at(day: str, time: str) -> float:
    """The wall time of that day in a week that begins on Monday, 1 June 2026."""
    hour, minute = time.split(":")
    return datetime(2026, 6, 1 + DAYS.index(day.lower()), int(hour), int(minute), tzinfo=UTC).timestamp()


def test_without_windows_it_is_always_open() -> None:
    assert is_open((), at("mon", "12:00"))


@pytest.mark.parametrize(
    ("window", "day", "time", "is_it"),
    [
        ("02:00-05:00", "wed", "02:00", True),
        ("02:00-05:00", "wed", "04:59", True),
        ("02:00-05:00", "wed", "05:00", False),
        ("Mon-Fri 02:00-05:00", "fri", "03:00", True),
        ("Mon-Fri 02:00-05:00", "sat", "03:00", False),
        ("Sat 02:00-05:00", "sat", "03:00", True),
        ("Fri-Mon 02:00-05:00", "sun", "03:00", True),
        ("Fri-Mon 02:00-05:00", "tue", "03:00", False),
        ("Sat 22:00-04:00", "sat", "23:00", True),
        ("Sat 22:00-04:00", "sun", "03:59", True),
        ("Sat 22:00-04:00", "sun", "04:00", False),
        ("Sat 22:00-04:00", "sat", "03:00", False),
        ("Sun 22:00-04:00", "mon", "01:00", True),
        ("Thu 00:00-24:00", "thu", "23:59", True),
        ("Thu 00:00-24:00", "fri", "00:00", False),
        ("Thu 22:00-24:00", "thu", "21:59", False),
        ("every night", "thu", "13:37", False),
    ],
)
def test_a_window_is_open_when_its_words_say_so(window: str, day: str, time: str, is_it: bool) -> None:
    assert is_open((window,), at(day, time)) is is_it


def test_any_of_several_windows_is_enough() -> None:
    assert is_open(("Mon 02:00-03:00", "Tue 02:00-03:00"), at("tue", "02:30"))


@given(st.integers(0, 6), st.integers(0, 23), st.integers(0, 23), st.integers(0, 7 * 24 * 60 - 1))
def test_a_window_of_one_day_is_open_once_a_week_for_its_length(day: int, begin: int, end: int, minute: int) -> None:
    window = (f"{DAYS[day]} {begin:02}:00-{end:02}:00",)
    start = datetime(2026, 6, 1, tzinfo=UTC).timestamp()
    length = (end - begin) % 24 or 24
    inside = (minute - (day * 24 + begin) * 60) % (7 * 24 * 60) < length * 60
    assert is_open(window, start + minute * 60) is inside


@pytest.mark.parametrize(
    ("windows", "hours"),
    [
        ((), 0.0), (("02:00-05:00",), 14.0), (("11:00-13:00",), 0.0), (("Mon 02:00-05:00",), 158.0),
        (("Mon 12:00-11:00", "Tue 01:00-02:00"), 0.0), (("Mon 02:00-05:00", "Tue 01:00-02:00"), 13.0),
        (("every night",), float("inf")),
    ],
)  # fmt: skip
def test_the_next_window_is_so_far_away_on_a_monday_at_noon(windows: tuple[str, ...], hours: float) -> None:
    assert opens_in(windows, at("mon", "12:00")) == hours * 3600.0
