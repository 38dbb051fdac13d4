"""Some rows of `sickbay sim partitions`: a healthy fleet is cut off, and nobody is harmed."""

from __future__ import annotations

import pytest

from sickbay.controller.outages import LASTS_S, Outages
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


def test_three_jobs_that_fail_alike_within_a_quarter_of_an_hour_fail_by_something_they_share() -> None:
    outages = Outages()
    outages.note("a", "STALLED", 0.0)
    outages.note("b", "STALLED", 300.0)
    assert outages.of("a", 300.0) == ""
    outages.note("c", "STALLED", 600.0)
    assert "fail alike" in outages.of("a", 600.0)
    assert outages.of("a", 600.0 + LASTS_S) == ""


def test_failures_of_other_kinds_or_one_job_that_fails_three_times_are_no_outage() -> None:
    outages = Outages()
    for at, how in enumerate(("STALLED", "DIED: out of memory", "DIED: no such file")):
        outages.note(f"job-{at}", how, float(at))
        outages.note("again", "STALLED", float(at))
    assert outages.of("again", 3.0) == ""


def test_an_outage_lasts_while_jobs_go_on_failing_by_it_and_ends_for_one_that_runs() -> None:
    outages = Outages()
    for job in ("a", "b", "c"):
        outages.note(job, "STALLED", 0.0)
    outages.note("a", "STALLED", LASTS_S - 1.0)
    assert outages.of("b", LASTS_S + 60.0)
    outages.forget("b")
    assert outages.of("b", LASTS_S + 60.0) == ""
