"""The GPU map on disk (PCI, UUID, serial, index) of the last cycle in which every GPU answered.

The agent loads it at start and attaches it to findings, so that a GPU that is lost still has a name. A cycle in which
one is missing must never replace it: that is just when the name is needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sickbay import atomic
from sickbay.model import Gpu

VERSION = 1
MOST_GPUS = 256
MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class GpuMap:
    gpus: tuple[Gpu, ...] = ()
    boot_id: str = ""
    at: float = 0.0  # wall


def renewed(known: GpuMap, seen: Sequence[Gpu], expected: int | None, boot_id: str, at: float) -> GpuMap:
    """The map after a cycle: what was seen if all GPUs answered, else the one we know.

    Without an expected count, as many as we know must have answered. A GPU whose UUID cannot be read has not answered.
    """
    names = {gpu.uuid for gpu in seen if gpu.uuid}
    needed = expected or max(1, len(known.gpus))
    whole = len(names) == len(seen) and needed <= len(seen) <= MOST_GPUS
    return GpuMap(tuple(seen), boot_id, at) if whole else known


def name_of(known: GpuMap, where: str | int) -> Gpu | None:
    """The GPU at a PCI address ("0000:53:00", with or without a function) or with an index; None if unknown."""
    if isinstance(where, int):
        return next((gpu for gpu in known.gpus if gpu.index == where), None)
    wanted = _slot(where)
    return next((gpu for gpu in known.gpus if wanted and _slot(gpu.pci) == wanted), None)


def _slot(pci: str) -> str:
    """Domains are written with four or eight digits, functions left out or not: "00000000:53:00.0" is "0000:53:00"."""
    parts = pci.lower().partition(".")[0].split(":")
    if len(parts) != 3:
        return ""
    return f"{parts[0].lstrip('0').rjust(4, '0')}:{parts[1]}:{parts[2]}"


def load(path: Path) -> GpuMap:
    """The map in this file; an empty one if the file is not there, of another version, or garbage."""
    try:
        return _read(json.loads(atomic.read(path, MOST_BYTES) or b""))
    except (ValueError, RecursionError):
        return GpuMap()


def _read(data: Any) -> GpuMap:
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("gpus"), list):
        return GpuMap()
    gpus = tuple(gpu for row in data["gpus"][:MOST_GPUS] if (gpu := _gpu(row)) is not None)
    if len(gpus) != len(data["gpus"]):
        return GpuMap()
    boot_id, at = data.get("boot_id"), data.get("at")
    number = float(at) if isinstance(at, int | float) and not isinstance(at, bool) else 0.0
    return GpuMap(gpus, boot_id if isinstance(boot_id, str) else "", number)


def _gpu(row: Any) -> Gpu | None:
    match row:
        case {"uuid": str(uuid), "serial": str(serial), "pci": str(pci), "index": int(index)}:
            return Gpu(uuid, serial, pci, index)
    return None


def save(path: Path, known: GpuMap) -> None:
    """Whole or not at all. OSError is the caller's to report."""
    text = json.dumps({"version": VERSION, **asdict(known)}, indent=1) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, text.encode())
