"""Send a signal to the processes of some pods on this machine that are waiting for it, and to no others.

`sickbay node signal` calls it, to ask a training job to save (CHECKPOINT_JOB). An unexpected USR1 ends a process, so
only those that catch it (SigCgt in /proc/PID/status) get it. Which pod a process belongs to is what its cgroup says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sickbay.ports import Host
from sickbay.treatments.reboot import Ended

NUMBERS = {"USR1": 10, "USR2": 12}  # the only ones we send: nobody's work ends by them unless its program says so
UID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
LIMIT_S = 10.0
MOST = 4_096  # processes in one call


def send(host: Host, pods: Sequence[str], name: str) -> Ended:
    number = NUMBERS.get(name)
    if number is None:
        return Ended(False, f"not sent: {name} is none of {', '.join(NUMBERS)}")
    if strange := [pod for pod in pods if not UID.match(pod)]:
        return Ended(False, f"not sent: {strange[0]!r} is no pod's uid")
    found = listeners(host, pods, number)
    if not found:
        return Ended(False, f"not sent: no process of these {len(pods)} pods catches {name}")
    done = host.run(("kill", f"-{name}", *(str(pid) for pid in found[:MOST])), LIMIT_S)
    if done.code != 0:  # some may have ended meanwhile; the others got it
        return Ended(True, f"{name} sent to {len(found)} processes, not all were there: {done.stderr.strip()[:160]}")
    return Ended(True, f"{name} sent to {len(found)} processes of {len(pods)} pods")


def listeners(host: Host, pods: Sequence[str], number: int) -> list[int]:
    """Processes of these pods that catch this signal."""
    wanted = {form for pod in pods for form in (f"pod{pod}", f"pod{pod.replace('-', '_')}")}
    pids = [int(name) for name in host.names("/proc") or () if name.isascii() and name.isdigit()]
    return [pid for pid in pids if _is_of(host, pid, wanted) and _catches(host, pid, number)]


def _is_of(host: Host, pid: int, wanted: set[str]) -> bool:
    """A cgroup is .../kubepods-pod<uid with _>.slice/... (systemd) or .../kubepods/pod<uid>/... (cgroupfs)."""
    cgroup = host.read(f"/proc/{pid}/cgroup") or ""
    return any(form in cgroup for form in wanted) if "kubepods" in cgroup else False


def _catches(host: Host, pid: int, number: int) -> bool:
    status = host.read(f"/proc/{pid}/status") or ""
    mask = re.search(r"^SigCgt:\s*([0-9a-fA-F]{1,32})$", status, re.MULTILINE)
    return bool(mask and int(mask.group(1), 16) >> (number - 1) & 1)
