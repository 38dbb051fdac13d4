"""Cuts in networks and power: what is true of a node that is cut off, what is shown of it, and how it comes back."""

from __future__ import annotations

import pytest

from sickbay.model import (
    Action,
    Before,
    Change,
    Done,
    Failed,
    JobPhase,
    Lost,
    Node,
    NodeChanged,
    Outcome,
    Place,
    Retry,
    Started,
    Verb,
)
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.sim.jobs import JobSpec, SimJob
from sickbay.sim.network import EVICT_AFTER_S, GRACE_S
from sickbay.sim.world import World

CASE = "node-0000.1"
ONE = "node-0000"


def fleet(nodes: int = 8, **options: object) -> World:
    quiet = {"silent_failure": 0.0, "reboot_hangs": 0.0, "part_returns": 0.0}
    return World(7, nodes, **{**quiet, **options})  # type: ignore[arg-type]


def names(first: int, count: int) -> list[str]:
    return [f"node-{i:04d}" for i in range(first, first + count)]


def gang(world: World, nodes: list[str], **options: object) -> SimJob:
    made = world.submit(JobSpec("train", tuple(nodes), checkpoint_every=30, **options))  # type: ignore[arg-type]
    world.run_for(1800.0)
    return made


def shown(world: World, name: str = ONE) -> Node:
    found = SimulatedPlatform(world).look(name)
    assert found is not None
    return found


def asked(world: World, verb: Verb, name: str = ONE, door: SimulatedPlatform | None = None, **args: str) -> Outcome:
    node = world.nodes[name]
    node.mark, node.closed = f"{name}.1", True
    before = Before(node.told_boot, node.instance)
    return (door or SimulatedPlatform(world)).perform(
        Action(f"{name}.1/3", verb, Place(name), args={"case": f"{name}.1", **args}, before=before)
    )


def kinds(world: World, kind: str) -> list[str]:
    return [fact.line() for fact in world.log if fact.kind == kind]


# -- the control plane


def test_a_node_that_the_control_plane_lost_is_not_ready_after_the_grace_and_its_job_goes_on() -> None:
    world = fleet()
    job = gang(world, names(0, 4))
    before = job.step(world.now)
    world.network.cut(names(0, 2), "control")
    assert shown(world).ready
    world.run_for(60.0)
    assert not shown(world).ready
    assert not world.nodes[ONE].agent_up
    assert world.nodes[ONE].provider_status == "running"
    world.run_for(120.0)
    assert job.phase is JobPhase.RUNNING
    assert job.step(world.now) > before


def test_a_cut_that_ends_before_the_eviction_leaves_no_trace_in_the_job() -> None:
    world = fleet()
    job = gang(world, names(0, 4))
    world.network.cut(names(0, 2), "control", for_s=120.0)
    world.run_for(600.0)
    assert shown(world).ready
    assert world.nodes[ONE].agent_up
    assert (job.phase, job.attempt) == (JobPhase.RUNNING, 1)


def test_an_evicted_gang_is_shown_failed_while_all_its_ranks_go_on_writing() -> None:
    world = fleet()
    job = gang(world, names(0, 4))
    job.settle(world.now)
    saved = job.newest_checkpoint()
    world.network.cut(names(0, 4), "control")
    world.run_for(EVICT_AFTER_S + 60.0)
    assert job.phase is JobPhase.FAILED
    assert job.still_writes
    assert shown(world).jobs == ("train",)  # a pod that is being deleted on a node that does not answer lives there
    world.run_for(3600.0)
    fleet_now = SimulatedPlatform(world).observe().jobs[0]
    assert saved is not None
    assert fleet_now.checkpoint is not None
    assert fleet_now.checkpoint.step > saved.step
    assert fleet_now.step > fleet_now.checkpoint.step


def test_of_a_gang_that_is_cut_in_two_only_the_part_that_is_reached_is_ended() -> None:
    world = fleet()
    job = gang(world, names(0, 4))
    world.network.cut(names(0, 1), "control")
    world.run_for(EVICT_AFTER_S + 60.0)
    assert [(o.attempt, o.nodes, o.pace) for o in job.orphans] == [(1, [ONE], None)]
    assert [shown(world, name).jobs for name in names(0, 2)] == [("train",), ()]
    assert job.exits[0].node == ONE
    assert job.exits[0].code is None
    assert "NoExecute" in job.exits[0].tail[0]


def test_a_kubelet_that_is_back_says_ready_and_ends_what_was_evicted_within_its_grace() -> None:
    """As a real one does: it had ended them before it said so, and no restart beside them could be seen here."""
    world = fleet()
    job = gang(world, names(0, 4))
    world.network.cut(names(0, 4), "control", for_s=1200.0)
    world.run_for(1300.0)
    assert job.orphans == []
    assert shown(world).ready
    assert shown(world).jobs == ()
    for name in names(0, 4):
        told = [f for f in world.log if f.node == name and f.kind in ("orphans-end", "ready")]
        assert [f.kind for f in told] == ["ready", "orphans-end"]
        assert 0.0 < told[1].t - told[0].t <= GRACE_S + 1.0


