"""Scenes about work: a job that must not be disturbed, one that saves first, one that is its own fault, one nobody can
explain, and one that gets nowhere."""

from __future__ import annotations

from sickbay.model import Blame, JobPhase, Recovery, RecoveryPhase
from sickbay.sim.jobs import SimJob
from sickbay.sim.tour import truth
from sickbay.sim.tour.scene import Scene, Seen
from sickbay.sim.tour.stage import Stage, plain_line


class PendingRemap(Scene):
    name = "row-remap-pending-63"
    title = "A row remap waits for a reset under a running job: cordoned, nothing evicted, treated when the job ends"
    expected = (
        "cordoned while the job ran, then the job completed undisturbed, then GPU reset, then returned to service, "
        "truly well"
    )
    lasts_min = 150

    def begin(self, stage: Stage) -> None:
        self.job = stage.submit("finetune", 2, total_steps=700)  # 5 min to start, then 116 min of steps
        self.nodes, self.node = self.job.nodes, self.job.nodes[0]
        stage.after_min(40, lambda: stage.world.strike("row_remap_pending_63", self.node, 1))

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        seen = Seen(self._ending(stage))
        evicted = [f for f in truth.facts(world, "drain", self.node) if f.detail["job"] != "-"]
        seen.claim("nothing was evicted", not evicted)
        seen.claim("the job lost no step", self.job.lost_steps == 0 and self.job.attempt == 1)
        seen.facts = {"nodes_touched": len(truth.disturbed(world, self.nodes)), **truth.losses(world, self.job)}
        seen.story = stage.story(nodes=(self.node,), jobs=(self.job.id,))
        return seen

    def _ending(self, stage: Stage) -> str:
        world, ended = stage.world, truth.job_facts(stage.world, "job-end", self.job.id)
        cordons = truth.facts(world, "cordon", self.node)
        starts = truth.facts(world, "treat-start", self.node)
        end = ended[0].t if ended else float("inf")
        first = "cordoned while the job ran" if cordons and cordons[0].t < end else "not cordoned in time"
        done = self.job.phase is JobPhase.SUCCEEDED and self.job.attempt == 1 and all(f.t > end for f in starts)
        second = "the job completed undisturbed" if done else f"the job was disturbed ({truth.job_course(self.job)})"
        return f"{first}, then {second}, then {truth.course(world, self.node)}"


class Degrading(Scene):
    name = "gpu-degrading"
    title = "A GPU gets slower while corrected errors rise: the job is asked to save, then the node is drained"
    expected = (
        "the job saved, then it was drained, then it runs again from that save; GPU reset, then returned to service, "
        "truly well"
    )
    lasts_min = 100

    def begin(self, stage: Stage) -> None:
        self.job = stage.submit("diffusion", 2)
        self.nodes, self.node = self.job.nodes, self.job.nodes[1]
        stage.after_min(50, lambda: stage.world.strike("degrading", self.node, 4, cure="reset"))

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        seen = Seen(f"{self._work(stage)}; {truth.course(world, self.node)}")
        seen.claim("only a handful of steps were done again", self.job.lost_steps <= 3)
        seen.facts = {"nodes_touched": len(truth.disturbed(world, self.nodes)), **truth.losses(world, self.job)}
        seen.story = stage.story(nodes=(self.node,), jobs=(self.job.id,))
        return seen

    def _work(self, stage: Stage) -> str:
        world = stage.world
        saved = truth.job_facts(world, "saved", self.job.id)
        drained = [f for f in truth.facts(world, "drain", self.node) if f.detail["job"] == self.job.id]
        placed = truth.job_facts(world, "place", self.job.id)[1:]
        if not (saved and drained and placed and saved[0].t <= drained[0].t):
            return f"saved {len(saved)} times, drained {len(drained)} times, restarted {len(placed)} times"
        again = placed[0].detail["from_step"] == saved[-1].detail["step"] and self.job.live
        return "the job saved, then it was drained, then " + (
            "it runs again from that save" if again else f"it went back to step {placed[0].detail['from_step']}"
        )


BUG_AT = 200  # step: 38 minutes in, 20 steps after the first checkpoint


