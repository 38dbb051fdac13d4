"""Which scene plays when and where, and the tour as a whole: `run_tour`. Called by cli/demo and by the tests.

Most scenes share one fleet of 64 nodes and one night, as they would in life. Those that would disturb the others (a bad
driver, a crowd of failures, controllers that die) get a fleet of their own.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sickbay.controller.leader import FileLeader
from sickbay.evidence.folder import FolderEvidence
from sickbay.sim.run import SimRun
from sickbay.sim.tour import hands, instruments, limits, night, parts, training, work
from sickbay.sim.tour.archives import EvidenceFirst, Pack
from sickbay.sim.tour.engine import need_numpy
from sickbay.sim.tour.scene import Result, Scene, result_of
from sickbay.sim.tour.stage import SETTINGS, Stage, build_world
from sickbay.sim.trainer import Nursery
from sickbay.stores.sqlite import SqliteStore

NODES, SPARES = 64, 4
BACKGROUND = 8  # nodes that simply train all night
Tell = Callable[[Result], None]


@dataclass(slots=True)
class Tour:
    """The result of the whole tour."""

    seed: int
    scenes: list[Result] = field(default_factory=list)
    ettr: float = 0.0
    traces: list[str] = field(default_factory=list)  # digest of each world's virtual trace

    @property
    def ok(self) -> bool:
        return bool(self.scenes) and all(scene.ok for scene in self.scenes)

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.traces).encode()).hexdigest()

    def as_json(self) -> dict[str, object]:
        return {
            "seed": self.seed, "nodes": NODES, "gpus": NODES * 8, "ok": self.ok, "ettr": round(self.ettr, 4),
            "digest": self.digest, "scenes": [scene.as_json() for scene in self.scenes],
        }  # fmt: skip


def run_tour(seed: int, workdir: Path, pack: Pack, tell: Tell = lambda _: None) -> Tour:
    """All scenes, in order. `tell` hears of each as soon as it is judged."""
    need_numpy()
    tour = Tour(seed)

    def report(result: Result) -> None:
        tour.scenes.append(result)
        tell(result)

    with Nursery() as nursery:
        _the_night(tour, workdir, nursery, pack, report)
    _own_fleet(tour, limits.BadDriver(), workdir, report)
    _own_fleet(tour, limits.BeyondTheLimit(), workdir, report)
    _killed(tour, workdir, report)
    _standby(tour, workdir, report)
    return tour


# -- the shared fleet


def shared_scenes(reference: training.Reference) -> list[tuple[float, Scene]]:
    """(minute of the night, scene)."""
    return [
        (0, training.RankKilled(reference)),
        (0, training.RankHung(reference)),
        (0, parts.GpuLost79()),
        (5, instruments.DcgmDead()),
        (10, parts.EccCuredByReset()),
        (20, work.PendingRemap()),
        (50, parts.GpuLostSilently()),
        (60, work.Degrading()),
        (90, parts.RowRemapFailed()),
        (120, night.ThreeInTheMorning()),
        (130, work.ApplicationFault()),
        (140, work.Unexplained()),
        (180, instruments.DriverHung()),
        (240, instruments.Flood()),
        (250, hands.Uncordoned()),
        (240, work.Barren()),
    ]


def _the_night(tour: Tour, workdir: Path, nursery: Nursery, pack: Pack, report: Tell) -> None:
    world = build_world(tour.seed, NODES, spares=SPARES)
    run = SimRun(world, SETTINGS, evidence=FolderEvidence(workdir / "evidence"))
    run.add_brain()
    stage = Stage(world, run, workdir)
    stage.employ_approver()
    stage.submit("pretrain", BACKGROUND)
    play(stage, shared_scenes(training.Reference(workdir / "jobs", nursery)), report)
    evidence = EvidenceFirst(pack)
    report(result_of(evidence, evidence.judge(stage)))
    accounts = world.accounts()
    wall = sum(a.wall_s * len(world.jobs[a.job].nodes) for a in accounts)
    tour.ettr = sum(a.productive_s * len(world.jobs[a.job].nodes) for a in accounts) / wall if wall else 0.0
    tour.traces.append(world.digest())


def play(stage: Stage, scenes: Sequence[tuple[float, Scene]], report: Tell) -> None:
    """Begin and judge each scene at its minute; time passes for all of them together."""
    moments: list[tuple[float, int, int, Scene]] = []
    for number, (minute, scene) in enumerate(scenes):
        heapq.heappush(moments, (stage.began + minute * 60, number, 0, scene))
    while moments:
        when, number, act, scene = heapq.heappop(moments)
        stage.play_until(when)
        if act == 0:
            scene.begin(stage)
            heapq.heappush(moments, (when + scene.lasts_min * 60, number, 1, scene))
        else:
            report(result_of(scene, scene.judge(stage)))


# -- fleets of their own


def _own_fleet(tour: Tour, scene: Scene, workdir: Path, report: Tell) -> None:
    world = build_world(tour.seed, NODES)
    run = SimRun(world, SETTINGS)
    run.add_brain()
    play(Stage(world, run, workdir), [(0, scene)], report)
    tour.traces.append(world.digest())


def _killed(tour: Tour, workdir: Path, report: Tell) -> None:
    world = build_world(tour.seed, 8)
    run = SimRun(world, SETTINGS, store=SqliteStore(workdir / "killed.db"))
    run.add_brain()
    try:
        play(Stage(world, run, workdir), [(0, hands.KilledInMidReboot())], report)
    finally:
        run.store.close()
    tour.traces.append(world.digest())


def _standby(tour: Tour, workdir: Path, report: Tell) -> None:
    world, scene = build_world(tour.seed, 8), hands.Standby()
    store = SqliteStore(workdir / "standby.db")

    def leader() -> FileLeader:
        scene.leaders.append(FileLeader(workdir / "leader.lock"))
        return scene.leaders[-1]

    run = SimRun(world, SETTINGS, store=store, leader=leader)
    run.add_brain("brain-0")
    run.add_brain("brain-1")
    try:
        play(Stage(world, run, workdir), [(0, scene)], report)
    finally:
        store.close()
        for each in scene.leaders:
            each.release()
    tour.traces.append(world.digest())
