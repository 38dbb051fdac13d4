"""No process, no socket, no descriptor stays behind, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sickbay.sim.trainer import Gang, Nursery

PATIENCE_S = 60.0

STARTS_A_GANG = """
import json, sys, time
from pathlib import Path
from sickbay.sim.trainer import Gang
gang = Gang(Path(sys.argv[1]), "job", 3, seed=1, total_steps=100, checkpoint_every=10)
gang.start(1, None)
gang.grant(5)
gang.hang([1])
gang.grant(1)
print(json.dumps([gang._nursery.pid(), *gang.pids().values()]), flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    """A zombie that nobody has waited for yet does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pids: list[int]) -> list[int]:
    deadline = time.monotonic() + PATIENCE_S
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.005)
    return left


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@linux_only
def test_stop_ends_every_rank_also_a_hung_one_and_closes_everything(tmp_path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    gang = Gang(tmp_path, "job", 3, seed=1, total_steps=100, checkpoint_every=10)
    gang.start(1, None)
    gang.grant(5)
    gang.hang([1])
    pids = [*gang.pids().values(), gang._nursery.pid() or 0]
    assert all(is_running(pid) for pid in pids)
    gang.stop()
    assert not [pid for pid in pids if is_running(pid)]
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert gang.exits() == dict.fromkeys(range(3), -signal.SIGKILL)
    gang.stop()


@linux_only
@pytest.mark.parametrize("killed", ["starter", "forker"])
def test_nothing_survives_the_death_of_its_parent(tmp_path: Path, killed: str) -> None:
    command = [sys.executable, "-c", STARTS_A_GANG, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as starter:
        assert starter.stdout
        pids = json.loads(starter.stdout.readline())
        assert len(pids) == 4
        if killed == "forker":
            os.kill(pids[0], signal.SIGKILL)
            assert not wait_until_gone(pids)
        starter.kill()
    assert not wait_until_gone(pids)


@linux_only
def test_a_forker_that_was_killed_does_not_break_stop(tmp_path: Path) -> None:
    with Nursery() as nursery:
        gang = Gang(tmp_path, "job", 2, seed=1, total_steps=20, checkpoint_every=10, nursery=nursery)
        gang.start(1, None)
        pids = list(gang.pids().values())
        os.kill(nursery.pid() or 0, signal.SIGKILL)
        assert not wait_until_gone(pids)
        assert gang.grant(5) == 0
        gang.stop()
        assert not any(gang.alive().values())
        gang.start(2, None)
        assert gang.grant(5) == 5
    gang.stop()
    assert nursery.pid() is None


def test_the_package_needs_no_numpy_until_something_trains() -> None:
    code = "import sys; sys.modules['numpy'] = None; import sickbay.sim.trainer"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)
