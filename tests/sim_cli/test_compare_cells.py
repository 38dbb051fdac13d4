"""`sickbay sim compare --seeds`: what counts as useful, who is compared, and when a cell is called worse."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sickbay.errors import UserError
from sickbay.model import Finding, JobPhase, Place, Severity, Status
from sickbay.sim import compare
from sickbay.sim.accounts import job_account
from sickbay.sim.arms import nobody, settings_of
from sickbay.sim.compare import Cell, Trial, cells, judge, rows
from sickbay.sim.faults import rates
from sickbay.sim.gangs import MEND_S
from sickbay.sim.jobs import JobSpec
from sickbay.sim.nobody import LOOK_S, Nobody
from sickbay.sim.originals import REQUEUE_S
from sickbay.sim.workload import LOSS_S, PATIENCE_S, Scene, Staff, looks_broken
from sickbay.sim.world import World

CELL = Cell("rsc1", "mix")
HOUR = 3600.0


def a_trial(seed: int, mine: float, theirs: float, *, cell: Cell = CELL, faults: int = 400) -> Trial:
    useful = {"sickbay": mine, "originals": theirs, "nobody": theirs}
    return Trial(cell, seed, faults, useful, useful, 1.0)


def a_world(**spec: object) -> World:
    world = World(1, 4, silent_failure=0.0, reboot_hangs=0.0)
    world.submit(JobSpec("train", ("node-0000", "node-0001"), **spec))  # type: ignore[arg-type]
    return world


# --- useful GPU-hours -------------------------------------------------------------------------------------------------


def test_steps_on_silently_corrupted_state_are_not_useful_though_the_job_runs_on() -> None:
    world = a_world()
    world.run_for(300.0 + 2 * HOUR)
    before = job_account(world.jobs["train"], world.now).useful_gpu_hours
    world.strike("silent_corruption", "node-0000")
    world.run_for(3 * HOUR)
    account = job_account(world.jobs["train"], world.now)
    assert before == pytest.approx(2 * 16)
    assert account.useful_gpu_hours == pytest.approx(before)
    assert account.productive_s == pytest.approx(5 * HOUR)  # as its owner sees it


def test_what_is_computed_from_a_corrupt_checkpoint_is_not_useful_either() -> None:
    world = a_world(requeue_s=REQUEUE_S)
    job = world.jobs["train"]
    world.run_for(300.0 + HOUR)
    world.strike("silent_corruption", "node-0000")
    world.run_for(2 * HOUR)
    world.gangs.stop(job, "somebody", JobPhase.FAILED)
    world.run_for(4 * HOUR)
    assert job.attempt == 2
    assert job_account(job, world.now).useful_gpu_hours == pytest.approx(16)


def test_steps_that_were_thrown_away_by_a_restart_count_once() -> None:
    world = a_world(requeue_s=REQUEUE_S)
    job = world.jobs["train"]
    world.run_for(300.0 + 2750.0)  # 275 steps, a checkpoint at 180
    world.gangs.stop(job, "somebody", JobPhase.FAILED)
    world.run_for(REQUEUE_S + 300.0 + 100.0)
    assert job_account(job, world.now).useful_gpu_hours == pytest.approx((180 + 10) * 10 / HOUR * 16)


# --- nobody, and people -----------------------------------------------------------------------------------------------


def test_without_a_controller_a_hung_gang_ends_by_its_watchdog_and_starts_again() -> None:
    world = a_world(requeue_s=REQUEUE_S)
    Nobody(world)
    world.run_for(1_000.0)
    world.strike("job_hang", "node-0000")
    world.run_for(240.0 + LOOK_S + REQUEUE_S + 1)
    assert (world.jobs["train"].attempt, world.jobs["train"].live) == (2, True)


def test_nobody_treats_and_cordons_nothing() -> None:
    found = nobody(Scene(seed=5, nodes=16, days=0.5, preset="noisy", jobs="one", scale=3.0))
    assert found.faults > 0
    assert (found.disruptions, found.treatments) == (0, {})


def a_finding(node: str, status: Status, severity: Severity, check: str = "nvidia-smi") -> Finding:
    return Finding("b/1", "agent", check, Place(node), status, "x", "as the tool says", severity=severity)


def test_the_on_call_person_exchanges_what_the_tools_call_broken_whoever_has_marked_it() -> None:
    world = a_world()
    staff = Staff(world, lambda job: False)
    world.strike("gpu_lost_79", "node-0000")
    world.nodes["node-0000"].mark = "node-0000.1"
    world.run_for(PATIENCE_S + 1_300.0)
    assert staff.exchanged == 1


def test_the_on_call_person_sees_the_tools_and_not_the_truth() -> None:
    world = World(1, 2)
    sick, well = world.nodes["node-0000"], world.nodes["node-0001"]
    world.strike("silent_corruption", "node-0000")
    well.findings[("kernel-log", "", "x")] = a_finding("node-0001", Status.FAILED, Severity.REBOOT, "kernel-log")
    assert (looks_broken(sick), looks_broken(well)) == (False, True)


def test_a_bug_in_the_program_is_started_again_with_it_until_its_owner_has_mended_it() -> None:
    world = a_world(requeue_s=REQUEUE_S)
    world.run_for(HOUR)
    world.strike("user_bug", "node-0000")
    world.run_for(MEND_S - 60.0)
    job = world.jobs["train"]
    assert len(job.attempts) > 2
    assert {a.end for a in job.attempts if a.ended} == {"user code"}
    world.run_for(HOUR)
    assert job.live


def test_a_scheduler_does_not_put_work_where_a_gpu_is_missing() -> None:
    world = a_world(requeue_s=REQUEUE_S)
    world.run_for(1_000.0)
    world.strike("gpu_lost_79", "node-0000", cure="never")
    world.run_for(REQUEUE_S + 60.0)
    assert "node-0000" not in world.jobs["train"].nodes


# --- cells and verdicts -----------------------------------------------------------------------------------------------


def test_a_cell_lasts_so_many_days_that_three_hundred_faults_strike_over_its_seeds() -> None:
    for cell in cells():
        rate = rates()[cell.preset]["per_1000_node_days"] / 1000
        assert rate * cell.nodes * cell.days(12) * 12 >= compare.FAULTS


def test_a_cell_is_ok_when_the_lower_end_of_its_interval_is_above_the_bar() -> None:
    trials = [a_trial(seed, 101.0 + seed % 2, 100.0) for seed in range(8)]
    found = judge([CELL], trials)
    assert [line.verdict for line in found.lines] == ["ok", "ok"]
    assert found.holds
    assert found.pooled == {"originals": pytest.approx(0.015), "nobody": pytest.approx(0.015)}


def test_a_cell_below_the_bar_is_worse_and_one_that_may_be_is_unsure() -> None:
    noisy = Cell("noisy", "one")
    trials = [a_trial(seed, 90.0 + seed % 3, 100.0) for seed in range(6)]
    trials += [a_trial(seed, 80.0 + 45.0 * (seed % 2), 100.0, cell=noisy) for seed in range(6)]
    found = judge([CELL, noisy], trials)
    assert [line.verdict for line in found.lines] == ["worse", "worse", "unsure", "unsure"]
    assert not found.holds


def test_the_faults_of_a_cell_are_those_that_struck_under_our_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell passed with 300 faults that only a baseline had seen."""
    struck = {"ours": 3, "originals": 7, "nobody": 5}
    for arm, faults in struck.items():
        report = SimpleNamespace(policy=arm, faults=faults, useful_gpu_hours=1.0, ettr=1.0, seconds=0.0)
        monkeypatch.setattr(compare, arm, lambda *args, report=report: report)
    assert compare._trial((CELL, 0, 1, settings_of(None))).faults == 3


