"""Real controller processes on a simulated fleet: started, watched by their log, killed, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PATIENCE_S = 30.0  # a busy machine is not a broken product


class Running:
    """One `sickbay controller run`. A thread reads its log: waiting for a line is an event, not a sleep."""

    def __init__(self, folder: Path, *options: str) -> None:
        config = folder / "sickbay.toml"
        argv = [sys.executable, "-m", "sickbay", "controller", "run", "--config", str(config), *options]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def says(self, text: str, patience_s: float = PATIENCE_S) -> str:
        """The first log line that holds this text, waited for."""
        with self._news:
            found = self._news.wait_for(lambda: any(text in line for line in self.lines), patience_s)
            assert found, f"no {text!r} within {patience_s:.0f} s; it said:\n" + "\n".join(self.lines[-30:])
            return next(line for line in self.lines if text in line)

    def said(self, text: str) -> bool:
        with self._news:
            return any(text in line for line in self.lines)

    def count(self, text: str) -> int:
        with self._news:
            return sum(text in line for line in self.lines)

    def counts(self, text: str, wanted: int) -> None:
        """Wait until so many lines hold this text."""
        with self._news:
            enough = self._news.wait_for(lambda: sum(text in line for line in self.lines) >= wanted, PATIENCE_S)
            assert enough, f"fewer than {wanted} lines with {text!r}; it said:\n" + "\n".join(self.lines[-30:])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        """Once it has ended: nothing is left open."""
        assert self.process.stderr is not None
        self._reader.join(5)
        self.process.stderr.close()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Exit code, and seconds until it had gone."""
        begun = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self._reader.join(5)
        return code, time.monotonic() - begun


Start = Callable[..., Running]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = (
        'cluster = "trial"', f'data_dir = "{tmp_path}"', "[policy]", 'max_verb = "REPLACE"', "approval = []",
        "[sqlite]", 'synchronous = "OFF"',
    )  # fmt: skip
    (tmp_path / "sickbay.toml").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    begun: list[Running] = []

    def run(*options: str) -> Running:
        begun.append(Running(folder, *options))
        return begun[-1]

    yield run
    for process in begun:
        if process.process.poll() is None:
            process.kill()
        process.close()


def sickbay(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "sickbay", *words, "--store", str(folder / "sickbay.db")]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, env=os.environ)
