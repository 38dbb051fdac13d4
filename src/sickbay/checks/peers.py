"""Is this node slow among its like? A figure against what other nodes (or the other GPUs of the node) reached.

Checks that measure something call it: nccl-allreduce, gpu-speed. A fixed minimum is wrong somewhere (the original
suite's exceed the hardware); the fleet is not. It must never call a node slow because its peers are all alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from statistics import median

SPREAD = 0.01  # the least MAD we believe, as a share of the median: peers that agree to the digit are no yardstick


def outlier(value: float, others: Iterable[float], *, mads: float = 5.0, at_least: int = 5) -> str | None:
    """Why `value` is too low to be chance, or None. `others` are the peers' figures, without this one.

    Too low: under median - mads x MAD (the median distance from the median). None too when fewer than `at_least` peers
    have a figure, because then there is no fleet to compare with.
    """
    known = [figure for figure in others if isfinite(figure) and figure > 0]
    if not isfinite(value) or len(known) < at_least:
        return None
    middle = median(known)
    spread = max(median(abs(figure - middle) for figure in known), SPREAD * middle)
    floor = middle - mads * spread
    if value >= floor or not isfinite(floor):
        return None
    return (
        f"{value:.4g} is below {floor:.4g}: {len(known)} peers reach {middle:.4g} (median), give or take {spread:.2g}"
    )
