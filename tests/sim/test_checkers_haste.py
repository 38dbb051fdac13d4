"""A controller that never rests is seen, also where nothing moves. No brain runs."""

from __future__ import annotations

import pytest

from sickbay.sim.checkers.haste import FUTILE, NEWS
from tests.sim.test_checkers_outages import complaints, unwatched


@pytest.mark.parametrize(("every_s", "complained"), [(10.0, False), (2.0, True)])
def test_it_makes_more_passes_in_an_hour_than_anything_calls_for(every_s: float, complained: bool) -> None:
    ward = unwatched()
    for _ in range(int(2 * 3600 / every_s)):
        ward.passes(every_s)
        ward.judge.look()
    assert bool(complaints(ward, "FewPasses")) is complained


def test_a_circle_is_told_once_and_ends_the_seed() -> None:
    ward = unwatched()
    for _ in range(FUTILE * 2 * NEWS):
        ward.judge.look()
    assert ward.judge.is_futile
    assert [said for said in ward.judge.violations if "it never rests" in said] == ward.judge.violations[:1]
