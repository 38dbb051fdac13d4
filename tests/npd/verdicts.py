"""Verdict files as the agent writes them (docs/agent.md, "verdict.json"), and the plug-in run on them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from sickbay.cli import npd_check

FELL_OFF = "GPU 0000:3b:00 has fallen off the bus (Xid 79)"


@dataclass(frozen=True)
class Answer:
    code: int
    line: str


def verdict(status: str = "pass", reason: str = "17 checks pass", **changed: object) -> dict[str, object]:
    now = time.time()
    good: dict[str, object] = {
        "schema": 1, "node": "gpu-17", "at": now, "expires_at": now + 900, "boot_id": npd_check.boot_id(),
        "status": status, "severity": "REBOOT" if status == "fail" else "", "reason": reason, "gpus": True,
    }  # fmt: skip
    return good | changed


def write(folder: Path, content: dict[str, object] | bytes) -> None:
    """As the agent does: a new file in the old one's place."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "verdict.tmp").write_bytes(data)
    os.replace(folder / "verdict.tmp", folder / "verdict.json")


def ask(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Answer:
    code = npd_check.main(["--state-dir", str(folder), *options])
    out = capsys.readouterr().out
    assert out.endswith("\n")
    assert out.count("\n") == 1
    return Answer(code, out[:-1])
