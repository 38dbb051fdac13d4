"""What a mutant is, and the ways to break one thing. Used by the lists of mutants beside this file."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sickbay.model import Event, Phase

Patch = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    patch: Patch
    seeds_only: bool = False  # the tests of core cannot see it by construction
    drawn: str = ""  # the setting that it takes: seeds that draw it are played first
    only: str = ""  # the one checker that sees it: no other may complain in the seed that shows it


def set_(module: str, name: str, value: Any) -> Patch:
    """Replace one attribute ("Class.method" too)."""
    return wrap_(module, name, lambda old: value)


def row_(phase: Phase, event: Event, to: Phase | None) -> Patch:
    def apply() -> None:
        from sickbay.core import machine

        if to is None:
            machine.TABLE[phase].pop(event)
        else:
            machine.TABLE[phase][event] = to

    return apply


def wrap_(module: str, name: str, make: Callable[[Any], Any]) -> Patch:
    """Made from what is there: a name that is not there any more would be a mutant that breaks nothing."""

    def apply() -> None:
        owner: Any = importlib.import_module(f"sickbay.{module}")
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, make(getattr(owner, last)))

    return apply


def rule_(module: str, key: Any, make: Callable[[Any], Any], table: str = "RULES") -> Patch:
    """Replace one rule in a module's table. Where there is one, the function's own name in the module is asked by
    nobody: a mutant of that breaks nothing."""

    def apply() -> None:
        rules = getattr(importlib.import_module(f"sickbay.{module}"), table)
        rules[key] = make(rules[key])

    return apply


def door_(name: str, make: Callable[[Any], Any]) -> Patch:
    """Replace one door of the simulated platform, in its table too."""

    def apply() -> None:
        from sickbay.platforms.simulated.platform import SimulatedPlatform as Doors

        old = getattr(Doors, name)
        setattr(Doors, name, make(old))
        Doors._doors = {verb: (getattr(Doors, name) if f is old else f) for verb, f in Doors._doors.items()}

    return apply


def all_(*patches: Patch) -> Patch:
    def apply() -> None:
        for patch in patches:
            patch()

    return apply
