"""The statistics behind `sickbay sim compare --seeds`: intervals from tables, and Holm's step-down by hand."""

from __future__ import annotations

import math

import pytest

from sickbay.sim.paired import holm, interval, mean, standard_error, student, surplus


@pytest.mark.parametrize(
    ("p", "freedom", "value"),
    [(0.975, 1, 12.706), (0.975, 7, 2.365), (0.95, 5, 2.015), (0.975, 100, 1.984), (0.999, 11, 4.025)],
)
def test_students_quantiles_are_those_of_the_printed_tables(p: float, freedom: int, value: float) -> None:
    assert student(p, freedom) == pytest.approx(value, abs=0.001)


def test_the_interval_of_paired_differences_is_the_mean_and_so_many_standard_errors() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    found = interval(values)
    reach = 2.776 * math.sqrt(2.5 / 5)  # t(0.975, 4) and the sample's variance
    assert mean(values) == 3.0
    assert standard_error(values) == pytest.approx(math.sqrt(0.5))
    assert (found.low, found.high) == pytest.approx((3 - reach, 3 + reach), abs=1e-3)
    assert found.level == 0.95


def test_one_pair_says_nothing_about_its_own_error() -> None:
    assert interval([5.0]).low == -math.inf


def test_equal_differences_have_an_interval_without_width() -> None:
    found = interval([0.0, 0.0, 0.0])
    assert (found.low, found.high) == (0.0, 0.0)


def test_the_surest_cell_is_held_to_the_strictest_level_and_the_others_to_milder_ones() -> None:
    sure, fair, even = [9.9, 10.0, 10.1, 10.0], [0.9, 1.0, 1.3, 1.0], [0.2, -0.1, 0.1, 0.0]
    found = holm([even, sure, fair], bar=-1.0)
    assert [round(i.level, 4) for i, _ in found] == [0.95, round(1 - 0.05 / 3, 4), 0.975]
    assert [shown for _, shown in found] == [True, True, True]


def test_after_the_first_cell_that_is_not_sure_no_other_is_called_sure() -> None:
    unsure = [1.0, -0.9, 1.2, -0.8]
    found = holm([unsure, unsure], bar=-0.1)
    assert [shown for _, shown in found] == [False, False]


def test_a_cell_that_would_pass_alone_may_fail_among_many() -> None:
    cell = [0.30, 0.02, 0.25, 0.05, 0.28, 0.10]
    assert holm([cell], bar=0.0)[0][1]
    assert not holm([cell] * 24, bar=0.0)[0][1]


def test_how_far_above_the_bar_is_told_in_standard_errors() -> None:
    assert surplus([1.0, 1.0], bar=0.0) == math.inf
    assert surplus([1.0, 3.0], bar=0.0) == pytest.approx(2.0)
