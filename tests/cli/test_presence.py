"""Whether a controller is running is read off the lead's lock: a fresh record proves nothing, nor does an old one."""

from __future__ import annotations

import re
import time

from .builders import Bay, a_ledger


def test_one_that_stopped_a_moment_ago_does_not_lead_and_may_be_in_trouble(bay: Bay) -> None:
    """It said "No controller is running" of one that was alive and waited five seconds for a full disk."""
    bay.put(a_ledger(time.time()))
    said = " ".join(bay.run("nodes").out.split())
    words = r"No controller leads just now \(its last pass on record was \d+ s ago\): none is running, or one is in"
    assert re.search(words, said)
    assert "No controller is running" not in said


def test_where_none_has_led_yet_that_is_said(bay: Bay) -> None:
    assert "No controller leads just now (none has noted a pass on this store yet)" in bay.run("nodes").out


def test_one_that_has_just_begun_and_noted_nothing_is_running(bay: Bay) -> None:
    with bay.led():
        assert "The controller is running (pid" in bay.run("nodes").out


def test_one_that_last_noted_a_pass_minutes_ago_is_running(bay: Bay) -> None:
    bay.put(a_ledger(time.time() - 400.0))
    with bay.led():
        said = bay.run("nodes").out
    assert "The controller is running (pid" in said
    assert "its last pass on record was" in said


def test_one_that_holds_the_lead_and_does_not_get_on_is_told(bay: Bay) -> None:
    bay.put(a_ledger(time.time() - 3_600.0))
    with bay.led():
        assert "does not get on" in bay.run("nodes").out


def test_where_the_lock_cannot_be_read_nobody_claims_to_know(bay: Bay) -> None:
    (bay.path.parent / "leader.lock").symlink_to("leader.lock")
    assert "Whether a controller is running cannot be seen" in bay.run("nodes").out


def test_a_look_does_not_take_the_lead(bay: Bay) -> None:
    with bay.led():
        pass
    bay.run("nodes")
    with bay.led():
        pass
