"""Scenes about broken parts: a GPU that falls off the bus, spoiled memory, a part that only replacement cures."""

from __future__ import annotations

from sickbay.model import Case, Phase
from sickbay.sim.tour import truth
from sickbay.sim.tour.scene import Scene, Seen
from sickbay.sim.tour.stage import Stage

REFUSED = "the condemned GPU refused at the gate"


class GpuLost79(Scene):
    name = "gpu-lost-79"
    title = "A GPU falls off the bus (XID 79): a reboot does not bring it back, a power-cycle does"
    expected = "reboot, then power-cycle, then returned to service, truly well"
    lasts_min = 130

    def begin(self, stage: Stage) -> None:
        self.job = stage.submit("vision", 4)
        self.nodes, self.node = self.job.nodes, self.job.nodes[1]
        stage.after_min(45, lambda: stage.world.strike("gpu_lost_79", self.node, 2, cure="power_cycle"))

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        seen = Seen(truth.course(world, self.node, stage.began))
        seen.claim("its job runs again on other nodes", self.job.live and self.node not in self.job.nodes)
        seen.claim("no other node of the job was touched", truth.disturbed(world, self.nodes) == [self.node])
        seen.facts = {"nodes_touched": len(truth.disturbed(world, self.nodes)), **truth.losses(world, self.job)}
        seen.facts |= mttr(stage, self.node)
        seen.story = stage.story(nodes=(self.node,), jobs=(self.job.id,))
        return seen


class EccCuredByReset(Scene):
    name = "ecc-uncontained-95"
    title = "An uncontained memory error, cured by a GPU reset; its job goes back to before the first evidence"
    expected = "GPU reset, then returned to service, truly well"
    lasts_min = 110

    def begin(self, stage: Stage) -> None:
        self.job = stage.submit("speech", 2)
        self.nodes, self.node = self.job.nodes, self.job.nodes[0]
        # Five seconds before the second checkpoint: that one is complete, newest, and full of wrong numbers.
        spec = self.job.spec
        self.at = stage.now + spec.init_s + 2 * spec.checkpoint_every * spec.step_s - 5
        stage.world.at(self.at, lambda: self._strike(stage))

    def _strike(self, stage: Stage) -> None:
        stage.world.strike("ecc_uncontained_95", self.node, 5, cure="reset", effect="corrupt_quietly")

    def judge(self, stage: Stage) -> Seen:
        world, every = stage.world, self.job.spec.checkpoint_every
        seen = Seen(truth.course(world, self.node, stage.began))
        began_at = [int(f.detail["from_step"]) for f in truth.job_facts(world, "place", self.job.id)]
        seen.claim("a newer checkpoint was there, written after the evidence", self._was_newer(stage, 2 * every))
        seen.claim(f"the job restarted from step {every}, before the evidence", began_at == [0, every])
        seen.claim("wrong numbers went nowhere", not truth.job_facts(world, "corrupt-restart", self.job.id))
        seen.facts = {"nodes_touched": len(truth.disturbed(world, self.nodes)), **truth.losses(world, self.job)}
        seen.facts |= mttr(stage, self.node)
        seen.story = stage.story(nodes=(self.node,), jobs=(self.job.id,))
        return seen

    def _was_newer(self, stage: Stage, step: int) -> bool:
        """The first attempt got as far as the second checkpoint, so one was complete."""
        return self.job.attempts[0].reached >= step


class RowRemapFailed(Scene):
    name = "row-remap-failed-64"
    title = (
        "No spare row is left: only replacement cures; the condemned GPU comes back in another machine and is refused"
    )
    expected = f"replacement, then {REFUSED}, then replacement, then returned to service, truly well"
    lasts_min = 300

    def begin(self, stage: Stage) -> None:
        self.first = stage.take(1)[0]
        world = stage.world
        self.serial = world.nodes[self.first].gpus[3].serial
        world.strike("row_remap_failed_64", self.first, 3, cure="replace")
        stage.after_min(90, lambda: self._second(stage))

    def _second(self, stage: Stage) -> None:
        """Another node needs replacement; the machine that comes was built with the part we condemned."""
        self.second = stage.take(1)[0]
        stage.world.shelf.owed.append(self.serial)
        stage.world.strike("row_remap_failed_64", self.second, 6, cure="replace")

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        back = truth.facts(world, "part-returned", self.second)
        seen = Seen(self._ending(stage))
        part = stage.part(self.serial)
        seen.claim("the first node was replaced and is back, truly well", self._first_well(stage))
        seen.claim("the part ledger condemns the serial", part is not None and bool(part.condemned))
        seen.claim(
            "the serial really was in the machine that came", [f.detail["serial"] for f in back] == [self.serial]
        )
        seen.claim("a person approved each replacement", self._approvals(stage) == 3)
        done = [v for n in (self.first, self.second) for v in truth.treatments(world, n)]
        seen.facts = {"condemned_serial": self.serial, "replacements": done.count("REPLACE"), "nodes_touched": 2}
        seen.story = stage.story(nodes=(self.first, self.second), since=stage.began)
        return seen

    def _first_well(self, stage: Stage) -> bool:
        return truth.course(stage.world, self.first) == "replacement, then returned to service, truly well"

    def _ending(self, stage: Stage) -> str:
        course = truth.course(stage.world, self.second)
        joined = [f.t for f in truth.facts(stage.world, "joined", self.second)]
        used = [f for f in truth.facts(stage.world, "release", self.second) if len(joined) > 1 and f.t < joined[1]]
        refused = any(d.fault == "condemned-part" for c in stage.cases(self.second) for d in c.diagnoses)
        if not used and refused and len(joined) > 1:
            return course.replace("replacement, then replacement", f"replacement, then {REFUSED}, then replacement")
        return course + (" (the condemned GPU was let in)" if used else "")

    def _approvals(self, stage: Stage) -> int:
        entries = [e for n in (self.first, self.second) for c in stage.cases(n) for e in c.journal]
        return sum(e.event == "APPROVE" and e.by == "dana" for e in entries)


class GpuLostSilently(Scene):
    name = "gpu-lost-silent"
    title = "A GPU is gone and the kernel log says nothing at all"
    expected = "reboot, then returned to service, truly well"
    lasts_min = 100

    def begin(self, stage: Stage) -> None:
        self.job = stage.submit("ranking", 2)
        self.nodes, self.node = self.job.nodes, self.job.nodes[1]
        stage.after_min(45, lambda: stage.world.strike("gpu_lost_silent", self.node, 7, cure="reboot"))

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        seen = Seen(truth.course(world, self.node, stage.began))
        case = stage.cases(self.node)[0] if stage.cases(self.node) else None
        lines = [line for d in (case.diagnoses if case else ()) for line in d.because]
        seen.claim("no XID was there to read", bool(lines) and not any("Xid" in line for line in lines))
        seen.claim("its job runs again elsewhere", self.job.live and self.node not in self.job.nodes)
        seen.facts = {"nodes_touched": len(truth.disturbed(world, self.nodes)), **truth.losses(world, self.job)}
        seen.facts |= mttr(stage, self.node)
        seen.story = stage.story(nodes=(self.node,), jobs=(self.job.id,))
        return seen


def mttr(stage: Stage, node: str) -> dict[str, int | float | str]:
    """From the first evidence to the end of the case, in minutes; nothing for a case that is still open."""
    ended = [c for c in stage.cases(node) if c.phase is Phase.RESOLVED and not c.newcomer]
    return {"minutes_to_repair": round(_took(ended[0]) / 60, 1)} if ended else {}


def _took(case: Case) -> float:
    return case.timeline[-1][1] - case.first_evidence_at
