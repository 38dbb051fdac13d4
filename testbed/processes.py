"""Child processes that never outlive us: started, stopped, killed and paused by pid.

All children of one Processes share the process group of a reaper. It reads from a pipe that only we hold; when we die,
however we die, the pipe ends and the reaper kills the group. Who starts a child of his own puts it into `group`, and
it dies with us too. Called by Cluster and by the benchmarks. It must never kill by name.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_S = 5.0
REAPER = "import os, signal, sys\nsys.stdin.read()\nos.killpg(0, signal.SIGKILL)\n"
PORTS = range(21000, 32000)  # below what the kernel gives to clients: a port stays ours while its server is down


def free_port() -> int:
    for _ in range(200):
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port on loopback between 21000 and 32000")


class Processes:
    def __init__(self, logs: Path) -> None:
        self._logs, self._running = logs, dict[str, subprocess.Popen[bytes]]()
        self._reaper = subprocess.Popen(
            [sys.executable, "-S", "-c", REAPER], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0
        )

    @property
    def group(self) -> int:
        """The process group of whatever must not outlive us."""
        return self._reaper.pid

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        assert name not in self._running, f"{name} runs already"
        with (self._logs / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                list(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._logs,
                env={**os.environ, **(env or {})}, process_group=self.group,
            )  # fmt: skip

    def stop(self, name: str, *, kill: bool = False) -> None:
        """SIGTERM, and SIGKILL to what is still there after some seconds; SIGKILL at once when asked."""
        child = self._running.pop(name, None)
        if child is None:
            return
        child.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(STOP_S)

    def pause(self, name: str) -> None:
        """Returns when all of its threads stand still."""
        child = self._running[name]
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGCONT)

    def alive(self, name: str) -> bool:
        return name in self._running and self._running[name].poll() is None

    def pids(self) -> dict[str, int]:
        return {name: child.pid for name, child in self._running.items()}

    def said(self, name: str, chars: int = 1200) -> str:
        """The end of its log, for an error message."""
        path = self._logs / f"{name}.log"
        return path.read_text("utf-8", "replace")[-chars:] if path.exists() else ""

    def close(self) -> None:
        """All of them, at once and for sure: they hold test data only."""
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()
        self._reaper.wait(STOP_S)
        for child in self._running.values():
            child.wait(STOP_S)
        self._running.clear()
