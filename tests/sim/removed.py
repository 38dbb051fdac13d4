"""Rules taken away for the length of a `with`: what a scenario must notice. As in sim/mutants.py, and undone after."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest

from sickbay.core import machine, recover_table
from sickbay.core.recover_table import JobEvent
from sickbay.model import Event, Phase, RecoveryPhase
from sickbay.platforms.simulated.platform import SimulatedPlatform

Removed = Callable[[], AbstractContextManager[None]]


def wrapped(module: str, name: str, make: Callable[[Any], Any]) -> Removed:
    """One attribute ("Class.method" too) made from the one that was there."""

    @contextmanager
    def removed() -> Iterator[None]:
        owner: Any = importlib.import_module(f"sickbay.{module}")
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        old = owner.__dict__[last]
        setattr(owner, last, make(old))
        try:
            yield
        finally:
            setattr(owner, last, old)

    return removed


def _entry(table: dict[Any, Any], key: Any, value: Any) -> Removed:
    @contextmanager
    def removed() -> Iterator[None]:
        whole = dict(table)
        if value is None:
            del table[key]
        else:
            table[key] = value
        try:
            yield
        finally:  # in its old order too: pages are made from these tables
            table.clear()
            table.update(whole)

    return removed


def row(phase: Phase, event: Event, to: Phase | None) -> Removed:
    return _entry(machine.TABLE[phase], event, to)


def job_row(phase: RecoveryPhase, event: JobEvent, to: RecoveryPhase | None) -> Removed:
    return _entry(recover_table.TABLE[phase], event, to)


def rule(module: str, phase: Any, make: Callable[[Any], Any]) -> Removed:
    """One rule in a module's RULES."""
    rules = importlib.import_module(f"sickbay.{module}").RULES
    return _entry(rules, phase, make(rules[phase]))


def door(name: str, make: Callable[[Any], Any]) -> Removed:
    """One door of the simulated platform, in its table too."""

    @contextmanager
    def removed() -> Iterator[None]:
        old, table = SimulatedPlatform.__dict__[name], SimulatedPlatform._doors
        new = make(old)
        setattr(SimulatedPlatform, name, new)
        SimulatedPlatform._doors = {verb: (new if f is old else f) for verb, f in table.items()}
        try:
            yield
        finally:
            setattr(SimulatedPlatform, name, old)
            SimulatedPlatform._doors = table

    return removed


def both(*rules: Removed) -> Removed:
    @contextmanager
    def removed() -> Iterator[None]:
        with ExitStack() as stack:
            for each in rules:
                stack.enter_context(each())
            yield

    return removed


def notices(scenario: Callable[[], None], removed: Removed) -> None:
    """The scenario fails, by an assertion of its own, when the rule it is about is taken away."""
    with removed(), pytest.raises((AssertionError, pytest.fail.Exception)) as seen:
        scenario()
    frames = [str(frame.path) for frame in seen.traceback if "/_pytest/" not in str(frame.path)]
    assert "/tests/sim/" in frames[-1], f"not the scenario but {frames[-1]} complained"