def test_ranks_that_were_given_up_are_shown_and_hold_their_job_back_until_their_grace_is_over() -> None:
    world = fleet()
    job = gang(world, names(0, 4))
    world.network.cut(names(0, 4), "control")
    world.run_for(EVICT_AFTER_S + 60.0)
    for name in names(0, 4):
        world.nodes[name].ready = True  # as a kubelet says that is back
    assert shown(world).jobs == ("train",)
    door, newest = SimulatedPlatform(world), job.newest_checkpoint()
    assert newest is not None
    stopped = door.perform(Action("train#3", Verb.STOP_JOB, Place(""), args={"job": "train"}))
    assert isinstance(stopped, Started)
    asks = {"job": "train", "attempt": "2", "from_step": str(newest.step), "behind": "all"}
    said = door.perform(Action("train#9", Verb.RESTART_JOB, Place(""), args=asks, nodes=tuple(names(4, 4))))
    assert isinstance(said, Failed)
    assert "still end on" in said.why


def test_a_stop_does_not_reach_ranks_that_are_cut_off_and_says_so() -> None:
    world = fleet()
    job = gang(world, names(0, 4))
    world.network.cut(names(0, 4), "control")
    door, stop = SimulatedPlatform(world), Action("train#3", Verb.STOP_JOB, Place(""), args={"job": "train"})
    said = door.perform(stop)
    assert isinstance(said, Started)
    assert "cannot be confirmed gone" in said.detail
    assert job.still_writes
    for name in names(0, 4):
        world.nodes[name].mark = f"{name}.1"
    assert isinstance(door.perform(stop), Started)  # a mark on a node that nobody can reach is no fence
    assert job.still_writes
    world.run_for(60.0)
    said = door.perform(stop)  # known to be away: waiting here ends nothing there, and it holds the restart back
    assert isinstance(said, Done)
    assert "not confirmed on" in said.detail
    assert job.still_writes


@pytest.mark.parametrize("behind", ["", "all", ",".join(names(0, 4)), ONE])
def test_a_restart_beside_ranks_out_of_reach_is_made_only_where_they_may_be_left_and_told_as_two_attempts(
    behind: str,
) -> None:
    world = fleet()
    job = gang(world, names(0, 4))
    world.network.cut(names(0, 4), "control")
    world.run_for(EVICT_AFTER_S + 60.0)
    newest = job.newest_checkpoint()
    assert newest is not None
    for name in names(0, 4):
        world.nodes[name].mark = f"{name}.1"  # no fence: nobody there has read it
    asks = {"job": "train", "attempt": "2", "from_step": str(newest.step), "behind": behind}
    again = Action("train#9", Verb.RESTART_JOB, Place(""), args=asks, nodes=tuple(names(4, 4)))
    said = SimulatedPlatform(world).perform(again)  # who may be left is for the brain: core/reach.py
    told = kinds(world, "two-attempts")
    if behind in ("", ONE):
        assert isinstance(said, Failed)
        assert "may still run on" in said.why
        assert told == []
        assert len(kinds(world, "asked-beside")) == 1
    else:
        assert len(told) == 1
        assert "writes=True" in told[0]


@pytest.mark.parametrize("verb", [Verb.DRAIN, Verb.RESET_GPU, Verb.COLLECT, Verb.VERIFY])
def test_nothing_that_needs_the_node_itself_reaches_it(verb: Verb) -> None:
    world = fleet()
    world.network.cut([ONE], "control")
    world.run_for(60.0)
    door = SimulatedPlatform(world)
    first = asked(world, verb, door=door)
    world.run_for(300.0)
    last = asked(world, verb, door=door)
    if verb is Verb.RESET_GPU:
        assert isinstance(first, Retry)
    if verb is Verb.DRAIN:
        assert isinstance(last, Started)
    if verb is Verb.VERIFY:
        assert isinstance(last, Done)
        assert {f.status.value for f in last.findings} == {"UNKNOWN"}
    if verb is Verb.COLLECT:
        assert "2 pieces" in str(last) or "3 pieces" in str(last)  # identity, last findings, and that it was silent


def test_a_reset_that_never_arrived_is_known_to_be_lost() -> None:
    world = fleet()
    world.network.cut([ONE], "control")
    door = SimulatedPlatform(world)
    asked(world, Verb.RESET_GPU, door=door)
    node = world.nodes[ONE]
    look = Action(f"{ONE}.1/3", Verb.RESET_GPU, Place(ONE), before=Before(node.told_boot, node.instance), call=False)
    assert isinstance(door.perform(look), Lost)


