"""A gang goes on only on nodes that are known to be good: no verdict, no silence; a suspect is taken last."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.core.suspicion import GOOD_S
from sickbay.model import Action, Case, Done, Doubt, JobPhase, NodeRecord, Outcome, Phase, Place, Verb
from sickbay.settings import Limit, Policy, Settings
from sickbay.sim.jobs import JobSpec
from sickbay.sim.run import SimRun
from sickbay.sim.world import World
from sickbay.stores.memory import MemoryStore
from tests.builders import a_finding, a_job, a_latch, a_node, a_policy
from tests.controller.door import Door, Shift

SPARE, GOOD = "node-0002", "node-0003"


def restarted(*records: NodeRecord, strike: str = "") -> tuple[str, ...]:
    """Where a job of two nodes goes on when one of them is lost and the first spare in line is like this."""
    run = SimRun(World(5, 4, silent_failure=0.0, reboot_hangs=0.0), Settings(policy=Policy(max_verb="REPLACE")))
    world = run.world
    for record in records:
        run.store.create(record)
    world.submit(JobSpec("llama", ("node-0000", "node-0001"), checkpoint_every=6, init_s=10.0))
    run.add_brain()
    run.run_for(400.0)
    if strike:
        world.strike(strike, SPARE)
    run.run_for(1_200.0)
    world.strike("gpu_lost_79", "node-0001", 0, cure="reboot")
    run.run_for(300.0)
    return world.jobs["llama"].nodes


def test_the_first_free_node_is_taken_when_it_is_good() -> None:
    assert restarted() == ("node-0000", SPARE)


@pytest.mark.parametrize(
    "record",
    [
        NodeRecord(SPARE, doubts=(Doubt("", 1, "gpu-lost came back after REBOOT"),)),
        NodeRecord(SPARE, latched=(a_latch("row-remap-failed", place=Place(SPARE)),), quiet={"row-remap-failed": 1e9}),
    ],
    ids=["a suspect", "a verdict without a case"],
)
def test_a_node_with_a_past_is_passed_over(record: NodeRecord) -> None:
    assert restarted(record) == ("node-0000", GOOD)


def test_a_node_whose_instruments_are_silent_is_passed_over() -> None:
    assert restarted(strike="dcgm_dead") == ("node-0000", GOOD)


@pytest.mark.parametrize(
    "held",
    [{"doubts": (Doubt("", 1, "gpu-lost came back after REBOOT"),)}, {"lemon": "written by an earlier version"}],
    ids=["a suspicion", "a lemon of an earlier version"],
)
def test_a_suspect_is_taken_when_nothing_better_is_free_and_its_good_hours_are_counted(held: dict[str, Any]) -> None:
    assert restarted(NodeRecord(SPARE, **held), NodeRecord(GOOD, **held)) == ("node-0000", SPARE)


def test_jobs_that_look_for_nodes_in_the_same_pass_take_different_ones() -> None:
    run = SimRun(World(5, 6, silent_failure=0.0, provider_tells=True), Settings(policy=Policy(max_verb="REPLACE")))
    for job, nodes in (("llama", ("node-0000", "node-0001")), ("mixtral", ("node-0002", "node-0003"))):
        run.world.submit(JobSpec(job, nodes, checkpoint_every=6, init_s=10.0))
    run.add_brain()
    run.run_for(1_200.0)
    run.world.network.cut(["node-0001", "node-0003"], "power")
    run.run_for(900.0)
    places = [fact for fact in run.world.log if fact.kind == "place" and fact.detail["attempt"] == 2]
    taken = [name for fact in places for name in str(fact.detail["nodes"]).split(",")]
    assert sorted(taken) == ["node-0000", "node-0002", "node-0004", "node-0005"]


def test_good_hours_under_load_end_a_suspicion_in_a_running_fleet() -> None:
    run = SimRun(World(5, 2), Settings())
    run.store.create(NodeRecord("node-0000", doubts=(Doubt("", 1, "it came back"),)))
    run.world.submit(JobSpec("llama", ("node-0000",), init_s=10.0))
    run.add_brain()
    run.run_for(3600.0)
    early = run.store.get(NodeRecord, "node-0000")
    run.run_for(GOOD_S - 2 * 3600.0)
    late = run.store.get(NodeRecord, "node-0000")
    assert early is not None
    assert early.value.doubts
    assert late == early  # nothing is written while it fades
    run.run_for(2 * 3600.0)
    ended = run.store.get(NodeRecord, "node-0000")
    assert ended is not None
    assert ended.value.doubts == ()


def test_a_gpu_that_fails_only_under_load_ends_three_jobs_at_most_and_then_waits_for_a_person() -> None:
    run = SimRun(World(5, 2, silent_failure=0.0, reboot_hangs=0.0), Settings(policy=Policy(max_verb="REPLACE")))
    world = run.world
    world.submit(JobSpec("llama", ("node-0000", "node-0001"), checkpoint_every=6, init_s=10.0))
    run.add_brain()
    run.run_for(400.0)
    world.strike("load_only", "node-0001", 0, cure="never", recall=0.0, relapse_s=1_200.0)
    run.run_for(10 * 86_400.0)
    assert sum(f.kind == "ranks-dead" and f.detail["why"] == "load_only" for f in world.log) == 3
    case = next(stored.value for stored in run.store.list(Case))
    assert case.phase is Phase.ESCALATED
    assert "has ended 3 jobs within 30 days: a person decides" in case.journal[-1].why


def test_a_job_is_not_restarted_on_a_node_the_end_of_whose_case_could_not_be_written() -> None:
    """Both were decided in one pass, and somebody had written the node's record meanwhile (seed 1588)."""
    store, open_then = MemoryStore(), list[bool]()
    job = a_job(JobPhase.STOPPED, stopped_by="drain:n9.1")
    door = Door(a_node("n1", findings=(a_finding(node="n1"),)), a_node("n2"), jobs=(job,))

    def begun(_: Action) -> Outcome:
        open_then.append(bool(store.list(Case)))
        return Done()

    door.says[Verb.RESTART_JOB] = begun
    shift = Shift(door, store, policy=a_policy(max_out=Limit(), max_out_fleet=Limit())).passes(60.0)
    store.create(NodeRecord("n1"), shift.controller.records.epoch)
    door.shows("n1", boot_id="boot-2", findings=())
    shift.passes(300.0)
    assert open_then[:1] == [False]
    assert shift.controller.contained == []
