"""Real ranks that die or hang, restarted by the real controller, end bit for bit where an undisturbed run ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sickbay.errors import UserError
from sickbay.sim.jobs import JobSpec
from sickbay.sim.run import SimRun
from sickbay.sim.tour import engine
from sickbay.sim.tour.programme import play
from sickbay.sim.tour.scene import Result
from sickbay.sim.tour.stage import SETTINGS, Stage, build_world
from sickbay.sim.tour.training import EVERY, RANKS, STEP_S, STEPS, RankHung, RankKilled, Reference
from sickbay.sim.trainer import Nursery


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@pytest.mark.parametrize("kind", [RankKilled, RankHung], ids=lambda kind: kind.name)
def test_a_struck_gang_is_restarted_on_good_nodes_and_ends_with_the_weights_of_an_undisturbed_run(
    kind: type[RankKilled | RankHung], tmp_path: Path, nursery: Nursery
) -> None:
    world = build_world(3, 8)
    run = SimRun(world, SETTINGS)
    run.add_brain()
    scene, results = kind(Reference(tmp_path, nursery)), list[Result]()
    play(Stage(world, run, tmp_path), [(0, scene)], results.append)
    (result,) = results
    assert result.ok, result
    assert result.facts["digest"] == result.facts["undisturbed_digest"] != ""
    assert scene.node not in scene.job.nodes
    assert scene.job.lost_steps > 0  # something really was done again


def test_real_processes_do_not_change_the_virtual_trace(tmp_path: Path, nursery: Nursery) -> None:
    def trace(real: bool) -> str:
        world = build_world(3, 8)
        run = SimRun(world, SETTINGS)
        run.add_brain()
        made = engine.GangEngine(tmp_path, f"job{real}", RANKS, STEPS, EVERY, nursery) if real else None
        spec = JobSpec("job", tuple(sorted(world.nodes))[:RANKS], STEPS, STEP_S, EVERY, ranks_per_node=1)
        world.submit(spec, made)
        Stage(world, run, tmp_path).after_min(30, lambda: world.strike("gpu_lost_79", spec.nodes[1], 0))
        run.run_for(3 * 3600.0)
        if made:
            made.stop()
        return world.digest()

    assert trace(real=True) == trace(real=False)


def test_no_rank_is_left_when_the_engine_stops(tmp_path: Path, nursery: Nursery) -> None:
    gang = engine.GangEngine(tmp_path, "job", 2, 20, 10, nursery)
    gang.start(1, 0)
    gang.grant(5)
    gang.hang([1])
    pids = list(gang.pids[0].values())
    gang.stop()
    assert pids
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_missing_numpy_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"need numpy.*make demo"):
        engine.need_numpy()
