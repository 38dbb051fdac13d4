"""What rests with a person again, for the reason that they know, is told once."""

from __future__ import annotations

import pytest

from sickbay.core import steps
from sickbay.model import Entry, Phase
from tests.builders import a_case

WHY = "dcgm-l2 gave no answer"
EXAMINED = Entry(5, "EXAMINED", 20.0, "sickbay", "it was away and answers again", Phase.CORDONING.value)


def rested(why: str, step: int = 9) -> Entry:
    return Entry(step, "INCONCLUSIVE", 10.0 * step, "sickbay", why, Phase.ESCALATED.value)


@pytest.mark.parametrize(
    ("between", "why", "known"),
    [
        ([EXAMINED], WHY, True),
        ([EXAMINED], "all checks pass, but a person decides", False),
        ([Entry(5, "EXAMINED", 20.0, "alice", "look again", Phase.CORDONING.value)], WHY, False),
        ([EXAMINED, Entry(6, "MERGED", 21.0, "sickbay", "also GPU lost", Phase.VERIFYING.value)], WHY, False),
    ],
    ids=["as before", "for another reason", "a person asked", "with another fault"],
)
def test_what_rests_with_a_person_as_before_is_not_told_again(between: list[Entry], why: str, known: bool) -> None:
    case = a_case(Phase.ESCALATED, journal=(rested(WHY, 4), *between, rested(why)))
    assert steps._is_theirs_as_before(case, why) is known


def test_the_first_time_it_is_told() -> None:
    assert not steps._is_theirs_as_before(a_case(Phase.ESCALATED, journal=(rested(WHY),)), WHY)
