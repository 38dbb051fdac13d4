"""state_dir/verdict.json: the node in one small file, for `sickbay npd-check` and people. Written after each change.

Its reader must answer in milliseconds without touching a GPU tool (issue 2); so everything it needs is here, and so is
the moment from which it must no longer be believed.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from sickbay import atomic, wire
from sickbay.agent.verdicts import NodeVerdict
from sickbay.model import Report

FILE = "verdict.json"
MOST_REASON = 80  # node-problem-detector's max_output_length


def write(folder: Path, report: Report, verdict: NodeVerdict, *, gpus: bool, lasts_s: float) -> None:
    """`lasts_s`: after this long without a new one, the agent is not there any more."""
    tree = {
        "schema": 1, "node": report.node, "at": report.at, "expires_at": report.at + lasts_s,
        "boot_id": report.boot_id, "status": verdict.status, "severity": wire.to_originals(verdict.severity),
        "reason": short(verdict.reason), "gpus": gpus,
    }  # fmt: skip
    atomic.write(folder / FILE, msgspec.json.encode(tree), sync=False)


def short(reason: str) -> str:
    """Printable ASCII on one line, at most 80 characters, cut at a word."""
    text = "".join(char if " " <= char <= "~" else "?" if char.isprintable() else " " for char in reason)
    text = " ".join(text.split())
    if len(text) <= MOST_REASON:
        return text
    return (
        text[: MOST_REASON - 3].rpartition(" ")[0].rstrip(",;:") + "..."
        if " " in text[:60]
        else text[: MOST_REASON - 3] + "..."
    )
