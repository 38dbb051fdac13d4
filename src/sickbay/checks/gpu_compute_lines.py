"""How gpu_compute is run on a node, and its lines read. For gpu-matmul and gpu-speed; it judges nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from sickbay.checks.signs import Ask, Reading, Sign, quote, unusable
from sickbay.model import Status
from sickbay.ports import Host

MOST_LINES = 4_096
MOST_GPUS = 64
Line = Mapping[str, Any]


@lru_cache(maxsize=1)
def script() -> str:
    return files("sickbay.checks").joinpath("gpu_compute.py").read_text("utf-8")


def run(host: Host, ask: Ask, what: str, *more: str, limit_s: float) -> Reading:
    """As text, so that the node needs no file of ours: its Python may live in another mount namespace than we do."""
    python = ask.options.get("python", "python3")
    backend = ask.options.get("compute-backend", "auto")
    return Reading(host.run((python, "-c", script(), what, "--backend", backend, *more), limit_s))


def lines(text: str, kind: str) -> list[Line]:
    """The results of this kind, one for each GPU and case."""
    return [line for line in _objects(text) if line.get("kind") == kind and _gpu(line) is not None]


def _objects(text: str) -> list[dict[str, Any]]:
    found = []
    for row in text.splitlines()[:MOST_LINES]:
        if row.startswith("{") and len(row) < 8_192:
            try:
                found.append(json.loads(row))
            except (ValueError, RecursionError):
                continue
    return [one for one in found if isinstance(one, dict)]


def _gpu(line: Line) -> int | None:
    gpu = line.get("gpu")
    return gpu if isinstance(gpu, int) and not isinstance(gpu, bool) and 0 <= gpu < MOST_GPUS else None


def text_of(line: Line, key: str) -> str:
    value = line.get(key)
    return value[:300] if isinstance(value, str) else ""


def blind(reading: Reading, found: Sequence[Line]) -> Sign | None:
    """Why nothing was computed, if nothing was."""
    if found and not (reading.done.timed_out or reading.done.stuck):
        return None
    if reading.done.missing:
        return Sign("tool.missing", "no Python here to compute with (setting: option python)", status=Status.UNKNOWN)
    if sign := unusable(reading.done, "the test computation"):
        return sign
    said = next((text_of(one, "error") for one in _objects(reading.done.stdout) if one.get("error")), "")
    if said:
        return Sign("tool.missing", f"{said}: GPUs cannot be made to compute", status=Status.UNKNOWN)
    shown = quote(*reading.done.stderr.splitlines()[-3:], reading.done.stdout[:200])
    return Sign("tool.unreadable", "the test computation printed no result", evidence=shown, status=Status.UNKNOWN)


def failures(found: Sequence[Line], kind: str) -> list[Sign]:
    """GPUs that broke off. All of them with one text is software's doing, and so is a GPU without room."""
    broken = {int(line["gpu"]): text_of(line, "error") for line in found if line.get("error")}
    everyone = {int(line["gpu"]) for line in found}
    alike = len(everyone) > 1 and set(broken) == everyone and len(set(broken.values())) == 1
    return [_failure(gpu, said, kind, doubtful=alike) for gpu, said in sorted(broken.items())]


def _failure(gpu: int, said: str, kind: str, *, doubtful: bool) -> Sign:
    full = "out of memory" in said.lower()
    reason = f"GPU {gpu} has no room for the {kind} test: it is in use" if full else f"GPU {gpu} failed the {kind} test"
    status = Status.UNKNOWN if full or doubtful else None
    return Sign("compute.failed", reason, evidence=quote(f"GPU {gpu}: {said}"), status=status, traits=place(gpu))


def place(gpu: int) -> dict[str, str]:
    return {"index": str(gpu)}


def uncompared(found: Sequence[Line], expected: int | None) -> list[Sign]:
    """A GPU that was not looked at has not passed."""
    here = len({int(line["gpu"]) for line in found})
    if not expected or here >= expected:
        return []
    said = f"only {here} of {expected} GPUs took part: the others were not looked at"
    return [Sign("tool.failed", said, status=Status.UNKNOWN)]
