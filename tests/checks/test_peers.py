"""Slow among its like: an outlier is named, noise is not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.checks.peers import outlier
from tests.fuzzing import EXAMPLES

FLEET = (440.0, 442.1, 438.9, 441.0, 439.5, 440.7, 441.8)


def test_a_node_far_below_its_fleet_is_slow_and_the_reason_says_how_far() -> None:
    said = outlier(310.0, FLEET)
    assert said is not None
    assert "310" in said
    assert "7 peers reach 440.7" in said


@pytest.mark.parametrize("value", [440.0, 430.0, 421.0, 900.0])
def test_what_lies_within_the_spread_or_above_is_not_slow(value: float) -> None:
    assert outlier(value, FLEET) is None


def test_peers_that_are_all_the_same_do_not_make_noise_an_outlier() -> None:
    assert outlier(439.0, [440.0] * 20) is None
    assert outlier(400.0, [440.0] * 20) is not None


def test_fewer_than_five_peers_are_no_fleet() -> None:
    assert outlier(1.0, FLEET[:4]) is None
    assert outlier(1.0, FLEET[:4], at_least=4) is not None


def test_a_fleet_that_is_all_over_the_place_accuses_nobody() -> None:
    assert outlier(100.0, [100.0, 200.0, 300.0, 400.0, 500.0]) is None


def test_figures_that_are_no_figures_are_left_out() -> None:
    assert outlier(1.0, [math.nan, math.inf, 0.0, -3.0, 440.0, 441.0]) is None
    assert outlier(math.nan, FLEET) is None


@settings(max_examples=EXAMPLES)
@given(st.floats(), st.lists(st.floats(), max_size=40))
def test_fuzz_any_figures_get_an_answer_and_the_median_itself_is_never_slow(value: float, others: list[float]) -> None:
    outlier(value, others)
    known = sorted(x for x in others if math.isfinite(x) and x > 0)
    if known:
        assert outlier(known[-1], others) is None
