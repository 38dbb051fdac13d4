"""Machines and who else has a hand on them: what a provider hands back, what a platform forgets, who reboots."""

from __future__ import annotations

import pytest

from sickbay.model import Action, Before, Done, Outcome, Place, Started, Verb
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.sim.jobs import JobSpec
from sickbay.sim.treatments import Treatment
from sickbay.sim.world import World

ONE = "node-0000"
HOUR = 3600.0


def fleet(nodes: int = 4) -> World:
    return World(7, nodes, silent_failure=0.0, reboot_hangs=0.0, part_returns=0.0)


def replaced(world: World, habit: str, within_s: float = 2 * HOUR) -> Outcome:
    """REPLACE a node with a failed row remapper, by a provider with this habit."""
    world.strike("row_remap_failed_64", ONE, 4, cure="replace")
    world.provider.next = [habit]
    node = world.nodes[ONE]
    node.mark, node.closed = f"{ONE}.1", True
    action = Action(f"{ONE}.1/3", Verb.REPLACE, Place(ONE), before=Before(node.told_boot, node.instance))
    door = SimulatedPlatform(world)
    door.perform(action)
    world.run_for(within_s)
    return door.perform(action)


def serials(world: World) -> list[str]:
    return [gpu.serial for gpu in world.nodes[ONE].gpus]


def test_a_good_provider_hands_over_another_machine_with_other_parts() -> None:
    world = fleet()
    was, instance = serials(world), world.nodes[ONE].instance
    assert isinstance(replaced(world, ""), Done)
    assert not set(serials(world)) & set(was)
    assert world.nodes[ONE].instance != instance
    assert world.truly_healthy(ONE)


def test_the_same_board_may_come_back_under_another_instance_id() -> None:
    world = fleet()
    was, instance = serials(world), world.nodes[ONE].instance
    assert isinstance(replaced(world, "same-parts"), Done)
    assert serials(world) == was
    assert world.nodes[ONE].instance != instance
    assert not world.truly_healthy(ONE)


def test_the_same_instance_may_come_back_with_a_new_boot() -> None:
    world = fleet()
    was, instance, boot = serials(world), world.nodes[ONE].instance, world.nodes[ONE].boot_id
    assert isinstance(replaced(world, "same-instance"), Done)
    assert (serials(world), world.nodes[ONE].instance) == (was, instance)
    assert world.nodes[ONE].boot_id != boot
    assert not world.truly_healthy(ONE)
    assert world.nodes[ONE].mark == f"{ONE}.1"  # the object is the same too


def test_a_successor_may_be_sick_and_show_it_only_under_load() -> None:
    world = fleet()
    assert isinstance(replaced(world, "sick"), Done)
    assert not world.truly_healthy(ONE)
    assert world.truly_healthy(ONE, ("nvidia-smi", "dcgm-l2"))


def test_a_successor_may_be_late_and_the_old_machine_is_gone_meanwhile() -> None:
    world = fleet()
    instance = world.nodes[ONE].instance
    assert isinstance(replaced(world, "late", within_s=0.9 * HOUR), Started)
    assert world.nodes[ONE].gone
    assert SimulatedPlatform(world).look(ONE) is None
    world.run_for(7 * HOUR)
    assert world.nodes[ONE].present
    assert world.nodes[ONE].instance != instance
    assert len(serials(world)) == 8


def test_a_successor_may_never_come_and_the_call_never_ends() -> None:
    world = fleet()
    assert isinstance(replaced(world, "never", within_s=72 * HOUR), Started)
    assert SimulatedPlatform(world).provider_status(ONE) == "terminated"


def test_a_late_successor_arrives_with_the_calm() -> None:
    world = fleet()
    replaced(world, "late", within_s=0.9 * HOUR)
    world.provider.calm()
    assert world.nodes[ONE].present


# -- a platform that forgets


