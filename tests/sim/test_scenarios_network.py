"""Many nodes are cut off together and come back: what the brain does with machines that have nothing wrong.

Scenarios that the brain does not bear yet are marked, each with the number of its hole; whoever mends it takes the mark
off (the mark is strict: a scenario that passes with it is a failure).
"""

from __future__ import annotations

import pytest

from sickbay.model import Recovery, RecoveryPhase
from sickbay.settings import Limit, Policy
from tests.sim.ward import Ward, names

HOUR = 3600.0
KINDS = ("control", "both", "power")


def ward(nodes: int = 64, **changes: object) -> Ward:
    """The policy that ships, but for approvals: a treatment that is wrong must show itself."""
    return Ward(nodes, policy=Policy(max_verb="REPLACE", approval=(), **changes), rack_size=8)  # type: ignore[arg-type]


def given_up(w: Ward) -> list[str]:
    """Jobs whose recovery ended without them."""
    return [r.job for r in w.run.store.history(Recovery, limit=1000) if r.phase is RecoveryPhase.FAILED]


@pytest.mark.parametrize("kind", KINDS)
def test_no_healthy_node_is_treated_because_two_fifths_of_the_fleet_vanished_for_two_hours(kind: str) -> None:
    w = ward()
    w.passes(600.0)
    w.world.network.cut(w.world.network.share(0.4), kind, for_s=2 * HOUR)
    w.passes(8 * HOUR)
    assert w.treatments() == []
    assert w.facts("cordon") == []


def test_no_healthy_node_is_treated_because_its_rack_lost_its_switch() -> None:
    w = ward()
    w.passes(600.0)
    w.world.network.cut(w.world.network.rack("rack-003"), "both", for_s=2 * HOUR, stays=True)
    w.passes(8 * HOUR)
    assert w.treatments() == []


def test_no_machine_is_replaced_because_the_hall_had_no_power_for_six_hours() -> None:
    w = ward()
    w.passes(600.0)
    w.world.network.cut(w.world.network.share(0.4), "power", for_s=6 * HOUR)
    w.passes(12 * HOUR)
    assert "REPLACE" not in w.treatments()


def test_a_node_that_was_away_for_some_minutes_and_is_back_is_not_rebooted() -> None:
    w = ward(16)
    w.passes(600.0)
    w.world.network.cut(names(5, 1), "control", for_s=390.0)
    w.passes(4 * HOUR)
    assert w.treatments() == []


def test_a_job_whose_ranks_work_on_out_of_reach_is_not_started_a_second_time() -> None:
    w = ward(32, max_out=Limit(percent=50.0, at_least=8))
    w.submit(nodes=names(0, 4))
    w.passes(HOUR)
    w.world.network.cut(names(0, 4), "control", for_s=4 * HOUR)
    w.passes(8 * HOUR)
    assert w.facts("two-attempts") == []


def test_certificates_that_expire_one_by_one_get_no_node_treated() -> None:
    w = ward()
    w.passes(600.0)
    w.world.network.cut_one_by_one(names(0, 32), "control", every_s=300.0, for_s=6 * HOUR)
    w.passes(12 * HOUR)
    assert w.treatments() == []


def test_a_cut_shorter_than_the_grace_disturbs_nobody() -> None:
    w = ward()
    w.submit(nodes=names(0, 16))
    w.passes(HOUR)
    w.world.network.cut(w.world.network.share(0.4), "control", for_s=120.0)
    w.passes(2 * HOUR)
    assert w.treatments() == []
    assert w.facts("cordon") == []
    assert w.world.jobs["llama"].attempt == 1
    w.ends_well()


def test_no_job_is_given_up_because_its_nodes_were_cut_off() -> None:
    w = ward(32)
    for i in range(4):
        w.submit(f"job-{i}", names(4 * i, 4))
    w.passes(HOUR)
    w.world.network.cut(names(0, 16), "both", for_s=2 * HOUR)
    w.passes(10 * HOUR)
    assert given_up(w) == []
