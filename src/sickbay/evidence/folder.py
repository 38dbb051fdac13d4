"""The evidence store as a folder: of the embedded fleet, or a volume of the controller.

Composed by controller/sites.py; the command line reads it. Nobody but its owner may read it: kernel logs and tool
outputs name users and paths. It must never follow a link, nor touch a file that is not an archive of ours.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sickbay import atomic
from sickbay.errors import EvidenceError
from sickbay.evidence.keeping import (
    USUAL,
    Keeper,
    Kept,
    Limits,
    checked,
    described,
    is_name,
    outdated,
    refusal,
    refuse_other_names,
)
from sickbay.model import Archive

NO_LINKS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderEvidence(Keeper):
    """ports.EvidenceStore. Several threads of one controller put into it, one at a time."""

    def __init__(self, folder: Path, limits: Limits = USUAL, now: Callable[[], float] = time.time) -> None:
        super().__init__(limits, now)
        self._folder = folder

    def put(self, name: str, data: bytes) -> Archive:
        with self._lock:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._prune()
                self._trouble = refusal(name, len(data), self._there(), self._limits)
                if not self._trouble:
                    atomic.write(self._folder / name, data, mode=0o600)
            except OSError as error:
                self._trouble = f"{self._folder} cannot be written: {error.strerror or error}"
            if self._trouble:
                raise EvidenceError(self._trouble)
            return described(name, data)

    def get(self, archive: Archive) -> bytes:
        refuse_other_names(archive)
        try:
            return checked(archive, _read(self._folder / archive.name, archive.size))
        except FileNotFoundError:
            raise EvidenceError(
                f"{archive.name} is not in {self._folder}: removed after its time, or elsewhere"
            ) from None
        except OSError as error:
            raise EvidenceError(f"{archive.name} cannot be read: {error.strerror or error}") from error

    def prune(self) -> int:
        with self._lock:
            try:
                return self._prune()
            except OSError as error:
                raise EvidenceError(f"{self._folder} cannot be tidied: {error.strerror or error}") from error

    def _prune(self) -> int:
        old = outdated(self._there(), self._limits, self._now())
        for one in old:
            (self._folder / one.name).unlink(missing_ok=True)
        return len(old)

    def _there(self) -> list[Kept]:
        return list(_archives(self._folder)) if self._folder.is_dir() else []


def _archives(folder: Path) -> Iterator[Kept]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_name(entry.name) and entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                yield Kept(entry.name, found.st_size, found.st_mtime)


def _read(path: Path, size: int) -> bytes:
    """At most a byte more than there must be, of a plain file: neither a link nor a pipe is waited for."""
    with os.fdopen(os.open(path, NO_LINKS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(None, "it is not a file")
        return file.read(size + 1)
