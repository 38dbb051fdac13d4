"""Fleets of many shapes: pools with their own machines, jobs on parts of nodes, and what hurts whom there."""

from __future__ import annotations

from sickbay.model import Action, Before, JobPhase, Node, Place, Verb
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.sim import shape
from sickbay.sim.jobs import JobSpec, SimJob
from sickbay.sim.world import Machine, World

ONE = "node-0000"


def fleet(**options: object) -> World:
    quiet = {"silent_failure": 0.0, "reboot_hangs": 0.0, "part_returns": 0.0}
    return World(7, 4, **{**quiet, **options})  # type: ignore[arg-type]


def part(world: World, name: str, gpus: int = 4, nodes: tuple[str, ...] = (ONE,)) -> SimJob:
    return world.submit(JobSpec(name, nodes, ranks_per_node=gpus, gpus_per_node=gpus))


def shown(world: World, name: str = ONE) -> Node:
    found = SimulatedPlatform(world).look(name)
    assert found is not None
    return found


def test_two_jobs_share_a_node_and_both_are_shown_with_the_gpus_they_hold() -> None:
    world = fleet()
    part(world, "b", 2)
    part(world, "a", 4)
    assert world.nodes[ONE].jobs == {"b": (0, 1), "a": (2, 3, 4, 5)}
    assert shown(world).jobs == ("a", "b")
    assert shown(world).gpus_taken == 6


def test_a_sick_gpu_hurts_only_the_job_that_holds_it() -> None:
    world = fleet()
    one, two = part(world, "one"), part(world, "two")
    world.run_for(600.0)
    world.strike("gpu_lost_79", ONE, 5)
    world.run_for(60.0)
    assert (one.phase, two.phase) == (JobPhase.RUNNING, JobPhase.FAILED)
    assert two.exits[0].rank == 1


def test_a_host_that_dies_takes_every_job_on_it() -> None:
    world = fleet()
    jobs = part(world, "one"), part(world, "two")
    world.run_for(600.0)
    world.strike("host_crash", ONE)
    world.run_for(60.0)
    assert [job.phase for job in jobs] == [JobPhase.FAILED] * 2
    assert not world.nodes[ONE].jobs


def test_a_drain_empties_the_node_of_all_its_jobs() -> None:
    world = fleet()
    jobs = part(world, "one"), part(world, "two")
    world.nodes[ONE].mark, world.nodes[ONE].closed = f"{ONE}.1", True
    SimulatedPlatform(world).perform(Action(f"{ONE}.1/2", Verb.DRAIN, Place(ONE), before=Before()))
    assert [job.phase for job in jobs] == [JobPhase.STOPPED] * 2
    assert shown(world).jobs == ()


def test_a_part_of_a_node_is_enough_for_a_part_job_and_not_for_a_gang() -> None:
    world = fleet()
    small, gang = part(world, "one"), world.submit(JobSpec("gang", ("node-0001", "node-0002")))
    other = part(world, "two", nodes=("node-0003",))
    world.gangs.stop(other, "owner")
    world.gangs.stop(gang, "owner")
    assert world.gangs.refusal(other, (ONE,), 0) == ""
    assert "busy with one" in world.gangs.refusal(gang, (ONE, "node-0001"), 0)
    assert small.live


def test_pools_have_their_own_machines_and_a_job_runs_only_where_its_pods_ask_to() -> None:
    machines = {"big": Machine("p5.48xlarge", 8), "edge": Machine("g6.12xlarge", 4)}
    world = fleet(pools={"big": 2, "edge": 2}, machines=machines)
    assert [len(n.gpus) for n in world.nodes.values()] == [8, 8, 4, 4]
    assert shown(world, "node-0002").factors["instance-type"] == "g6.12xlarge"
    assert shown(world, "node-0002").gpus_expected == shown(world, "node-0002").gpus_allocatable == 4
    gang = world.submit(JobSpec("gang", names := ("node-0000", "node-0001"), pool="big"))
    world.gangs.stop(gang, "owner")
    assert "its pods ask for pool big" in world.gangs.refusal(gang, ("node-0001", "node-0002"), 0)
    assert world.gangs.refusal(gang, names, 0) == ""
    world.people.terminate("node-0003", successor_after_s=60.0)
    world.run_for(600.0)
    assert len(world.nodes["node-0003"].gpus) == 4


def test_drawn_shapes_are_many_and_always_hold_their_jobs() -> None:
    shapes = [shape.draw(seed) for seed in range(200)]
    assert {size for one in shapes for size in one.pools.values()} >= {1, 2, 3, 9, 16}
    assert len({(one.rack_size, one.domain_size, one.switch_size, one.zones) for one in shapes}) > 20
    for seed, one in enumerate(shapes):
        world = one.build(seed)
        for spec in one.jobs:
            assert world.submit(spec).live
            assert all(world.nodes[n].pool == spec.pool for n in spec.nodes)
        assert all(sum(map(len, n.jobs.values())) <= len(n.gpus) for n in world.nodes.values())
    assert shape.draw(3) == shape.draw(3)