@pytest.mark.parametrize(("by", "arrives"), [("provider", True), ("agent", False)])
def test_a_reboot_reaches_a_node_out_of_reach_only_by_its_provider(by: str, arrives: bool) -> None:
    world = fleet()
    world.network.reboots_by = by
    world.network.cut([ONE], "control")
    world.run_for(60.0)
    assert isinstance(asked(world, Verb.REBOOT), Started if arrives else Retry)


def test_a_reboot_by_the_agent_does_not_reach_a_host_that_is_down() -> None:
    world = fleet()
    world.network.reboots_by = "agent"
    world.strike("host_crash", ONE, cure="reboot")
    world.run_for(60.0)
    assert isinstance(asked(world, Verb.REBOOT), Retry)
    assert kinds(world, "treat-start") == []


def test_a_node_that_booted_in_the_dark_shows_its_old_boot_until_it_is_heard_again() -> None:
    world = fleet()
    boot = world.nodes[ONE].boot_id
    cut = world.network.cut([ONE], "control")
    world.run_for(60.0)
    asked(world, Verb.POWER_CYCLE)
    world.run_for(3600.0)
    assert world.nodes[ONE].boot_id != boot == shown(world).boot_id
    assert not shown(world).ready
    world.network.mend(cut)
    world.run_for(60.0)
    assert shown(world).boot_id == world.nodes[ONE].boot_id != boot
    assert shown(world).ready


def test_what_the_kernel_said_in_the_dark_is_told_on_return() -> None:
    world = fleet()
    world.network.cut([ONE], "control", for_s=600.0)
    world.run_for(60.0)
    world.strike("gpu_lost_79", ONE, 2)
    world.run_for(60.0)
    assert not [f for f in shown(world).findings if f.code == "xid.79"]
    world.run_for(600.0)
    assert [f for f in shown(world).findings if f.code == "xid.79"]


def test_steps_told_by_pods_are_not_seen_while_the_first_one_is_out_of_reach() -> None:
    world = fleet()
    job = gang(world, names(0, 4), told_by="pods")
    SimulatedPlatform(world).watch(lambda change: None)
    world.run_for(120.0)
    told = job.told_step
    world.network.cut([ONE], "control")
    world.run_for(240.0)
    assert SimulatedPlatform(world).observe().jobs[0].step == told
    assert job.step(world.now) > told


def test_what_a_fenced_jobs_old_ranks_write_counts_until_its_next_attempt_has_begun() -> None:
    """A restart after the second attempt had failed would have begun from a checkpoint of the first one."""
    world = fleet()
    job = gang(world, names(0, 4), fenced=True)
    world.network.cut(names(0, 4), "control")
    world.run_for(EVICT_AFTER_S + 60.0)
    job.settle(world.now)
    newest = job.newest_checkpoint()
    assert newest is not None
    world.gangs.restart("train#4", job, 2, newest.step, tuple(names(4, 4)))
    world.run_for(3600.0)
    world.gangs.stop(job, "owner")
    assert job.orphans
    assert not job.still_writes
    reached = job.step(world.now)
    world.run_for(7200.0)
    job.settle(world.now)
    assert {c.attempt for c in job.checkpoints if c.step > newest.step} == {2}
    assert job.last_step(world.now)[0] == reached


def test_the_providers_word_is_shown_also_when_only_the_work_on_the_node_has_changed() -> None:
    world = fleet(provider_tells=True)
    gang(world, names(0, 4))
    door, told = SimulatedPlatform(world), list[Change]()
    door.watch(told.append)
    world.network.cut([ONE], "control")
    world.run_for(EVICT_AFTER_S + 120.0)
    assert [c.node.machine for c in told if isinstance(c, NodeChanged) and c.node.name == ONE][-1] == "running"
    assert not shown(world).ready


def test_what_the_provider_says_of_a_node_that_does_not_answer_is_told_when_it_can_be_asked_again() -> None:
    world = fleet(provider_tells=True)
    door, told = SimulatedPlatform(world), list[Change]()
    door.watch(told.append)
    world.services.fail("provider", 600.0)
    world.network.cut([ONE], "power")
    world.run_for(300.0)
    assert shown(world).machine == ""
    world.run_for(400.0)
    assert [c.node.machine for c in told if isinstance(c, NodeChanged)][-1] == "off"


# -- the data plane, and both


def test_a_gang_across_a_cut_in_the_data_plane_hangs_while_its_nodes_are_ready() -> None:
    world = fleet()
    job = gang(world, names(0, 4))
    world.network.cut([ONE], "data")
    at = job.step(world.now)
    world.run_for(600.0)
    assert shown(world).ready
    assert world.nodes[ONE].agent_up
    assert (job.phase, job.step(world.now)) == (JobPhase.RUNNING, at)
    assert job.silent == ()
    assert "Watchdog" in " ".join(job.exits[0].tail)


