"""The table that `sickbay sim check` ends with: what was looked at how often, and what proves nothing."""

from __future__ import annotations

import pytest

from sickbay.sim.check import tell_exercise
from sickbay.sim.checkers import ALL, branch_of
from sickbay.sim.checkers.limits import WithinLimits


def enough(**less: int) -> dict[str, int]:
    """A run in which everything was exercised often; `less`: but for these."""
    counts = {checker.__name__: 10**6 for checker in ALL}
    for checker in ALL:
        counts |= {branch_of(checker.__name__, what): 10**6 for what in checker.branches}
    return counts | less


def test_a_run_in_which_everything_was_looked_at_proves_something() -> None:
    assert tell_exercise(enough(), 400) == []


def test_a_branch_that_is_dead_fails_the_run_though_its_checker_was_exercised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert tell_exercise(enough(**{"WithinLimits: domain": 3}), 400) == ["WithinLimits: domain"]
    assert "TOO FEW" in capsys.readouterr().out


def test_a_rare_branch_says_from_how_many_seeds_on_it_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    rare = {"WithinLimits: rack beside others": 0}
    assert tell_exercise(enough(**rare), 200) == []
    assert "judged from 500 seeds on" in capsys.readouterr().out
    assert tell_exercise(enough(**rare), 500) == ["WithinLimits: rack beside others"]


def test_a_branch_that_no_seed_reaches_says_why_and_one_that_is_named_nowhere_fails_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unnamed = {"WithinLimits: moon": 5, "WithinLimits: domain beside others": 0}
    assert tell_exercise(enough(**unnamed), 400) == ["WithinLimits: moon"]
    assert str(WithinLimits.branches["domain beside others"]) in capsys.readouterr().out


def test_no_branch_has_a_floor_of_nought_without_a_word() -> None:
    floors = [(c.__name__, what, floor) for c in ALL for what, floor in c.branches.items()]
    assert [row for row in floors if not row[2] or (isinstance(row[2], float) and row[2] < 0)] == []
