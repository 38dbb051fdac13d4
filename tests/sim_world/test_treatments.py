"""Treatments act on the truth: what each cures, what it leaves, what it brings."""

from __future__ import annotations

import pytest

from sickbay.model import JobPhase, Verb
from sickbay.sim.jobs import JobSpec
from sickbay.sim.world import World

CASES = [
    (Verb.RESET_GPU, "reset"),
    (Verb.REBOOT, "reboot"),
    (Verb.POWER_CYCLE, "power_cycle"),
    (Verb.REPLACE, "replace"),
]


def fleet(**options: float) -> World:
    settings = {"silent_failure": 0.0, "reboot_hangs": 0.0, "part_returns": 0.0} | options
    return World(5, 4, **settings)  # type: ignore[arg-type]


def treat(world: World, verb: Verb, name: str = "node-0000", key: str = "node-0000.1/1") -> str:
    treatment = world.treatments.begin(key, verb, world.nodes[name])
    world.run_until(treatment.ends)
    world.run_for(60)
    return treatment.state


@pytest.mark.parametrize(("verb", "force"), CASES)
@pytest.mark.parametrize("cure", ["reset", "reboot", "power_cycle", "replace"])
def test_a_treatment_cures_what_needs_it_or_something_weaker(verb: Verb, force: str, cure: str) -> None:
    world = fleet()
    order = ["reset", "reboot", "power_cycle", "replace"]
    world.strike("ecc_uncontained_95", "node-0000", 2, cure=cure)
    assert treat(world, verb) == "done"
    cured = order.index(force) >= order.index(cure)
    assert world.truly_healthy("node-0000") is cured
    assert world.truly_healthy("node-0000", ("nvidia-smi", "dcgm-l2")) is cured


def test_a_reset_keeps_the_boot_and_a_reboot_begins_a_new_one() -> None:
    world = fleet()
    node = world.nodes["node-0000"]
    first = node.boot_id
    treat(world, Verb.RESET_GPU)
    assert node.boot_id == first
    treat(world, Verb.REBOOT, key="node-0000.1/2")
    assert node.boot_id != first
    assert node.kernel.booted_at > world.clock.start


def test_a_gpu_that_is_lost_cannot_be_reset() -> None:
    world = fleet()
    world.strike("gpu_lost_79", "node-0000", 1, cure="reboot")
    assert treat(world, Verb.RESET_GPU) == "failed"


def test_a_gpu_lost_for_good_is_still_lost_after_a_reboot_and_says_so_without_an_xid() -> None:
    world = fleet()
    world.strike("gpu_lost_79", "node-0000", 1, cure="power_cycle")
    treat(world, Verb.REBOOT)
    codes = {f.code for f in world.nodes["node-0000"].findings.values()}
    assert "smi.gpu-lost" in codes
    assert "kernel.rm-init-failed" in codes
    assert "xid.79" not in codes
    treat(world, Verb.POWER_CYCLE, key="node-0000.1/2")
    assert {f.code for f in world.nodes["node-0000"].findings.values()} == {""}


def test_a_repair_that_silently_failed_passes_every_check_and_comes_back_under_load() -> None:
    world = fleet(silent_failure=1.0)
    world.strike("ecc_uncontained_95", "node-0000", 2, cure="reset")
    treat(world, Verb.RESET_GPU)
    assert world.truly_healthy("node-0000", ("nvidia-smi", "dcgm-l2"))
    assert not world.truly_healthy("node-0000")
    job = world.submit(JobSpec("train", ("node-0000",)))
    world.run_for(86_400 * 2)
    assert job.phase is JobPhase.FAILED


def test_a_reboot_may_never_come_back_and_cutting_the_power_brings_it_back() -> None:
    world = fleet(reboot_hangs=1.0)
    node = world.nodes["node-0000"]
    assert treat(world, Verb.REBOOT) == "failed"
    assert not node.ready
    assert treat(world, Verb.POWER_CYCLE, key="node-0000.1/2") == "done"
    assert node.ready


def test_a_host_without_power_is_not_ready_and_a_reboot_does_not_help() -> None:
    world = fleet()
    node = world.nodes["node-0000"]
    world.strike("power_loss", "node-0000", cure="power_cycle")
    world.run_for(41)
    assert not node.ready
    assert treat(world, Verb.REBOOT) == "failed"
    assert treat(world, Verb.POWER_CYCLE, key="node-0000.1/2") == "done"
    assert node.ready


def test_a_replacement_is_another_machine_with_other_parts_behind_the_gate() -> None:
    world = fleet()
    node = world.nodes["node-0000"]
    before = (node.uid, node.instance, {g.serial for g in node.gpus})
    treat(world, Verb.REPLACE)
    assert node.uid != before[0]
    assert node.instance != before[1]
    assert not before[2] & {g.serial for g in node.gpus}
    assert node.gate
    assert not node.mark


def test_a_replacement_can_bring_back_a_part_that_was_taken_out() -> None:
    world = fleet()
    world.strike("row_remap_failed_64", "node-0000", 4)
    serial = world.nodes["node-0000"].gpus[4].serial
    treat(world, Verb.REPLACE)
    world.people.return_part(serial)
    treat(world, Verb.REPLACE, name="node-0001", key="node-0001.1/1")
    assert serial in {g.serial for g in world.nodes["node-0001"].gpus}
    assert not world.truly_healthy("node-0001")


def test_a_part_that_is_back_in_another_slot_is_named_by_that_slot() -> None:
    """Its lines named the old one, so that whoever read them blamed the part that is there (seed 1306)."""
    world = fleet()
    world.strike("load_only", "node-0000", 4)
    part = world.nodes["node-0000"].gpus[4]
    treat(world, Verb.REPLACE)
    world.people.return_part(part.serial)
    treat(world, Verb.REPLACE, name="node-0001", key="node-0001.1/1")
    back = world.nodes["node-0001"].gpus[0]
    assert back is part
    assert {(a.values["pci"], a.values["index"]) for a in back.ailments} == {(back.pci, 0)}


def test_the_same_key_is_acted_on_once() -> None:
    world = fleet()
    boots = world.nodes["node-0000"].boots
    treat(world, Verb.REBOOT)
    treat(world, Verb.REBOOT)
    assert world.nodes["node-0000"].boots == boots + 1


def test_a_hung_driver_leaves_its_ranks_stuck_until_a_boot() -> None:
    world = fleet()
    node = world.nodes["node-0000"]
    job = world.submit(JobSpec("train", ("node-0000", "node-0001")))
    world.run_for(600)
    world.strike("driver_hung", "node-0000", cure="reboot")
    world.gangs.stop(job, "k")
    assert node.stuck == ["train"]
    assert not node.job
    treat(world, Verb.REBOOT)
    assert node.stuck == []
