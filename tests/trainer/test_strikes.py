"""Ranks that are struck really die or really hang, and the others really notice."""

from __future__ import annotations

import signal
import time

import pytest

from sickbay.errors import UserError
from sickbay.sim.trainer import Gang
from tests.trainer.conftest import MakeGang

WATCHDOG = "Watchdog caught collective operation timeout"
LONG_S = 120.0  # a grant that knows better returns long before


def said(gang: Gang, rank: int, text: str) -> int:
    return sum(text in line for line in gang.logs(rank))


def test_when_a_rank_is_killed_the_others_die_of_a_reset_connection(make_gang: MakeGang) -> None:
    gang = make_gang()
    gang.start(1, None)
    gang.grant(4)
    gang.kill([1])
    assert gang.alive() == {0: True, 1: False, 2: True}
    assert gang.grant(5, LONG_S) == 4
    assert gang.exits() == {0: 1, 1: -signal.SIGKILL, 2: 1}
    assert gang.logs(0)[-1] == gang.logs(2)[-1] == "ConnectionResetError: [Errno 104] Connection reset by peer"
    assert said(gang, 0, "Traceback (most recent call last):") == 1
    assert said(gang, 1, "Traceback") == 0


@pytest.mark.parametrize("hung", [0, 2])
def test_when_a_rank_hangs_all_but_the_silent_one_log_the_watchdog(make_gang: MakeGang, hung: int) -> None:
    gang = make_gang(ranks=4)
    gang.start(1, None)
    gang.grant(4)
    gang.hang([hung])
    began = time.monotonic()
    assert gang.grant(5, LONG_S) == 4
    assert time.monotonic() - began < LONG_S / 2
    assert all(gang.alive().values())
    assert [rank for rank in range(4) if not said(gang, rank, WATCHDOG)] == [hung]


def test_a_second_grant_to_a_hung_gang_says_nothing_twice(make_gang: MakeGang) -> None:
    gang = make_gang()
    gang.start(1, None)
    gang.hang([1])
    gang.hang([1, 1])
    assert gang.grant(5, LONG_S) == gang.grant(5, LONG_S) == 0
    assert said(gang, 0, WATCHDOG) == said(gang, 2, WATCHDOG) == 1


def test_the_time_out_is_told_only_when_its_time_has_come(make_gang: MakeGang) -> None:
    gang = make_gang(say_time_out=False)
    gang.start(1, None)
    gang.hang([1])
    gang.grant(5, LONG_S)
    assert said(gang, 0, WATCHDOG) == 0
    gang.expire(1_800_000, abort=True)
    assert said(gang, 0, "Timeout(ms)=1800000) ran for 1800001 milliseconds") == 1
    assert gang.exits() == {0: -signal.SIGABRT, 1: None, 2: -signal.SIGABRT}


def test_a_gang_that_is_stopped_while_it_waits_ends_by_our_signal_alone(make_gang: MakeGang) -> None:
    gang = make_gang(ranks=8)
    gang.start(1, None)
    gang.hang([0])
    gang.grant(1, LONG_S)
    gang.stop()
    assert gang.exits() == dict.fromkeys(range(8), -signal.SIGKILL)
    assert not any(said(gang, rank, "Traceback") for rank in range(8))


def test_a_hung_rank_that_wakes_up_lets_the_gang_go_on(make_gang: MakeGang) -> None:
    gang, calm = make_gang("hung"), make_gang("calm")
    gang.start(1, None)
    gang.grant(4)
    gang.hang([2])
    assert gang.grant(8, LONG_S) == 4
    gang.wake([2])
    assert gang.step == 12
    assert gang.grant(30) == 30
    calm.start(1, None)
    calm.grant(30)
    assert gang.digest() == calm.digest()


def test_a_real_watchdog_aborts_a_rank_that_waits_too_long(make_gang: MakeGang) -> None:
    gang = make_gang(ranks=2, watchdog_s=0.2)
    gang.start(1, None)
    gang.grant(2)
    gang.hang([1])
    gang.grant(5, LONG_S)
    deadline = time.monotonic() + LONG_S
    while gang.alive()[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gang.exits() == {0: -signal.SIGABRT, 1: None}
    assert said(gang, 0, "Timeout(ms)=200)") == 1


def test_a_bug_in_user_code_fails_with_the_same_traceback_at_the_same_step_twice(make_gang: MakeGang) -> None:
    gang = make_gang(raise_at=(1, 15))
    tracebacks = []
    for attempt, resume in ((1, None), (2, 10)):
        gang.start(attempt, resume)
        assert gang.grant(30, LONG_S) == 14
        assert gang.exits()[1] == 1
        lines = gang.logs(1)
        tracebacks.append(lines[lines.index("Traceback (most recent call last):") :])
        gang.stop()
    assert tracebacks[0] == tracebacks[1]
    assert tracebacks[0][-1] == "ZeroDivisionError: division by zero"
    assert any("user_step" in line for line in tracebacks[0])


def test_heartbeats_tell_the_step_of_every_rank(make_gang: MakeGang) -> None:
    gang = make_gang()
    gang.start(1, None)
    assert gang.heartbeats() == {0: 0, 1: 0, 2: 0}
    gang.grant(7)
    assert gang.heartbeats() == {0: 7, 1: 7, 2: 7}


def test_a_gang_that_still_runs_is_not_started_again(make_gang: MakeGang) -> None:
    gang = make_gang()
    gang.start(1, None)
    with pytest.raises(UserError, match="still runs"):
        gang.start(2, None)
    assert gang.grant(3) == 3


def test_a_rank_that_does_not_exist_cannot_be_struck(make_gang: MakeGang) -> None:
    gang = make_gang()
    gang.start(1, None)
    with pytest.raises(UserError, match="ranks 0 to 2"):
        gang.kill([3])
