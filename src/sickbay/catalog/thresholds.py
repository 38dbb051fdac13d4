"""Thresholds that checks judge by, as data: thresholds.toml beside this file, each row with its unit and its source.

Checks get them through `Ask.limits`; tests and settings may hand in others. Nobody writes such a number into code.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any


@lru_cache(maxsize=1)
def thresholds() -> Mapping[str, float]:
    """name -> value."""
    return MappingProxyType({name: float(row["value"]) for name, row in rows().items()})


@lru_cache(maxsize=1)
def rows() -> Mapping[str, Mapping[str, Any]]:
    """name -> its row: value, unit, meaning, source."""
    text = files("sickbay.catalog").joinpath("thresholds.toml").read_text("utf-8")
    return tomllib.loads(text)
