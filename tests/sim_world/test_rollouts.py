"""Roll-outs: they spread by themselves and by every boot, are bad where they are, and can be taken back."""

from __future__ import annotations

import pytest

from sickbay.errors import Unreadable
from sickbay.model import Action, Before, Case, Done, Node, Outcome, Phase, Place, Plan, Status, Verb
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.sim import backup
from sickbay.sim.jobs import JobSpec
from sickbay.sim.world import World
from sickbay.stores.memory import MemoryStore

ONE = "node-0000"
HOUR = 3600.0
BAD = "nvlink_down_after_boot"


def fleet(nodes: int = 6) -> World:
    return World(7, nodes, silent_failure=0.0, reboot_hangs=0.0, part_returns=0.0)


def shown(world: World, name: str = ONE) -> Node:
    found = SimulatedPlatform(world).look(name)
    assert found is not None
    return found


def treated(world: World, verb: Verb, name: str = ONE) -> Outcome:
    node, door = world.nodes[name], SimulatedPlatform(world)
    node.mark, node.closed = f"{name}.1", True
    action = Action(f"{name}.1/3", verb, Place(name), before=Before(node.told_boot, node.instance))
    door.perform(action)
    world.run_for(2 * HOUR)
    return door.perform(action)


def test_a_driver_spreads_one_idle_node_at_a_time_and_is_shown_as_a_factor() -> None:
    world = fleet()
    job = world.submit(JobSpec("train", (ONE, "node-0001")))
    made = world.rollouts.begin("driver", "590.1", every_s=600.0)
    has = []
    for _ in range(4):
        world.run_for(1200.0)
        has.append(len(made.has))
    assert has == sorted(has)
    assert set(made.has) == {f"node-{i:04d}" for i in range(2, 6)}
    assert shown(world, "node-0002").factors["driver"] == "590.1"
    assert job.live


def test_our_own_reboot_brings_a_bad_driver_and_the_next_boot_does_not_cure_it() -> None:
    world = fleet()
    world.rollouts.begin("driver", "590.1", every_s=None, bad_share=1.0, harm=BAD)
    assert world.truly_healthy(ONE)
    assert isinstance(treated(world, Verb.REBOOT), Done)
    assert [a.kind.name for _, a in world.ailing(ONE)] == [BAD]
    assert any("590.1" in line for line in world.nodes[ONE].kernel.tail(50))
    world.people.reboot(ONE)
    world.run_for(HOUR)
    assert [a.kind.name for _, a in world.ailing(ONE)] == [BAD]


def test_our_own_replace_brings_a_bad_image_and_a_reboot_does_not() -> None:
    world = fleet()
    world.rollouts.begin("image", "gpu-image-42", every_s=None, bad_share=1.0, harm=BAD)
    treated(world, Verb.REBOOT)
    treated(world, Verb.REPLACE, "node-0001")
    assert [world.nodes[n].image for n in (ONE, "node-0001")] == ["gpu-image-41", "gpu-image-42"]
    assert [world.truly_healthy(n) for n in (ONE, "node-0001")] == [True, False]


def test_taken_back_it_leaves_everybody_as_he_was() -> None:
    world = fleet()
    made = world.rollouts.begin("driver", "590.1", every_s=600.0, bad_share=1.0, harm=BAD)
    world.run_for(3 * HOUR)
    assert not world.truly_healthy(ONE)
    world.rollouts.undo(made)
    assert {n.driver for n in world.nodes.values()} == {"580.105.08"}
    assert all(world.truly_healthy(name) for name in world.nodes)


@pytest.mark.parametrize("harm", ["blind", "lying"])
def test_a_bad_agent_reads_a_healthy_host_wrongly_also_when_it_is_asked(harm: str) -> None:
    world = fleet()
    world.rollouts.begin("agent", "2.0", every_s=60.0, bad_share=1.0, harm=harm)
    world.run_for(HOUR)
    wrong = Status.UNKNOWN if harm == "blind" else Status.FAILED
    assert world.truly_healthy(ONE)
    assert {f.status for f in shown(world).findings} >= {wrong}
    asked = treated_verify(world)
    assert wrong in {f.status for f in asked.findings}


def treated_verify(world: World) -> Done:
    door, action = (
        SimulatedPlatform(world),
        Action(f"{ONE}.9/1", Verb.VERIFY, Place(ONE), args={"checks": "nvidia-smi"}),
    )
    door.perform(action)
    world.run_for(600.0)
    said = door.perform(action)
    assert isinstance(said, Done)
    return said


def test_a_mute_agent_says_nothing_until_it_is_taken_back() -> None:
    world = fleet()
    made = world.rollouts.begin("agent", "2.0", every_s=60.0, bad_share=1.0, harm="mute")
    world.run_for(HOUR)
    assert not any(n.agent_up for n in world.nodes.values())
    assert all(n.ready for n in world.nodes.values())
    world.people.reboot(ONE)
    world.run_for(HOUR)
    assert not world.nodes[ONE].agent_up
    world.rollouts.undo(made)
    assert all(n.agent_up for n in world.nodes.values())


def test_a_record_that_a_newer_controller_wrote_cannot_be_read_until_that_one_is_back() -> None:
    store = MemoryStore()
    store.create(Case(f"{ONE}.1", ONE, "uid", "default", (), Plan(), Phase.REPAIRING, 3, 0.0, 0.0, deadline=None), 1)
    backup.written_by_a_newer(store, Case, f"{ONE}.1")
    assert store.list(Case) == []
    with pytest.raises(Unreadable):
        store.get(Case, f"{ONE}.1")
    backup.written_by_a_newer(store, Case, f"{ONE}.1", newer=False)
    assert [c.value.id for c in store.list(Case)] == [f"{ONE}.1"]
