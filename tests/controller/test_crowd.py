"""Many sick nodes before a full limit: one message about them all, urgent enough, and a line in the log for each."""

from __future__ import annotations

import logging

import pytest

from sickbay.model import Command, Failed, Notice, Verb
from sickbay.settings import Limit
from tests.builders import a_finding, a_node, a_policy
from tests.controller.door import Door, Shift, busy

HOUR = 3_600.0
ONE_OUT = a_policy(max_out=Limit(count=1), max_out_fleet=Limit(), approval=())
CANNOT_WAIT = "xid.79"
CAN_WAIT = "xid.63"


def crowded(count: int = 41, code: str = CANNOT_WAIT) -> Shift:
    """The first node is out and stays out, all the others are sick."""
    names = [f"n{n:02}" for n in range(count)]
    shift = Shift(Door(*(a_node(n) for n in names)), policy=ONE_OUT)
    shift.door.says[Verb.DRAIN] = busy
    shift.door.shows("n00", findings=(a_finding(node="n00"),))
    shift.passes(5.0)
    for name in names[1:]:
        shift.door.shows(name, findings=(a_finding(code, node=name),))
    return shift


def full(shift: Shift) -> list[Notice]:
    return [n for n in shift.pager.told if "no more nodes may be taken out" in n.title]


def test_forty_that_wait_are_one_urgent_notice_that_names_them_and_what_to_do() -> None:
    shift = crowded().passes(300.0)
    (note,) = full(shift)
    assert note.level == "urgent"
    assert "40 sick nodes wait" in note.title
    assert "n01, n02, " in note.body
    assert "and 20 more" in note.body
    assert "1 of at most 1 nodes of pool:default are out (policy.max_out): n00." in note.body
    assert "raise policy.max_out" in note.body


def test_faults_that_can_wait_are_a_warning() -> None:
    (note,) = full(crowded(4, CAN_WAIT).passes(300.0))
    assert note.level == "warning"


def test_a_case_that_only_a_person_moves_is_named_as_what_keeps_the_place() -> None:
    shift = crowded(3)
    shift.door.says[Verb.DRAIN] = lambda _: Failed("a pod cannot be evicted")
    (note,) = full(shift.passes(300.0))
    assert "Waiting for a person, and keeping places: n00.1." in note.body


def test_the_same_crowd_is_not_told_again_within_the_day() -> None:
    assert len(full(crowded(5).passes(6 * HOUR))) == 1


def test_a_crowd_that_grew_is_told_again_after_an_hour() -> None:
    shift = crowded(5).passes(300.0)
    shift.door.nodes["n99"] = a_node("n99")
    shift.door.shows("n99", findings=(a_finding(node="n99"),))
    assert len(full(shift.passes(600.0))) == 1
    assert "5 sick nodes wait" in full(shift.passes(HOUR))[-1].title


def test_a_wait_that_ends_within_a_minute_is_worth_no_notice() -> None:
    shift = crowded(2)
    shift.passes(20.0)
    shift.door.shows("n01", findings=())
    shift.store.create(Command("c1", "abort", "n01.1", "anna", "mine", 0.0))
    assert full(shift.passes(300.0)) == []


def test_the_log_says_once_for_each_case_why_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sickbay"):
        crowded(4).passes(HOUR)
    lines = [r.getMessage() for r in caplog.records if "waits_for='1 of at most 1 nodes" in r.getMessage()]
    assert [line.split()[0] for line in lines] == ["case=n01.1", "case=n02.1", "case=n03.1"]


def test_cases_that_only_wait_for_a_place_do_not_keep_the_loop_awake() -> None:
    """They are looked at once a minute; six passes a minute for each hour of waiting were for nothing."""
    shift = crowded(3).passes(300.0)
    shift.door.says[Verb.DRAIN] = lambda _: Failed("a pod cannot be evicted")
    shift.passes(600.0)  # n00 is a person's now: nothing is under way
    before = shift.turns
    shift.passes(HOUR)
    assert shift.turns - before < 100
