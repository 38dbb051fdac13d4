"""Fault models: what each kind of illness shows, does and needs. Rows are in faults.toml; the World strikes with them.

Never decides anything about treatment: only the truth is here, and what the truth lets be seen.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

# Weakest first. A treatment cures what needs it or something weaker. "never": no treatment does.
FORCES = ("reset", "reboot", "power_cycle", "replace", "never")


@dataclass(frozen=True, slots=True)
class Line:
    after_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Then:
    kind: str
    after: tuple[float, float]
    chance: float


@dataclass(frozen=True, slots=True)
class DcgmSign:
    """How a diagnostic names it: numbers of dcgm_errors.h."""

    id: int
    severity: int
    category: int
    test: str
    text: str
    level: int = 1  # the lowest -r at which it can be seen


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of faults.toml."""

    name: str
    title: str
    scope: str
    cure: Mapping[str, float]
    effect: str
    source: str
    tail: str = "nccl_peer"
    lines: tuple[Line, ...] = ()
    boot_lines: tuple[Line, ...] = ()
    signs: Mapping[str, Any] = field(default_factory=dict)
    dcgm: DcgmSign | None = None
    hides: bool = False
    relapse_s: float = 3600.0
    recall: float = 0.5
    repeat: int = 1
    then: Then | None = None


@dataclass(slots=True)
class Ailment:
    """One active illness of one part or host: the truth, whatever any instrument says."""

    id: int
    kind: Kind
    cure: str
    since: float
    recall: float
    values: Mapping[str, Any] = field(default_factory=dict)  # what its lines and texts are filled with
    dormant: bool = False  # shows nothing, until the node works again
    relapse_s: float = 3600.0
    effect: str = "none"

    @property
    def signs(self) -> Mapping[str, Any]:
        return {} if self.dormant else self.kind.signs

    def cured_by(self, force: str) -> bool:
        return FORCES.index(force) >= FORCES.index(self.cure)


def _lines(rows: list[str]) -> tuple[Line, ...]:
    return tuple(Line(float(row.split(" ", 1)[0]), row.split(" ", 1)[1]) for row in rows)


def _kind(name: str, row: dict[str, Any]) -> Kind:
    row = dict(row)
    row["lines"] = _lines(row.get("lines", []))
    row["boot_lines"] = _lines(row.get("boot_lines", []))
    if "dcgm" in row:
        row["dcgm"] = DcgmSign(**row["dcgm"])
    if "then" in row:
        then = row["then"]
        row["then"] = Then(then["kind"], (then["after"][0], then["after"][1]), then["chance"])
    return Kind(name=name, **row)


@cache
def kinds() -> Mapping[str, Kind]:
    """All fault models by name, read once."""
    rows = tomllib.loads(files("sickbay.sim").joinpath("faults.toml").read_text("utf-8"))
    return {name: _kind(name, row) for name, row in rows.items()}


@cache
def rates() -> Mapping[str, Any]:
    """The presets and repair figures of rates.toml, read once."""
    return tomllib.loads(files("sickbay.sim").joinpath("rates.toml").read_text("utf-8"))


def draw_cure(kind: Kind, rng: Random) -> str:
    return rng.choices(list(kind.cure), list(kind.cure.values()))[0]
