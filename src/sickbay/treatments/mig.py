"""MIG geometry: read before a reset, which destroys every instance, and made again after it.

reset.py calls it. GPU instances are made again at the same place with the same profile, compute instances in them with
theirs, so that a node has the devices its users were promised. Formats: nvidia-smi mig -lgi and -lci, R470 to R590.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sickbay.ports import Completed, Host
from sickbay.treatments.leftover import Instance

ASK_S, MAKE_S = 30.0, 120.0
# |   0  MIG 3g.20gb       9        1          4:4     |
_GPU_INSTANCE = re.compile(r"^\|\s+(\d+)\s+MIG\s+\S+\s+(\d+)\s+(\d+)\s+(\d+):(\d+)\s+\|", re.MULTILINE)
# |   0      1       MIG 1c.3g.20gb       0*        0          0:1     |
_COMPUTE = re.compile(r"^\|\s+(\d+)\s+(\d+)\s+MIG\s+\S+\s+(\d+)\*?\s+(\d+)\b", re.MULTILINE)


def modes(host: Host) -> dict[str, bool] | None:
    """GPU index -> is MIG on; None when nvidia-smi does not say."""
    done = host.run(("nvidia-smi", "--query-gpu=index,mig.mode.current", "--format=csv,noheader"), ASK_S)
    if done.code != 0 or done.timed_out:
        return None
    rows = (line.split(",", 1) for line in done.stdout.splitlines() if "," in line)
    return {index.strip(): "enabled" in mode.lower() for index, mode in rows if index.strip().isdecimal()}


def geometry(host: Host) -> tuple[Instance, ...] | None:
    """Every instance of this node; None when they cannot be read."""
    gpu, compute = _list(host, "-lgi"), _list(host, "-lci")
    if gpu is None or compute is None:
        return None
    inside: dict[tuple[int, int], list[int]] = {}
    for where, instance, profile, _ in _COMPUTE.findall(compute):
        inside.setdefault((int(where), int(instance)), []).append(int(profile))
    return tuple(
        Instance(int(where), int(profile), int(start), tuple(inside.get((int(where), int(identity)), ())))
        for where, profile, identity, start, _ in _GPU_INSTANCE.findall(gpu)
    )


def _list(host: Host, what: str) -> str | None:
    done = host.run(("nvidia-smi", "mig", what), ASK_S)
    nothing = re.search(r"no (gpu|compute) instances found|no mig-enabled devices", _said(done), re.IGNORECASE)
    return "" if nothing else done.stdout if done.code == 0 else None


def restore(host: Host, wanted: Sequence[Instance], were_on: Mapping[str, bool]) -> str:
    """Make it as it was; "" or what could not be done, with the command a person can run."""
    there = geometry(host)
    now_on = modes(host)
    if there is None or now_on is None:
        return "nvidia-smi does not say how MIG stands"
    for index in (index for index, on in were_on.items() if on and not now_on.get(index)):
        if why := _failed(host.run(("nvidia-smi", "-i", index, "-mig", "1"), MAKE_S), f"nvidia-smi -i {index} -mig 1"):
            return why
    known = {(one.gpu, one.profile, one.start) for one in there}
    for one in wanted:
        if (one.gpu, one.profile, one.start) not in known and (why := _make(host, one)):
            return why
    return ""


def _make(host: Host, one: Instance) -> str:
    argv = ("nvidia-smi", "mig", "-i", str(one.gpu), "-cgi", f"{one.profile}:{one.start}")
    if why := _failed(host.run(argv, MAKE_S), " ".join(argv)):
        return why
    if not one.compute:
        return ""
    identity = _identity(host, one)
    profiles = ",".join(map(str, one.compute))
    order = ("nvidia-smi", "mig", "-i", str(one.gpu), "-gi", identity, "-cci", profiles)
    return _failed(host.run(order, MAKE_S), " ".join(order))


def _identity(host: Host, one: Instance) -> str:
    """The number under which the instance at this place stands now: it need not be the old one."""
    rows = _GPU_INSTANCE.findall(_list(host, "-lgi") or "")
    return next((row[2] for row in rows if (int(row[0]), int(row[3])) == (one.gpu, one.start)), "")


def _failed(done: Completed, command: str) -> str:
    return "" if done.code == 0 else f"`{command}` failed: {_said(done).strip()[:160] or 'no answer'}"


def _said(done: Completed) -> str:
    return f"{done.stdout}\n{done.stderr}"
