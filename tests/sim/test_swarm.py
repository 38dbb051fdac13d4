"""A door that misbehaves keeps its contract: what it hands out is late, lost or doubled, never false for good."""

from __future__ import annotations

from random import Random

import pytest

from sickbay.controller.view import View
from sickbay.model import JobPhase
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.sim.shape import two_gangs
from sickbay.sim.swarm import LATEST_S, Mood, Swarm, SwarmPlatform
from sickbay.sim.world import World


@pytest.mark.parametrize("late", [0.0, 0.5])
def test_whoever_is_handed_an_old_fleet_is_told_what_changed_since(late: float) -> None:
    world = World(1, 12, rack_size=4)
    world.submit(two_gangs()[0])
    door = SwarmPlatform(SimulatedPlatform(world), Mood(Swarm(stale=late, stale_observe=1.0), Random(1)), world)
    world.run_for(60.0)
    door.observe()
    llama = world.jobs["llama"]
    world.people.cordon("node-0011")
    world.people.terminate("node-0010")
    world.strike("gpu_lost_79", llama.nodes[0], 0)
    world.run_for(300.0)
    view = View()
    door.watch(view.apply)
    view.replace_all(door.observe())
    assert (view.jobs["llama"].phase, llama.phase) == (JobPhase.RUNNING, JobPhase.FAILED)
    assert "node-0010" in view.nodes
    world.run_for(2 * LATEST_S)
    assert view.jobs["llama"].phase is JobPhase.FAILED
    assert "node-0010" not in view.nodes
    assert view.nodes["node-0011"].cordoned
