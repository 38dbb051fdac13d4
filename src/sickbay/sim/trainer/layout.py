"""Checkpoints on disk: names, the completeness marker, and the fence that keeps an old attempt out.

    JOBDIR/attempt-000002.json                  attempt 2 began: where, and which checkpoints it inherits
    JOBDIR/step-000120.attempt-2/shard-3.npz    written by rank 3
    JOBDIR/step-000120.attempt-2/COMPLETE       written by rank 0 when every shard is on disk; size and sha256
    JOBDIR/logs/attempt-2.rank-3.log

Called by gang.py and by the ranks. It must never import numpy and never trust a directory without its marker.

Why the inheritance list: a rank of attempt 1 that sleeps through the start of attempt 2 may write a marker afterwards,
and no check before the write closes that gap (it may fall asleep between the two; a lock would be held while asleep).
So readers decide: of older attempts only what was complete when the newest attempt began exists. The list also cuts
off what is newer than the step it resumed from, so a checkpoint that was once distrusted is not picked up again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sickbay.errors import AlreadyExists, SickbayError

MARKER = "COMPLETE"
Saved = tuple[int, int]  # (step, attempt)

_SAVED = re.compile(r"step-(\d{6,})\.attempt-(\d+)\Z")
_ATTEMPT = re.compile(r"attempt-(\d{6,})\.json\Z")


class DamagedCheckpoint(SickbayError):
    """A checkpoint with a marker whose shards are not what the marker says."""


class Fenced(SickbayError):
    """A newer attempt of the same job has begun: this one may write no more."""


def saved_name(saved: Saved) -> str:
    return f"step-{saved[0]:06d}.attempt-{saved[1]}"


def shard_name(rank: int) -> str:
    return f"shard-{rank}.npz"


def log_path(jobdir: Path, attempt: int, rank: int) -> Path:
    return jobdir / "logs" / f"attempt-{attempt}.rank-{rank}.log"


def write_durably(path: Path, data: bytes) -> None:
    """The file is there whole or not at all, also after a power cut: fsync, rename, fsync of the directory."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- attempts -------------------------------------------------------------------------------------------------------


def newest_attempt(jobdir: Path) -> int:
    """0 when none has begun."""
    found = (_ATTEMPT.match(name) for name in _names(jobdir))
    return max((int(match[1]) for match in found if match), default=0)


def begin_attempt(jobdir: Path, attempt: int, from_step: int) -> None:
    """Create-if-absent: from here on every older attempt is fenced. Of two callers one gets AlreadyExists."""
    newest = newest_attempt(jobdir)
    if newest >= attempt:
        raise AlreadyExists(f"attempt {newest} of {jobdir.name} has begun already; start attempt {newest + 1} instead")
    inherits = [saved for saved in lineage(jobdir) if saved[0] <= from_step]
    path = jobdir / f"attempt-{attempt:06d}.json"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    write_durably(temporary, json.dumps({"from_step": from_step, "inherits": inherits}).encode())
    try:
        os.link(temporary, path)  # fails when it exists, unlike a rename
    except FileExistsError:
        raise AlreadyExists(f"attempt {attempt} of {jobdir.name} has begun already") from None
    finally:
        os.unlink(temporary)
    sync_directory(jobdir)
    _sweep(jobdir, attempt)


def refuse_if_fenced(jobdir: Path, attempt: int) -> None:
    newest = newest_attempt(jobdir)
    if newest > attempt:
        raise Fenced(f"attempt {newest} of {jobdir.name} has begun; attempt {attempt} writes no more")


def _inherited(jobdir: Path, attempt: int) -> set[Saved]:
    record = json.loads((jobdir / f"attempt-{attempt:06d}.json").read_bytes())
    return {(int(step), int(of)) for step, of in record["inherits"]}


def _sweep(jobdir: Path, attempt: int) -> None:
    """What an older attempt left half-written is of no use to anybody."""
    for saved in _directories(jobdir):
        if saved[1] < attempt and not is_complete(jobdir, saved):
            remove(jobdir, saved)


# --- checkpoints ----------------------------------------------------------------------------------------------------


def lineage(jobdir: Path) -> list[Saved]:
    """The complete checkpoints that the newest attempt may resume from, oldest first."""
    newest = newest_attempt(jobdir)
    if not newest:
        return []
    inherited = _inherited(jobdir, newest)
    own = (saved for saved in _directories(jobdir) if saved[1] == newest or saved in inherited)
    return sorted(saved for saved in own if is_complete(jobdir, saved))


def is_complete(jobdir: Path, saved: Saved) -> bool:
    """The marker is there and so is every shard it names, at its full size."""
    directory = jobdir / saved_name(saved)
    try:
        shards = read_marker(directory)["shards"]
        return bool(shards) and all((directory / name).stat().st_size == row["size"] for name, row in shards.items())
    except (OSError, DamagedCheckpoint):
        return False


def read_marker(directory: Path) -> dict[str, Any]:
    data = (directory / MARKER).read_bytes()
    try:
        marker = json.loads(data)
        if all(row["size"] >= 0 and row["sha256"] for row in marker["shards"].values()):
            return dict(marker)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise DamagedCheckpoint(f"{directory.name}/{MARKER} is not a marker of ours")


def write_marker(jobdir: Path, saved: Saved, shards: dict[str, dict[str, object]]) -> None:
    """Only rank 0 calls this, after every rank has said that its shard is on disk."""
    refuse_if_fenced(jobdir, saved[1])
    sync_directory(jobdir)  # the checkpoint's own directory entry, before the marker says that it is there
    marker = {"step": saved[0], "attempt": saved[1], "shards": shards}
    write_durably(jobdir / saved_name(saved) / MARKER, json.dumps(marker, sort_keys=True).encode())


def describe(data: bytes) -> dict[str, object]:
    """How a shard is named in the marker."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def read_shards(directory: Path) -> list[bytes]:
    """Every shard in rank order, proven to be what was written."""
    shards = read_marker(directory)["shards"]
    return [_read_shard(directory, shard_name(rank), shards) for rank in range(len(shards))]


def _read_shard(directory: Path, name: str, shards: dict[str, dict[str, object]]) -> bytes:
    try:
        data = (directory / name).read_bytes()
        if describe(data) == shards[name]:
            return data
    except (OSError, KeyError):
        pass
    raise DamagedCheckpoint(f"{directory.name}/{name} is missing or not what its marker says; resume from an older one")


def prune(jobdir: Path, keep: int) -> None:
    for saved in lineage(jobdir)[:-keep]:
        remove(jobdir, saved)


def remove(jobdir: Path, saved: Saved) -> None:
    """Marker first, so that it is never complete in part."""
    directory = jobdir / saved_name(saved)
    names = sorted(_names(directory), key=lambda name: name != MARKER)
    with contextlib.suppress(OSError):
        for name in names:
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()


def _directories(jobdir: Path) -> Iterable[Saved]:
    found = (_SAVED.match(name) for name in _names(jobdir))
    return [(int(match[1]), int(match[2])) for match in found if match]


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
