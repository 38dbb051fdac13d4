"""Scenes about what is seen: an instrument that died, a driver that hangs, a log that screams."""

from __future__ import annotations

from sickbay.model import Finding
from sickbay.sim.tour import truth
from sickbay.sim.tour.scene import Scene, Seen
from sickbay.sim.tour.stage import Stage

FLOOD = 100_000


class DcgmDead(Scene):
    name = "dcgm-dead"
    title = "The DCGM host engine is dead: the instrument failed, not the GPU"
    expected = "one notice, no node touched, job running on attempt 1"
    lasts_min = 60

    def begin(self, stage: Stage) -> None:
        self.job = stage.submit("embeddings", 2)
        self.node = self.job.nodes[0]
        self.since = stage.now
        stage.after_min(10, lambda: stage.world.strike("dcgm_dead", self.node))

    def judge(self, stage: Stage) -> Seen:
        told = [n for n in stage.notices(self.node, self.since) if "stays in service" in n.body]
        touched = truth.disturbed(stage.world, self.job.nodes, self.since)
        nodes = "no node touched" if not touched else f"touched {', '.join(touched)}"
        notices = "one notice" if len(told) == 1 else f"{len(told)} notices"
        seen = Seen(f"{notices}, {nodes}, job {truth.job_course(self.job)}")
        seen.claim("no case was opened", not stage.cases(self.node, self.since))
        seen.facts = {"nodes_touched": len(touched), "steps_lost": self.job.lost_steps}
        seen.story = [f"{n.title}: {n.body.splitlines()[0]}" for n in told]
        return seen


class DriverHung(Scene):
    name = "driver-hung"
    title = "The GPU driver hangs and its callers are in D state: cordoned, treated once its job is gone"
    expected = "cordoned, then its job moved away, then reboot, then returned to service, truly well"
    lasts_min = 110

    def begin(self, stage: Stage) -> None:
        self.job = stage.submit("recsys", 2)
        self.nodes, self.node = self.job.nodes, self.job.nodes[0]
        stage.after_min(40, lambda: stage.world.strike("driver_hung", self.node, cure="reboot"))

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        seen = Seen(self._ending(stage))
        treated = truth.facts(world, "treat-start", self.node)
        seen.claim("no job was alive on it when it was treated", all(f.detail["jobs"] == "-" for f in treated))
        seen.claim("the job runs elsewhere", self.job.live and self.node not in self.job.nodes)
        seen.facts = {"nodes_touched": len(truth.disturbed(world, self.nodes)), **truth.losses(world, self.job)}
        seen.story = stage.story(nodes=(self.node,), jobs=(self.job.id,))
        return seen

    def _ending(self, stage: Stage) -> str:
        world = stage.world
        cordons = truth.facts(world, "cordon", self.node)
        ends = truth.job_facts(world, "job-end", self.job.id)
        treated = truth.facts(world, "treat-start", self.node)
        in_order = cordons and ends and treated and cordons[0].t < treated[0].t and ends[0].t < treated[0].t
        opening = "cordoned, then its job moved away" if in_order else "not in the right order"
        return f"{opening}, then {truth.course(world, self.node)}"


class Flood(Scene):
    name = "xid-flood"
    title = "One GPU prints the same XID 100,000 times in a second"
    expected = "one case, then GPU reset, then returned to service, truly well"
    lasts_min = 45

    def begin(self, stage: Stage) -> None:
        self.node = stage.take(1)[0]
        self.since = stage.now
        stage.world.strike("flood", self.node, 0, cure="reset")
        self.findings: list[Finding] = list(stage.world.nodes[self.node].findings.values())

    def judge(self, stage: Stage) -> Seen:
        cases = stage.cases(self.node, self.since)
        many = "one case" if len(cases) == 1 else f"{len(cases)} cases"
        seen = Seen(f"{many}, then {truth.course(stage.world, self.node, self.since)}")
        lines = max((f.count for f in self.findings), default=0)
        seen.claim("every line was counted", lines >= FLOOD)
        seen.claim("they were folded into a few findings", len(self.findings) <= 2)
        seen.claim("its journal stayed short", bool(cases) and len(cases[0].journal) < 30)
        seen.facts = {"lines": lines, "findings": len(self.findings)}
        seen.story = stage.story(nodes=(self.node,), since=self.since)
        return seen
