"""A person's pause reaches everything it concerns, when it begins and when it runs out."""

from __future__ import annotations

from sickbay.model import Case, Command, Pause, Phase
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


def reminders(run: SimRun) -> list[str]:
    return [f"{n.title}: {n.body}" for n in run.mailbox.notices if n.key.startswith("reminder/")]


def test_a_pause_without_an_end_is_brought_to_mind_once_a_day_until_somebody_ends_it() -> None:
    run = a_run()
    run.store.create(Pause("fleet", "ann", "change freeze", run.world.now))
    run.world.strike("gpu_lost_79", "node-0002", 1, cure="reboot")
    run.run_for(86_000.0)
    assert reminders(run) == []
    run.run_for(86_400.0 * 2)
    assert len(reminders(run)) == 2
    assert "by ann (change freeze), without an end" in reminders(run)[0]
    assert "These cases stand still: node-0002.1." in reminders(run)[0]
    assert "sickbay resume --all" in reminders(run)[0]
    run.store.delete(Pause, "fleet")
    run.run_for(86_400.0 * 2)
    assert len(reminders(run)) == 2


def test_a_case_that_somebody_held_and_forgot_is_brought_to_mind() -> None:
    run = a_run()
    run.world.strike("gpu_lost_79", "node-0002", 1, cure="reboot")
    run.run_for(30.0)
    case = the_case(run)
    run.store.create(Command("order-1", "hold", case.id, "ann", "I look at it", run.world.now))
    run.run_for(86_400.0 + 3_600.0)
    (said,) = reminders(run)
    assert "held by ann: I look at it" in said
    assert f"sickbay case unhold {case.id}" in said


def test_a_pause_of_days_is_brought_to_mind_once_a_day_although_it_has_an_end() -> None:
    """One of 300 days was never spoken of: whoever made it has left by then."""
    run = a_run()
    run.store.create(Pause("fleet", "ann", "", run.world.now, run.world.now + 3 * 86_400.0 - 60.0))
    run.run_for(5 * 86_400.0)
    assert len(reminders(run)) == 2
    assert "by ann, until 2026-09-24 14:12:20Z" in reminders(run)[0]


def test_a_pause_that_ends_within_the_day_needs_no_reminder() -> None:
    run = a_run()
    run.store.create(Pause("fleet", "ann", "", run.world.now, run.world.now + 20 * 3_600.0))
    run.run_for(2 * 86_400.0)
    assert reminders(run) == []


def test_a_reminder_names_the_cases_and_jobs_of_its_own_scope_alone() -> None:
    run = a_run()
    world = run.world
    world.submit(JobSpec("llama", ("node-0000", "node-0001"), checkpoint_every=6, init_s=10.0))
    run.run_for(600.0)
    for scope in ("node:node-0000", "node:node-0005"):
        run.store.create(Pause(scope, "ann", "", world.now))
    world.strike("gpu_lost_79", "node-0000", 0, cure="reboot")
    run.run_for(86_400.0 + 600.0)
    sick, well = sorted(reminders(run))
    assert "These cases stand still: node-0000.1. These jobs are down, and are not restarted: llama." in sick
    assert "stand still" not in well
    assert "are down" not in well