class ApplicationFault(Scene):
    name = "application-fault-13-31"
    title = "A program reads where it must not (XID 13 and 31, and a Python traceback), and does so again at that step"
    expected = "no node touched, job restarted once, given up and reported as user code"
    lasts_min = 60

    def begin(self, stage: Stage) -> None:
        self.job = stage.submit("notebook", 2, bug_at_step=BUG_AT, bug="app_fault_13_31")
        self.nodes = self.job.nodes

    def judge(self, stage: Stage) -> Seen:
        touched = truth.disturbed(stage.world, self.nodes, stage.began)
        recovery = stage.recovery(self.job.id)
        seen = Seen(_blamed(touched, self.job, recovery))
        quotes = recovery.because if recovery else ()
        seen.claim("the kernel did log 13 and 31", self._xids(stage) >= {"13", "31"})
        seen.claim("the owner got one message with the evidence", len(stage.notices("notebook has stopped")) == 1)
        seen.claim("no case was opened", not any(stage.cases(node) for node in self.nodes))
        seen.facts = {"nodes_touched": len(touched), "evidence": plain_line(quotes[0]) if quotes else ""}
        seen.story = stage.story(nodes=self.nodes, jobs=(self.job.id,))
        return seen

    def _xids(self, stage: Stage) -> set[str]:
        lines = stage.world.nodes[self.nodes[0]].kernel.tail(50)
        return {line.split("): ", 1)[1].split(",", 1)[0] for line in lines if "Xid (" in line}


def _blamed(touched: list[str], job: SimJob, recovery: Recovery | None) -> str:
    nodes = "no node touched" if not touched else f"touched {', '.join(touched)}"
    if recovery is None or recovery.phase is not RecoveryPhase.FAILED:
        return f"{nodes}, job not given up"
    words, again = {Blame.USER_CODE: "user code"}, {1: "never restarted", 2: "restarted once"}
    blamed = words.get(recovery.blame or Blame.UNKNOWN, recovery.blame)
    return f"{nodes}, job {again.get(job.attempt, 'restarted often')}, given up and reported as {blamed}"


class Unexplained(Scene):
    name = "unexplained-failure"
    title = "A job fails and nothing explains it: restarted once, with the suspect swapped out"
    expected = "restarted once without the suspect, then completed on attempt 2"
    lasts_min = 130

    def begin(self, stage: Stage) -> None:
        self.job = stage.submit("retrieval", 2, total_steps=500)
        self.nodes = self.job.nodes
        stage.after_min(40, lambda: stage.world.strike("unexplained_job_failure", self.nodes[0]))

    def judge(self, stage: Stage) -> Seen:
        world, recovery = stage.world, stage.recovery(self.job.id)
        restarts = truth.job_facts(world, "place", self.job.id)[1:]
        swapped = bool(restarts) and self.nodes[0] not in str(restarts[0].detail["nodes"]).split(",")
        how = "without the suspect" if swapped else "on the same nodes"
        times = "once" if len(restarts) == 1 else f"{len(restarts)} times"
        seen = Seen(f"restarted {times} {how}, then {truth.job_course(self.job)}")
        seen.claim("the blame is honest: unknown", recovery is not None and recovery.blame is Blame.UNKNOWN)
        seen.claim("no node was treated", not any(truth.treatments(world, n, stage.began) for n in self._idle(stage)))
        seen.facts = {"nodes_touched": len(truth.disturbed(world, self.nodes)), **truth.losses(world, self.job)}
        seen.story = stage.story(jobs=(self.job.id,))
        return seen

    def _idle(self, stage: Stage) -> list[str]:
        return [n for n in self.nodes if not stage.cases(n)]


class Barren(Scene):
    name = "no-new-checkpoint"
    title = "A job dies twice without a new checkpoint: it stops at its limit, with a notice"
    expected = "restarted once, then stopped on attempt 2 with a notice to the owner"
    lasts_min = 70

    def begin(self, stage: Stage) -> None:
        self.job = stage.submit("giant", 2)
        self.nodes = self.job.nodes
        stage.after_min(10, lambda: self._strike(stage))

    def _strike(self, stage: Stage) -> None:
        """As soon as each attempt runs, and long before its first checkpoint, one of its own two hosts panics."""
        attempt = self.job.attempt
        stage.world.strike("host_crash", self.nodes[attempt - 1], cure="reboot")
        if attempt == 1:
            stage.after_min(1, lambda: self._wait(stage))

    def _wait(self, stage: Stage) -> None:
        if self.job.live and self.job.attempt == 2 and self.job.step(stage.now) > 5:
            self._strike(stage)
        else:
            stage.after_min(1, lambda: self._wait(stage))

    def judge(self, stage: Stage) -> Seen:
        restarts = truth.job_facts(stage.world, "place", self.job.id)[1:]
        told = stage.notices("giant has stopped")
        times = "once" if len(restarts) == 1 else f"{len(restarts)} times"
        notice = "with a notice to the owner" if told else "without a notice"
        seen = Seen(f"restarted {times}, then {truth.job_course(self.job)} {notice}")
        seen.claim("it never had a checkpoint", not self.job.checkpoints)
        seen.claim("the notice says why", any("without a new complete checkpoint" in n.body for n in told))
        seen.facts = {"attempts": self.job.attempt, "limit": stage.run.settings.jobs.barren_limit}
        seen.story = stage.story(jobs=(self.job.id,))
        return seen
