"""The meeting place admits only this attempt's ranks, and listens on loopback only."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from sickbay.sim.trainer.leash import Leash
from sickbay.sim.trainer.lines import Lines
from sickbay.sim.trainer.spec import Spec
from sickbay.sim.trainer.star import HELLO, Star

TOKEN = "a" * 64


def a_spec(rank: int, port: int, ranks: int = 3) -> Spec:
    return Spec(
        jobdir="",
        job="job",
        rank=rank,
        ranks=ranks,
        attempt=1,
        seed=1,
        total_steps=1,
        checkpoint_every=1,
        step_work=1,
        keep=1,
        resume="",
        from_step=0,
        raise_at=0,
        port=port,
        token=TOKEN,
        watchdog_s=60.0,
    )


@pytest.fixture
def leash() -> object:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Leash(Lines(ours), 0, 0)


def close(star: Star) -> None:
    for sock in star._peers.values():
        sock.close()


def test_a_stranger_and_a_rank_of_another_attempt_are_not_let_in(leash: Leash) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        hub = pool.submit(Star, a_spec(0, port), leash, listener)
        stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 5)
        nobody = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        nobody.sendall(HELLO.pack(TOKEN.encode(), 3))  # there is no rank 3 of 3
        old = Star(replace(a_spec(2, port), token="b" * 64), leash, None)
        stack.callback(close, old)
        ranks = [Star(a_spec(rank, port), leash, None) for rank in (2, 1)]
        stars = [hub.result(timeout=60), *ranks]
        for star in stars:
            stack.callback(close, star)
        tasks = [pool.submit(star.all_reduce, np.array([3.0 * star.spec.rank])) for star in reversed(stars)]
        assert [task.result(timeout=60).tolist() for task in tasks] == [[3.0]] * 3


def test_the_sum_is_taken_in_rank_order_whatever_arrives_first(leash: Leash) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    parts = [np.array([1e16]), np.array([1.0]), np.array([-1e16])]  # any other order gives another answer
    with ThreadPoolExecutor() as pool:
        hub = pool.submit(Star, a_spec(0, port), leash, listener)
        others = [Star(a_spec(rank, port), leash, None) for rank in (1, 2)]
        last = pool.submit(others[1].all_reduce, parts[2])
        first = pool.submit(hub.result(timeout=60).all_reduce, parts[0])
        middle = pool.submit(others[0].all_reduce, parts[1])
        answers = [task.result(timeout=60) for task in (first, middle, last)]
        for star in (hub.result(), *others):
            close(star)
    expected = ((parts[0] + parts[1]) + parts[2]) / 3
    assert [answer.tobytes() for answer in answers] == [expected.tobytes()] * 3
