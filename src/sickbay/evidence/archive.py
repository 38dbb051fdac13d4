"""The archive of one collection: every piece, manifest.json with a check sum of each, and who the node is.

Written whole before it gets its name, bounded in size and time, readable by `sickbay evidence`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sickbay.errors import UserError
from sickbay.evidence.gather import Gathering, Piece, bounded
from sickbay.model import Finding, Gpu
from sickbay.ports import Host

LIMIT_S = 300.0  # as long as a case waits for it (policy.collect_s)
MOST_BYTES = 64 << 20  # of all pieces together
ROUNDS = 6  # of finding how much fits
SCHEMA = 1


def collect(
    host: Host,
    folder: Path,
    *,
    key: str,
    findings: Sequence[Finding],
    gpus: Sequence[Gpu],
    at: float,
    kernel_lines: int = 2_000,
    kept: Mapping[str, str] | None = None,
    versions: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
    most_packed: int = 0,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """Ask the node for everything and write `folder`/KEY.tar.gz. UserError only if that file cannot be written.

    `kept` are artefacts of earlier checks (name -> text), such as the last dcgmi diagnostic; `say` hears of progress.
    With `most_packed` the file has at most so many bytes: the last pieces, which are the longest, are cut.
    """
    gathering = Gathering(host, clock, limit_s, say)
    about = {"node": host.name, "boot_id": _boot_id(host), "action": key, "at": at, "schema": SCHEMA}
    pieces = [*_known(about, findings, gpus, versions or {}, kept or {}), *gathering.pieces(kernel_lines)]
    return _written(folder, key, about, pieces, most_packed)


def _written(folder: Path, key: str, about: Mapping[str, Any], pieces: Sequence[Piece], most_packed: int) -> Path:
    """As much as fits: what text shrinks to when it is packed is known only by packing it."""
    fits, room = 0, min(MOST_BYTES, sum(len(piece.data) for piece in pieces))
    path = write(folder, key, about, _within(pieces, room))
    if not most_packed or path.stat().st_size <= most_packed:
        return path
    for _ in range(ROUNDS):
        middle = (fits + room) // 2
        size = write(folder, key, about, _within(pieces, middle)).stat().st_size
        fits, room = (middle, room) if size <= most_packed else (fits, middle)
    return write(folder, key, about, _within(pieces, fits))


def _boot_id(host: Host) -> str:
    try:
        return host.boot_id()
    except Exception:
        return ""


def _known(
    about: Mapping[str, Any], findings: Sequence[Finding], gpus: Sequence[Gpu], versions: Mapping[str, str],
    kept: Mapping[str, str],
) -> Iterator[Piece]:  # fmt: skip
    """What we know without asking. identity.json is what a vendor's ticket is made from."""
    identity = {**about, "gpus": [asdict(gpu) for gpu in gpus], "versions": dict(versions)}
    yield _json("identity.json", identity)
    yield _json("findings.json", [asdict(finding) for finding in findings[:1_000]])
    for name, text in list(kept.items())[:64]:
        yield bounded(Piece(f"kept/{safe(name)}", text.encode("utf-8", "replace"), "an earlier check"))


def _json(name: str, value: object) -> Piece:
    return bounded(Piece(name, (json.dumps(value, indent=2, default=str) + "\n").encode(), "sickbay"))


def _within(pieces: Iterable[Piece], most: int) -> Iterator[Piece]:
    """The pieces, the last ones cut or left out where all of them together would be too much."""
    room = most
    for piece in pieces:
        data = piece.data[:room]
        room -= len(data)
        if len(data) == len(piece.data):
            yield piece
        else:
            yield Piece(piece.file, data, piece.source, piece.code, piece.timed_out, True, piece.missing, piece.note)


def manifest(about: Mapping[str, Any], pieces: Sequence[Piece]) -> dict[str, Any]:
    rows = [
        {
            "file": piece.file if piece.data else "",
            "wanted": piece.file,
            "sha256": hashlib.sha256(piece.data).hexdigest() if piece.data else "",
            "bytes": len(piece.data),
            "command": piece.source,
            "exit_code": piece.code,
            "timed_out": piece.timed_out,
            "truncated": piece.truncated,
            "missing": piece.missing,
            "note": piece.note,
        }
        for piece in pieces
    ]
    return {**about, "files": rows}


def safe(name: str) -> str:
    """A name that can only be a file in the folder it is put in."""
    return re.sub(r"[^\w.-]", "-", name).lstrip(".")[:120] or "unnamed"


def write(folder: Path, key: str, about: Mapping[str, Any], pieces: Iterable[Piece]) -> Path:
    """One .tar.gz, whole or not at all, that only its owner may read."""
    name = safe(key)
    target, partial = folder / f"{name}.tar.gz", folder / f".{name}.{os.getpid()}.partial"
    kept = list(pieces)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            open(partial, "xb", opener=_private) as file,
            tarfile.open(fileobj=file, mode="w:gz", compresslevel=5) as out,
        ):
            _add(
                out, f"{name}/manifest.json", (json.dumps(manifest(about, kept), indent=2) + "\n").encode(), about["at"]
            )
            for piece in kept:
                if piece.data:
                    _add(out, f"{name}/{piece.file}", piece.data, about["at"])
        partial.replace(target)
    except OSError as error:
        raise UserError(
            f"Cannot write {target}: {error.strerror or error}. Name another folder with --output."
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()
    return target


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _add(out: tarfile.TarFile, name: str, data: bytes, at: float) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(data), int(at), 0o600
    out.addfile(info, io.BytesIO(data))
