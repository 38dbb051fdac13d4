"""Work in a thread that can be given up."""

from __future__ import annotations

import threading
import time

import pytest

from sickbay.agent.guard import Guard, Stuck, TooManyStuck

SOON_S = 0.05


def test_an_answer_comes_through_and_so_does_an_error() -> None:
    guard = Guard()
    assert guard.run("a", lambda: 7, 10.0) == 7
    with pytest.raises(ZeroDivisionError):
        guard.run("a", lambda: 1 // 0, 10.0)
    guard.stop()


def test_what_hangs_is_left_behind_and_the_next_work_runs() -> None:
    """originals 002.12 #11: a hung nvidia-smi hung the agent for ever."""
    guard, release = Guard(), threading.Event()
    assert isinstance(guard.run("hung", release.wait, SOON_S), Stuck)
    assert guard.run("well", lambda: "fine", 10.0) == "fine"
    assert guard.stuck() == ("hung",)
    release.set()
    guard.stop()


def test_what_still_hangs_is_not_tried_again_until_it_comes_back() -> None:
    guard, release, calls = Guard(), threading.Event(), []

    def work() -> str:
        calls.append(1)
        release.wait()
        return "back"

    for _ in range(5):
        assert isinstance(guard.run("hung", work, SOON_S), Stuck)
    assert len(calls) == 1
    release.set()
    until = time.monotonic() + 10.0
    while guard.stuck() and time.monotonic() < until:
        threading.Event().wait(0.005)
    assert guard.run("hung", work, 10.0) == "back"
    guard.stop()


def test_too_many_left_behind_is_a_case_for_a_new_process() -> None:
    guard, release = Guard(most_stuck=2), threading.Event()
    for name in ("one", "two"):
        guard.run(name, release.wait, SOON_S)
    with pytest.raises(TooManyStuck, match="one, two, three"):
        guard.run("three", release.wait, SOON_S)
    release.set()
    guard.stop()


def test_stopping_lets_the_one_who_waits_go_at_once() -> None:
    guard, release = Guard(), threading.Event()
    timer = threading.Timer(SOON_S, guard.stop)
    timer.start()
    begun = time.monotonic()
    assert isinstance(guard.run("long", release.wait, 60.0), Stuck)
    assert time.monotonic() - begun < 10.0
    release.set()
    timer.join()
