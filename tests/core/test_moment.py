"""How long something lasted, in the words of a notice: nobody should have to divide 1440 by 60 at night."""

from __future__ import annotations

import pytest

from sickbay.core import reminders
from sickbay.core.moment import how_long, moment
from sickbay.model import Pause, Phase
from tests.builders import a_policy
from tests.core.bedside import Bedside


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 seconds"), (1.0, "1 second"), (45.0, "45 seconds"), (60.0, "1 minute"), (599.0, "10 minutes"),
        (3_600.0, "60 minutes"), (7_199.0, "2 hours"), (7_200.0, "2 hours"), (9_000.0, "2.5 hours"),
        (86_400.0, "24 hours"), (172_799.0, "48 hours"), (172_800.0, "2 days"), (216_000.0, "2.5 days"),
        (604_800.0, "7 days"), (-3.0, "0 seconds"),
    ],
)  # fmt: skip
def test_a_length_of_time_is_told_in_the_largest_unit_that_is_easy_to_read(seconds: float, words: str) -> None:
    assert how_long(seconds) == words


@pytest.mark.parametrize("at", [1_795_065_523_835.0, 1e300, float("inf"), float("nan"), -1.0])
def test_a_time_that_no_calendar_has_is_said_to_be_one_and_stops_nobody(at: float) -> None:
    """Somebody paused a node until a number of milliseconds: no node of the fleet was treated any more."""
    assert moment(at).startswith("a time that no calendar has")
    until = Pause("node:n9", "ann", "typo", since=0.0, until=at)
    assert reminders.due([until], [], {}, 1_790_000_000.0) is not None


def test_a_case_that_waited_for_a_day_says_a_day_and_not_so_many_minutes() -> None:
    """It read "was waiting for 1440 minutes"."""
    bed = Bedside(policy=a_policy(waiting_s=86_400.0)).finds("xid.79")
    assert bed.refuses().waits(86_400.0).phase is Phase.DEFERRED
    assert bed.case.journal[-1].why.startswith(
        "n1 was waiting for its turn to be taken out for 24 hours, longer than allowed"
    )
