"""Storage, subnet manager, cooling, capacity: what a whole fleet shares goes wrong while its nodes are well."""

from __future__ import annotations

from sickbay.model import JobPhase, Node, Status
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.sim.jobs import JobSpec, SimJob
from sickbay.sim.world import World

ONE = "node-0000"
HOUR = 3600.0


def fleet(nodes: int = 8) -> World:
    return World(7, nodes, rack_size=4, silent_failure=0.0, reboot_hangs=0.0, part_returns=0.0)


def names(first: int, count: int) -> tuple[str, ...]:
    return tuple(f"node-{i:04d}" for i in range(first, first + count))


def gang(world: World, first: int = 0, count: int = 2, name: str = "train") -> SimJob:
    made = world.submit(JobSpec(name, names(first, count), checkpoint_every=30))
    world.run_for(HOUR)
    return made


def shown(world: World, name: str = ONE) -> Node:
    found = SimulatedPlatform(world).look(name)
    assert found is not None
    return found


# -- storage


def test_while_storage_hangs_every_job_stands_still_says_nothing_and_every_node_is_well() -> None:
    world = fleet()
    one, two = gang(world), gang(world, 2, name="other")
    world.shared.storage_hangs(for_s=HOUR)
    steps = one.step(world.now), two.step(world.now)
    world.run_for(0.9 * HOUR)
    assert (one.step(world.now), two.step(world.now)) == steps
    assert (one.phase, one.exits, one.silent) == (JobPhase.RUNNING, (), ())
    assert all(node.ready for node in world.nodes.values())
    assert not [f for f in shown(world).findings if f.status is Status.FAILED]
    assert any("blocked for more than 122 seconds" in line for line in world.nodes[ONE].kernel.tail(100))
    world.run_for(0.5 * HOUR)
    assert one.step(world.now) > steps[0]


def test_ranks_stopped_while_storage_hangs_cannot_be_killed_until_it_answers() -> None:
    world = fleet()
    job = gang(world)
    world.shared.storage_hangs(for_s=HOUR)
    world.gangs.stop(job, "k")
    assert shown(world).stuck == ("train",)
    assert "ranks of an earlier attempt live" in world.gangs.refusal(job, names(4, 2), 0)
    world.run_for(HOUR + 60.0)
    assert shown(world).stuck == ()


def test_a_gang_that_starts_while_storage_hangs_makes_its_first_step_when_it_is_back() -> None:
    world = fleet()
    world.shared.storage_hangs(for_s=HOUR)
    job = gang(world)
    assert job.step(world.now) == 0
    world.run_for(HOUR)
    assert job.step(world.now) > 0


# -- subnet manager


def test_without_a_subnet_manager_what_runs_goes_on_and_what_starts_hangs() -> None:
    world = fleet()
    runs = gang(world)
    world.shared.subnet_manager_dies(for_s=HOUR)
    at, late = runs.step(world.now), gang(world, 2, name="late")
    alone = gang(world, 4, 1, name="alone")
    assert runs.step(world.now) > at
    assert (late.step(world.now), late.phase) == (0, JobPhase.RUNNING)
    assert alone.step(world.now) > 0


# -- cooling


def test_a_hot_row_throttles_every_gpu_in_it_and_its_jobs_and_is_well_when_cool() -> None:
    world = fleet()
    job = gang(world)
    world.shared.row_heats(world.network.rack("rack-000"), for_s=2 * HOUR)
    assert job.pace.slow > 1.0
    world.run_for(600.0)
    assert all("slow" in " ".join(f.code for f in shown(world, n).findings) for n in names(0, 4)), shown(world).findings
    assert world.truly_healthy("node-0004")
    world.run_for(2 * HOUR)
    assert job.pace.slow == 1.0
    assert all(world.truly_healthy(name) for name in names(0, 4))


# -- capacity


def test_in_the_evening_only_idle_nodes_go_and_the_platform_says_who_takes_them() -> None:
    world = fleet()
    job = gang(world)
    assert world.capacity.scale_in(names(0, 4), back_after_s=8 * HOUR) == list(names(2, 2))
    assert shown(world, "node-0002").others == ("cluster-autoscaler",)
    world.run_for(HOUR)
    assert SimulatedPlatform(world).look("node-0002") is None
    assert SimulatedPlatform(world).provider_status("node-0002") == "terminated"
    assert job.live
    world.run_for(8 * HOUR)
    assert shown(world, "node-0002").gate


def test_a_spot_machine_goes_with_its_work_two_minutes_after_the_notice() -> None:
    world = fleet()
    job = gang(world)
    world.capacity.reclaim_spot(ONE)
    assert (shown(world).capacity, shown(world).others) == ("spot", ("aws-node-termination-handler",))
    assert job.live
    world.run_for(130.0)
    assert not job.live
    assert world.nodes[ONE].gone


def test_a_capacity_block_ends_for_all_its_machines_at_once() -> None:
    world = fleet()
    world.capacity.block_ends(names(4, 4), next_after_s=24 * HOUR)
    assert sum(n.gone for n in world.nodes.values()) == 4
    world.run_for(25 * HOUR)
    assert not any(n.gone for n in world.nodes.values())
