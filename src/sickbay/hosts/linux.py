"""This machine behind the Host door: what `sickbay check` and the agent look at.

With `root` other than "/" we live in a container and the machine's own root is mounted there: files are read below it
and commands run in it by chroot ("/host" for a mounted folder; "/proc/1/root" with hostPID and no mount at all). No
method raises but kernel_lines, which says by CheckError that there is no log to read; none waits for ever.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from sickbay.hosts import ring
from sickbay.hosts.child import Children, tool_of
from sickbay.hosts.guard import Guard
from sickbay.hosts.streams import BOUND
from sickbay.ports import Completed

READ_S = 5.0  # /proc and /sys answer in microseconds, or their driver hangs
MOST_NAMES = 65_536
MOST_BODY = 1024 * 1024
CHROOT_REFUSES = (125, 127)  # no such root, no such command there (coreutils manual)
BOOT_ID = "/proc/sys/kernel/random/boot_id"

# Where GPU and network tools live besides the PATH that systemd, Slurm or a container gives us.
TOOL_FOLDERS = (
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/nvidia/bin",
    "/usr/local/cuda/bin", "/opt/amazon/efa/bin", "/opt/amazon/openmpi/bin", "/opt/slurm/bin",
)  # fmt: skip

DRIVERS_OWN = "nvidia-"  # tools that come with the driver, and with its libraries
DRIVER_ROOT = "/run/nvidia/driver"  # the root of the GPU operator's driver container, as its own toolkit finds it
GKE_DRIVER = "/home/kubernetes/bin/nvidia"  # where GKE's installer puts it on Container-Optimized OS


class LinuxHost:
    def __init__(
        self, name: str, *, kmsg: str = "/dev/kmsg", root: str = "/", environ: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._root = root.rstrip("/")
        self._kmsg = kmsg
        self._env = environment(os.environ if environ is None else environ)
        self._children = Children()
        self._guard = Guard()

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        done = self._run_in(self._root, argv, timeout_s, self._env)
        if done.missing and argv[0].startswith(DRIVERS_OWN):
            return self._run_by_driver(argv, timeout_s) or done
        return done

    def _run_in(self, root: str, argv: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> Completed:
        prefix = ("chroot", root) if root else ()
        done = self._children.run((*prefix, *argv), timeout_s, env, tool_of(argv))
        if prefix and done.code in CHROOT_REFUSES and done.stderr.startswith("chroot:"):
            return Completed(None, done.stdout, done.stderr, missing=True)
        return done

    def _run_by_driver(self, argv: Sequence[str], timeout_s: float) -> Completed | None:
        """A tool of the driver that the machine's own root has not: where those who install drivers put it."""
        inside, tool = self._root + DRIVER_ROOT, argv[0]
        if any(self._is_there(f"{inside}{folder}/{tool}") for folder in ("/usr/bin", "/usr/local/bin", "/bin")):
            return self._run_in(inside, argv, timeout_s, self._env)
        if self._is_there(f"{self._root}{GKE_DRIVER}/bin/{tool}"):
            env = {**self._env, "LD_LIBRARY_PATH": f"{GKE_DRIVER}/lib64"}
            return self._run_in(self._root, (f"{GKE_DRIVER}/bin/{tool}", *argv[1:]), timeout_s, env)
        return None

    def _is_there(self, path: str) -> bool:
        return bool(self._guard.call(f"find {path}", lambda: _is_roots(path), READ_S))

    def read(self, path: str) -> str | None:
        return self._guard.call(f"read {path}", lambda: _read(self._root + path), READ_S)

    def names(self, path: str) -> tuple[str, ...] | None:
        return self._guard.call(f"names {path}", lambda: _names(self._root + path), READ_S)

    def fetch(
        self, url: str, timeout_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> str | None:
        return self._guard.call(
            f"{method} {url}", lambda: _fetch(url, timeout_s, method, dict(headers or {})), timeout_s + 1.0
        )

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        return ring.read(self._kmsg, self.boot_id(), cursor, self.run)

    def boot_id(self) -> str:
        return (self.read(BOOT_ID) or "").strip()[:64]

    def left_behind(self) -> tuple[str, ...]:
        """The tools and questions that hang in the kernel now."""
        return (*self._children.left_behind(), *self._guard.out())


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """What a command sees: ours, in English, with the places where such tools live at the end of its PATH."""
    known = [folder for folder in given.get("PATH", "").split(":") if folder]
    path = ":".join(dict.fromkeys((*known, *TOOL_FOLDERS)))
    return {**given, "PATH": path, "LC_ALL": "C", "LANGUAGE": "C"}


def _read(path: str) -> str | None:
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):  # a device or a pipe is no text to be read
            return None
        parts: list[bytes] = []
        room = BOUND
        while room > 0 and (part := os.read(opened, min(room, 1024 * 1024))):
            parts.append(part)
            room -= len(part)
        return b"".join(parts).decode("utf-8", "replace")
    finally:
        os.close(opened)


def _is_roots(path: str) -> bool:
    """A file or link of root's (or of our own): we are about to run it. A link leads somewhere in its own root only."""
    try:
        return os.lstat(path).st_uid in (0, os.geteuid())
    except OSError:
        return False


def _names(path: str) -> tuple[str, ...] | None:
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            found.append(os.fsencode(entry.name).decode("utf-8", "replace"))
            if len(found) >= MOST_NAMES:
                break
    return tuple(sorted(found))


def _fetch(url: str, timeout_s: float, method: str, headers: dict[str, str]) -> str | None:
    """No proxy (the metadata address means this machine, and only to this machine) and no redirect."""
    parts = urlsplit(url)
    kinds = {"http": HTTPConnection, "https": HTTPSConnection}
    if parts.hostname is None or parts.scheme not in kinds:
        return None
    line = kinds[parts.scheme](parts.hostname, parts.port, timeout=max(timeout_s, 0.01))
    try:
        line.request(method, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), headers=headers)
        answer = line.getresponse()
        return answer.read(MOST_BODY).decode("utf-8", "replace") if answer.status == 200 else None
    except (OSError, HTTPException):
        return None
    finally:
        line.close()
