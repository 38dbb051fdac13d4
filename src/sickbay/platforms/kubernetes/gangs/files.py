"""A small file that a trainer keeps on the shared file system, which the controller has mounted to read.

Called by progress.py. A job names a path below the setting kubernetes.progress_root; its owner also owns what lies
there, so no link is followed, `..` is refused, only a plain file is read and only its first bytes. A file system whose
server is gone never answers: a read has its own thread, and a few that are stuck are all there will be.
"""

from __future__ import annotations

import os
import stat
import threading

from sickbay.errors import InputError

WHOLE_S, MOST_BYTES, AT_ONCE = 2.0, 65_536, 8
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # not blocking: a pipe would wait for its writer

_free = threading.Semaphore(AT_ONCE)


class NoFile(InputError):
    """Nothing can be read there now, and why."""


def read(root: str, path: str) -> str:
    if not root:
        raise NoFile("the controller has no folder to read files of jobs in (setting kubernetes.progress_root)")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in path:
        raise NoFile(f"{path[:100]} is no path below the shared folder")
    if not _free.acquire(blocking=False):
        raise NoFile("the shared file system does not answer")
    said: list[str | OSError] = []
    thread = threading.Thread(target=_read_in_time, args=(root, parts, said), name="file", daemon=True)
    thread.start()
    thread.join(WHOLE_S)
    if not said:
        raise NoFile("the shared file system does not answer")
    if isinstance(said[0], OSError):
        raise NoFile(f"{path[:100]} cannot be read: {said[0].strerror}")
    return said[0]


def _read_in_time(root: str, parts: list[str], said: list[str | OSError]) -> None:
    try:
        said.append(_read(root, parts))
    except OSError as error:
        said.append(error)
    finally:
        _free.release()


def _read(root: str, parts: list[str]) -> str:
    """One folder after the other, each opened within the one before: nobody can put a link in between."""
    folder = os.open(root, FOLDER & ~os.O_NOFOLLOW)
    try:
        for part in parts[:-1]:
            inner = os.open(part, FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        file = os.open(parts[-1], PLAIN, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(0, "it is no plain file")
        return opened.read(MOST_BYTES).decode("utf-8", "replace")
