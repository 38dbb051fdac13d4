"""What every evidence store shares: names, limits, and the check by digest. Called by folder and s3; it does no IO.

A name is made by us from an action's key, so nothing that a node says, and no record that somebody has tampered with,
can name a file or an object outside of the store.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sickbay.errors import EvidenceError
from sickbay.model import Archive
from sickbay.settings import EvidenceSettings

MB = 1 << 20
DAY_S = 86_400.0
SUFFIX = ".tar.gz"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,180}\.tar\.gz")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of one archive and of all, seconds that one is kept."""

    archive: int
    total: int
    keep_s: float


@dataclass(frozen=True, slots=True)
class Kept:
    """One archive that is there."""

    name: str
    size: int
    at: float  # wall time


class Keeper:
    """How every evidence store begins: one put at a time, what it is bounded by, and why the last was not kept."""

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits, self._now = limits, now
        self._lock = threading.Lock()
        self._trouble = ""

    @property
    def trouble(self) -> str:
        return self._trouble


def limits_of(settings: EvidenceSettings) -> Limits:
    return Limits(int(settings.archive_mb * MB), int(settings.total_mb * MB), settings.keep_days * DAY_S)


USUAL = limits_of(EvidenceSettings())


def name_of(key: str) -> str:
    """gpu-17.3/4 -> gpu-17.3-4-9f86d081.tar.gz: to be read by people, and of one key only."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", key).strip("-._")[:120] or "unnamed"
    return f"{readable}-{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:8]}{SUFFIX}"


def is_name(name: str) -> bool:
    """Could this be one of ours? A name from a record or a listing is asked before it is used."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def refuse_other_names(archive: Archive) -> None:
    if not is_name(archive.name):
        raise EvidenceError(f"{archive.name[:80]!r} is no name of an archive")


def described(name: str, data: bytes) -> Archive:
    return Archive(name, hashlib.sha256(data).hexdigest(), len(data))


def checked(archive: Archive, data: bytes) -> bytes:
    """The bytes, if they are what was kept."""
    if described(archive.name, data) != archive:
        raise EvidenceError(f"{archive.name} is not what was collected: its digest is another one, so it is not used")
    return data


def refusal(name: str, size: int, there: Iterable[Kept], limits: Limits) -> str:
    """Why an archive of this size is not taken beside what is there; "" if it is."""
    if not is_name(name):
        return f"{name[:80]!r} is no name of an archive"
    if size > limits.archive:
        return f"{name} has {_mb(size)} and evidence.archive_mb allows {_mb(limits.archive)}"
    full = sum(one.size for one in there if one.name != name)
    if full + size > limits.total:
        return (
            f"the evidence store is full: {_mb(full)} of {_mb(limits.total)} (evidence.total_mb), and nothing in it is "
            f"older than {limits.keep_s / DAY_S:g} days (evidence.keep_days)"
        )
    return ""


def outdated(there: Iterable[Kept], limits: Limits, now: float) -> list[Kept]:
    """What is past its time, the oldest first."""
    return sorted((one for one in there if now - one.at > limits.keep_s), key=lambda one: one.at)


def _mb(size: int) -> str:
    return f"{size / MB:.1f} MB"
