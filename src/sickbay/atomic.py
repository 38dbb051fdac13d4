"""A file that is either the old one or the new one, never half of each: the one way in which a node keeps its files.
And the one way in which files are read, a node's and those that a person names: a pipe in the place of one must not
hold us.

Called by agent/, identity/, suite/ and treatments/, and by whoever reads what a person named. OSError is the caller's
to report; what it left beside is removed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def write(path: Path, data: bytes, *, sync: bool = True, mode: int = 0o644) -> None:
    """Replace `path`. With `sync` it survives a power cut; without, it survives the death of this process."""
    beside = path.with_name(f".{path.name[:200]}.{os.urandom(4).hex()}.tmp")  # nobody can have put a link there
    try:
        _fill(beside, data, sync, mode)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    if sync:
        _sync_folder(path.parent)


def _fill(beside: Path, data: bytes, sync: bool, mode: int) -> None:
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """The rename itself is an entry in the folder, and is lost without this."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def opened(path: Path) -> BinaryIO:
    """A plain file, to be read. Anything else is an OSError at once: a pipe would wait for its writer for ever."""
    _refuse(path, os.stat(path).st_mode)  # before it is opened: that alone sets some devices going
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _refuse(path, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except OSError:
        os.close(handle)
        raise


KINDS = {stat.S_IFIFO: "a pipe (FIFO)", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}


def _refuse(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        what = KINDS.get(stat.S_IFMT(mode), "a device")
        raise OSError(errno.EINVAL, f"it is {what}, no plain file", str(path))


STREAM = re.compile(r"/dev/(?:stdin|fd/\d+)|/proc/self/fd/\d+")


def named(path: Path) -> BinaryIO:
    """What a person named: a plain file, or a stream that was opened for us (/dev/stdin, a shell's `<(command)`), which
    ends when its writer does."""
    return path.open("rb") if STREAM.fullmatch(str(path)) else opened(path)


def prove(path: Path) -> None:
    """OSError unless it can be read: for files that a library opens by their names."""
    named(path).close()


def read(path: Path, most: int) -> bytes | None:
    """At most `most` bytes; None if it is not there, no plain file, cannot be read or is larger."""
    try:
        with opened(path) as file:
            data = file.read(most + 1)
    except OSError:
        return None
    return data if len(data) <= most else None


def move_aside(path: Path) -> Path:
    """Keep an unreadable file for whoever wants to know, under a name we never read."""
    aside = path.with_name(path.name + ".unreadable")
    os.replace(path, aside)
    return aside
