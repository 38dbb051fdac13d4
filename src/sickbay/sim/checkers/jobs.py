"""What happens to jobs: placed on good nodes, one live attempt, not stopped while they progress, trusted data."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Case, Recovery
from sickbay.sim.checkers.checker import Checker
from sickbay.sim.checkers.given_up import Victims
from sickbay.sim.faults import kinds
from sickbay.sim.jobs import Attempt
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge


CORRUPTING = frozenset(name for name, kind in kinds().items() if kind.effect == "corrupt")


class PlacedSafely(Checker):
    """We place no job on a node with an open case or a mark, and never a second attempt beside a live one."""

    floor: ClassVar[float] = 250.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._live: dict[str, int] = {}
        self._since: dict[str, float] = {}  # open case -> when we first saw it, by the world's clock
        self._returned: dict[str, str] = {}  # node -> case that proved it well and gave it back

    def moment(self) -> None:
        for case in self.judge.open:
            self._since.setdefault(case.id, self.world.now)

    def fact(self, fact: Fact) -> None:
        d = fact.detail
        if fact.kind == "job-end":
            self._live.pop(str(d["job"]), None)
        if fact.kind == "release" and not d["cancel"]:
            self._returned[fact.node] = str(d["case"])
        if fact.kind == "cordon":
            self._returned.pop(fact.node, None)
        if fact.kind != "place":
            return
        job = str(d["job"])
        self.exercised += 1
        if job in self._live:
            self.complain(fact, f"{job} attempt {d['attempt']} placed while attempt {self._live[job]} lives")
        self._live[job] = int(d["attempt"])
        if d["by"] in ("owner", "scheduler"):
            return
        if not self.world.jobs[job].spec.managed:
            self.complain(fact, f"{job} was placed by us, and another scheduler looks after it")
        cases = {c.value.node: c.value for c in self.run.store.list(Case)}
        for name in str(d["nodes"]).split(","):
            case = cases.get(name)
            if self.world.nodes[name].mark:
                self.complain(fact, f"{job} placed on {name}, which carries the mark {self.world.nodes[name].mark}")
            elif case is not None and self._was_open(case, fact):
                self.complain(fact, f"{job} placed on {name}, which has the open case {case.id}")

    def _was_open(self, case: Case, fact: Fact) -> bool:
        """Open before the placement, by the world's clock: a case that the placement itself woke is not one. Nor one
        that has given its node back: its end may be on record a moment later, or again after a write that failed."""
        if self._returned.get(case.node) == case.id:
            return False
        return self._since.get(case.id, fact.t) < fact.t - 1.0 and not case.factor


TOLD_S = 180.0  # how late its steps are told: every 90 s, twice as late after a change of lead
HOURLY, IN_A_ROW = 8, 40  # restarts of a job that does not begin
SEVERAL, LATELY_S = 3, 7200.0  # jobs that do not begin at the same time: what they share may last for days


class HealthyJobsRun(Checker):
    """We stop no job that makes progress, except by a drain; and restart within the limit, counted on the truth.

    An attempt that made no step, or that something shared has stopped, is not counted unless it died of a sickness that
    can be seen on a node that it gets again as it was: it is tried again, but less and less often, and not for ever."""

    floor: ClassVar[float] = 120.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._hurt: set[str] = set()
        self._died: dict[str, set[str]] = {}  # of a sickness that tools show -> the nodes that have it
        self._barren: dict[str, int] = defaultdict(int)
        self._victims = Victims()
        self._saved: dict[str, int] = {}  # job -> the last attempt that ended with a complete checkpoint of its own
        self._excused: set[str] = set()  # jobs whose last attempt is not counted
        self._sick_at_end: dict[str, set[str]] = {}  # job -> nodes of that attempt on which something could be seen
        self._tries: dict[str, list[float]] = defaultdict(list)
        self._alone: dict[str, int] = defaultdict(int)  # how many of them while no others did not begin
        self._treated = ("", 0.0)  # the node that was treated last, and when

    def fact(self, fact: Fact) -> None:
        d = fact.detail
        job = str(d.get("job", ""))
        self._victims.fact(fact)
        if fact.kind in ("ranks-dead", "ranks-hung", "watchdog"):
            self._hurt.add(job)
        if fact.kind == "goes-on":
            self._hurt.discard(job)
        if fact.kind == "treat-start":
            self._treated = fact.node, fact.t
        if fact.kind == "etcd-restored":
            self._forget(fact)
        if fact.kind == "ranks-dead" and (sick := self._sick_nodes(job)):
            self._died[job] = sick
        if fact.kind == "job-end":
            self._judge_end(fact, job)
        if fact.kind == "place":
            self._hurt.discard(job)
            self._judge_place(fact, job)
            self._died.pop(job, None)

    def _forget(self, restored: Fact) -> None:
        """Attempts since the backup was taken nobody knows of any more; nor can he who leads on write down what he
        knows where the record, as it was put back, is one that he cannot read (seed 50001529)."""
        unread = {each.key for each in self.run.store.unread() if each.kind is Recovery}
        for job in [*self._barren] if self.forgotten_since(restored) < restored.t else unread:
            self._barren.pop(job, None)

    def _judge_end(self, fact: Fact, job: str) -> None:
        why, n = str(fact.detail["why"]), int(fact.detail["attempt"])
        if any(c.attempt == n for c in self.world.jobs[job].checkpoints):
            self._saved[job] = n
        self._sick_at_end[job] = self._sick_nodes(job)
        shared = bool(self._victims.of(job, fact.t))
        steps = int(fact.detail["step"]) - self._attempt(fact, job).from_step
        by_drain = why.startswith("stopped by drain:")  # which may end it before anybody was told of its first steps
        began = steps > 0 and not (by_drain and steps * self.world.jobs[job].spec.step_s < TOLD_S)
        excused = shared or not began or self._is_beside_many(why)
        (self._excused.add if excused else self._excused.discard)(job)
        if why == f"{self._treated[0]} went down" and fact.t == self._treated[1]:
            ill = self.world.ailing(self._treated[0])
            words = f"{job} made steps on {self._treated[0]}, which had nothing wrong and was treated"
            self.expect(job in self._hurt or shared or bool(ill), fact, words)
        if why.startswith(f"stopped by {job}#"):
            words = f"{job} was stopped by us at step {fact.detail['step']} while it made progress"
            if not self.world.jobs[job].spec.managed:
                self.complain(fact, f"{job} was stopped by us, and another scheduler looks after it")
            stood = job in self._hurt or shared or self._never_began(fact, job) or self._is_stall(fact)
            self.expect(stood, fact, words)

    def _is_beside_many(self, why: str) -> bool:
        """A machine that crashes while many of the fleet are cut off is away as they are: nobody can tell it from one
        more that the same thing has taken (seed 50001778)."""
        limits, there = self.run.settings.controller, [n for n in self.world.nodes.values() if n.present]
        many = max(limits.absent_nodes, limits.absent_share * len(there))
        return why == "host_crash" and sum(bool(n.cuts) and not n.ready for n in there) >= many

    def _has_a_cause(self, job: str) -> bool:
        """All that can be seen on nodes of its last attempt is what others have too, and a case says so (seed 1723)."""
        sick, limits = self._sick_at_end.get(job, set()), self.run.settings.controller
        cases = [case for case in self.judge.open if not case.factor.startswith("job=")]
        nodes = [self.world.nodes[name] for name in sorted(sick) if name in self.world.nodes]
        return bool(nodes) and all(self.judge.commons.explain(node, cases, limits) for node in nodes)

    def _sick_nodes(self, job: str) -> set[str]:
        return {n for n in self.world.jobs[job].nodes if not self.world.truly_healthy(n, ("nvidia-smi",))}

    def _is_stall(self, fact: Fact) -> bool:
        """By a monotonic clock that leapt: with a period of minutes, one or two leaps are a stall."""
        stall_s = self.run.settings.jobs.stall_s
        return self.judge.leapt_s(fact.t - stall_s) >= stall_s

    def _never_began(self, fact: Fact, job: str) -> bool:
        """No step within `restarting_s` of its start: too long, whatever it was doing."""
        attempt = self._attempt(fact, job)
        took = fact.t - attempt.started + self.judge.leapt_s(attempt.started)
        waited = took >= 0.9 * self.run.settings.jobs.restarting_s - 30.0
        return waited and fact.detail["step"] == attempt.from_step

    def _attempt(self, fact: Fact, job: str) -> Attempt:
        return self.world.jobs[job].lived(int(fact.detail["attempt"]), fact.t)

    def _judge_place(self, fact: Fact, job: str) -> None:
        """Did the attempt before this one complete a checkpoint of its own? One that is not trusted is gone by now."""
        fresh = self._saved.get(job) == int(fact.detail["attempt"]) - 1
        ours = fact.detail["by"] not in ("owner", "scheduler")
        again = self._died.get(job, set()) & set(str(fact.detail["nodes"]).split(",")) & self._sick_nodes(job)
        excused = job in self._excused or self._victims.has_shown_itself(job, fact.t) or self._has_a_cause(job)
        if ours and not fresh and excused and not again:
            self._judge_again(fact, job)
            return
        self._tries[job], self._alone[job] = [], 0
        self._barren[job] = self._barren[job] + 1 if ours and not fresh else 0
        if self._barren[job]:
            words = f"{job} was restarted {self._barren[job]} times without a new checkpoint"
            self.expect(self._barren[job] < self.run.settings.jobs.barren_limit, fact, words)

    def _judge_again(self, fact: Fact, job: str) -> None:
        """While several do not begin nobody knows how long that lasts: the row of one job alone begins when the others
        run, or are given up (seed 1859)."""
        tries = self._tries[job]
        tries.append(fact.t)
        lately = sum(1 for t in tries if fact.t - t <= 3600.0)
        several = sum(1 for each in self._tries.values() if each and fact.t - each[-1] <= LATELY_S) >= SEVERAL
        self._alone[job] += not several
        row = f"{len(tries)} in a row, {self._alone[job]} of them alone"
        words = f"{job}, which does not begin, was restarted {lately} times within an hour, {row}"
        self.expect(lately <= HOURLY and self._alone[job] <= IN_A_ROW, fact, words)


class Trustworthy(Checker):
    """After memory corruption no job goes on from a checkpoint that was written after it."""

    floor: ClassVar[float] = 10.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._corrupted: set[str] = set()

    def fact(self, fact: Fact) -> None:
        """Exercised by each restart of ours of a job that had computed wrong numbers."""
        if fact.kind == "place" and str(fact.detail["job"]) in self._corrupted:
            self.exercised += 1
        if fact.kind == "ranks-dead" and fact.detail["why"] in CORRUPTING:
            self._corrupted.add(str(fact.detail["job"]))
        if fact.kind == "corrupt-restart" and not self._was_quiet(str(fact.detail["job"])):
            self.complain(fact, f"{fact.detail['job']} went on from a corrupted checkpoint")

    def _was_quiet(self, job: str) -> bool:
        """Silent corruption prints nothing: no line could have told us."""
        return any(
            a.effect == "corrupt_quietly" for name in self.world.jobs[job].nodes for _, a in self.world.ailing(name)
        )
