"""Fixtures of `sickbay check`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checks.test_nvidia_smi import text
from tests.cli_check.node import Bench


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A healthy node with eight GPUs that nobody uses."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    for name in ("CHECK_TIMEOUT", "SLURM_JOB_ID", "NODE_NAME", "GPU_HEALTHCHECK_PROLOG_ENABLE_DCGM"):
        monkeypatch.delenv(name, raising=False)
    made = Bench(tmp_path, capsys)
    monkeypatch.setattr("syslog.syslog", lambda level, line: made.logged.append(line))
    made.settings()
    made.kernel()
    made.tool("nvidia-smi", text(*[{}] * 8), script='case "$*" in *compute-apps*) exit 0;; esac')
    before = [(which, signal.getsignal(which)) for which in (signal.SIGTERM, signal.SIGHUP)]
    yield made
    for which, handler in before:
        signal.signal(which, handler)
