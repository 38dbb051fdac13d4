"""A bad driver, image or agent spreads slowly, also by our own treatments: what the brain does with nodes that it hits.

Marked scenarios show what the brain does not bear yet; whoever mends it takes the mark off.
"""

from __future__ import annotations

import pytest

from sickbay.settings import Policy
from tests.sim.ward import Ward, names

HOUR = 3600.0


def ward(nodes: int = 24) -> Ward:
    return Ward(nodes, policy=Policy(max_verb="REPLACE", approval=()), rack_size=8)


@pytest.mark.xfail(
    strict=True, reason="issue 4.7: the first two of a slow roll-out climb before the third shows the cause"
)
def test_a_bad_driver_that_spreads_one_node_in_half_an_hour_costs_no_machine() -> None:
    w = ward()
    w.world.rollouts.begin("driver", "590.1", every_s=1800.0, bad_share=1.0)
    w.passes(14 * HOUR)
    assert w.treatments().count("REPLACE") == 0


def test_a_bad_image_is_not_spread_by_our_own_replacements() -> None:
    w = ward()
    w.world.rollouts.begin("image", "gpu-image-42", every_s=None, bad_share=1.0)
    for name in names(0, 3):
        w.world.strike("row_remap_failed_64", name, 2, cure="replace")
        w.passes(6 * HOUR)
    assert w.treatments().count("REPLACE") <= 5


@pytest.mark.parametrize("harm", ["mute", "blind"])
def test_an_agent_version_that_says_nothing_gets_no_node_treated(harm: str) -> None:
    w = ward()
    w.world.rollouts.begin("agent", "2.0", every_s=600.0, bad_share=1.0, harm=harm)
    w.passes(12 * HOUR)
    assert w.treatments() == []
    assert w.facts("cordon") == []


@pytest.mark.xfail(
    strict=True, reason="issue 4.7: the first two of a slow roll-out climb before the third shows the cause"
)
def test_an_agent_version_that_sees_lost_gpus_everywhere_costs_no_machine() -> None:
    w = ward()
    w.world.rollouts.begin("agent", "2.0", every_s=600.0, bad_share=1.0, harm="lying")
    w.passes(10 * HOUR)
    assert "REPLACE" not in w.treatments()
