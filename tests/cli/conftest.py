"""Fixtures of the operator's commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sickbay.stores.sqlite import SqliteStore

from .builders import Bay, Said, run_command


@pytest.fixture
def bay(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bay:
    """An empty store, and a person called ann in front of it."""
    monkeypatch.setattr("sickbay.cli.person._name", {os.getuid(): "ann"}.__getitem__)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "sickbay.db"
    SqliteStore(path).close()

    def run(*args: str) -> Said:
        return run_command(capsys, *args, "--store", str(path))

    return Bay(path, run)
