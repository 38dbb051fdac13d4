"""May a deep check run now? Only on a node that nobody uses, and in managed mode only one the controller has reserved.

`runner` asks before every deep check, in a suite and alone (originals 002.12 #15: alone, the original did not). What
cannot be read is not idle. A person's --exclusive goes before all of it: then nobody asks here.
"""

from __future__ import annotations

from pathlib import Path

from sickbay.ports import Host
from sickbay.suite.reservation import reserved

APPS = ("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
LIMIT_S = 30.0


def refusal(host: Host, *, mode: str, state_dir: str, now: float, given: bool = False) -> str:
    """Why not, or "". `given`: the scheduler has given us the node (a prolog), which is as good as a reservation."""
    if mode == "managed" and not given and reserved(Path(state_dir), now) is None:
        return "the controller has not reserved this node"
    return busy(host)


def busy(host: Host) -> str:
    """Who uses the GPUs, in words, or "" when nobody does."""
    done = host.run(APPS, LIMIT_S)
    if done.missing:
        return "nvidia-smi is not here, so we cannot tell whether the GPUs are free"
    if done.code != 0 or done.timed_out:
        return "nvidia-smi does not say whether the GPUs are free"
    users = [line for line in done.stdout.splitlines() if line.split(",")[0].strip().isdecimal()]
    if not users:
        return ""
    first = users[0].partition(",")[2].strip()[:80]
    return f"{len(users)} process{'es' if len(users) > 1 else ''} on the GPUs ({first or users[0][:80]})"
