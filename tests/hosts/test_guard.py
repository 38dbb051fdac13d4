"""Calls that may not come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from sickbay.hosts.guard import Guard


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Closed during the test; opened at its end, so that nobody stays behind it."""
    event = threading.Event()
    yield event
    event.set()


def test_an_answer_comes_through() -> None:
    assert Guard().call("q", lambda: 42, 5) == 42


def test_what_raises_is_no_answer_and_the_next_question_is_asked() -> None:
    guard = Guard()
    assert guard.call("q", lambda: 1 / 0, 5) is None
    assert guard.call("q", lambda: "again", 5) == "again"


def test_a_question_that_does_not_come_back_is_asked_only_once(gate: threading.Event) -> None:
    guard, asked = Guard(), []

    def work() -> bool:
        asked.append(1)
        return gate.wait(30)

    assert guard.call("q", work, 0.05) is None
    began = time.monotonic()
    assert guard.call("q", work, 30) is None
    assert time.monotonic() - began < 1
    assert len(asked) == 1
    assert guard.call("another", lambda: 1, 5) == 1
    assert guard.out() == ("q",)


def test_it_is_asked_again_once_it_came_back(gate: threading.Event) -> None:
    guard = Guard()
    guard.call("q", lambda: gate.wait(30), 0.05)
    gate.set()
    end = time.monotonic() + 10
    while guard.out() and time.monotonic() < end:
        time.sleep(0.005)
    assert guard.call("q", lambda: 7, 5) == 7


def test_the_number_of_threads_given_up_is_bounded(gate: threading.Event) -> None:
    guard = Guard(most_out=3)
    before = threading.active_count()
    for number in range(10):
        assert guard.call(f"q{number}", lambda: gate.wait(30), 0.01) is None
    assert len(guard.out()) == 3
    assert threading.active_count() <= before + 4


def test_many_questions_need_one_thread() -> None:
    guard = Guard()
    before = threading.active_count()
    for number in range(200):
        guard.call(str(number), lambda: None, 5)
    assert threading.active_count() <= before + 1
