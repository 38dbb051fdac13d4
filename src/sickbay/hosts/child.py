"""A command under guard: bounded output, a time limit that holds, and a process in D state that is left behind.

LinuxHost runs every command through one `Children`. A child is an argv (never a shell) in a session of its own; at its
time limit the whole process group gets SIGTERM, then SIGKILL. What survives that hangs in the kernel: it is left, its
pipes are closed, and while it is there the same tool answers "stuck" at once, so that a hung driver costs one process
and not one each cycle. It must never raise, and never wait for longer than the limit and two graces.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sickbay.hosts.streams import Stream
from sickbay.ports import Completed

GRACE_S = 2.0  # after SIGTERM, and again after SIGKILL
LONGEST_S = 86_400.0
CANNOT_RUN = 126  # the shells' code for "there, but it cannot be run"

# What hangs in these is the path they were given, not the tool: another path may well answer.
PATH_TOOLS = frozenset({"cat", "dd", "df", "findmnt", "head", "ls", "stat", "test", "timeout", "touch"})

# Since 3.11 CPython starts children by vfork and holds its global lock until the exec: a program on a dead file system
# would stop every thread of ours. The switch is CPython's own (docs of subprocess, "_USE_VFORK").
subprocess._USE_VFORK = False  # type: ignore[misc]


def tool_of(argv: Sequence[str]) -> str:
    """What is stuck when this command is."""
    name = os.path.basename(argv[0]) if argv else ""
    return " ".join(argv) if name in PATH_TOOLS or name.startswith("python") else name


class Children:
    """The commands of one host, and those it had to leave behind."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._left: dict[str, _Left] = {}

    def run(
        self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None, tool: str = ""
    ) -> Completed:
        """As Host.run. `tool`: what to remember it by, where `argv` begins with a wrapper."""
        tool = tool or tool_of(argv)
        if (left := self._stuck(tool)) is not None:
            return Completed(None, "", left.said, timed_out=True, stuck=True)
        limit_s = min(max(timeout_s, 0.0), LONGEST_S)
        began = time.monotonic()
        started = _Start(argv, env)
        made = started.within(limit_s + self._grace_s)
        if isinstance(made, subprocess.Popen):
            return self._attended(made, began + limit_s, tool)
        if made is None:
            return self._leave(tool, _Left(started.alive, f"{tool} hangs before it has even started"), "", "")
        return _refused(made)

    def left_behind(self) -> tuple[str, ...]:
        """The tools that hang in the kernel now; those that came out meanwhile are buried here."""
        with self._lock:
            tools = list(self._left)
        return tuple(tool for tool in tools if self._stuck(tool) is not None)

    def _stuck(self, tool: str) -> _Left | None:
        with self._lock:
            left = self._left.get(tool)
            if left is not None and not left.there():
                del self._left[tool]
                return None
            return left

    def _leave(self, tool: str, left: _Left, out: str, err: str) -> Completed:
        with self._lock:
            self._left[tool] = left
        return Completed(None, out, err, timed_out=True, stuck=True)

    def _attended(self, process: subprocess.Popen[bytes], deadline: float, tool: str) -> Completed:
        watch = _Watch(process)
        try:
            timed_out = not watch.until(deadline)
            stuck = timed_out and not watch.ended(self._grace_s)
            out, err = watch.texts()
        except BaseException:  # Ctrl-C, or told to end: what we started must not go on without us
            _abandon(process, self._grace_s)
            raise
        finally:
            watch.close()
        if not stuck:
            return Completed(None if timed_out else process.wait(), out, err, timed_out=timed_out)
        said = f"an earlier {tool} (process {process.pid}) still hangs in the kernel"
        return self._leave(tool, _Left(lambda: _alive(process), said), out, err)


@dataclass(frozen=True, slots=True)
class _Left:
    """Somebody we could not kill. `there` also reaps him when he has come out."""

    there: Callable[[], bool]
    said: str


def _alive(process: subprocess.Popen[bytes]) -> bool:
    """Our unreaped child keeps its number, so no other process can be mistaken for it. Nor may its group live on."""
    return process.poll() is None or bool(members(process.pid))


def _refused(error: Exception) -> Completed:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Completed(None, "", str(error)[:400], missing=True)
    return Completed(CANNOT_RUN, "", f"it cannot be run: {error}"[:400])


