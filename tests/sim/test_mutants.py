"""A mutant is killed by a seed only if that seed is good without it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any, cast

import pytest

from sickbay.sim import mutants
from sickbay.sim.mutants import MUTANTS, Fate


class Pool:
    """Runs at once, in this process."""

    def apply(self, work: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return work(*args)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[frozenset[int]]:
    """Seed 3 is bad by itself; without it seed 5 kills."""
    without: list[frozenset[int]] = []

    def once_more(number: int, seeds: int, spoilt: frozenset[int] = frozenset()) -> Fate:
        without.append(spoilt)
        return Fate("a mutant", "seed 5", 1.0, 5)

    monkeypatch.setattr(mutants, "_is_bad", lambda seed: seed == 3)
    monkeypatch.setattr(mutants, "_try", once_more)
    return without


def honest(fate: Fate) -> Fate:
    return mutants._honest(cast(Any, Pool()), 0, 8, fate)


def test_a_seed_that_is_bad_by_itself_kills_no_mutant(
    tried: list[frozenset[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert honest(Fate("a mutant", "seed 3", 1.0, 3)).seed == 5
    assert tried == [frozenset({3})]
    assert "seed 3 is bad without any mutant" in capsys.readouterr().out


def test_a_good_seed_and_a_test_kill_at_once(tried: list[frozenset[int]]) -> None:
    assert honest(Fate("a mutant", "seed 8", 1.0, 8)).seed == 8
    assert honest(Fate("a mutant", "tests: FAILED", 1.0)).seed == -1
    assert tried == []


def _apply_all() -> None:
    for mutant in MUTANTS:
        mutant.patch()


def test_every_mutant_breaks_something_that_is_there() -> None:
    """A rule that was renamed leaves a mutant behind that breaks nothing, and nobody notices that it survives."""
    child = multiprocessing.get_context("fork").Process(target=_apply_all)
    child.start()
    child.join(120)
    assert child.exitcode == 0