def closed(world: World, name: str) -> None:
    node = world.nodes[name]
    action = Action(f"{name}.1/1", Verb.CORDON, Place(name), before=Before(node.told_boot, node.instance))
    assert isinstance(SimulatedPlatform(world).perform(action), Done)


def test_a_platform_that_crashes_forgets_the_marks_of_the_last_moments_and_no_person_did_it() -> None:
    world = fleet()
    closed(world, ONE)
    world.run_for(HOUR)
    closed(world, "node-0001")
    world.run_for(20.0)
    assert world.services.forget(60.0) == ["node-0001"]
    assert (world.nodes[ONE].mark, world.nodes["node-0001"].mark) == (f"{ONE}.1", "")
    assert not world.nodes["node-0001"].cordoned
    assert not [f for f in world.log if f.kind == "person"]


def test_a_platform_may_forget_that_a_mark_was_taken_off() -> None:
    world = fleet()
    closed(world, ONE)
    world.run_for(HOUR)
    SimulatedPlatform(world).perform(Action(f"{ONE}.1/9", Verb.RELEASE, Place(ONE)))
    world.services.forget(60.0)
    assert (world.nodes[ONE].mark, world.nodes[ONE].cordoned) == (f"{ONE}.1", True)


# -- who else reboots


def test_an_administrator_reboots_a_machine_with_its_work_on_it() -> None:
    world = fleet()
    job = world.submit(JobSpec("train", (ONE, "node-0001")))
    world.run_for(HOUR)
    boot = world.nodes[ONE].boot_id
    world.strike("nvlink_74", "node-0002", 1, cure="reboot")
    assert world.people.reboot(ONE)
    assert world.people.reboot("node-0002")
    assert not job.live
    world.run_for(600.0)
    assert world.nodes[ONE].boot_id != boot
    assert world.nodes[ONE].ready
    assert world.truly_healthy("node-0002")


def treated(world: World, verb: Verb) -> Treatment:
    made = world.treatments.begin(f"{ONE}.1/7", verb, world.nodes[ONE])
    world.run_for(5.0)
    return made


@pytest.mark.parametrize("verb", [Verb.REBOOT, Verb.POWER_CYCLE])
@pytest.mark.parametrize("how", ["reboot", "revive"])
def test_who_boots_a_machine_while_it_is_being_rebooted_has_it_boot_once(verb: Verb, how: str) -> None:
    world = fleet()
    world.strike("nvlink_74", ONE, 1, cure="power_cycle")
    made = treated(world, verb)
    assert getattr(world.people, how)(ONE)
    world.run_for(HOUR)
    assert made.state == "done"
    assert len([f for f in world.log if f.kind == "boot" and f.node == ONE]) == 1
    assert world.nodes[ONE].ready
    assert world.truly_healthy(ONE) is (verb is Verb.POWER_CYCLE)


def test_a_reset_that_somebody_reboots_away_has_failed() -> None:
    world = fleet()
    made = treated(world, Verb.RESET_GPU)
    assert world.people.reboot(ONE)
    world.run_for(HOUR)
    assert made.state == "failed"
    assert world.nodes[ONE].ready


@pytest.mark.parametrize("how", ["reboot", "revive"])
def test_nobody_boots_a_machine_that_is_being_replaced(how: str) -> None:
    world = fleet()
    treated(world, Verb.REPLACE)
    assert not getattr(world.people, how)(ONE)


@pytest.mark.parametrize("kind", ["host_crash", "power_loss"])
def test_a_machine_that_is_down_may_come_back_by_itself(kind: str) -> None:
    world = fleet()
    assert not world.people.revive(ONE)
    world.strike(kind, ONE, cure="power_cycle")
    world.run_for(HOUR)
    assert not world.nodes[ONE].ready
    boot = world.nodes[ONE].boot_id
    assert world.people.revive(ONE)
    world.run_for(60.0)
    assert world.nodes[ONE].ready
    assert world.nodes[ONE].boot_id != boot
    assert world.nodes[ONE].agent_up
