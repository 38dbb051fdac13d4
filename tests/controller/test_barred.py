"""Cases that a setting of none stops: one message says what waits, which setting, and the command."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.model import Notice, Verb
from sickbay.settings import Limit
from tests.builders import a_finding, a_node, a_policy
from tests.controller.door import Door, Shift

HOUR = 3_600.0
WIDE = Limit(percent=100.0)
TREATMENTS = (Verb.RESET_GPU, Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE)


def sick(count: int = 3, **policy: Any) -> Shift:
    names = [f"n{n}" for n in range(count)]
    free = {"max_out": WIDE, "max_out_fleet": WIDE, "max_out_rack": WIDE, "at_once": WIDE, "approval": ()}
    shift = Shift(Door(*(a_node(n) for n in names)), policy=a_policy(**{**free, **policy}))
    for name in names:
        shift.door.shows(name, findings=(a_finding("xid.79", node=name),))
    return shift


def told(shift: Shift) -> list[Notice]:
    return [n for n in shift.pager.told if "allows none" in n.title]


@pytest.mark.parametrize(
    ("policy", "setting"),
    [
        ({"at_once": Limit(percent=0.0)}, "at_once"),
        ({"per_window": {verb.value: 0 for verb in TREATMENTS}}, "per_window."),
    ],
)
def test_cases_that_a_setting_of_none_stops_are_one_notice_that_names_it(policy: dict[str, Any], setting: str) -> None:
    (note,) = told(sick(**policy).passes(HOUR))
    assert f"policy.{setting}" in note.title
    assert "3 cases wait" in note.title
    assert "n0.1, n1.1, n2.1" in note.body
    assert f"when policy.{setting}" in note.body
    assert "sickbay case abort n0.1" in note.body


def test_the_same_wait_is_not_told_again_within_the_day() -> None:
    assert len(told(sick(1, at_once=Limit(percent=0.0)).passes(6 * HOUR))) == 1


def test_a_limit_that_is_only_full_is_not_called_none() -> None:
    assert told(sick(3, at_once=Limit(count=1)).passes(HOUR)) == []
