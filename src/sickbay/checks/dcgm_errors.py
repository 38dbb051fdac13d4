"""DCGM's errors by number and by word, and what dcgmi's exit codes say: dcgm.toml and dcgm_words.toml, laid out.

`dcgm_diag`, `dcgm_health` and `dcgm_text` ask it. It names; it must never judge: severity lives in the catalog.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from sickbay import catalog

MONITOR, UNSURE, CONFIG = 1, 3, 5  # error_severity: the GPU can work; DCGM does not know; the set-up can be changed
UNNAMED = "DCGM_FR_UNKNOWN"
ISOLATE = 205  # exit code: DCGM itself says that a GPU should be taken out
MOST = 2_000  # characters of a message that are looked at


@dataclass(frozen=True, slots=True)
class Errors:
    names: dict[int, str]
    blind: frozenset[str]  # the test did not judge the GPU
    settings: frozenset[str]  # somebody should change a setting; no node is sick


@dataclass(frozen=True, slots=True)
class Exit:
    """What an exit code of dcgmi stands for. `engine`: nobody was there to answer."""

    name: str
    means: str
    engine: bool = False


@lru_cache(maxsize=1)
def errors() -> Errors:
    rows = {code.code.removeprefix("dcgm."): code for code in catalog.load().codes.values() if code.number}
    return Errors(
        {row.number: name for name, row in rows.items()},
        frozenset(name for name, row in rows.items() if row.reading == "blind"),
        frozenset(name for name, row in rows.items() if row.reading == "setting"),
    )


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    return tomllib.loads(files("sickbay.catalog").joinpath("dcgm_words.toml").read_text("utf-8"))


@lru_cache(maxsize=1)
def exits() -> dict[int, Exit]:
    return {row["code"]: Exit(row["name"], row["means"], row.get("engine", False)) for row in table()["exit"]["codes"]}


@lru_cache(maxsize=1)
def _words() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(row["pattern"], re.IGNORECASE), row["error"]) for row in table()["words"]["rows"])


@lru_cache(maxsize=1)
def _tests() -> dict[str, str]:
    return {row["test"]: row["error"] for row in table()["tests"]["names"]}


def named(message: str, test: str = "") -> str:
    """The error a message is about, or UNNAMED. Without words to go by, DCGM 3's deployment tests name themselves."""
    text = " ".join(message[:MOST].split())
    found = next((error for pattern, error in _words() if pattern.search(text)), "")
    return found or _tests().get(test.strip().lower(), UNNAMED)


def exit_words(code: int | None) -> str:
    """ "exit code 226, DCGM_ST_NVVS_ERROR: the diagnostic ran and reports an error"."""
    known = exits().get(code) if code is not None else None
    return f"exit code {code}, {known.name}: {known.means}" if known else f"exit code {code}"


_DEAD = re.compile(
    r"unable to (?:establish a connection|connect to (?:the )?host ?engine)|host ?engine (?:is not running|connection)"
    r"|connection (?:to .{0,60}refused|refused)",
    re.IGNORECASE,
)


def engine_dead(code: int | None, text: str) -> bool:
    """Nobody answered dcgmi: by its exit code, or by its words."""
    known = exits().get(code) if code is not None else None
    return bool(known and known.engine) or _DEAD.search(text[:65_536]) is not None
