"""A person's pause reaches everything it concerns, when it begins and when it runs out."""

from __future__ import annotations

from sickbay.model import Case, Pause, Phase
from sickbay.settings import Policy, Settings
from sickbay.sim.jobs import JobSpec
from sickbay.sim.run import SimRun
from sickbay.sim.world import World


def a_run() -> SimRun:
    run = SimRun(World(3, 6, silent_failure=0.0, reboot_hangs=0.0), Settings(policy=Policy(max_verb="REPLACE")))
    run.add_brain()
    return run


def the_case(run: SimRun) -> Case:
    return next(c.value for c in run.store.list(Case))


def test_a_pause_that_runs_out_by_itself_lets_the_case_go_on() -> None:
    run = a_run()
    world = run.world
    run.store.create(Pause("fleet", "ann", "change freeze", world.now, world.now + 1_800.0))
    run.run_for(60.0)
    world.strike("gpu_lost_79", "node-0002", 1, cure="reboot")
    run.run_for(1_440.0)
    assert (the_case(run).phase, the_case(run).paused) == (Phase.SUSPECTED, True)
    assert not world.nodes["node-0002"].cordoned
    run.run_for(600.0)
    assert world.nodes["node-0002"].cordoned


def test_a_paused_fleet_restarts_no_job_until_the_pause_is_over() -> None:
    run = a_run()
    world = run.world
    world.submit(JobSpec("llama", ("node-0000", "node-0001"), checkpoint_every=6, init_s=10.0))
    run.run_for(600.0)
    run.store.create(Pause("fleet", "ann", "", world.now, world.now + 3_600.0))
    world.strike("gpu_lost_79", "node-0001", 0, cure="reboot")
    run.run_for(1_800.0)
    assert world.jobs["llama"].attempt == 1
    run.run_for(3_600.0)
    assert world.jobs["llama"].attempt == 2
    assert world.jobs["llama"].live
