"""A mutant is killed by a seed only if that seed is good without it; what killed it last is tried first."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from sickbay.sim import mutants
from sickbay.sim.mutants import MUTANTS, Fate
from sickbay.sim.mutants.patch import Mutant


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


@pytest.fixture
def harmless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mutant:
    """The only mutant; nothing is known of it yet."""
    mutant = Mutant("harmless", lambda: None, only="Nobody")
    monkeypatch.setattr(mutants, "MUTANTS", (mutant,))
    monkeypatch.setattr(mutants, "SHOWN", tmp_path / "shown.toml")
    return mutant


def test_the_seed_that_killed_a_mutant_last_is_played_first(harmless: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []
    monkeypatch.setattr(mutants, "_by_seeds", lambda mutant, seeds, began: played.extend(seeds))
    mutants.remember([Fate("harmless", "Nobody, seed 641", 1.0, 641)])
    mutants._try(0, 3)
    assert played == [641, 0, 1, 2]


def test_the_test_that_killed_a_mutant_last_is_run_first_and_is_no_proof_when_it_passes(
    harmless: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(mutant: Mutant, judges: list[str], began: float) -> Fate | None:
        asked.append(judges[0] if judges else "")
        return Fate(mutant.name, "another test", 1.0) if len(asked) == 2 else None

    monkeypatch.setattr(mutants, "MUTANTS", (Mutant("harmless", lambda: None),))
    monkeypatch.setattr(mutants, "_by_seeds", lambda mutant, seeds, began: None)
    monkeypatch.setattr(mutants, "_by_tests", run)
    mutants.remember([Fate("harmless", "tests", 1.0, test="tests/sim/test_mutants.py::test_gone")])
    assert mutants._try(0, 1).killed_by == "another test"
    assert [name.rsplit("/", 1)[-1] for name in asked] == ["test_mutants.py::test_gone", "core"]


def test_what_survived_leaves_what_was_known_of_it(harmless: Mutant) -> None:
    mutants.remember([Fate("harmless", "Nobody, seed 7", 1.0, 7)])
    mutants.remember([Fate("harmless", "", 1.0), Fate("a mutant of yesterday", "seed 8", 1.0, 8)])
    assert mutants.shown() == {"harmless": 7}


def _apply_all() -> None:
    for mutant in MUTANTS:
        mutant.patch()


def test_every_mutant_breaks_something_that_is_there() -> None:
    """A rule that was renamed leaves a mutant behind that breaks nothing, and nobody notices that it survives."""
    child = multiprocessing.get_context("fork").Process(target=_apply_all)
    child.start()
    child.join(120)
    assert child.exitcode == 0
