"""Several jobs that fail alike within a quarter of an hour have something in common; one job that fails has not."""

from __future__ import annotations

from sickbay.controller.jobs import _how as how
from sickbay.controller.outages import Outages
from sickbay.core.outages import LASTS_S
from sickbay.model import Entry


def failed(*jobs: str, how: str = "no image", at: float = 0.0) -> Outages:
    outages = Outages()
    for job in jobs:
        outages.note(job, how, at)
    return outages


def test_three_jobs_that_fail_alike_share_an_outage() -> None:
    said = failed("a", "b", "c").of("a", 60.0)
    assert said == "several jobs fail alike, so it is something that they share (no image)"


def test_two_do_not_and_one_that_fails_three_times_neither() -> None:
    assert failed("a", "b").of("a", 60.0) == ""
    assert failed("a", "a", "a").of("a", 60.0) == ""


def test_a_job_that_failed_otherwise_has_no_part_in_it() -> None:
    outages = failed("a", "b", "c")
    outages.note("d", "rank 3 exited with 1", 0.0)
    assert outages.of("d", 60.0) == ""


def test_failures_that_lie_further_apart_do_not_count() -> None:
    outages = failed("a", "b")
    outages.note("c", "no image", 901.0)
    assert outages.of("c", 901.0) == ""


def test_it_lasts_while_jobs_go_on_failing_by_it_and_ends_for_one_that_runs() -> None:
    outages = failed("a", "b", "c")
    outages.note("a", "no image", LASTS_S - 1.0)
    assert outages.of("b", LASTS_S + 60.0)
    outages.forget("b")
    assert outages.of("b", LASTS_S + 60.0) == ""
    assert outages.of("a", 2 * LASTS_S) == ""


def test_jobs_that_our_drains_ended_at_the_same_time_share_nothing() -> None:
    """Three sick nodes within a quarter of an hour were an outage, and what they ended was not counted."""
    assert how(Entry(3, "DRAINED", 0.0, "sickbay", "why"), None) == ""
    assert failed("a", "b", "c", how="").of("a", 60.0) == ""


def test_a_job_that_a_drain_ended_has_no_part_in_what_it_failed_by_before() -> None:
    outages = failed("a", "b", "c")
    outages.note("a", "", 60.0)
    assert (outages.of("a", 60.0), bool(outages.of("b", 60.0))) == ("", True)


def test_the_nodes_of_the_attempt_that_failed_are_known_until_the_job_runs_again() -> None:
    outages = failed("a")
    outages.note("a", "no image", 60.0, ("n1", "n2"))
    assert outages.ended_on("a") == ("n1", "n2")
    outages.forget("a")
    assert outages.ended_on("a") == ()
