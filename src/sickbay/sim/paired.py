"""Paired differences: their mean, its interval, and Holm's correction when many cells are looked at together.

Called by sim/compare.py with one number per seed. Plain arithmetic, no library: a reader can follow every line.
It must never know what the numbers are about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

ALPHA = 0.05  # of all cells together: the chance that any of them is called good by luck alone


@dataclass(frozen=True, slots=True)
class Interval:
    """The mean of the differences and how far it may be off."""

    mean: float
    low: float
    high: float
    level: float  # 0.95, or more where other cells were looked at too


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def standard_error(values: Sequence[float]) -> float:
    """Of the mean. One value says nothing about its own error."""
    if len(values) < 2:
        return math.inf
    middle = mean(values)
    spread = sum((value - middle) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(spread / len(values))


def interval(differences: Sequence[float], alpha: float = ALPHA) -> Interval:
    """Student's interval for the mean of paired differences, 1 - alpha sure."""
    middle, error = mean(differences), standard_error(differences)
    reach = student(1 - alpha / 2, len(differences) - 1) * error if error and error < math.inf else error
    return Interval(middle, middle - reach, middle + reach, 1 - alpha)


def holm(cells: Sequence[Sequence[float]], bar: float, alpha: float = ALPHA) -> list[tuple[Interval, bool]]:
    """For each cell, in the order given: its interval, and whether its mean is shown to be at least `bar`.

    Holm's step-down: the cell that is surest to be above the bar is held to alpha / m, the next to alpha / (m - 1), and
    so on; after the first one that is not sure enough, no other may be called sure either.
    """
    order = sorted(range(len(cells)), key=lambda i: -surplus(cells[i], bar))
    found: dict[int, tuple[Interval, bool]] = {}
    sure = True
    for rank, i in enumerate(order):
        reached = interval(cells[i], alpha / (len(cells) - rank))
        sure = sure and reached.low >= bar
        found[i] = (reached, sure)
    return [found[i] for i in range(len(cells))]


def surplus(differences: Sequence[float], bar: float) -> float:
    """By how many standard errors the mean is above the bar."""
    error, above = standard_error(differences), mean(differences) - bar
    return above / error if error else math.copysign(math.inf, above)


# --- Student's distribution -------------------------------------------------------------------------------------------


def student(p: float, freedom: int) -> float:
    """The value that Student's t with this many degrees of freedom stays below with probability p (p >= 0.5)."""
    low, high = 0.0, 1.0
    while _below(high, freedom) < p:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < p else (low, middle)
    return high


def _below(t: float, freedom: int) -> float:
    """Probability that Student's t is below t (t >= 0): 1 - I_x(f/2, 1/2) / 2 with x = f / (f + t^2)."""
    return 1 - _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction on the side where that converges quickly."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front / a / _fraction(a, b, x)


def _fraction(a: float, b: float, x: float, terms: int = 300) -> float:
    """1 + d1/(1 + d2/(1 + ...)), from the last term to the first (Abramowitz and Stegun 26.5.8)."""
    value = 1.0
    for n in range(terms, 0, -1):
        m = n // 2
        if n % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        value = 1 + d / value
    return value
