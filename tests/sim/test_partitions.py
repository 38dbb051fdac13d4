"""Some rows of `sickbay sim partitions`: a healthy fleet is cut off, and nobody is harmed."""

from __future__ import annotations

import pytest

from sickbay.sim.partitions import play


@pytest.mark.parametrize("kind", ["control", "both", "power"])
def test_two_fifths_that_are_away_for_two_hours_are_left_alone_and_told_of_three_times_at_most(kind: str) -> None:
    row = play(32, kind, 0.4, 7_200.0)
    assert (row.cordons, row.treated, row.given_up, row.two_attempts) == (0, 0, 0, 0)
    assert 1 <= row.notices <= 3


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_no_job_is_given_up_for_a_fabric_that_is_cut_for_half_a_day(share: float) -> None:
    row = play(32, "data", share, 43_200.0)
    assert (row.cordons, row.treated, row.given_up) == (0, 0, 0)