class _Start:
    """Starting is done by a thread: exec itself hangs when the program lies on a file system that does not answer."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None) -> None:
        self._argv, self._env = [str(word) for word in argv], env
        self._lock = threading.Lock()
        self._made: subprocess.Popen[bytes] | Exception | None = None
        self._given_up = False
        self._thread = threading.Thread(target=self._start, name="sickbay-start", daemon=True)

    def within(self, limit_s: float) -> subprocess.Popen[bytes] | Exception | None:
        """The child, why there is none, or None: not yet, and we no longer wait."""
        try:
            self._thread.start()
        except RuntimeError as no_more_threads:
            return no_more_threads
        try:
            self._thread.join(limit_s)
        finally:
            with self._lock:
                self._given_up = self._made is None
        return self._made

    def alive(self) -> bool:
        return self._thread.is_alive()

    def _start(self) -> None:
        made = self._tried()
        with self._lock:
            self._made = made
            late = self._given_up
        if late and isinstance(made, subprocess.Popen):
            _bury(made)

    def _tried(self) -> subprocess.Popen[bytes] | Exception:
        try:
            return subprocess.Popen(
                self._argv, env=self._env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, bufsize=0,
            )  # fmt: skip
        except (OSError, ValueError, IndexError, subprocess.SubprocessError) as refused:
            return refused


def _abandon(process: subprocess.Popen[bytes], grace_s: float) -> None:
    _kill(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s / 2)
        return
    _kill(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s / 2)


def _bury(process: subprocess.Popen[bytes]) -> None:
    _kill(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait()


class _Watch:
    """One running child: reads what it prints and sees it end, without ever blocking past a moment."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
        self._streams = {pipe.fileno(): Stream(pipe.fileno()) for pipe in self._pipes}
        self._order = tuple(self._streams)
        self._poll = select.poll()
        for number in self._streams:
            self._poll.register(number, select.POLLIN)
        self._pidfd = _pidfd(process.pid)
        if self._pidfd is not None:
            self._poll.register(self._pidfd, select.POLLIN)

    def until(self, deadline: float) -> bool:
        """Did it end by then? What it had printed by its end is read; what it left running does not hold us up."""
        while not self._exited():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._listen(left if self._pidfd is not None else min(left, 0.02))
        _kill(self._process.pid, signal.SIGKILL)  # whatever it started in its own session: before the reaping, while
        self._drain()  # its number cannot belong to anybody else
        return True

    def ended(self, grace_s: float) -> bool:
        """End it and all it started: politely, then not. False: it, or a process of its group, cannot be killed."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            _kill(self._process.pid, how)
            if self.until(time.monotonic() + grace_s):
                break
        else:
            return False
        return self._group_gone(time.monotonic() + grace_s)

    def _group_gone(self, deadline: float) -> bool:
        while members(self._process.pid):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        self._process.wait()
        return True

    def texts(self) -> tuple[str, str]:
        first, second = (self._streams[number].text() for number in self._order)
        return first, second

    def close(self) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)

    def _exited(self) -> bool:
        """Seen, not reaped: until it is reaped its number stays its own."""
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _listen(self, wait_s: float) -> None:
        for number, _ in self._poll.poll(min(wait_s, 60.0) * 1000):
            stream = self._streams.get(number)
            if stream is not None and not stream.take():
                self._poll.unregister(number)

    def _drain(self) -> None:
        """What is in the pipes now. A daemon it left may hold them open: that is not its output any more."""
        for stream in self._streams.values():
            stream.drain()


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):  # a kernel before 5.3, or a sandbox: look every 20 ms instead
        return None


def _kill(group: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, how)


def members(group: int) -> tuple[int, ...]:
    """The living processes of a group. /proc/*/stat only: reading the command line of a hung process may hang."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            state, pgrp = _state_and_group(name)
            if pgrp == group and state not in ("Z", "X"):
                found.append(int(name))
    return tuple(found)


def _state_and_group(pid: str) -> tuple[str, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as opened:
            words = opened.read(4096).rpartition(b")")[2].split()
        return words[0].decode("ascii", "replace"), int(words[2])
    except (OSError, ValueError, IndexError):
        return "X", -1
