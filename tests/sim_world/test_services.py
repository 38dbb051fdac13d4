"""What a fleet leans on is away for an hour: what is shown then, what is refused, what happens on its return."""

from __future__ import annotations

import pytest

from sickbay.errors import Unreachable
from sickbay.model import Action, Before, Case, Change, JobPhase, Outcome, Phase, Place, Plan, Retry, Verb
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.sim import backup
from sickbay.sim.jobs import JobSpec
from sickbay.sim.world import World
from sickbay.stores.memory import MemoryStore

ONE = "node-0000"
HOUR = 3600.0


def fleet(nodes: int = 8) -> World:
    return World(7, nodes, silent_failure=0.0, reboot_hangs=0.0, part_returns=0.0)


def names(first: int, count: int) -> tuple[str, ...]:
    return tuple(f"node-{i:04d}" for i in range(first, first + count))


def asked(world: World, verb: Verb, name: str = ONE) -> Outcome:
    node = world.nodes[name]
    node.mark, node.closed = f"{name}.1", True
    return SimulatedPlatform(world).perform(
        Action(f"{name}.1/3", verb, Place(name), before=Before(node.told_boot, node.instance))
    )


def test_while_the_api_is_away_nothing_is_shown_and_nothing_is_taken() -> None:
    world = fleet()
    door, heard = SimulatedPlatform(world), list[Change]()
    door.watch(heard.append)
    world.services.fail("api", for_s=HOUR)
    with pytest.raises(Unreachable):
        door.observe()
    with pytest.raises(Unreachable):
        door.look(ONE)
    assert isinstance(asked(world, Verb.CORDON), Retry)
    world.strike("gpu_lost_79", ONE, 2)
    world.run_for(HOUR - 1.0)
    assert heard == []


def test_on_the_apis_return_each_object_that_changed_is_told_once_as_it_is_then() -> None:
    world = fleet()
    heard = list[Change]()
    SimulatedPlatform(world, progress_s=0.0).watch(heard.append)
    world.services.fail("api", for_s=HOUR)
    world.people.cordon(ONE)
    world.run_for(60.0)
    world.people.uncordon(ONE)
    world.people.cordon("node-0001")
    world.people.delete_object("node-0002", rejoins_after_s=None)
    world.run_for(HOUR)
    told = {getattr(change, "name", "") or change.node.name: change for change in heard}  # type: ignore[union-attr]
    assert sorted(told) == list(names(0, 3))
    assert len(heard) == 3
    assert not told[ONE].node.cordoned  # type: ignore[union-attr]


def test_while_the_provider_is_away_only_what_the_node_does_itself_is_done() -> None:
    world = fleet()
    world.services.fail("provider")
    assert isinstance(asked(world, Verb.REPLACE), Retry)
    assert isinstance(asked(world, Verb.POWER_CYCLE, "node-0001"), Retry)
    assert SimulatedPlatform(world).provider_status(ONE) == "unknown"
    assert not isinstance(asked(world, Verb.RESET_GPU, "node-0002"), Retry)


def test_without_a_registry_a_gang_waits_on_nodes_that_lack_its_image_and_starts_when_it_is_back() -> None:
    world = fleet()
    job = world.submit(JobSpec("train", names(0, 2), requeue_s=60.0))
    world.run_for(HOUR)
    world.services.fail("registry", for_s=HOUR)
    world.strike("gpu_lost_79", ONE, 2, cure="replace")
    world.people.cordon(ONE)
    world.run_for(600.0)
    assert str(job.phase) == "PENDING"
    assert job.nodes != names(0, 2)
    world.run_for(HOUR)
    assert str(job.phase) == "RUNNING"
    assert job.step(world.now) > 0


def test_without_a_registry_a_gang_starts_where_its_image_is_already() -> None:
    world = fleet()
    job = world.submit(JobSpec("train", names(0, 2), requeue_s=60.0))
    world.run_for(HOUR)
    world.services.fail("registry")
    world.strike("unexplained_job_failure", ONE)
    world.run_for(600.0)
    assert (job.phase, job.attempt, job.nodes) == (JobPhase.RUNNING, 2, names(0, 2))


def test_without_a_registry_a_successor_has_no_agent() -> None:
    world = fleet()
    world.services.fail("registry", for_s=2 * HOUR)
    asked(world, Verb.REPLACE)
    world.run_for(1.9 * HOUR)
    assert world.nodes[ONE].generation == 1
    assert not world.nodes[ONE].agent_up
    world.run_for(HOUR)
    assert world.nodes[ONE].agent_up


def test_with_a_dead_controller_manager_everybody_stays_ready_and_nobody_is_evicted() -> None:
    world = fleet()
    job = world.submit(JobSpec("train", names(0, 4)))
    world.services.fail("manager")
    world.strike("host_crash", "node-0006")
    world.network.cut(names(0, 4), "control")
    world.run_for(HOUR)
    assert all(node.ready for node in world.nodes.values())
    assert job.live
    world.services.back("manager")
    assert sorted(n.name for n in world.nodes.values() if not n.ready) == [*names(0, 4), "node-0006"]


def test_outages_of_one_service_overlap() -> None:
    world = fleet()
    world.services.fail("api", for_s=600.0)
    world.services.fail("api", for_s=1200.0)
    world.run_for(900.0)
    assert world.services.is_away("api")
    world.run_for(600.0)
    assert not world.services.is_away("api")


# -- etcd


def a_case(number: int) -> Case:
    return Case(f"{ONE}.{number}", ONE, "uid", "default", (), Plan(), Phase.REPAIRING, 3, 0.0, 0.0, deadline=None)


def test_etcd_from_yesterday_opens_what_had_ended_and_takes_off_and_puts_on_marks() -> None:
    world, store = fleet(), MemoryStore()
    version = store.create(a_case(1), epoch=1)
    world.nodes[ONE].mark = f"{ONE}.1"
    yesterday = backup.take(world, store)
    store.archive(a_case(1), version, 1)
    store.create(a_case(2), epoch=1)
    world.nodes[ONE].mark, world.nodes["node-0001"].mark = "", "node-0001.7"
    world.run_for(24 * HOUR)
    backup.restore(world, store, yesterday)
    assert [c.value.id for c in store.list(Case)] == [f"{ONE}.1"]
    assert list(store.history(Case)) == []
    assert (world.nodes[ONE].mark, world.nodes["node-0001"].mark) == (f"{ONE}.1", "")
    assert store.list(Case)[0].version > version


def test_a_machine_that_yesterdays_etcd_does_not_know_registers_anew_behind_the_gate() -> None:
    world, store = fleet(), MemoryStore()
    yesterday = backup.take(world, store)
    asked(world, Verb.REPLACE)
    world.run_for(4 * HOUR)
    world.nodes[ONE].gate = False
    uid = world.nodes[ONE].uid
    backup.restore(world, store, yesterday)
    assert world.nodes[ONE].gate
    assert world.nodes[ONE].uid != uid