def test_a_cell_with_too_few_faults_says_so_and_does_not_pass() -> None:
    found = judge([CELL], [a_trial(seed, 110.0, 100.0, faults=10) for seed in range(4)])
    assert {line.verdict for line in found.lines} == {"few faults"}
    assert not found.holds


def test_pooled_means_look_at_the_measured_presets_only() -> None:
    noisy = Cell("noisy", "one")
    trials = [a_trial(seed, 100.0, 100.0) for seed in range(3)]
    trials += [a_trial(seed, 300.0, 100.0, cell=noisy) for seed in range(3)]
    assert judge([CELL, noisy], trials).pooled == {"originals": 0.0, "nobody": 0.0}


def test_the_table_says_when_seeds_judge_that_were_used_for_tuning() -> None:
    honest = [a_trial(seed, 101.0, 100.0) for seed in range(4)]
    tuned = [replace(trial, seed=compare.TUNING + trial.seed) for trial in honest]
    assert not any("no judgement" in row for row in rows(judge([CELL], honest)))
    assert any("no judgement" in row for row in rows(judge([CELL], tuned)))


def test_one_seed_is_refused_for_it_has_no_error_of_its_own() -> None:
    with pytest.raises(UserError, match="at least 2"):
        compare.compare([CELL], 0, 1, 1, settings=None)  # type: ignore[arg-type]


def test_an_unknown_cell_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="llama3, rsc1"):
        cells(["lama"])


def test_an_owner_rolls_back_when_the_loss_has_been_wrong_for_hours() -> None:
    world = a_world(requeue_s=REQUEUE_S)
    staff, job = Staff(world, lambda job: False), world.jobs["train"]
    world.run_for(300.0 + 2 * HOUR)
    world.strike("silent_corruption", "node-0000", recall=1.0)
    world.run_for(LOSS_S + HOUR)
    assert (staff.rolled_back, staff.exchanged) == (1, 1)
    assert job.live
    assert "node-0000" not in job.nodes
    assert job_account(job, world.now).useful_gpu_hours > 2 * 16
    assert not job.corrupted
