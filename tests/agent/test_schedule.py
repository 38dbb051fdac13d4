"""When what is due."""

from __future__ import annotations

import statistics

from sickbay.agent.schedule import Rota, l2_due, share

HOUR = 3_600.0


def test_the_first_cycle_is_at_once_and_the_later_ones_at_the_nodes_own_moment() -> None:
    rota = Rota("node-1", 100.0)
    first = rota.next_cycle(100.0, 300.0)
    assert 130.0 <= first <= 400.0
    assert rota.next_cycle(first, 300.0) == first + 300.0
    assert rota.next_cycle(first + 1_000.0, 300.0) == first + 1_200.0  # a late one is not made up for


def test_a_fleet_that_was_started_at_once_does_not_speak_at_once() -> None:
    moments = sorted(Rota(f"node-{n}", 0.0).next_cycle(1.0, 300.0) for n in range(1_000))
    busiest = max(sum(at <= other < at + 10.0 for other in moments) for at in moments)
    assert busiest < 80  # of 1,000 nodes in any ten seconds of 300; even would be 37
    assert statistics.pstdev(moments) > 60.0


def test_a_nodes_share_is_its_own_for_ever() -> None:
    assert share("node-1") == share("node-1") != share("node-2")


def test_level_2_is_never_due_at_the_start_of_a_nodes_life() -> None:
    """originals 002.12 #8: L2 ran on the first cycle on every node, in the middle of training."""
    born = 1_000_000.0
    assert not any(l2_due(f"n{n}", born=born, last=0.0, interval_s=6 * HOUR, wall=born + HOUR) for n in range(200))
    assert all(l2_due(f"n{n}", born=born, last=0.0, interval_s=6 * HOUR, wall=born + 6 * HOUR) for n in range(200))


def test_level_2_comes_again_after_its_interval() -> None:
    last = 1_000_000.0
    assert not l2_due("n", born=1.0, last=last, interval_s=6 * HOUR, wall=last + 5.9 * HOUR)
    assert l2_due("n", born=1.0, last=last, interval_s=6 * HOUR, wall=last + 6 * HOUR)


def test_a_clock_that_was_years_ahead_does_not_put_level_2_off_for_years() -> None:
    assert l2_due("n", born=1.0, last=9_000_000_000.0, interval_s=6 * HOUR, wall=1_800_000_000.0)
