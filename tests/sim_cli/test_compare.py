"""`sickbay sim compare`: the originals' stand-in does what reference/originals.md says, and the table is honest."""

from __future__ import annotations

from dataclasses import replace

from sickbay.cli.sim import side_by_side
from sickbay.model import JobPhase, Verb
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.sim.arms import originals, ours, settings_of
from sickbay.sim.jobs import JobSpec
from sickbay.sim.originals import POLL_S, REQUEUE_S, Originals
from sickbay.sim.workload import Scene
from sickbay.sim.world import World

SCENE = Scene(seed=5, nodes=16, days=0.5, preset="noisy", jobs="one", scale=3.0)


def fleet() -> tuple[World, Originals]:
    world = World(1, 8, silent_failure=0.0, reboot_hangs=0.0)
    return world, Originals(world, SimulatedPlatform(world, progress_s=0.0))


def kinds(world: World, node: str) -> list[str]:
    return [fact.kind for fact in world.log if fact.node == node]


def test_any_xid_line_reboots_a_node_at_the_next_poll_though_nothing_is_wrong_with_it() -> None:
    world, theirs = fleet()
    world.run_for(10.0)
    world.strike("app_fault_13_31", "node-0003")
    world.run_for(POLL_S)
    assert theirs.acted == [("node-0003", Verb.REBOOT)]
    cordon = next(fact for fact in world.log if fact.kind == "cordon")
    assert cordon.detail["sick"] is False  # a wrong disruption


def test_a_node_is_uncordoned_without_a_check_and_takes_work_while_sick() -> None:
    world, theirs = fleet()
    world.strike("nvlink_down_after_boot", "node-0002")
    world.run_for(2 * 3600.0)
    assert theirs.acted.count(("node-0002", Verb.REBOOT)) > 2  # the same reboot again and again: no rung above it
    returned = [fact for fact in world.log if fact.kind == "returned"]
    assert returned
    assert world.ailing("node-0002")


def test_a_lost_gpu_that_a_reboot_did_not_bring_back_is_in_service_again() -> None:
    world, theirs = fleet()
    world.strike("gpu_lost_79", "node-0002", cure="power_cycle")
    world.run_for(3600.0)
    assert theirs.acted == [("node-0002", Verb.REBOOT)]
    assert [fact.detail["healthy"] for fact in world.log if fact.kind == "returned"] == [False]


def test_many_xid_lines_replace_the_machine() -> None:
    world, theirs = fleet()
    for _ in range(3):
        world.strike("app_fault_13_31", "node-0001")
    world.run_for(POLL_S + 1)
    assert theirs.acted == [("node-0001", Verb.REPLACE)]
    world.run_for(3600.0)
    assert not world.nodes["node-0001"].gate  # nobody examines the newcomer
    assert "joined" in kinds(world, "node-0001")


def test_a_gpu_lost_without_an_xid_is_never_noticed() -> None:
    world, theirs = fleet()
    world.strike("gpu_lost_silent", "node-0004")
    world.run_for(3600.0)
    assert theirs.acted == []


def test_a_drained_gang_is_started_again_by_its_operator_on_open_nodes() -> None:
    world, _ = fleet()
    job = world.submit(JobSpec("train", tuple(world.nodes)[:6], requeue_s=REQUEUE_S))
    world.run_for(1_000.0)
    world.strike("row_remap_pending_63", "node-0002")
    world.run_for(POLL_S + REQUEUE_S + 1)
    assert job.attempt == 2
    assert job.phase is JobPhase.RUNNING
    assert "node-0002" not in job.nodes


def test_both_policies_meet_the_same_faults() -> None:
    quiet = replace(SCENE, jobs="none")
    mine, theirs = ours(quiet, settings_of(None)), originals(quiet)
    assert mine.faults > 0
    assert abs(mine.faults - theirs.faults) <= 3  # a strike at a node that is just then down does not count


def test_the_table_says_aloud_where_the_originals_did_better() -> None:
    mine, theirs = ours(SCENE, settings_of(None)), originals(SCENE)
    better = replace(theirs, gpu_hours_lost=mine.gpu_hours_lost - 1, ettr=0.0, wrong_disruptions=10_000)
    last = side_by_side(mine, better)[-1]
    assert "GPU-hours lost by jobs" in last
    assert "wrong disruptions" not in last
    assert "ETTR" not in last


def test_what_the_originals_have_no_notion_of_is_not_made_up() -> None:
    theirs = originals(replace(SCENE, days=0.1))
    assert (theirs.cases, theirs.mttr, theirs.relapse, theirs.false_disruption_rate) == (None, None, None, None)