@pytest.mark.parametrize(("for_s", "goes_on"), [(10.0, True), (100.0, False)])
def test_retransmits_bridge_a_short_cut_and_no_longer_one(for_s: float, goes_on: bool) -> None:
    world = fleet()
    job = gang(world, names(0, 4))
    world.network.cut([ONE], "data", for_s=for_s)
    at = job.step(world.now)
    world.run_for(900.0)
    assert (job.step(world.now) > at) is goes_on


def test_a_gang_placed_across_a_cut_never_makes_a_step() -> None:
    world = fleet()
    world.network.cut([ONE], "data")
    job = gang(world, names(0, 4))
    world.run_for(3600.0)
    assert job.step(world.now) == 0


def test_with_both_cut_off_the_ranks_there_hang_and_live_and_say_nothing() -> None:
    world = fleet()
    job = gang(world, names(0, 4))
    world.network.cut([ONE], "both")
    world.run_for(300.0)
    assert job.silent == tuple(range(8))
    world.run_for(300.0)
    assert job.phase is JobPhase.FAILED
    assert job.orphans[0].nodes == [ONE]
    assert not job.still_writes


# -- power


def test_without_power_ranks_die_the_provider_knows_and_the_machine_returns_with_a_new_boot() -> None:
    world = fleet()
    job = gang(world, names(0, 4))
    boot = world.nodes[ONE].boot_id
    world.network.cut([ONE], "power", for_s=3600.0)
    world.run_for(120.0)
    assert job.phase is JobPhase.FAILED
    assert job.orphans == []
    assert not shown(world).ready
    assert SimulatedPlatform(world).provider_status(ONE) == "stopped"
    assert isinstance(asked(world, Verb.DRAIN), Done)  # provably empty
    world.run_for(4500.0)
    assert shown(world).ready
    assert world.nodes[ONE].agent_up
    assert shown(world).boot_id != boot
    assert SimulatedPlatform(world).provider_status(ONE) == "running"


def test_no_boot_succeeds_without_power() -> None:
    world = fleet()
    world.network.cut([ONE], "power")
    asked(world, Verb.REBOOT)
    world.run_for(3600.0)
    assert "no power" in str(asked(world, Verb.REBOOT))
    assert not world.nodes[ONE].up


def test_a_successor_stands_elsewhere_unless_the_place_itself_is_cut_off() -> None:
    world = fleet(rack_size=4)
    world.network.cut([ONE], "control")
    world.network.cut(["node-0001"], "control", stays=True)
    for name in names(0, 2):
        asked(world, Verb.REPLACE, name)
    world.run_for(7200.0)
    assert [world.nodes[name].ready for name in names(0, 2)] == [True, False]


# -- sets, and several cuts at once


def test_sets_are_racks_switches_zones_and_shares_and_are_shown_as_factors() -> None:
    world = fleet(16, rack_size=4, switch_size=8, zones=2)
    assert world.network.rack("rack-001") == names(4, 4)
    assert world.network.switch("leaf-001") == names(8, 8)
    assert world.network.zone("zone-b") == names(8, 8)
    assert len(world.network.share(0.25)) == 4
    assert shown(world).factors["switch"] == "leaf-000"
    assert shown(world).factors["zone"] == "zone-a"
    assert "zone" not in shown(fleet()).factors


def test_a_node_in_two_cuts_is_back_when_the_last_one_is_mended() -> None:
    world = fleet()
    first = world.network.cut(names(0, 3), "control")
    second = world.network.cut([ONE], "both")
    world.run_for(60.0)
    world.network.mend(first)
    world.run_for(60.0)
    assert [shown(world, name).ready for name in names(0, 3)] == [False, True, True]
    world.network.mend(second)
    world.run_for(60.0)
    assert shown(world).ready
    assert world.network.cuts == []


def test_certificates_expire_one_by_one_and_are_renewed_one_by_one() -> None:
    world = fleet()
    world.network.cut_one_by_one(names(0, 4), "control", every_s=600.0, for_s=1500.0)
    away = []
    for _ in range(7):
        world.run_for(600.0)
        away.append(sum(not n.ready for n in world.nodes.values()))
    assert (max(away), away[-1]) == (2, 0)


def test_the_same_cuts_give_the_same_trace() -> None:
    def play() -> str:
        world = fleet(16, rack_size=4)
        gang(world, names(0, 8))
        world.network.cut(world.network.share(0.4), "both", for_s=900.0)
        world.network.cut(world.network.rack("rack-003"), "power", for_s=1200.0)
        world.run_for(7200.0)
        return world.digest()

    assert play() == play()
