"""The real node-problem-detector (tools/testbed-npd builds it), run with our gpu-monitor.json and the chart's
arguments.

Two things are changed in the monitor: where the plug-in lies, and the interval, a fraction of a second instead of a
minute. What it thinks is read from its own Prometheus page and log; it talks to an API server only where a test gives
it one.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .test_costs import DEPLOY, laid_out

PATIENCE_S = 60.0  # for a busy machine; all of it is used only when a test fails
CONDITION = re.compile(r"Conditions:\[\{Type:GPUProblem Status:(\w+) .*? Reason:(\w+) Message:(.*?)\}\]")


@dataclass(frozen=True)
class Condition:
    status: str  # True, False, Unknown
    reason: str
    message: str


@dataclass(frozen=True)
class Detector:
    """One running node-problem-detector."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def conditions(self) -> list[Condition]:
        """Every condition it handed to its exporters, oldest first."""
        lines = [line for line in self.log.read_text().splitlines() if "New status generated" in line]
        return [Condition(*match.groups()) for line in lines for match in CONDITION.finditer(line)]

    def condition(self) -> Condition | None:
        return next(reversed(self.conditions()), None)

    def figure(self, line: str) -> float | None:
        """One figure of its Prometheus page, e.g. problem_counter{reason="GPUsAreDown"}; None: not there (yet)."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                page = answer.read().decode()
        except urllib.error.URLError:
            return None
        found = re.search(rf"^{re.escape(line)} (\S+)$", page, re.MULTILINE)
        return float(found[1]) if found else None

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.02)

    def wait_for(self, status: str, message: str) -> None:
        self.wait(lambda: (now := self.condition()) is not None and (now.status, now.message) == (status, message))


@contextmanager
def running(
    binary: str, folder: Path, state: Path, interval: str = "200ms", *, node: str = "gpu-17", server: str = ""
) -> Iterator[Detector]:
    """Start it as the chart does (its arguments for our values.yaml), on a loopback port. `server`: the API server and
    how to speak to it, as --apiserver-override takes it; "": none."""
    exporter = f"--apiserver-override={server}" if server else "--enable-k8s-exporter=false"
    monitor, port, log = _monitor(folder, interval), _free_port(), folder / "npd.log"
    command = [
        binary, "--logtostderr", "-v=3", "--config.system-log-monitor=", f"--config.custom-plugin-monitor={monitor}",
        "--prometheus-address=127.0.0.1", f"--prometheus-port={port}", "--k8s-exporter-heartbeat-period=5m0s",
        exporter,
    ]  # fmt: skip
    env = {"PATH": os.environ["PATH"], "NODE_NAME": node, "SICKBAY_PYTHON": sys.executable,
           "SICKBAY_AGENT__STATE_DIR": str(state)}  # fmt: skip
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=env) as process:
        try:
            yield Detector(process, port, log)
        finally:
            process.kill()


def _monitor(folder: Path, interval: str) -> Path:
    monitor = json.loads((DEPLOY / "gpu-monitor.json").read_text())
    monitor["pluginConfig"]["invoke_interval"] = interval
    script = laid_out(folder)
    for rule in monitor["rules"]:
        rule["path"] = str(script)
    path = folder / "gpu-monitor.json"
    path.write_text(json.dumps(monitor))
    return path


def _free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])
