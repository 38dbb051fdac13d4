"""Real agent processes for tests and benchmarks: a ring of kernel records behind a FIFO, and a simulated healthy node.

/dev/kmsg hands every reader the whole ring from its oldest record; a FIFO does not. So the ring is written anew each
time an agent is started, which is what an agent sees on a real node after a restart.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0  # a busy machine is not a broken product


class Running:
    """One `sickbay agent --sim` at a time, on one state folder and one ring. `sim` off: on this very machine. `group`:
    the process group that it is to die with."""

    def __init__(self, folder: Path, *, sim: bool = True, group: int | None = None, **agent: Any) -> None:
        self.folder, self._sim, self._group = folder, sim, group
        self.records: list[bytes] = []
        self.process: subprocess.Popen[str] | None = None
        self._writer = -1
        given = {
            "state_dir": str(folder / "state"), "kmsg": str(folder / "kmsg"), "listen": "",
            "light_checks": ["nvidia-smi"], "instance_type": "p5.48xlarge", "publishers": ["http"], **agent,
        }  # fmt: skip
        rows = [f"{name} = {json.dumps(value)}" for name, value in given.items()]
        (folder / "sickbay.toml").write_text('cluster = "trial"\n[agent]\n' + "\n".join(rows) + "\n")
        os.mkfifo(folder / "kmsg")

    def start(self) -> None:
        argv = [sys.executable, "-m", "sickbay", "agent", "run", "--config", str(self.folder / "sickbay.toml")]
        argv += ["--sim"] if self._sim else []
        self.errors = (self.folder / "stderr").open("a+")
        self.process = subprocess.Popen(
            argv, stderr=self.errors, stdout=subprocess.DEVNULL, text=True, process_group=self._group
        )
        self._writer = os.open(self.folder / "kmsg", os.O_RDWR)
        os.set_blocking(self._writer, True)
        self._put(b"".join(self.records))

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._writer, view[:4096]) :]

    def kernel(self, *texts: str, prefix: int = 3) -> None:
        """The kernel prints; if no agent is there, the ring keeps it."""
        fresh: list[bytes] = []
        for text in texts:
            number = len(self.records) + len(fresh) + 1
            fresh.append(f"{prefix},{number},{number * 1000},-;{text}\n".encode())
        self.records += fresh
        if self._writer >= 0:
            self._put(b"".join(fresh))

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self._gone()

    def end(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._gone()

    def _gone(self) -> int:
        assert self.process is not None
        code = self.process.wait(PATIENCE_S)
        self.errors.close()
        os.close(self._writer)
        self._writer, self.process = -1, None
        return code

    def close(self) -> None:
        if self.process is not None:
            self.kill()

    @property
    def log(self) -> str:
        return (self.folder / "stderr").read_text()

    def verdict(self) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / "state" / "verdict.json").read_text())
        except (OSError, ValueError):
            return {}
        return dict(found)

    def until(self, holds: Callable[[], bool]) -> None:
        """Look again and again until it is true."""
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, "it never came true; the agent said:\n" + self.log[-3000:]
            threading.Event().wait(0.02)
