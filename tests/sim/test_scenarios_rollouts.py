"""A bad driver, image or agent spreads slowly, also by our own treatments: what the brain does with nodes that it hits.

Marked scenarios show what the brain does not bear yet; whoever mends it takes the mark off.
"""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from sickbay.model import Verb
from sickbay.settings import Limit, Policy
from tests.sim.ward import Ward, a_policy, names

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


def suspected(w: Ward) -> list[str]:
    """What people were told to be a cause, in order."""
    urgent = [n.title.partition(":")[0] for n in w.run.mailbox.notices if n.level == "urgent"]
    return [what for what in urgent if "=" in what]


def falls_ill(w: Ward, name: str) -> None:
    w.world.strike("nvlink_down_after_boot", name, 0, cure="replace")


@pytest.mark.parametrize("with_jobs", [True, False])
def test_a_job_on_some_of_the_nodes_does_not_hide_that_most_of_the_fleet_is_sick_alike(with_jobs: bool) -> None:
    """Of 48 nodes that fell ill within 24 seconds 30 had one job, which was suspected: 18 others were treated."""
    ten = Limit(percent=10, at_least=2)
    w = Ward(64, policy=a_policy(max_out=ten, max_out_fleet=ten, at_once=Limit(percent=5, at_least=1)))
    if with_jobs:
        w.submit(nodes=names(0, 40))
    w.passes(600.0)
    order = list(names(0, 64))
    Random(3).shuffle(order)
    for i, name in enumerate(order[:48]):
        w.world.after(i * 0.5, partial(falls_ill, w, name))
    w.passes(12 * HOUR)
    assert w.treatments() == []
    assert "driver=580.105.08" in suspected(w)
    assert len(suspected(w)) <= 4


def test_a_lying_agent_is_told_once_and_no_rack_or_job_is_suspected_for_what_it_says() -> None:
    """Seven racks and a job were announced for the same, already explained fault: nine urgent notices."""
    w = Ward(64, policy=a_policy(max_out=Limit(percent=10, at_least=2)))
    w.submit(nodes=names(0, 40))
    w.passes(600.0)
    w.world.rollouts.begin("agent", "v2", every_s=60.0, bad_share=0.7, harm="lying")
    w.passes(24 * HOUR)
    assert suspected(w) == ["agent=v2"]


def test_a_new_leader_does_not_bring_the_suspected_driver_though_he_has_seen_no_boot_bring_it() -> None:
    """What boots had brought was remembered by the leader who saw them: the next one rebooted a node onto it."""
    roomy = a_policy(approval=(), max_out=Limit(), max_out_fleet=Limit(), max_out_rack=Limit(), at_once=Limit())
    w = Ward(24, policy=roomy, rack_size=8)
    w.world.rollouts.begin("driver", "590.1", every_s=None, bad_share=1.0)
    for name in names(2, 4):
        w.world.people.reboot(name)
        w.passes(900.0)
    w.until(lambda: suspected(w), within=7200.0)
    w.crash()
    w.passes(120.0)
    w.world.strike("gpu_lost_79", "node-0015", 0, cure="reboot")
    w.passes(3600.0)
    case = w.case("node-0015")
    assert w.treatments("node-0015") == []
    assert case is not None
    assert "REBOOT may bring it onto driver=590.1, which is suspected" in case.refusal
