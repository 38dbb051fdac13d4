"""The 3 a.m. incident: a job that stalls with no XID, a silent rank, a GPU lost minutes later, and a suspicion."""

from __future__ import annotations

from sickbay.sim.jobs import JobSpec
from sickbay.sim.tour import truth
from sickbay.sim.tour.parts import mttr
from sickbay.sim.tour.scene import Scene, Seen
from sickbay.sim.tour.stage import Stage

HANG_MIN = 60.0  # after the scene's begin at 02:00
GSP_MIN = 68.0
LOST_MIN = 68.2  # seconds after the 119, before any treatment of it has begun
LOAD_MIN = 105.0
SILENT = 28  # rank 4 of the fourth node


class ThreeInTheMorning(Scene):
    name = "three-in-the-morning"
    title = "3 a.m.: a 64-rank job stalls with no XID and one rank says nothing; the rest of the night"
    expected = (
        "the silent rank's node suspected, then a spare put in and the job resumed, then the node rebooted and "
        "returned, then it relapsed under load and came under suspicion"
    )
    lasts_min = 210

    def begin(self, stage: Stage) -> None:
        self.job = stage.submit("night-64", 8)
        self.nodes, self.node = self.job.nodes, self.job.nodes[SILENT // 8]
        world, slot = stage.world, SILENT % 8
        stage.after_min(HANG_MIN, lambda: world.strike("job_hang", self.node, slot))
        stage.after_min(GSP_MIN, lambda: world.strike("gsp_119", self.node, slot, cure="reboot", then_chance=0.0))
        stage.after_min(LOST_MIN, lambda: self._lose(stage, slot))
        stage.after_min(LOAD_MIN, lambda: self._work_again(stage))

    def _lose(self, stage: Stage, slot: int) -> None:
        """The GPU goes too; what is wrong with it shows only while it works, so a reboot will seem to help."""
        stage.world.strike("load_only", self.node, slot, cure="replace", dormant=False, relapse_s=300.0, recall=0.0)

    def _work_again(self, stage: Stage) -> None:
        """The next morning's job lands on the node that was returned, as a scheduler would do."""
        node = stage.world.nodes[self.node]
        if node.serving() and not node.job:
            stage.world.submit(JobSpec("morning", (self.node, *stage.take(1))))
        else:
            stage.after_min(5, lambda: self._work_again(stage))

    # -- judging

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        seen = Seen(
            ", then ".join((self._suspected(stage), self._resumed(), self._returned(stage), self._suspicion(stage)))
        )
        watchdog = truth.job_facts(world, "watchdog", self.job.id)
        first_xid, touched = self._first_xid_s(stage), truth.disturbed(world, self.nodes, stage.began)
        seen.claim(
            "63 ranks logged a time-out, one was silent", [f.detail["silent"] for f in watchdog] == [str(SILENT)]
        )
        seen.claim("the job was stopped before any XID was logged", self._stopped_at(stage) < first_xid)
        seen.claim("the seven other nodes were left alone", touched == [self.node])
        told = [n for n in stage.notices("night-64 runs again") if "steps and" in n.body]
        seen.claim("the owner was told what it cost", len(told) == 1)
        seen.facts = {"ranks": 64, "silent_rank": SILENT, "suspect": self.node, **truth.losses(world, self.job)}
        seen.facts |= {"spare": self._spare(), "nodes_touched": len(touched), **mttr(stage, self.node)}
        seen.facts["owner_was_told"] = told[0].body.splitlines()[-1] if told else ""
        seen.story = stage.story(nodes=(self.node,), jobs=(self.job.id, "morning"), since=stage.began)
        return seen

    def _suspected(self, stage: Stage) -> str:
        first = stage.cases(self.node)[0] if stage.cases(self.node) else None
        suspects = [d for d in (first.diagnoses if first else ()) if d.fault == "job-suspect"]
        right = suspects and f"rank {SILENT}" in suspects[0].because[0]
        return "the silent rank's node suspected" if right else "the silent rank's node not suspected"

    def _spare(self) -> str:
        return ", ".join(n for n in self.job.nodes if n not in self.nodes)

    def _resumed(self) -> str:
        swapped = len(self._spare().split(", ")) == 1 and self._spare() and self.node not in self.job.nodes
        good = swapped and self.job.live and self.job.attempt == 2
        return "a spare put in and the job resumed" if good else f"the job {truth.job_course(self.job)}"

    def _returned(self, stage: Stage) -> str:
        released = truth.facts(stage.world, "release", self.node)
        rebooted = (
            "REBOOT" in truth.treatments(stage.world, self.node) and released and not released[0].detail["cancel"]
        )
        return "the node rebooted and returned" if rebooted else f"the node: {truth.course(stage.world, self.node)}"

    def _suspicion(self, stage: Stage) -> str:
        relapsed = truth.facts(stage.world, "relapse", self.node)
        record = stage.record(self.node)
        if relapsed and record is not None and any(doubt.strikes for doubt in record.doubts):
            return "it relapsed under load and came under suspicion"
        return f"relapses: {len(relapsed)}, doubts: {record.doubts if record else ()!r}"

    def _first_xid_s(self, stage: Stage) -> float:
        struck = [f for f in truth.facts(stage.world, "fault", self.node) if f.detail["what"] == "gsp_119"]
        return struck[0].t if struck else 0.0

    def _stopped_at(self, stage: Stage) -> float:
        ends = truth.job_facts(stage.world, "job-end", self.job.id)
        return ends[0].t if ends else float("inf")
