"""The whole headless tour, once, as a newcomer runs it; and proof that a scene can fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sickbay.cli import demo, main
from sickbay.sim.run import SimRun
from sickbay.sim.tour import Tour, hands, instruments, limits, parts, work
from sickbay.sim.tour.programme import play
from sickbay.sim.tour.scene import Result, Scene
from sickbay.sim.tour.stage import SETTINGS, Stage, build_world

SCENES = {
    "gpu-lost-79", "ecc-uncontained-95", "row-remap-failed-64", "gpu-lost-silent", "row-remap-pending-63",
    "gpu-degrading", "three-in-the-morning", "application-fault-13-31", "unexplained-failure", "dcgm-dead",
    "driver-hung", "xid-flood", "bad-driver", "beyond-the-limit", "person-uncordons", "controller-killed", "standby",
    "no-new-checkpoint", "real-rank-killed", "real-rank-hung", "evidence-first",
}  # fmt: skip


def test_every_scene_of_the_headless_tour_ends_as_expected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--headless", "--seed", "7", "--json"])
    tour = json.loads(capsys.readouterr().out)
    wrong = {s["name"]: (s["ending"], [c for c in s["checks"] if not c["ok"]]) for s in tour["scenes"] if not s["ok"]}
    assert wrong == {}
    assert stop.value.code == 0
    assert {scene["name"] for scene in tour["scenes"]} == SCENES
    assert all(scene["story"] and scene["facts"] for scene in tour["scenes"])
    assert 0.5 < tour["ettr"] < 1.0
    assert not any("Evidence kept: /" in line for s in tour["scenes"] for line in s["story"])  # no path of this machine


def play_alone(scene: Scene, tmp_path: Path, *, seed: int = 7, brain: bool = True) -> tuple[Result, str]:
    world = build_world(seed, 64)
    run = SimRun(world, SETTINGS)
    if brain:
        run.add_brain()
    results: list[Result] = []
    play(Stage(world, run, tmp_path), [(0, scene)], results.append)
    return results[0], world.digest()


@pytest.mark.parametrize(
    "scene",
    [parts.GpuLost79, parts.EccCuredByReset, work.PendingRemap, work.Degrading, work.ApplicationFault, work.Unexplained,
     work.Barren, instruments.DcgmDead, instruments.DriverHung, instruments.Flood, limits.BadDriver,
     limits.BeyondTheLimit, hands.Uncordoned],
    ids=lambda scene: scene.name,
)  # fmt: skip
def test_no_scene_ends_as_expected_when_nobody_is_in_charge(scene: type[Scene], tmp_path: Path) -> None:
    result, _ = play_alone(scene(), tmp_path, brain=False)
    assert not result.ok


def test_an_ending_that_differs_is_not_as_expected(tmp_path: Path) -> None:
    class RebootHelps(parts.GpuLost79):
        def begin(self, stage: Stage) -> None:
            super().begin(stage)
            stage.after_min(45.1, lambda: setattr(stage.world.ailing(self.node)[0][1], "cure", "reboot"))

    result, _ = play_alone(RebootHelps(), tmp_path)
    assert result.ending == "reboot, then returned to service, truly well"
    assert not result.ok


@pytest.mark.parametrize("seed", [7, 11])
def test_the_same_seed_gives_the_same_trace_and_the_same_words(seed: int, tmp_path: Path) -> None:
    first, trace = play_alone(limits.BeyondTheLimit(), tmp_path, seed=seed)
    again, trace_again = play_alone(limits.BeyondTheLimit(), tmp_path, seed=seed)
    assert (trace, first) == (trace_again, again)
    assert first.ok


def test_one_wrong_ending_makes_the_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended_otherwise(seed: int, workdir: Path, pack: object, tell: Callable[[Result], None]) -> Tour:
        result = Result("a-scene", "A scene", expected="returned well", ending="still out", story=("It broke",))
        tell(result)
        return Tour(seed, [result])

    monkeypatch.setattr(demo, "run_tour", ended_otherwise)
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--headless"])
    assert stop.value.code == 1
    said = capsys.readouterr().out
    assert all(part in said for part in ("NOT AS EXPECTED", "Ending: still out", "Expected: returned well", "0 of 1"))
