"""Checks 1 and 4: `dcgmi diag -r 2|4 -j`. Did the GPU tests run, and did one of them find something?

`checks/run` calls it on a Host; `sickbay diagnose` uses `signs` on a file. Skipped tests are not passed tests.
DCGM's own severity decides what a failure without a known error name means; tool, occupancy and set-up errors say
nothing about a GPU. Formats: DCGM 3 ("DCGM GPU Diagnostic") and DCGM 4 ("DCGM Diagnostic"); dcgm_errors.h for the
numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sickbay.checks.dcgm_errors import CONFIG, MONITOR, UNNAMED, UNSURE, errors
from sickbay.checks.signs import Ask, Reading, Sign, quote, unusable
from sickbay.model import Status
from sickbay.ports import Host

TIMEOUT_L2_S = 900.0
TIMEOUT_L4_S = 9000.0


def collect_l2(host: Host, ask: Ask) -> Reading:
    return Reading(host.run(("dcgmi", "diag", "-r", "2", "-j"), TIMEOUT_L2_S))


def collect_l4(host: Host, ask: Ask) -> Reading:
    return Reading(host.run(("dcgmi", "diag", "-r", "4", "-j"), TIMEOUT_L4_S))


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if blind := unusable(reading.done, "dcgmi"):
        return [Sign("dcgm.missing-tool", blind.reason, status=Status.UNKNOWN) if reading.done.missing else blind]
    told = signs(reading.done.stdout)
    if len(told) == 1 and told[0].code == "dcgm.unreadable":
        return [_dead(f"{reading.done.stdout}\n{reading.done.stderr}", reading.done.code)]
    return told


_DEAD = re.compile(
    r"unable to establish a connection|host ?engine|connection (?:to|refused)|not running", re.IGNORECASE
)


def _dead(text: str, code: int | None) -> Sign:
    """Exit codes are the low byte of a negative DCGM result: 226 is -30, "the test program failed"."""
    lines = [line for line in text.splitlines() if line.strip()]
    if _DEAD.search(text):
        return Sign(
            "dcgm.dead",
            "DCGM's host engine does not answer, so we cannot tell",
            evidence=quote(*lines[:2]),
            status=Status.UNKNOWN,
        )
    return Sign(
        "dcgm.unreadable",
        f"dcgmi (exit code {code}) printed no result we can read",
        evidence=quote(*lines[:2]),
        status=Status.UNKNOWN,
    )


def signs(text: str) -> list[Sign]:
    root = document(text)
    if root is None:
        return [Sign("dcgm.unreadable", "no DCGM result in this text", status=Status.UNKNOWN)]
    broken = root.get("runtime_error")
    if broken:
        return [Sign("tool.failed", "DCGM could not run its tests", evidence=quote(str(broken)), status=Status.UNKNOWN)]
    results = list(_results(root))
    told = [sign for result in results if result.status == "fail" or result.warnings for sign in _judge(result)]
    ran = any(result.hardware and result.status in ("pass", "fail", "warn") for result in results)
    if not ran:
        told.append(_not_run(results))
    return told


def document(text: str) -> dict[str, Any] | None:
    """The first JSON object in the text that is a DCGM result; other programs' words may stand before it."""
    decoder, at, tries = json.JSONDecoder(), text.find("{"), 0
    while at >= 0 and tries < 32:
        tries += 1
        try:
            found, _ = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            found = None
        if (root := _root(found)) is not None:
            return root
        at = text.find("{", at + 1)
    return None


def _root(found: object) -> dict[str, Any] | None:
    if not isinstance(found, dict):
        return None
    for name in ("DCGM Diagnostic", "DCGM GPU Diagnostic"):
        if name in found:
            inner = found[name]
            return inner if isinstance(inner, dict) else {"test_categories": inner if isinstance(inner, list) else []}
    return found if "test_categories" in found else None


@dataclass(frozen=True, slots=True)
class Result:
    test: str
    status: str
    gpus: tuple[str, ...]
    warnings: tuple[dict[str, Any], ...]
    hardware: bool


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _results(root: dict[str, Any]) -> Iterator[Result]:
    for category in _dicts(root.get("test_categories")):
        hardware = str(category.get("category", "")).lower() != "deployment"
        for test in _dicts(category.get("tests")):
            for result in _dicts(test.get("results")):
                yield Result(
                    str(test.get("name", ""))[:80],
                    str(result.get("status", "")).strip().lower(),
                    _gpus(result),
                    tuple(_warnings(result.get("warnings", result.get("warning")))),
                    hardware,
                )


