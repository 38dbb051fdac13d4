"""The process that forks ranks: it pays for importing numpy once, so that a gang of eight is up in a moment.

Started by nursery.py as `python -m sickbay.sim.trainer.forker FD`; reads one JSON line per request, answers with one.
It knows the processes it forked and has not reaped, so a signal can never hit a stranger that got the same number.
When its starter goes, it kills every rank, also stopped ones, and ends. It must never outlive its starter.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import sickbay
from sickbay.sim.trainer import layout, rank
from sickbay.sim.trainer.lines import Lines
from sickbay.sim.trainer.spec import Spec, read_spec

MOST_FDS = 2
STOP_S = 5.0
PR_SET_PDEATHSIG = 1  # linux/prctl.h
LIBC = ctypes.CDLL(None)


def main(control: socket.socket) -> None:
    children: set[int] = set()
    lines = Lines(control)
    gc.freeze()  # what is here now is shared with every child: leave its pages alone
    lines.send('{"n": 0}')
    try:
        while (request := _next(control)) is not None:
            lines.send(json.dumps({"n": request[0]["n"], **_answer(request, children, control)}))
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)


def _next(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One request and the descriptors that came with it. Its starter sends the next only after our answer."""
    data, fds, _, _ = socket.recv_fds(control, 65536, MOST_FDS)
    while data and not data.endswith(b"\n"):
        data += control.recv(65536)
    return (json.loads(data), fds) if data else None


def _answer(request: tuple[dict[str, Any], list[int]], children: set[int], control: socket.socket) -> dict[str, Any]:
    asked, fds = request
    match asked["do"]:
        case "fork":
            pid = _fork(read_spec(asked["spec"]), fds, control)
            children.add(pid)
            return {"pid": pid}
        case "signal":
            return _signal(asked["pid"], asked["signal"], children)
        case _:
            return _reap(asked["pid"], asked["within_s"], children)


def _signal(pid: int, number: int, children: set[int]) -> dict[str, Any]:
    if pid not in children:
        return {"code": None, "unknown": True}
    os.kill(pid, number)
    # The kernel stops a process when it next looks at its signals; the caller wants to know that it has.
    return _reap(pid, STOP_S, children, os.WUNTRACED) if number == signal.SIGSTOP else {"code": None}


def _reap(pid: int, within_s: float, children: set[int], options: int = 0) -> dict[str, Any]:
    """Its exit code when it has ended, None when time is up; with WUNTRACED also None as soon as it has stopped."""
    if pid not in children:
        return {"code": None, "unknown": True}
    deadline, pause = time.monotonic() + within_s, 0.0002
    while True:
        done, status = os.waitpid(pid, os.WNOHANG | options)
        if done and os.WIFSTOPPED(status):
            break
        if done:
            children.discard(pid)
            return {"code": os.waitstatus_to_exitcode(status)}
        if time.monotonic() >= deadline:
            break
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    return {"code": None}


def _fork(spec: Spec, fds: list[int], control: socket.socket) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        for fd in fds:
            os.close(fd)
        return pid
    code = 1
    try:
        control.close()
        _die_with(parent)
        _redirect(spec)
        line, *listener = [socket.socket(fileno=fd) for fd in fds]
        code = rank.live(spec, line, listener[0] if listener else None)
    except BaseException:
        _print_traceback()
    finally:
        os._exit(code)


def _print_traceback() -> None:
    """With paths from the package on, so that the log is the same wherever Sickbay is installed."""
    root = str(Path(sickbay.__file__).parent.parent) + os.sep
    with contextlib.suppress(OSError):
        os.write(2, traceback.format_exc().replace(root, "").encode())


def _die_with(parent: int) -> None:
    """A stopped rank cannot see a closed line; the kernel kills it for us when this forker goes (Linux only)."""
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _redirect(spec: Spec) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    path = layout.log_path(Path(spec.jobdir), spec.attempt, spec.rank)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        main(socket.socket(fileno=int(sys.argv[1])))
