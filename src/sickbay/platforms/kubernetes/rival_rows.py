"""rivals.toml, read and checked once: who else takes nodes away, and how each is recognised. Pure data for holders and
rivals; it must never ask the API server."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from sickbay.errors import ConfigError

FILE = "rivals.toml"
EVIDENCE = ("", "workload", "resource", "nodes")


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    title: str
    repairs: bool
    sources: tuple[str, ...]
    taints: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    gate: str = ""
    resource: str = ""
    nodes: str = ""
    evidence: str = ""
    spares: str = ""
    sure: bool = False
    advice: str = ""

    def puts(self, taint: str) -> bool:
        return any(taint.startswith(key) if key.endswith("/") else taint == key for key in self.taints)


@cache
def rows() -> tuple[Row, ...]:
    text = files("sickbay.platforms.kubernetes").joinpath(FILE).read_text("utf-8")
    return tuple(_row(name, data) for name, data in tomllib.loads(text).items())


def _row(name: str, data: Mapping[str, Any]) -> Row:
    known = {field.name for field in fields(Row)} - {"name"}
    if unknown := data.keys() - known:
        raise ConfigError(FILE, f"{name}.{min(unknown)}", "no such column", "one of " + ", ".join(sorted(known)))
    if missing := {"title", "repairs", "sources"} - data.keys():
        raise ConfigError(FILE, f"{name}.{min(missing)}", "missing", "write it")
    columns: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in data.items()}
    row = Row(name, **columns)
    if row.evidence not in EVIDENCE or row.repairs != bool(row.evidence and row.advice):
        raise ConfigError(
            FILE, name, "who repairs has evidence and advice, and nobody else", "see the head of the file"
        )
    return row
