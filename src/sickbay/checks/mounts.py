"""The mount table, read: what is mounted where, of which kind. For local-disks, disk-space and shared-storage.

It parses text that a check collected and touches nothing itself; a line it cannot read is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sickbay.ports import Host

MOST = 4_096  # a node full of pods has a few thousand mounts
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs"})
SHARED = frozenset(
    {"lustre", "nfs", "nfs4", "gpfs", "beegfs", "wekafs", "ceph", "fuse.ceph", "glusterfs", "fuse.glusterfs", "cifs"}
)
_OCTAL = re.compile(r"\\([0-3][0-7]{2})")  # the kernel writes space, tab, newline and backslash so


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    path: str
    kind: str
    options: frozenset[str]

    @property
    def writable(self) -> bool:
        return "rw" in self.options


def table(host: Host) -> str | None:
    """That of process 1, so that an agent in a container sees the node's; else our own."""
    return host.read("/proc/1/mounts") or host.read("/proc/mounts")


def parse(text: str) -> Iterator[Mount]:
    for line in text.splitlines()[:MOST]:
        fields = line.split(" ")
        if len(fields) >= 4 and fields[1].startswith("/"):
            source, path = _plain(fields[0]), _plain(fields[1])
            yield Mount(source, path, fields[2], frozenset(fields[3].split(",")))


def _plain(word: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found.group(1), 8)), word)


def covering(path: str, mounts: list[Mount]) -> Mount | None:
    """The mount that a path lies on: the longest mount point above it, the last of those mounted there."""
    best: Mount | None = None
    for mount in mounts:
        above = mount.path.rstrip("/") + "/"
        if f"{path.rstrip('/')}/".startswith(above) and (best is None or len(mount.path) >= len(best.path)):
            best = mount
    return best
