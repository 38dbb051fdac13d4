"""Scenes with real training: operating-system processes that really die or really hang, and end bit for bit where an
undisturbed run ends."""

from __future__ import annotations

from pathlib import Path

from sickbay.sim.tour import truth
from sickbay.sim.tour.engine import GangEngine, undisturbed
from sickbay.sim.tour.scene import Scene, Seen
from sickbay.sim.tour.stage import Stage
from sickbay.sim.trainer import Nursery

RANKS, STEPS, EVERY = 4, 120, 20
STEP_S = 30.0  # virtual: a checkpoint every ten minutes


class Reference:
    """The undisturbed run, made once for all scenes that compare with it."""

    def __init__(self, workdir: Path, nursery: Nursery) -> None:
        self.workdir, self.nursery = workdir, nursery
        self._digest = ""

    def digest(self) -> str:
        if not self._digest:
            self._digest = undisturbed(self.workdir, RANKS, STEPS, EVERY, self.nursery)
        return self._digest


class RealTraining(Scene):
    """A real gang of four ranks on four nodes; one of them is struck at a known step."""

    fault: str
    slot: int | None = 0
    strike_min = 31.0  # 5 min to start, then two steps a minute: step 52
    lasts_min = 130

    def __init__(self, reference: Reference) -> None:
        self.reference = reference

    def begin(self, stage: Stage) -> None:
        self.engine = GangEngine(
            self.reference.workdir, self.name, RANKS, STEPS, EVERY, self.reference.nursery
        )  # fmt: skip
        self.job = stage.submit(
            self.name, RANKS, engine=self.engine, total_steps=STEPS, step_s=STEP_S, checkpoint_every=EVERY,
            ranks_per_node=1,
        )  # fmt: skip
        self.nodes, self.node = self.job.nodes, self.job.nodes[2]
        stage.after_min(self.strike_min, lambda: stage.world.strike(self.fault, self.node, self.slot, **self.options()))

    def options(self) -> dict[str, str]:
        return {}

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        starts = self.engine.starts[1:]
        resumed = f"resumed from step {starts[0][1]}" if len(starts) == 1 else f"started {len(starts)} times more"
        mine, theirs = self._digest(), self.reference.digest()
        same = "final weights equal bit for bit" if mine == theirs else "final weights DIFFER"
        seen = Seen(f"{self.struck()}, then {resumed} on good nodes, then {truth.job_course(self.job)}, {same}")
        seen.claim("the struck node was not used again", self.node not in self.job.nodes)
        seen.claim("the second attempt was other processes", self._fresh_pids())
        seen.claim("nothing of it runs any more", not any(self.engine.gang.alive().values()))
        seen.facts = {"ranks": RANKS, "steps": STEPS, **truth.losses(world, self.job)}
        seen.facts |= {"digest": mine, "undisturbed_digest": theirs}
        seen.story = stage.story(nodes=(self.node,), jobs=(self.job.id,))
        return seen

    def _digest(self) -> str:
        self.engine.stop()
        return self.engine.digest() if self.engine.checkpoints() else ""

    def struck(self) -> str:
        raise NotImplementedError

    def _fresh_pids(self) -> bool:
        attempts = [set(pids.values()) for pids in self.engine.pids]
        return len(attempts) == 2 and attempts[0].isdisjoint(attempts[1])


class RankKilled(RealTraining):
    name = "real-rank-killed"
    title = "Real training, four processes: the node under rank 2 loses its GPU and the process dies"
    expected = (
        "rank 2 died and took the gang with it, then resumed from step 40 on good nodes, then completed on attempt 2, "
        "final weights equal bit for bit"
    )
    fault = "gpu_lost_79"

    def options(self) -> dict[str, str]:
        return {"cure": "reboot"}

    def struck(self) -> str:
        exits = self.engine.exits[0] if self.engine.exits else {}
        died = exits.get(2) == -9 and all(code not in (None, 0) for code in exits.values())
        return "rank 2 died and took the gang with it" if died else f"exits were {exits}"


class RankHung(RealTraining):
    name = "real-rank-hung"
    title = "Real training, four processes: rank 2 hangs with no XID and the others wait for it"
    expected = (
        "rank 2 hung and the others waited, then resumed from step 60 on good nodes, then completed on attempt 2, "
        "final weights equal bit for bit"
    )
    fault = "job_hang"
    strike_min = 41.0  # step 72

    def struck(self) -> str:
        exits = self.engine.exits[0] if self.engine.exits else {}
        waited = self.engine.hung == [2] and all(code is None for code in exits.values())
        return "rank 2 hung and the others waited" if waited else f"exits were {exits}"
