"""Commands under guard: limits hold, nothing is left behind, and what cannot be killed does not stop us."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sickbay.hosts.child import Children, members, tool_of
from sickbay.hosts.streams import BOUND
from tests.hosts.hole import Hole, dig


@pytest.fixture
def hole(tmp_path: Path) -> Iterator[Hole]:
    folder = tmp_path / "hole"
    folder.mkdir()
    dug = dig(folder)
    yield dug
    dug.close()


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code)


def eventually(true: Callable[[], bool], within_s: float = 10.0) -> bool:
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def open_files() -> int:
    """Without sockets: a child has none, and other tests of this process may have left a connection in the air."""
    return sum(not _target(fd).startswith("socket:") for fd in os.listdir("/proc/self/fd"))


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return "socket: closed meanwhile"


def children_of_ours() -> int:
    return len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_a_command_is_an_argv_and_no_shell() -> None:
    done = Children().run(("echo", "a; echo $HOME", "b"), 5)
    assert (done.code, done.stdout, done.stderr, done.timed_out) == (0, "a; echo $HOME b\n", "", False)


def test_both_streams_and_the_exit_code_are_told_apart() -> None:
    done = Children().run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"), 10)
    assert (done.code, done.stdout, done.stderr) == (7, "out\n", "err\n")


@pytest.mark.parametrize("argv", [("no-such-tool-here",), ("/no/such/file",), ("/dev/null/x",)])
def test_a_tool_that_is_not_there_is_missing(argv: tuple[str, ...]) -> None:
    done = Children().run(argv, 5)
    assert done.missing
    assert done.code is None


@pytest.mark.parametrize("argv", [(), ("",), ("a\0b",), ("/etc/hostname",), ("/tmp",)])
def test_what_cannot_be_run_is_an_answer_and_not_an_exception(argv: tuple[str, ...]) -> None:
    done = Children().run(argv, 5)
    assert done.missing or done.code == 126


def test_a_killed_command_has_a_negative_code() -> None:
    assert Children().run(python("import os; os.kill(os.getpid(), 9)"), 10).code == -9


def test_a_flood_is_cut_in_the_middle_and_says_so() -> None:
    done = Children().run(python(f"print('first'); print('x' * {BOUND + 500_000}); print('last')"), 30)
    assert done.stdout.startswith("first\n")
    assert done.stdout.endswith("last\n")
    assert "[sickbay: output cut here, " in done.stdout
    assert len(done.stdout.encode()) <= BOUND


def test_the_time_limit_ends_the_whole_group() -> None:
    """A child of the child, deaf to SIGTERM, dies too. originals 002.12 #11: a check that hangs hung their agent."""
    deaf = "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    parent = f"import subprocess,sys; subprocess.run([sys.executable, '-S', '-c', {deaf!r}])"
    began = time.monotonic()
    done = Children(grace_s=0.5).run(python(parent), 1.0)
    assert done.timed_out
    assert not done.stuck
    assert done.code is None
    assert "deaf" in done.stdout
    assert time.monotonic() - began < 5


def test_what_a_command_leaves_running_neither_delays_nor_outlives_it() -> None:
    began = time.monotonic()
    done = Children().run(("sh", "-c", "echo $$; sleep 600 & exit 3"), 30)
    assert done.code == 3
    assert time.monotonic() - began < 5
    assert eventually(lambda: not members(int(done.stdout)))


def test_a_daemon_that_keeps_the_pipes_open_does_not_hold_us_up() -> None:
    began = time.monotonic()
    done = Children().run(("sh", "-c", "echo up; setsid -f sleep 4"), 30)
    assert done.stdout == "up\n"
    assert time.monotonic() - began < 3


def test_200_time_outs_leave_no_descriptor_no_thread_and_no_zombie() -> None:
    children = Children(grace_s=0.5)
    children.run(("true",), 5)
    files, threads, zombies = open_files(), threading.active_count(), children_of_ours()
    for _ in range(200):
        assert children.run(("sleep", "60"), 0.005).timed_out
    assert eventually(lambda: (open_files(), children_of_ours()) == (files, zombies))
    assert eventually(lambda: threading.active_count() == threads)


def test_a_process_in_d_state_is_left_behind_and_its_tool_not_started_again(hole: Hole) -> None:
    """originals 003.5 #5 and 002.12 #11: the commonest failure is a tool that hangs in the driver."""
    children = Children(grace_s=0.3)
    files = open_files()
    first = children.run(("ls", str(hole.folder / "x")), 0.3)
    assert (first.timed_out, first.stuck, first.code) == (True, True, None)
    assert eventually(lambda: open_files() == files)
    pid = in_hole(hole)
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "D"

    began = time.monotonic()
    again = children.run(("ls", str(hole.folder / "x")), 30)
    assert again.stuck
    assert f"process {pid}" in again.stderr
    assert time.monotonic() - began < 0.2
    assert children.run(("ls", "/"), 5).code == 0

    hole.close = lambda: None  # type: ignore[method-assign]  # closed here, and once
    Hole.close(hole)
    assert eventually(lambda: not children.left_behind())
    assert not Path(f"/proc/{pid}").exists()


def in_hole(hole: Hole) -> int:
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                words = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                if int(words[1]) == os.getpid() and words[0] == "D":
                    return int(name)
            except OSError:
                continue
    raise AssertionError("nobody is in the hole")


def test_a_grandchild_in_d_state_counts_as_stuck_too(hole: Hole) -> None:
    """As `sudo nvidia-smi`: the wrapper dies, what it wrapped does not."""
    children = Children(grace_s=0.3)
    done = children.run(("sh", "-c", f"ls {hole.folder}/x; echo out"), 0.3)
    assert done.stuck
    assert children.left_behind() == ("sh",)


def test_a_program_on_a_dead_file_system_does_not_stop_us(hole: Hole) -> None:
    """The exec itself hangs: neither this thread nor any other may wait for it."""
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.02):
            ticks.append(time.monotonic())

    ticker = threading.Thread(target=tick)
    ticker.start()
    children = Children(grace_s=0.2)
    done = children.run((str(hole.folder / "tool"),), 0.3)
    stop.set()
    ticker.join()
    assert done.stuck
    assert len(ticks) > 5
    assert children.run((str(hole.folder / "tool"),), 30).stuck


def test_a_hung_tool_is_one_tool_and_a_hung_path_one_path() -> None:
    assert tool_of(("/usr/bin/nvidia-smi", "-q")) == tool_of(("nvidia-smi", "topo", "-m")) == "nvidia-smi"
    assert tool_of(("stat", "-f", "/fsx")) != tool_of(("stat", "-f", "/home"))


def test_without_pidfd_it_works_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert Children().run(("echo", "old kernel"), 5).stdout == "old kernel\n"
    assert Children(grace_s=0.3).run(("sleep", "60"), 0.05).timed_out


def test_the_interpreter_ends_while_somebody_hangs(hole: Hole) -> None:
    """Exit must not wait for what cannot be killed, or no supervisor could restart us."""
    code = (
        "from sickbay.hosts.child import Children;"
        f"print(Children(grace_s=0.1).run(('ls', {str(hole.folder / 'x')!r}), 0.1).stuck)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.stdout == "True\n"
