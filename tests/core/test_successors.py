"""Machines that come sick, one after the other: counted by pool until one is well, a day is over, a person decides."""

from __future__ import annotations

from typing import Any

from sickbay.core import explain, successors
from sickbay.core.machine import note
from sickbay.model import Case, Ledger, Notice, Phase, Verb
from tests.builders import a_case, an_action

DAY = 86_400.0


def came(phase: Phase = Phase.QUEUED, since: float | None = 0.0, **changed: Any) -> Case:
    return successors.noted(a_case(phase, **changed), since, 600.0, 0.0)


def test_the_third_in_a_row_is_for_a_person_with_what_to_do() -> None:
    assert successors.why_not(came(), 1) == ""
    why = successors.why_not(came(), 2)
    assert "3 machines in a row came sick to pool default" in why
    assert "sickbay case approve n1.1 --verb REPLACE" in why


def test_a_node_that_was_there_before_us_is_of_no_row() -> None:
    assert successors.why_not(came(since=None), 8) == ""


def test_a_row_is_over_when_one_was_well_or_a_day_has_passed() -> None:
    ledger = successors.sent_away(successors.sent_away(Ledger(), "gpu", 10.0), "gpu", 20.0)
    assert successors.row(ledger, "gpu", 30.0) == (10.0, 20.0)
    assert successors.row(ledger, "other", 30.0) == ()
    assert successors.row(ledger, "gpu", 20.0 + DAY) == ()
    assert successors.row(successors.proved(ledger, "gpu"), "gpu", 30.0) == ()


def test_what_is_kept_of_a_row_is_bounded() -> None:
    ledger = Ledger()
    for at in range(100):
        ledger = successors.sent_away(ledger, "gpu", float(at))
    assert len(successors.row(ledger, "gpu", 100.0)) == successors.MOST + 1


def test_one_that_is_going_counts_for_those_that_come_to_their_turn_meanwhile() -> None:
    assert successors.is_of_a_row(came(Phase.REPAIRING, pending=an_action(Verb.REPLACE)))
    assert not successors.is_of_a_row(came(Phase.REPAIRING, pending=an_action(Verb.REBOOT)))
    assert not successors.is_of_a_row(came(Phase.REPAIRING, since=None, pending=an_action(Verb.REPLACE)))


def test_one_that_rests_with_a_person_over_it_counts_too_and_makes_the_next_one_no_urgent_news() -> None:
    case = came(Phase.ESCALATED)
    assert not successors.is_of_a_row(case)
    resting = note(case, "EXHAUSTED", at=0.0, by="sickbay", why=successors.why_not(came(), 2))
    assert successors.is_of_a_row(resting)
    notice = Notice("n1.1/4", "urgent", "n1: lost", "body", "n1.1")
    assert [explain.came_sick(notice, case, known=known).level for known in (False, True)] == ["urgent", "warning"]
