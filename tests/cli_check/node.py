"""A node for `sickbay check`: this machine, with tools of a test's own in front of the PATH."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.builders import Said, run_command


@dataclass
class Bench:
    """Tools print what a test says; the kernel log is a journal of one harmless line unless a test says more."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    logged: list[str] = field(default_factory=list)  # what went to the system log

    def tool(self, name: str, prints: str = "", code: int = 0, script: str = "") -> None:
        """A command that prints a text, or runs a few lines of shell."""
        said = self.folder / f"{name}.txt"
        said.write_text(prints)
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\ncat '{said}'\nexit {code}\n")
        path.chmod(0o755)

    def kernel(self, *messages: str) -> None:
        entries = [
            {"MESSAGE": message, "_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "PRIORITY": "4", "__CURSOR": f"i={n}"}
            for n, message in enumerate(("usb 1-1: new device", *messages))
        ]
        self.tool("journalctl", "".join(json.dumps(entry) + "\n" for entry in entries))

    def settings(self, text: str = "") -> None:
        (self.folder / "sickbay.toml").write_text(
            f'[agent]\nkmsg = "{self.folder}/no-kmsg"\nstate_dir = "{self.folder}/state"\n'
            f'instance_type = "simulated-8"\nnode_name = "bench-1"\n{text}'
        )

    def check(self, *args: str) -> Said:
        given = ("--config", str(self.folder / "sickbay.toml"), "--results-dir", str(self.folder / "results"))
        return run_command(self.capsys, "check", *given, *args)

    def result(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "results" / name).read_text())
        return found
