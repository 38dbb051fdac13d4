"""Something that all share goes wrong while every node is well: what the brain does to nodes and jobs meanwhile.

Marked scenarios show what the brain does not bear yet; whoever mends it takes the mark off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sickbay.model import Command, Recovery, RecoveryPhase
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


def test_a_job_that_stood_still_with_its_storage_and_goes_on_is_not_drained_for_what_can_wait() -> None:
    """Called stalled a moment after it went on: a stop asks whether it has moved, a drain does not (seed 210)."""
    w = ward()
    w.world.strike("row_remap_pending_63", "node-0000", 1)
    w.passes(600.0)
    w.world.shared.storage_hangs(for_s=300.0)
    w.passes(HOUR)
    drains = [fact for fact in w.world.log if fact.kind == "drain" and fact.detail.get("moving")]
    assert drains == []


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


# -- a fleet with one big job, or two: nobody else is there to fail alike


def lonely(jobs: int, **spec: Any) -> Ward:
    """Nearly the whole fleet belongs to one job, or to two."""
    w = Ward(10, policy=Policy(max_verb="REPLACE", approval=()), rack_size=8)
    for i in range(jobs):
        w.submit(f"big-{i}", names(8 // jobs * i, 8 // jobs), **spec)
    w.passes(HOUR)
    return w


def registry(w: Ward) -> None:
    """Two jobs lose a node, or one does: what takes its place has no image yet."""
    w.world.services.fail("registry", for_s=6 * HOUR)
    for job in w.world.jobs.values():
        w.world.strike("gpu_lost_79", job.nodes[0], 0, cure="replace")


def fabric(w: Ward) -> None:
    w.world.network.cut(names(0, 10), "data", 6 * HOUR)


def subnet_manager(w: Ward) -> None:
    w.world.shared.subnet_manager_dies(for_s=6 * HOUR)
    for job in w.world.jobs.values():
        w.world.strike("unexplained_job_failure", job.nodes[0])


def storage(w: Ward) -> None:
    w.world.shared.storage_hangs(for_s=6 * HOUR)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("away", [registry, fabric, subnet_manager, storage])
def test_one_or_two_big_jobs_are_not_given_up_for_what_they_share(away: Callable[[Ward], None], jobs: int) -> None:
    w = lonely(jobs)
    away(w)
    w.passes(12 * HOUR)
    assert given_up(w) == []
    assert len(running(w)) == jobs
    assert all(job.attempt <= 20 for job in w.world.jobs.values()), [j.attempt for j in w.world.jobs.values()]
    w.is_sound()


@pytest.mark.parametrize("away", [fabric, storage])
def test_no_node_is_treated_for_what_all_share(away: Callable[[Ward], None]) -> None:
    w = lonely(1)
    away(w)
    w.passes(12 * HOUR)
    assert w.treatments() == []


def test_an_owner_whose_job_does_not_begin_is_told_what_to_look_at_and_how_to_end_it() -> None:
    w = lonely(1)
    subnet_manager(w)
    w.passes(3 * HOUR)
    told = [n for n in w.run.mailbox.notices if n.title == "big-0 does not begin"]
    assert len(told) == 1
    assert "registry, storage, fabric" in told[0].body
    assert "sickbay job restart big-0" in told[0].body


def test_a_job_that_never_begins_whatever_is_mended_ends_after_a_day_of_trying() -> None:
    w = lonely(1)
    w.world.shared.subnet_manager_dies()
    w.world.strike("unexplained_job_failure", "node-0000")
    w.passes(12 * HOUR)
    assert given_up(w) == []
    w.passes(36 * HOUR)
    assert given_up(w) == ["big-0"]
    assert w.world.jobs["big-0"].attempt <= 40


def test_an_owner_who_has_mended_it_need_not_wait_for_the_next_try() -> None:
    w = lonely(1)
    w.world.shared.subnet_manager_dies(for_s=5 * HOUR)
    w.world.strike("unexplained_job_failure", "node-0000")
    w.until(lambda: (r := w.recovery("big-0")) is not None and "tried again" in r.refusal, within=5 * HOUR, step=60.0)
    w.passes(3 * HOUR)
    w.until(lambda: (r := w.recovery("big-0")) is not None and "tried again" in r.refusal, within=5 * HOUR, step=10.0)
    w.world.services.all_back()
    before = w.world.now
    w.run.store.create(Command("order-1", "restart", "big-0", "alice", "mended", w.world.now))
    w.until(lambda: w.recovery("big-0").phase is RecoveryPhase.RESTARTING, within=300.0, step=10.0)  # type: ignore[union-attr]
    assert w.world.now - before < 120.0
    w.passes(HOUR)
    assert running(w) == ["big-0"]


def test_a_bug_in_a_single_job_still_ends_it_at_once() -> None:
    w = lonely(1, bug_at_step=400)
    w.passes(12 * HOUR)
    assert given_up(w) == ["big-0"]
    assert w.world.jobs["big-0"].attempt <= 2
