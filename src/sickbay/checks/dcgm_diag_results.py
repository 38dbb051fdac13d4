"""What a diagnostic's tests said: one Result per test and GPU, from DCGM 3 or 4 JSON or from the printed table.

`dcgm_diag` judges them. Documents seen: root "DCGM Diagnostic" (4), "DCGM GPU Diagnostic" (3, also with a bare list
below it), other programs' words before the "{", nulls where objects belong. Pure; it must never raise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sickbay.checks import dcgm_text

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
MOST_RESULTS = 4_096
MOST_BEGINNINGS = 32  # "{" that are tried before we say that there is no document


@dataclass(frozen=True, slots=True)
class Result:
    test: str
    status: str  # pass | fail | skip | warn, or whatever it says
    gpus: tuple[str, ...]
    warnings: tuple[dict[str, Any], ...]
    hardware: bool  # it looks at the GPU, not at how the host is set up


@dataclass(frozen=True, slots=True)
class Report:
    results: tuple[Result, ...]
    broken: str = ""  # DCGM's own words why it could not run
    serials: Mapping[str, str] = field(default_factory=dict)  # GPU -> serial, where DCGM 4 says it


def report(text: str) -> Report | None:
    """The report in this text; None if there is none."""
    if (whole := document(text)) is not None:
        root, entities = whole
        results = tuple(r for _, r in zip(range(MOST_RESULTS), _from_json(root), strict=False))
        return Report(results, str(root.get("runtime_error") or "")[:2_000], _serials(entities))
    tests = dcgm_text.tests(text)
    return Report(tuple(r for test in tests[:MOST_RESULTS] for r in _from_table(test))) if tests else None


def document(text: str) -> tuple[dict[str, Any], object] | None:
    """The first JSON object in the text that is a DCGM result, and its list of entities."""
    decoder, at, tries = json.JSONDecoder(), text.find("{"), 0
    while at >= 0 and tries < MOST_BEGINNINGS:
        tries += 1
        try:
            found, _ = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            found = None
        if (root := _root(found)) is not None:
            return root, found.get("entity_groups")
        at = text.find("{", at + 1)
    return None


def _root(found: object) -> dict[str, Any] | None:
    if not isinstance(found, dict):
        return None
    for name in ROOTS:
        if name in found:
            inner = found[name]
            return inner if isinstance(inner, dict) else {"test_categories": inner if isinstance(inner, list) else []}
    return found if "test_categories" in found else None


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _from_json(root: dict[str, Any]) -> Iterator[Result]:
    for category in _dicts(root.get("test_categories") or root.get("categories")):
        hardware = str(category.get("category", "")).lower() != "deployment"
        for test in _dicts(category.get("tests")):
            yield from _of_test(test, hardware)


def _of_test(test: dict[str, Any], hardware: bool) -> Iterator[Result]:
    """Its results; its summary where it has none, or where it fails and none of them does."""
    name = str(test.get("name", ""))[:80]
    results = [_of_result(name, result, hardware) for result in _dicts(test.get("results"))]
    yield from results
    summary = test.get("test_summary")
    if isinstance(summary, dict) and (not results or not any(r.status == "fail" for r in results)):
        whole = _of_result(name, summary, hardware)
        if not results or whole.status == "fail":
            yield whole


def _of_result(name: str, result: dict[str, Any], hardware: bool) -> Result:
    status = str(result.get("status", "")).strip().lower()[:16]
    warnings = tuple(_warnings(result.get("warnings", result.get("warning"))))
    return Result(name, status, _gpus(result), warnings, hardware)


def _gpus(result: dict[str, Any]) -> tuple[str, ...]:
    if str(result.get("entity_group", "GPU")).upper() != "GPU":
        return ()
    for name in ("entity_id", "gpu_id", "gpuId", "gpu_ids"):
        if name in result:
            parts = (part.strip() for part in str(result[name])[:400].split(","))
            return tuple(part for part in parts if part.isdecimal() and len(part) <= 4)[:64]
    return ()


def _warnings(value: object) -> Iterator[dict[str, Any]]:
    for item in (value if isinstance(value, list) else [value])[:64]:
        if isinstance(item, dict):
            yield item
        elif isinstance(item, str) and item.strip():
            yield {"warning": item}


def _serials(groups: object) -> dict[str, str]:
    found: dict[str, str] = {}
    for group in _dicts(groups)[:16]:
        if str(group.get("entity_group", "")).upper() == "GPU":
            for entity in _dicts(group.get("entities"))[:64]:
                serial = str(entity.get("serial_num") or "").strip()
                if serial.isalnum() and len(serial) <= 64:
                    found[str(entity.get("entity_id"))] = serial
    return found


def _from_table(test: dcgm_text.Test) -> Iterator[Result]:
    """A table says a status for the whole test, then one per GPU: those stand for it where there are any."""
    hardware = test.category.lower() not in ("deployment", "metadata")
    stated = [(status, gpu) for status, gpu in test.results if gpu] or test.results
    warned: set[str] = set()
    for note in test.notes:
        text = note.text()
        gpu = note.gpu or dcgm_text.gpu_of(text)
        warned.add(gpu)
        status = _status_of(stated, gpu)
        yield Result(test.name, status, (gpu,) if gpu else (), ({"warning": text},), hardware)
    for status, gpu in stated:
        if gpu not in warned and not (status == "fail" and not gpu and test.notes):
            yield Result(test.name, status, (gpu,) if gpu else (), (), hardware)


def _status_of(stated: list[tuple[str, str]], gpu: str) -> str:
    """What the table says of this GPU; of the test as a whole where it does not name it."""
    own = [status for status, whose in stated if whose == gpu]
    return own[0] if own else "fail" if any(status == "fail" for status, _ in stated) else stated[0][0]
