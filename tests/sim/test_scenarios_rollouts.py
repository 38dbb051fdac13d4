"""A bad driver, image or agent spreads slowly, also by our own treatments: what the brain does with nodes that it hits.

Marked scenarios show what the brain does not bear yet; whoever mends it takes the mark off.
"""

from __future__ import annotations

import pytest

from sickbay.model import Verb
from sickbay.settings import Policy
from tests.sim.ward import Ward, names

HOUR = 3600.0


def ward(nodes: int = 24) -> Ward:
    return Ward(nodes, policy=Policy(max_verb="REPLACE", approval=()), rack_size=8)


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


def test_an_agent_version_that_sees_lost_gpus_everywhere_costs_no_machine() -> None:
    w = ward()
    w.world.rollouts.begin("agent", "2.0", every_s=600.0, bad_share=1.0, harm="lying")
    w.passes(10 * HOUR)
    assert "REPLACE" not in w.treatments()


def test_a_bad_driver_on_a_small_fleet_is_seen_as_the_cause() -> None:
    """Bad on three nodes of ten: too few for any test of chance."""
    w = ward(32)
    w.world.rollouts.begin("driver", "590.1", every_s=600.0, bad_share=0.3)
    w.passes(12 * HOUR)
    bad = {f.node for f in w.facts("rolled-out") if f.detail["bad"]}
    assert len(bad) > 4
    assert w.case("driver=590.1") is not None
    assert "REPLACE" not in w.treatments()
    assert len(w.treatments()) <= 3 * 4  # three nodes that showed it, at most three rungs each; nobody after them


def test_a_round_of_refuted_treatments_does_not_eat_the_budget_of_reboots() -> None:
    """A boot of the roll-out takes the node away; when it is back the door refuses the REBOOT that was due, and the
    examination finds what the driver brought: it was asked for again and again, 460 steps long."""
    w = ward(64)
    w.world.rollouts.begin("driver", "590.1", every_s=600.0, bad_share=0.3)
    w.passes(28 * HOUR)
    assert len(w.door.sent(Verb.REBOOT)) <= 12
    w.world.strike("gpu_lost_79", "node-0063", 0, cure="reboot")
    w.passes(3 * HOUR)
    assert w.treatments("node-0063")[-1:] == ["REBOOT"]
    w.is_sound()


def test_a_driver_that_is_taken_back_leaves_no_node_behind() -> None:
    w = ward(24)
    made = w.world.rollouts.begin("driver", "590.1", every_s=1800.0, bad_share=1.0)
    w.passes(6 * HOUR)
    w.world.rollouts.undo(made)
    for name in made.has:
        w.world.people.reboot(name)
    w.passes(60 * HOUR)
    closed = [n.name for n in w.world.nodes.values() if not n.serving()]
    assert closed == [], w.story()
