"""A gang goes on only on nodes that are known to be good: no verdict, no lemon, no silence."""

from __future__ import annotations

import pytest

from sickbay.model import NodeRecord, Place
from sickbay.settings import Policy, Settings
from sickbay.sim.jobs import JobSpec
from sickbay.sim.run import SimRun
from sickbay.sim.world import World
from tests.builders import a_latch

SPARE, GOOD = "node-0002", "node-0003"


def restarted(record: NodeRecord | None = None, strike: str = "") -> tuple[str, ...]:
    """Where a job of two nodes goes on when one of them is lost and the first spare in line is like this."""
    run = SimRun(World(5, 4, silent_failure=0.0, reboot_hangs=0.0), Settings(policy=Policy(max_verb="REPLACE")))
    world = run.world
    if record is not None:
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
        NodeRecord(SPARE, lemon="gpu-lost came back after REBOOT"),
        NodeRecord(SPARE, latched=(a_latch("row-remap-failed", place=Place(SPARE)),), quiet={"row-remap-failed": 1e9}),
    ],
    ids=["a lemon", "a verdict without a case"],
)
def test_a_node_with_a_past_is_passed_over(record: NodeRecord) -> None:
    assert restarted(record) == ("node-0000", GOOD)


def test_a_node_whose_instruments_are_silent_is_passed_over() -> None:
    assert restarted(strike="dcgm_dead") == ("node-0000", GOOD)
