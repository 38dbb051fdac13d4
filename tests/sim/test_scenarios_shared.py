"""Something that all share goes wrong while every node is well: what the brain does to nodes and jobs meanwhile.

Marked scenarios show what the brain does not bear yet; whoever mends it takes the mark off.
"""

from __future__ import annotations

from sickbay.model import Recovery, RecoveryPhase
from sickbay.settings import Policy
from tests.sim.ward import Ward, names

HOUR, DAY = 3600.0, 86_400.0


def ward(nodes: int = 32) -> Ward:
    """Four gangs on half of the fleet, under the policy that ships but for approvals."""
    w = Ward(nodes, policy=Policy(max_verb="REPLACE", approval=()), rack_size=8)
    for i in range(4):
        w.submit(f"job-{i}", names(4 * i, 4))
    w.passes(HOUR)
    return w


def given_up(w: Ward) -> list[str]:
    return [r.job for r in w.run.store.history(Recovery, limit=1000) if r.phase is RecoveryPhase.FAILED]


def running(w: Ward) -> list[str]:
    return sorted(job.id for job in w.world.jobs.values() if job.live and job.step(w.world.now) > 0)


def test_no_node_is_treated_and_no_job_given_up_because_storage_hung_for_two_hours() -> None:
    w = ward()
    w.world.shared.storage_hangs(for_s=2 * HOUR)
    w.passes(10 * HOUR)
    assert w.treatments() == []
    assert given_up(w) == []
    assert len(running(w)) == 4


def test_no_job_is_given_up_because_the_registry_was_away_for_some_hours() -> None:
    w = ward()
    w.world.services.fail("registry", for_s=6 * HOUR)
    for i in range(4):
        w.world.strike("gpu_lost_79", names(4 * i, 1)[0], 0, cure="replace")
    w.passes(24 * HOUR)
    assert given_up(w) == []
    assert len(running(w)) == 4


def test_no_job_is_given_up_because_no_gang_found_its_peers_for_some_hours() -> None:
    w = ward()
    w.world.shared.subnet_manager_dies(for_s=6 * HOUR)
    for i in range(4):
        w.world.strike("unexplained_job_failure", names(4 * i, 1)[0])
    w.passes(24 * HOUR)
    assert given_up(w) == []
    assert len(running(w)) == 4


def test_no_node_is_treated_because_its_row_was_hot() -> None:
    w = ward()
    w.world.shared.row_heats(w.world.network.rack("rack-001"), for_s=4 * HOUR)
    w.passes(12 * HOUR)
    assert w.treatments() == []


def test_an_autoscalers_evening_is_no_illness() -> None:
    w = ward()
    w.world.capacity.scale_in(names(16, 16), back_after_s=10 * HOUR)
    w.passes(24 * HOUR)
    assert w.treatments() == []
    assert len(running(w)) == 4


def test_the_end_of_a_capacity_block_is_no_illness() -> None:
    w = ward()
    w.world.capacity.block_ends(names(0, 8), next_after_s=8 * HOUR)
    w.passes(24 * HOUR)
    assert w.treatments() == []
    assert given_up(w) == []
    assert len(running(w)) == 4


def test_a_reclaimed_spot_machine_costs_its_job_one_restart() -> None:
    w = ward()
    w.world.capacity.reclaim_spot("node-0000", back_after_s=2 * HOUR)
    w.passes(8 * HOUR)
    assert w.treatments() == []
    assert w.world.jobs["job-0"].attempt == 2
    assert len(running(w)) == 4
