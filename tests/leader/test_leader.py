"""One brain at a time, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sickbay.controller.leader import FileLeader, SoloLeader
from sickbay.errors import StoreError

HOLD = """
import sys, time
from sickbay.controller.leader import FileLeader
leader = FileLeader(sys.argv[1])
print(leader.acquire(), flush=True)
sys.stdin.read()
"""
Spawn = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "leader.lock"


@pytest.fixture
def another(path: Path) -> Iterator[Spawn]:
    """Start another process that tries to lead and says whether it does."""
    children: list[subprocess.Popen[str]] = []

    def spawn() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(path)]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return children[-1]

    yield spawn
    for child in children:
        child.kill()
        child.communicate()


def _leads(child: subprocess.Popen[str]) -> bool:
    assert child.stdout is not None
    return child.stdout.readline() == "True\n"


def test_of_two_processes_one_leads(path: Path, another: Spawn) -> None:
    first, second = another(), another()
    assert sorted((_leads(first), _leads(second))) == [False, True]
    assert not FileLeader(path).acquire()


def test_asking_is_quick_when_somebody_else_leads(path: Path, another: Spawn) -> None:
    assert _leads(another())
    began = time.monotonic()
    assert not FileLeader(path).acquire()
    assert time.monotonic() - began < 1.0


def test_the_standby_takes_over_at_once_when_the_holder_is_killed(path: Path, another: Spawn) -> None:
    holder = another()
    assert _leads(holder)
    standby = FileLeader(path)
    assert not standby.acquire()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert standby.acquire()
    standby.release()


def test_the_holder_is_named_for_people(path: Path, another: Spawn) -> None:
    holder = another()
    assert FileLeader(path).holder() == ""
    assert _leads(holder)
    assert f"pid {holder.pid} on " in FileLeader(path).holder()


def test_a_leader_stays_leader_and_may_let_go(path: Path) -> None:
    ours, theirs = FileLeader(path), FileLeader(path)
    assert ours.acquire()
    assert ours.acquire()
    assert not theirs.acquire()
    ours.release()
    ours.release()
    assert theirs.acquire()
    assert not ours.acquire()
    theirs.release()


def test_a_leader_whose_lock_file_was_removed_does_not_lead_beside_another(path: Path, another: Spawn) -> None:
    ours = FileLeader(path)
    assert ours.acquire()
    path.unlink()
    assert _leads(another())
    assert not ours.acquire()


def test_a_leader_whose_lock_file_was_removed_takes_the_new_one_if_it_is_free(path: Path) -> None:
    ours = FileLeader(path)
    assert ours.acquire()
    path.unlink()
    assert ours.acquire()
    assert not FileLeader(path).acquire()
    ours.release()


def test_a_forked_child_does_not_think_it_leads_nor_free_the_lock(path: Path) -> None:
    ours = FileLeader(path)
    assert ours.acquire()
    child = os.fork()
    if child == 0:
        os._exit(1 if ours.acquire() else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not FileLeader(path).acquire()
    ours.release()


def test_a_place_where_no_file_can_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot open the leader's lock file"):
        FileLeader(tmp_path / "file" / "leader.lock").acquire()


def test_the_solo_leader_always_leads() -> None:
    leader = SoloLeader()
    assert leader.acquire()
    leader.release()
    assert leader.acquire()
