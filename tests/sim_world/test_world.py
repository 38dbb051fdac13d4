"""The world: the same seed gives the same trace, time is virtual, jobs and faults behave as they do in life."""

from __future__ import annotations

import pytest

from sickbay.errors import UserError
from sickbay.model import JobPhase
from sickbay.sim.arrivals import FaultArrivals, presets
from sickbay.sim.faults import kinds, rates
from sickbay.sim.jobs import JobSpec, SimJob
from sickbay.sim.world import World

DAY = 86_400.0


def fleet(seed: int = 7, nodes: int = 8, **options: float) -> World:
    settings = {"silent_failure": 0.0, "reboot_hangs": 0.0, "part_returns": 0.0} | options
    return World(seed, nodes, **settings)  # type: ignore[arg-type]


def gang(world: World, count: int = 4, **options: object) -> SimJob:
    return world.submit(JobSpec("train", tuple(list(world.nodes)[:count]), **options))  # type: ignore[arg-type]


def noisy_day(seed: int) -> World:
    world = World(seed, 32)
    gang(world, 16, requeue_s=300.0)
    FaultArrivals("noisy").start(world)
    world.run_for(DAY)
    return world


def test_the_same_seed_gives_the_same_trace_byte_for_byte() -> None:
    one, two = noisy_day(3), noisy_day(3)
    assert list(one.trace) == list(two.trace)
    assert one.digest() == two.digest()
    assert len(one.trace) > 50


def test_another_seed_gives_another_trace() -> None:
    assert noisy_day(3).digest() != noisy_day(4).digest()


def test_a_draw_in_one_concern_does_not_move_another() -> None:
    one, two = fleet(), fleet()
    two.stream("shelf").random()
    assert one.stream("arrivals").random() == two.stream("arrivals").random()


def test_how_time_is_cut_into_runs_changes_nothing() -> None:
    whole, pieces = fleet(), fleet()
    for world, steps in ((whole, 1), (pieces, 24)):
        gang(world)
        FaultArrivals("noisy", scale=10).start(world)
        for _ in range(steps):
            world.run_for(DAY / steps)
    assert whole.digest() == pieces.digest()


def test_every_kind_in_the_presets_is_a_fault_model_and_every_preset_cites_its_source() -> None:
    for name in presets():
        row = rates()[name]
        assert row["source"]
        assert set(row["share"]) <= set(kinds())


def test_the_llama3_preset_has_the_published_number_of_interruptions() -> None:
    share = sum(rates()["llama3"]["share"].values())
    per_run = rates()["llama3"]["per_1000_node_days"] * 2048 * 54 / 1000
    assert per_run == pytest.approx(419, abs=1)
    assert share == pytest.approx(423, abs=5)


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="llama3"):
        FaultArrivals("llama4")


def test_faults_arrive_at_the_rate_of_the_preset() -> None:
    world = World(1, 500)
    arrivals = FaultArrivals("rsc1", scale=4)
    arrivals.start(world)
    world.run_for(10 * DAY)
    assert 90 < arrivals.struck < 170  # 6.5 x 4 per 1,000 node-days x 5,000 node-days = 130


def test_a_job_steps_saves_and_completes_in_virtual_time() -> None:
    world = fleet()
    job = gang(world, total_steps=1000, step_s=10.0, checkpoint_every=100, init_s=300.0, write_s=5.0)
    world.run_for(300 + 10 * 150 + 5)
    assert job.step(world.now) == 150
    job.settle(world.now)
    assert [c.step for c in job.checkpoints] == [100]
    world.run_for(DAY)
    assert job.phase is JobPhase.SUCCEEDED
    assert job.step(world.now) == 1000


def test_ettr_counts_surviving_steps_once_and_lost_steps_as_lost() -> None:
    world = fleet()
    job = gang(world, step_s=10.0, checkpoint_every=100, init_s=0.0, requeue_s=1000.0, total_steps=100_000)
    world.run_for(1500)  # step 150, saved 100
    world.strike("unexplained_job_failure", "node-0001")
    world.run_for(1000 + 1000)  # down for 1,000 s, then from step 100 for 1,000 s
    account = world.accounts()[0]
    assert job.step(world.now) == 200
    assert account.lost_steps == 50
    assert account.ettr == pytest.approx(2000 / 3500)
    assert account.queued_s == pytest.approx(1000)


def test_a_job_of_the_users_own_bug_does_not_count_against_the_fleet() -> None:
    world = fleet()
    gang(world, step_s=10.0, bug_at_step=50, init_s=0.0)
    world.run_for(5000)
    assert world.jobs["train"].phase is JobPhase.FAILED
    assert "KeyError" in world.jobs["train"].exits[0].tail[-1]
    account = world.accounts()[0]
    assert account.user_code_s == pytest.approx(500)
    assert account.interruptions == 0


