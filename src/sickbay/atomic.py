"""A file that is either the old one or the new one, never half of each: the one way in which a node keeps its files.

Called by agent/, identity/ and suite/. OSError is the caller's to report; what it left beside is removed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


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


def read(path: Path, most: int) -> bytes | None:
    """At most `most` bytes; None if it is not there, cannot be read or is larger."""
    try:
        with path.open("rb") as opened:
            data = opened.read(most + 1)
    except OSError:
        return None
    return data if len(data) <= most else None


def move_aside(path: Path) -> Path:
    """Keep an unreadable file for whoever wants to know, under a name we never read."""
    aside = path.with_name(path.name + ".unreadable")
    os.replace(path, aside)
    return aside
