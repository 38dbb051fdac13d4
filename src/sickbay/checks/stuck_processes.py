"""stuck-processes: who sits in uninterruptible sleep (D), poll after poll, and in whose code.

A process in the driver's code that does not move means that the driver hangs; one in a file system's means storage. A
process counts only when it is the same one (pid and start time) in several polls: a short D is ordinary IO. It must
never read /proc/<pid>/cmdline, environ or maps: those take the lock a stuck process may hold, and hang the reader too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sickbay.checks.series import Series
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote
from sickbay.model import Status
from sickbay.ports import Completed, Host

MOST_PIDS = 32_768
MOST_STUCK = 64
NAME = "stuck-processes"

_MODULE = re.compile(r"\[nvidia[\w-]*\]")  # how /proc/<pid>/stack marks a function of a module
_DRIVER_WAIT = re.compile(r"nvidia|nvkms|nv_|_nv\d+rm|uvm_|rm_ioctl|os_acquire_(?:mutex|semaphore|rwlock|spinlock)")
_DRIVER_TOOL = re.compile(r"nvidia|nv-hostengine|nv-fabric|dcgm")
_STORAGE = re.compile(
    r"\[(?:lustre|ptlrpc|lov|osc|mdc|nfs\w*|sunrpc|ceph|fuse|cifs)\]|\b(?:nfs|rpc_wait|ll_|lustre)\w*"
)
KTHREADD = 2


@dataclass(frozen=True, slots=True)
class Stuck:
    pid: int
    name: str
    start: int  # clock ticks since boot: with the pid, the process for life
    kernel: bool
    wchan: str
    stack: str

    @property
    def figure(self) -> str:
        return f"{NAME}/{self.pid}-{self.start}/stuck"

    @property
    def where(self) -> str:
        """ "driver", "storage" or "elsewhere": by the stack if we may read it, else by the function it waits in."""
        seen = f"{self.stack}\n{self.wchan}"
        if _MODULE.search(self.stack) or _DRIVER_WAIT.search(self.wchan):
            return "driver"
        if _STORAGE.search(seen):
            return "storage"
        blind = not self.stack and self.wchan in ("", "0")
        return "driver" if blind and not self.kernel and _DRIVER_TOOL.match(self.name) else "elsewhere"


def collect(host: Host, ask: Ask) -> Reading:
    names = host.names("/proc")
    if names is None:
        return Reading(Completed(None, "", "", missing=True))
    files: dict[str, str | None] = {}
    for pid in [name for name in names if name.isascii() and name.isdecimal()][:MOST_PIDS]:
        stat = host.read(f"/proc/{pid}/stat") or ""
        if _state(stat) == "D" and len(files) < 3 * MOST_STUCK:
            files[f"{pid}/stat"] = stat
            files[f"{pid}/wchan"] = host.read(f"/proc/{pid}/wchan")
            files[f"{pid}/stack"] = host.read(f"/proc/{pid}/stack")
    reading = Reading(Completed(0, "", ""), files=files)
    _forget_the_others(ask.series, reading)
    return reading


def _state(stat: str) -> str:
    return stat.rpartition(")")[2].strip()[:1]


def _forget_the_others(series: Series, reading: Reading) -> None:
    """Who moved on starts anew, so that what is left was stuck in every poll; and dead pids do not pile up."""
    here = {one.figure for one in stuck(reading.files)}
    series.forget([name for name in series.points if name.startswith(f"{NAME}/") and name not in here])


def stuck(files: Mapping[str, str | None]) -> Iterator[Stuck]:
    for path, text in files.items():
        pid, _, what = path.partition("/")
        if what == "stat" and (one := _stuck(text or "", files.get(f"{pid}/wchan"), files.get(f"{pid}/stack"))):
            yield one


def _stuck(stat: str, wchan: str | None, stack: str | None) -> Stuck | None:
    """A name may hold spaces and parentheses: what counts is the last one."""
    head, _, rest = stat.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = rest.split()
    if len(fields) < 20 or fields[0] != "D" or not _is_number(pid) or not _is_number(fields[1], fields[19]):
        return None
    kernel = int(fields[1]) == KTHREADD or int(pid) == KTHREADD
    return Stuck(int(pid), name[:64], int(fields[19]), kernel, (wchan or "").strip()[:120], (stack or "")[:8_192])


def _is_number(*words: str) -> bool:
    return all(word.isascii() and word.isdecimal() and len(word) < 20 for word in words)


def samples(reading: Reading) -> Mapping[str, float]:
    return {one.figure: 1.0 for one in stuck(reading.files)}


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if reading.done.missing:
        return [Sign("tool.failed", "the list of processes (/proc) cannot be read", status=Status.UNKNOWN)]
    groups: dict[str, list[Stuck]] = {}
    for one in stuck(reading.files):
        if _lasts(one, ask) and not (one.kernel and one.where == "elsewhere"):
            groups.setdefault(one.where, []).append(one)
    return [_sign(where, some, ask) for where, some in sorted(groups.items())]


def _lasts(one: Stuck, ask: Ask) -> bool:
    """In polls, and in seconds besides: a person who asks three times in a row must not make it a fault."""
    polls = ask.series.times(one.figure, 0.0)
    long = ask.series.held(one.figure, ask.at) >= ask.limits["stuck-process-s"]
    return polls >= ask.limits["stuck-process-polls"] and long


_SAID = {
    "driver": ("host.stuck-in-driver", "hang inside the NVIDIA driver"),
    "storage": ("host.stuck-in-storage", "wait for a file system that does not answer"),
    "elsewhere": ("host.stuck", "are stuck in the kernel"),
}


def _sign(where: str, some: list[Stuck], ask: Ask) -> Sign:
    code, what = _SAID[where]
    longest = max(ask.series.held(one.figure, ask.at) for one in some)
    names = ", ".join(sorted({one.name for one in some})[:4])
    reason = f"{len(some)} process(es) ({names}) {what} for {longest / 60:.0f} minutes and cannot be killed"
    return Sign(code, reason, evidence=quote(*map(_line, some)), count=len(some), traits={"names": names})


def _line(one: Stuck) -> str:
    top = next((line.strip() for line in one.stack.splitlines() if line.strip()), "") or one.wchan or "unknown place"
    return f"pid {one.pid} ({one.name}) in state D at {top}"


CHECK = Check(NAME, None, collect, judge, samples)
