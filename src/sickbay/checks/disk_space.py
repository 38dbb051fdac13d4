"""disk-space: room and inodes on the local file systems, and room in /dev/shm, which data loaders and NCCL need.

Each file system is asked by a child of its own (`stat -f`), because one that hangs would take us along. Shared ones
are shared-storage's; pseudo file systems, overlays and second mounts of a device are not asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sickbay.checks import mounts
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote, unusable
from sickbay.model import Status
from sickbay.ports import Completed, Host

NAME = "disk-space"
LIMIT_S = 10.0
MOST = 32
STAT = ("stat", "-f", "-c", "%S %b %a %c %d", "--")
SHM = "/dev/shm"
GIB = float(1 << 30)


@dataclass(frozen=True, slots=True)
class Room:
    total: float  # bytes
    free: float  # for ordinary users
    inodes: float  # 0: the file system makes them as it goes
    inodes_free: float

    @property
    def free_percent(self) -> float:
        return 100.0 * self.free / self.total

    @property
    def inodes_percent(self) -> float:
        return 100.0 * self.inodes_free / self.inodes if self.inodes else 100.0


def collect(host: Host, ask: Ask) -> Reading:
    text = mounts.table(host)
    paths = _paths(text or "")
    outputs = {path: host.run((*STAT, path), LIMIT_S) for path in paths}
    return Reading(Completed(0, "", ""), outputs=outputs, files={"mounts": text})


def _paths(text: str) -> list[str]:
    """One path for each device, and /dev/shm."""
    found: dict[str, str] = {}
    for mount in mounts.parse(text):
        if (mount.kind in mounts.LOCAL and mount.writable) or (mount.path == SHM and mount.kind == "tmpfs"):
            found.setdefault(mount.path if mount.path == SHM else mount.source, mount.path)
    return list(found.values())[:MOST]


def room(text: str) -> Room | None:
    """What `stat -f` printed: block size, blocks, free blocks, inodes, free inodes."""
    words = text.split()
    if len(words) != 5 or not all(word.isascii() and word.isdecimal() and len(word) < 20 for word in words):
        return None
    size, blocks, free, inodes, inodes_free = map(float, words)
    return Room(size * blocks, size * free, inodes, inodes_free) if size * blocks > 0 else None


def samples(reading: Reading) -> Mapping[str, float]:
    rooms = ((path, room(done.stdout)) for path, done in reading.outputs.items())
    return {f"{NAME}/{path}/free-percent": found.free_percent for path, found in rooms if found}


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if not reading.files.get("mounts"):
        return [Sign("tool.failed", "the mount table cannot be read", status=Status.UNKNOWN)]
    return [sign for path, done in reading.outputs.items() for sign in _judged(path, done, ask)]


def _judged(path: str, done: Completed, ask: Ask) -> Iterator[Sign]:
    if done.stuck or done.timed_out:
        said = f"{path} does not even say how full it is (no answer in {LIMIT_S:.0f} s)"
        yield Sign("disk.hung", said, evidence=quote(f"stat -f {path}: no answer"), traits={"path": path})
        return
    if blind := unusable(done, "stat"):
        yield blind
        return
    found = room(done.stdout)
    if found is None:
        said = f"how full {path} is cannot be read"
        yield Sign("tool.unreadable", said, evidence=quote(done.stderr, done.stdout), status=Status.UNKNOWN)
        return
    yield from _tight(path, found, ask.limits)


def _tight(path: str, found: Room, limits: Mapping[str, float]) -> Iterator[Sign]:
    """A tenth of a large disk is much room: the share counts only below a number of bytes."""
    low = found.free_percent < limits["disk-free-percent"] and found.free < limits["disk-free-enough-gib"] * GIB
    if low or (found.free < limits["disk-free-least-gib"] * GIB and path != SHM):
        shown = f"{path}: {found.free / GIB:.1f} of {found.total / GIB:.1f} GiB free"
        said = f"{path} is nearly full: {found.free_percent:.1f} % free ({found.free / GIB:.1f} GiB)"
        yield Sign("disk.full", said, evidence=quote(shown), traits={"path": path})
    if found.inodes_percent < limits["disk-inodes-percent"]:
        said = f"{path} is running out of inodes: {found.inodes_percent:.1f} % free, whatever room is left"
        shown = f"{path}: {found.inodes_free:.0f} of {found.inodes:.0f} inodes free"
        yield Sign("disk.inodes", said, evidence=quote(shown), traits={"path": path})


CHECK = Check(NAME, None, collect, judge, samples)
