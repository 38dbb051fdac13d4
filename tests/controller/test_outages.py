"""Several jobs that fail alike within a quarter of an hour have something in common; one job that fails has not."""

from __future__ import annotations

from sickbay.controller.outages import Outages


def failed(*jobs: str, how: str = "no image", at: float = 0.0) -> Outages:
    outages = Outages()
    for job in jobs:
        outages.note(job, how, at)
    return outages


def test_three_jobs_that_fail_alike_share_an_outage() -> None:
    assert failed("a", "b", "c").of("a", 60.0) == "3 jobs failed alike within 15 minutes (no image)"


def test_two_do_not_and_one_that_fails_three_times_neither() -> None:
    assert failed("a", "b").of("a", 60.0) == ""
    assert failed("a", "a", "a").of("a", 60.0) == ""


def test_a_job_that_failed_otherwise_has_no_part_in_it() -> None:
    outages = failed("a", "b", "c")
    outages.note("d", "rank 3 exited with 1", 0.0)
    assert outages.of("d", 60.0) == ""


def test_what_is_longer_ago_does_not_count() -> None:
    assert failed("a", "b", "c").of("a", 901.0) == ""
