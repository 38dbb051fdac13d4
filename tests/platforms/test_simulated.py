"""The Platform contract on the simulated platform, and what only that platform has."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from sickbay.evidence.folder import FolderEvidence
from sickbay.model import (
    Change,
    Done,
    Failed,
    Job,
    JobChanged,
    Lost,
    NodeChanged,
    NodeDeleted,
    Progress,
    Started,
    Verb,
)
from sickbay.platforms.simulated import SimulatedPlatform
from sickbay.sim.jobs import JobSpec
from sickbay.sim.world import World
from tests.platforms.contract import NODE, PlatformContract, act, finish, look, take_out, treatment


class SimStage:
    """Four nodes, one job on the first two, an hour into its life."""

    def __init__(self, **options: object) -> None:
        self.world = World(21, 4, silent_failure=0.0, reboot_hangs=0.0, part_returns=0.0)
        self.platform = SimulatedPlatform(self.world, **options)  # type: ignore[arg-type]
        self.world.submit(JobSpec("train", ("node-0000", NODE)))
        self.world.run_for(3600)

    def wait(self, seconds: float) -> None:
        self.world.run_for(seconds)

    def job(self) -> Job:
        return self.platform.observe().jobs[0]

    def boots(self, node: str) -> int:
        return self.world.nodes[node].boots

    def lose_gpu(self, node: str) -> None:
        self.world.strike("gpu_lost_silent", node, 2, cure="reboot", effect="none")

    def hang_driver(self, node: str) -> None:
        self.world.strike("driver_hung", node, cure="reboot")

    def cut_power(self, node: str) -> None:
        self.world.strike("power_loss", node, cure="power_cycle")

    def person_uncordons(self, node: str) -> None:
        self.world.people.uncordon(node)
        self.world.run_for(0)

    def person_cordons(self, node: str) -> None:
        self.world.people.cordon(node)
        self.world.run_for(0)


class TestSimulatedPlatform(PlatformContract):
    @pytest.fixture
    def stage(self) -> SimStage:
        return SimStage()


def test_evidence_is_one_archive_with_kernel_window_tool_outputs_and_serials(tmp_path: Path) -> None:
    evidence = FolderEvidence(tmp_path)
    stage = SimStage(evidence=evidence)
    stage.world.strike("gpu_lost_79", NODE, 3)
    outcome = finish(stage, act(Verb.COLLECT, 3))
    assert isinstance(outcome, Done)
    assert outcome.archive is not None
    with tarfile.open(fileobj=io.BytesIO(evidence.get(outcome.archive))) as archive:
        names = {Path(name).name for name in archive.getnames()}
        kernel = archive.extractfile("node-0001.1-3/kernel.log")
        identity = archive.extractfile("node-0001.1-3/identity.json")
        assert kernel is not None
        assert b"79" in kernel.read()
        assert identity is not None
        assert stage.world.nodes[NODE].gpus[3].serial.encode() in identity.read()
    assert {"nvidia-smi-q.txt", "dcgmi-health.txt", "findings.txt"} <= names


def test_no_machine_is_ended_when_there_is_none_to_take_its_place() -> None:
    stage = SimStage()
    stage.world.stock = 0
    take_out(stage)
    before = look(stage).instance
    outcome = stage.platform.perform(treatment(stage, Verb.REPLACE))
    assert isinstance(outcome, Failed)
    assert "no capacity" in outcome.why
    assert look(stage).instance == before


def test_a_replacement_is_told_as_the_old_machine_gone_and_then_a_new_one() -> None:
    stage, told = SimStage(), list[Change]()
    take_out(stage)
    stage.platform.watch(told.append)
    finish(stage, treatment(stage, Verb.REPLACE))
    about = [c for c in told if isinstance(c, NodeDeleted) or (isinstance(c, NodeChanged) and c.node.name == NODE)]
    deleted = next(i for i, c in enumerate(about) if isinstance(c, NodeDeleted))
    gone, new = about[deleted], about[deleted + 1]
    assert isinstance(gone, NodeDeleted)
    assert gone.gone
    assert isinstance(new, NodeChanged)
    assert new.node.version > gone.version
    assert new.node.gate


def test_progress_is_told_once_a_minute_and_only_while_steps_are_made() -> None:
    stage, told = SimStage(), list[Change]()
    stage.platform.watch(told.append)
    stage.wait(600)
    assert len([c for c in told if isinstance(c, Progress)]) == 10
    stage.hang_driver(NODE)
    told.clear()
    stage.wait(600)
    assert len([c for c in told if isinstance(c, Progress)]) <= 1
    assert any(isinstance(c, JobChanged) and c.job.silent for c in told)


def test_a_fault_is_told_in_the_instant_its_kernel_line_is_printed() -> None:
    stage, told = SimStage(), list[Change]()
    stage.platform.watch(told.append)
    stage.world.strike("ecc_uncontained_95", NODE, 0)
    stage.wait(0)
    changed = [c.node for c in told if isinstance(c, NodeChanged)]
    assert [f.code for f in changed[-1].findings] == ["xid.95"]
    assert changed[-1].findings[0].part == stage.world.nodes[NODE].gpus[0].serial


def test_a_platform_that_cannot_cut_the_power_says_so() -> None:
    stage = SimStage(verbs=frozenset(Verb) - {Verb.POWER_CYCLE})
    take_out(stage)
    assert isinstance(stage.platform.perform(treatment(stage, Verb.POWER_CYCLE)), Failed)


def test_a_sent_treatment_that_has_not_begun_can_be_taken_back_and_one_that_has_cannot() -> None:
    stage = SimStage()
    stage.world.waits_s = (100.0, 100.0)
    take_out(stage)
    sent = treatment(stage)
    back = replace(sent, call=False, args={"withdraw": "1"})
    assert "has not begun" in str(stage.platform.perform(sent))
    assert isinstance(stage.platform.perform(back), Lost)
    stage.wait(300)
    assert stage.boots(NODE) == 0
    again = treatment(stage, step=12)
    stage.platform.perform(again)
    stage.wait(101)
    assert isinstance(stage.platform.perform(replace(again, call=False, args={"withdraw": "1"})), Started)
    assert isinstance(finish(stage, again), Done)
    assert stage.boots(NODE) == 1
