"""Up to where the kernel log has been dealt with: `kernel-mark.json` in the state folder, for `sickbay check`.

A check has no memory of its own, and a GPU that was reset leaves its old XID in the log until the next boot: without a
mark every later check would fail the node for it (originals 002.12 #13). `sickbay check --mark-treated` sets it after a
treatment; a boot makes it void. The agent has its own memory and does not need it.
"""

from __future__ import annotations

import json
from pathlib import Path

from sickbay import atomic
from sickbay.errors import CheckError, UserError
from sickbay.ports import Host

FILE = "kernel-mark.json"
MOST_BYTES = 64 * 1024


def set_mark(host: Host, state_dir: Path, at: float) -> int:
    """Everything up to now is dealt with; returns how many kernel lines that is."""
    try:
        lines, cursor = host.kernel_lines("")
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        atomic.write(state_dir / FILE, json.dumps({"cursor": cursor, "at": at}).encode() + b"\n", mode=0o600)
    except CheckError as blind:
        raise UserError(f"There is nothing to mark: {blind}.") from None
    except OSError as refused:
        raise UserError(f"{state_dir} cannot be written: {refused.strerror}. Are you root?") from None
    return len(lines)


def marked(state_dir: Path) -> str:
    """The cursor to read on from; "" if there is none. One of another boot is void, which the host sees to."""
    try:
        found = json.loads(atomic.read(state_dir / FILE, MOST_BYTES) or b"")
    except (ValueError, RecursionError):
        return ""
    cursor = found.get("cursor") if isinstance(found, dict) else ""
    return cursor if isinstance(cursor, str) else ""