def test_a_hung_rank_is_silent_while_all_others_log_a_watchdog_timeout() -> None:
    world = fleet()
    job = gang(world, watchdog_s=240.0)
    world.run_for(1000)
    world.strike("gpu_lost_silent", "node-0002", 3)
    world.run_for(200)
    assert not job.silent
    world.run_for(60)
    assert job.phase is JobPhase.RUNNING
    assert job.silent == (2 * 8 + 3,)
    assert "Watchdog caught collective operation timeout" in job.exits[1].tail[0]
    assert job.exits[0].tail == ()


def test_a_degrading_gpu_slows_the_whole_gang() -> None:
    world = fleet()
    job = gang(world, init_s=0.0)
    world.run_for(1000)
    before = job.step(world.now)
    world.strike("degrading", "node-0001")
    world.run_for(1000)
    assert job.step(world.now) - before < 80  # 100 at full pace


def test_a_fault_that_shows_only_under_load_sleeps_on_an_idle_node() -> None:
    world = fleet()
    world.strike("load_only", "node-0005", relapse_s=600.0)
    world.run_for(DAY)
    assert not world.nodes["node-0005"].findings
    assert not world.truly_healthy("node-0005")
    assert world.truly_healthy("node-0005", ("nvidia-smi", "dcgm-l2"))
    job = world.submit(JobSpec("late", ("node-0005",)))
    world.run_for(DAY)
    assert job.phase is JobPhase.FAILED
    assert not world.truly_healthy("node-0005", ("nvidia-smi",))


def test_a_restart_from_a_checkpoint_saved_after_silent_corruption_began_is_known_to_be_corrupt() -> None:
    world = fleet()
    job = gang(world, init_s=0.0, checkpoint_every=10)
    world.run_for(500)
    world.strike("silent_corruption", "node-0001")
    world.run_for(500)
    world.gangs.stop(job, "test")
    world.gangs.restart("k", job, 2, 90, job.nodes)
    assert job.corrupted
    world.gangs.stop(job, "test")
    world.gangs.restart("k2", job, 3, 40, job.nodes)
    assert not job.corrupted


def test_nodes_out_of_service_are_counted_in_gpu_hours() -> None:
    world = fleet()
    world.people.cordon("node-0000")
    world.run_for(3600)
    world.people.uncordon("node-0000")
    world.run_for(3600)
    assert world.gpu_hours_out() == pytest.approx(8.0)


def test_a_heartbeat_goes_on_without_events_and_stops_with_the_agent() -> None:
    world = fleet()
    node = world.nodes["node-0000"]
    world.run_for(3000)
    assert 0 <= world.now - world.agents.last_check(node) < 300
    world.people.silence_agent("node-0000")
    world.run_for(3000)
    assert world.now - world.agents.last_check(node) >= 2700


def test_a_rival_that_deletes_the_object_leaves_the_machine_and_takes_the_marks() -> None:
    world = fleet()
    node = world.nodes["node-0000"]
    before = (node.uid, node.instance)
    node.mark, node.closed = "node-0000.1", True
    world.people.delete_object("node-0000")
    assert not node.present
    world.run_for(121)
    assert node.present
    assert node.uid != before[0]
    assert node.instance == before[1]
    assert not node.mark


@pytest.mark.parametrize("dark_s", [90.0, 600.0])
def test_a_node_that_registers_again_is_ready_as_soon_as_its_kubelet_is_heard(dark_s: float) -> None:
    """The network was mended while it had no object: it stayed not ready for ever (seed 720094)."""
    world = fleet()
    world.network.cut(["node-0000"], "control", dark_s)
    world.run_for(20.0)
    world.people.delete_object("node-0000")
    world.run_for(130.0)
    assert world.nodes["node-0000"].present
    world.run_for(600.0)
    assert world.nodes["node-0000"].ready


def test_a_roll_out_of_a_bad_driver_hurts_a_share_of_the_nodes_and_the_next_one_heals_them() -> None:
    world = fleet(nodes=100)
    bad = world.people.change_driver(list(world.nodes), "590.1", bad_share=0.3)
    assert 18 <= len(bad) <= 42
    world.run_for(60)
    assert all(("kernel-log", "xid.74") in {(k[0], k[2]) for k in world.nodes[n].findings} for n in bad)
    world.people.change_driver(list(world.nodes), "590.2")
    assert all(world.truly_healthy(name) for name in world.nodes)


def test_a_flood_of_a_hundred_thousand_lines_is_one_finding_with_its_count() -> None:
    world = fleet()
    world.strike("flood", "node-0003", 1)
    findings = world.nodes["node-0003"].findings
    xid = next(f for f in findings.values() if f.code == "xid.94")
    assert xid.count == 100_000
    assert len(findings) <= 3