def _gpus(result: dict[str, Any]) -> tuple[str, ...]:
    if str(result.get("entity_group", "GPU")).upper() != "GPU":
        return ()
    for name in ("entity_id", "gpu_id", "gpuId", "gpu_ids"):
        if name in result:
            return tuple(part.strip() for part in str(result[name]).split(",") if part.strip().isdecimal())[:64]
    return ()


def _warnings(value: object) -> Iterator[dict[str, Any]]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item
        elif isinstance(item, str) and item.strip():
            yield {"warning": item}


def _judge(result: Result) -> Iterator[Sign]:
    if not result.warnings:
        yield _sign(result, {})
    for warning in result.warnings[:64]:
        yield _sign(result, warning)


def _sign(result: Result, warning: dict[str, Any]) -> Sign:
    text = str(warning.get("warning", ""))
    name = _name(warning, f"{result.test}: {text}")
    level = warning.get("error_severity")
    failed = name == UNNAMED and result.hardware and result.status == "fail" and level != UNSURE
    gpu = result.gpus[0] if len(result.gpus) == 1 else ""
    traits = {"test": result.test, "index": gpu, "dcgm_severity": "" if level is None else str(level)[:8]}
    reason = f"DCGM {result.test}{f' on GPU {gpu}' if gpu else ''}: {text[:160] or result.status}"
    return Sign(
        "dcgm.test-failed" if failed else f"dcgm.{name}", reason,
        evidence=quote(text or f"{result.test}: {result.status}"),
        status=None if failed else _status(name, level, result), traits={k: v for k, v in traits.items() if v},
    )  # fmt: skip


def _status(name: str, level: object, result: Result) -> Status | None:
    """None: as bad as the catalog says. A warning beside a Pass is only something to watch."""
    if name in errors().settings or level == CONFIG:
        return Status.DEGRADED
    if name in errors().blind:
        return Status.UNKNOWN
    if result.status in ("pass", "skip", "warn") or level == MONITOR:
        return Status.DEGRADED
    return None


# Where a release prints no error number, its words are all we have.
_WORDS = (
    (re.compile(r"persistence mode", re.IGNORECASE), "DCGM_FR_PERSISTENCE_MODE"),
    (re.compile(r"row remap(?:ping)? fail", re.IGNORECASE), "DCGM_FR_ROW_REMAP_FAILURE"),
    (re.compile(r"pending row remap|row remap\w* (?:is )?pending", re.IGNORECASE), "DCGM_FR_PENDING_ROW_REMAP"),
    (re.compile(r"fallen off the bus", re.IGNORECASE), "DCGM_FR_FALLEN_OFF_BUS"),
    (re.compile(r"environment(?:al)? variable", re.IGNORECASE), "DCGM_FR_BAD_CUDA_ENV"),
    (re.compile(r"cannot open library|not found in|libcuda", re.IGNORECASE), "DCGM_FR_CANNOT_OPEN_LIB"),
    (re.compile(r"graphics processes|in use|other process", re.IGNORECASE), "DCGM_FR_GRAPHICS_PROCESSES"),
    (re.compile(r"permission", re.IGNORECASE), "DCGM_FR_NO_ACCESS_TO_FILE"),
    (
        re.compile(
            r"(?:unable to|could not|cannot) (?:find|load|open|start|run)|not (?:found|supported|available)",
            re.IGNORECASE,
        ),
        "DCGM_FR_INTERNAL",
    ),
    (re.compile(r"out of memory|could not allocate|memory alloc", re.IGNORECASE), "DCGM_FR_MEMORY_ALLOC"),
)


def _name(warning: dict[str, Any], text: str) -> str:
    number = warning.get("error_id")
    if isinstance(number, int) and number in errors().names:
        return errors().names[number]
    return next((name for pattern, name in _WORDS if pattern.search(text)), UNNAMED)


def _not_run(results: list[Result]) -> Sign:
    skipped = sum(result.status == "skip" for result in results)
    reason = f"no GPU test ran ({skipped} skipped): that is not a pass"
    return Sign(
        "dcgm.no-hardware-test",
        reason,
        evidence=quote(*(f"{r.test}: {r.status}" for r in results[:3])),
        status=Status.UNKNOWN,
    )
