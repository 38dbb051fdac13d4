"""DCGM's errors by number, and what its report of each is worth: the catalog's dcgm.toml, laid out for `dcgm_diag`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sickbay import catalog

MONITOR, UNSURE, CONFIG = 1, 3, 5  # error_severity: the GPU can work; DCGM does not know; the set-up can be changed
UNNAMED = "DCGM_FR_UNKNOWN"


@dataclass(frozen=True, slots=True)
class Errors:
    names: dict[int, str]
    blind: frozenset[str]  # the test did not judge the GPU
    settings: frozenset[str]  # somebody should change a setting; no node is sick


@lru_cache(maxsize=1)
def errors() -> Errors:
    rows = {code.code.removeprefix("dcgm."): code for code in catalog.load().codes.values() if code.number}
    return Errors(
        {row.number: name for name, row in rows.items()},
        frozenset(name for name, row in rows.items() if row.reading == "blind"),
        frozenset(name for name, row in rows.items() if row.reading == "setting"),
    )
