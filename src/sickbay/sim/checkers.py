"""World-side invariants: judged by what truly happened (World.log, hardware), not by what the controller believes.

Each checker is a small class fed every new Fact and asked once at the end. Used by sim/check.py and the tour. A checker
must never read a counter that the controller keeps: a prototype's mutant survived because one did.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from sickbay.core import machine
from sickbay.core.admit import room
from sickbay.model import Case, JobPhase, NodeRecord, Phase, Recovery, RecoveryPhase
from sickbay.sim.run import SimRun
from sickbay.sim.world import Fact


@dataclass
class Judge:
    """Feeds facts to every checker and keeps what they complain about."""

    run: SimRun
    violations: list[str] = field(default_factory=list)
    _read: int = 0

    def __post_init__(self) -> None:
        self.checkers = [make(self) for make in ALL]

    def look(self) -> None:
        """Judge everything that happened since the last look, in order."""
        log = self.run.world.log
        while self._read < len(log):
            fact = log[self._read]
            self._read += 1
            for checker in self.checkers:
                checker.fact(fact)
        for checker in self.checkers:
            checker.moment()

    def conclude(self) -> None:
        self.look()
        for checker in self.checkers:
            checker.end()

    def complain(self, fact: Fact | None, words: str) -> None:
        t = fact.t if fact else self.run.world.now
        hours = (t - self.run.world.clock.start) / 3600
        self.violations.append(f"at {hours:.2f} h: {words}")


class Checker:
    def __init__(self, judge: Judge) -> None:
        self.judge, self.run, self.world = judge, judge.run, judge.run.world

    def fact(self, fact: Fact) -> None:
        """One thing that truly happened."""

    def moment(self) -> None:
        """After each turn of a brain."""

    def end(self) -> None:
        """After the calm."""


class TreatedSafely(Checker):
    """No treatment of a node that is not cordoned by its case and drained; never twice for one action."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._keys: dict[str, int] = defaultdict(int)
        self._boots: dict[str, str] = {}

    def fact(self, fact: Fact) -> None:
        if fact.kind != "treat-start":
            return
        key, d = str(fact.detail["key"]), fact.detail
        self._keys[key] += 1
        if self._keys[key] > 1:
            self.judge.complain(fact, f"{key} was carried out {self._keys[key]} times on {fact.node}")
        if d["mark"] != key.rsplit("/", 1)[0] or not d["cordoned"]:
            self.judge.complain(fact, f"{d['verb']} of {fact.node} by {key}, but its mark is {d['mark'] or 'none'}")
        if d["jobs"] != "-" and d["ready"]:
            self.judge.complain(fact, f"{d['verb']} of {fact.node} while {d['jobs']} lives on it")


class PlacedSafely(Checker):
    """We place no job on a node with an open case or a mark, and never a second attempt beside a live one."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._live: dict[str, int] = {}

    def fact(self, fact: Fact) -> None:
        d = fact.detail
        if fact.kind == "job-end":
            self._live.pop(str(d["job"]), None)
        if fact.kind != "place":
            return
        job = str(d["job"])
        if job in self._live:
            self.judge.complain(fact, f"{job} attempt {d['attempt']} placed while attempt {self._live[job]} lives")
        self._live[job] = int(d["attempt"])
        if d["by"] in ("owner", "scheduler"):
            return
        cases = {c.value.node: c.value for c in self.run.store.list(Case)}
        for name in str(d["nodes"]).split(","):
            case = cases.get(name)
            if self.world.nodes[name].mark:
                self.judge.complain(
                    fact, f"{job} placed on {name}, which carries the mark {self.world.nodes[name].mark}"
                )
            elif case is not None and self._was_open(case, fact):
                self.judge.complain(fact, f"{job} placed on {name}, which has the open case {case.id}")

    def _was_open(self, case: Case, fact: Fact) -> bool:
        """Opened before the placement, by the order of the log: a case that the placement itself woke is not one."""
        return case.journal[0].at < fact.t - 1.0 and not case.factor


class WithinLimits(Checker):
    """Nodes that were in service when we closed them never exceed the limits."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._taken: dict[str, str] = {}

    def fact(self, fact: Fact) -> None:
        if fact.kind != "cordon":
            return
        node = self.world.nodes[fact.node]
        self._taken = {n: c for n, c in self._taken.items() if self.world.nodes[n].mark == c}
        up = node.ready and not node.others and not node.gate
        if up and self._taken.get(fact.node) != fact.detail["case"]:
            self._taken[fact.node] = str(fact.detail["case"])
            self._count(fact)

    def _count(self, fact: Fact) -> None:
        node, policy = self.world.nodes[fact.node], self.run.settings.policy_for(self.world.nodes[fact.node].pool)
        scopes = (("fleet", lambda n: True, policy.max_out_fleet),
                  ("pool", lambda n: n.pool == node.pool, policy.max_out),
                  ("rack", lambda n: n.rack == node.rack, policy.max_out_rack))  # fmt: skip
        for scope, belongs, limit in scopes:
            members = [n for n in self.world.nodes.values() if belongs(n)]
            taken = [n.name for n in members if n.name in self._taken]
            if len(taken) > room(limit, len(members)):
                self.judge.complain(fact, f"{len(taken)} nodes of the {scope} taken out ({', '.join(taken)}), too many")


class ReturnedWell(Checker):
    """A returned node passes every check it was verified with, on the truth at that moment."""

    def fact(self, fact: Fact) -> None:
        if fact.kind == "release" and not fact.detail["cancel"] and not fact.detail["healthy"]:
            ailing = [a.kind.name for _, a in self.world.ailing(fact.node)]
            self.judge.complain(
                fact, f"{fact.node} returned by {fact.detail['case']} though it has {', '.join(ailing)}"
            )


class LeftAsFound(Checker):
    """DISMISSED and DEFERRED leave no mark; a resolved case neither."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._seen: set[str] = set()

    def moment(self) -> None:
        for case in self.run.store.history(Case, limit=12):
            if case.id in self._seen:
                continue
            self._seen.add(case.id)
            node = self.world.nodes.get(case.node)
            if node is not None and node.mark == case.id and node.present:
                self.judge.complain(None, f"{case.id} ended {case.phase} and left its mark on {case.node}")


class PersonObeyed(Checker):
    """A node that a person uncordoned is not taken again, nor treated, by the same case."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._freed: dict[str, str] = {}

    def fact(self, fact: Fact) -> None:
        if fact.kind == "person" and fact.detail.get("act") == "uncordon":
            mark = self._case_held(fact.node)
            if mark:
                self._freed[fact.node] = mark
        if fact.kind == "cordon" and self._freed.get(fact.node) == fact.detail["case"]:
            self.judge.complain(fact, f"{fact.detail['case']} took {fact.node} again after a person uncordoned it")
        if fact.kind == "treat-start" and self._freed.get(fact.node) == str(fact.detail["key"]).rsplit("/", 1)[0]:
            self.judge.complain(fact, f"{fact.detail['key']} treated {fact.node} after a person uncordoned it")

    def _case_held(self, node: str) -> str:
        """The case that had been told its cordon was done: before that, the uncordon may have come first."""
        for stored in self.run.store.list(Case):
            case = stored.value
            if case.node == node and case.cordon_version and case.phase not in (Phase.CORDONING, Phase.RETURNING):
                return case.id
        return ""


class HealthyJobsRun(Checker):
    """We stop no job that makes progress, except by a drain; and restart within the limit, counted on the truth."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._hurt: set[str] = set()
        self._saved: dict[str, int] = {}
        self._barren: dict[str, int] = defaultdict(int)

    def fact(self, fact: Fact) -> None:
        d = fact.detail
        job = str(d.get("job", ""))
        if fact.kind in ("ranks-dead", "ranks-hung", "watchdog"):
            self._hurt.add(job)
        if fact.kind == "job-end":
            self._judge_end(fact, job)
        if fact.kind == "place":
            self._hurt.discard(job)
            self._judge_place(fact, job)

    def _judge_end(self, fact: Fact, job: str) -> None:
        why = str(fact.detail["why"])
        if why.startswith(f"stopped by {job}#") and job not in self._hurt:
            self.judge.complain(fact, f"{job} was stopped by us at step {fact.detail['step']} while it made progress")

    def _judge_place(self, fact: Fact, job: str) -> None:
        newest = max((c.step for c in self.world.jobs[job].checkpoints), default=-1)
        if fact.detail["by"] in ("owner", "scheduler"):
            self._barren[job] = 0
        else:
            self._barren[job] = 0 if newest > self._saved.get(job, -1) else self._barren[job] + 1
        self._saved[job] = max(newest, self._saved.get(job, -1))
        limit = self.run.settings.jobs.barren_limit
        if self._barren[job] >= limit:
            self.judge.complain(fact, f"{job} was restarted {self._barren[job]} times without a new checkpoint")


class Trustworthy(Checker):
    """After memory corruption no job goes on from a checkpoint that was written after it."""

    def fact(self, fact: Fact) -> None:
        if fact.kind == "corrupt-restart" and not self._was_quiet(str(fact.detail["job"])):
            self.judge.complain(fact, f"{fact.detail['job']} went on from a corrupted checkpoint")

    def _was_quiet(self, job: str) -> bool:
        """Silent corruption prints nothing: no line could have told us."""
        return any(
            a.effect == "corrupt_quietly" for name in self.world.jobs[job].nodes for _, a in self.world.ailing(name)
        )


class EndsOrRests(Checker):
    """After the calm every case has ended or rests with a person, and no visible sickness is forgotten."""

    def end(self) -> None:
        cases = {c.value.node: c.value for c in self.run.store.list(Case)}
        for case in cases.values():
            if not self._may_stay(case):
                self.judge.complain(
                    None, f"{case.id} is still {case.phase} after the calm ({case.refusal or 'no reason'})"
                )
            self._is_closed(case)
        for name, node in self.world.nodes.items():
            if name not in cases and node.present and node.serving() and not node.opted_out:
                self._is_forgotten(name)

    def _may_stay(self, case: Case) -> bool:
        if case.phase is Phase.ESCALATED or case.held:
            return True
        node = self.world.nodes.get(case.node)
        if case.phase is Phase.HOLDING:
            return node is not None and bool(node.job)
        return case.phase is Phase.WAITING and ("out already" in case.refusal or "breaker" in case.refusal)

    def _is_closed(self, case: Case) -> None:
        """An escalated node is cordoned, or an open notice says why not."""
        node = self.world.nodes.get(case.node)
        if case.phase is not Phase.ESCALATED or node is None or not node.present or node.cordoned or case.factor:
            return
        if not any(n.case == case.id for n in self.run.mailbox.notices):
            self.judge.complain(None, f"{case.id} is escalated, {case.node} is open, and nobody was told")

    def _is_forgotten(self, name: str) -> None:
        if self.world.truly_healthy(name, ("nvidia-smi",)):
            return
        stored = self.run.store.get(NodeRecord, name)
        leader = self.run.leader
        watch = leader.records.ledger.watch_time if leader else 0.0
        quiet = stored is not None and any(until > watch for until in stored.value.quiet.values())
        if not quiet:
            ailing = [a.kind.name for _, a in self.world.ailing(name)]
            self.judge.complain(None, f"{name} is in service with {', '.join(ailing)} and nobody has a case for it")


class JobsMove(Checker):
    """After the calm no managed job waits although there is room for it, and none is lost."""

    def end(self) -> None:
        recoveries = {r.value.job: r.value for r in self.run.store.list(Recovery)}
        for job in self.world.jobs.values():
            ended = job.phase in (JobPhase.SUCCEEDED, JobPhase.GONE, JobPhase.SUSPENDED)
            if ended or job.live or not job.spec.managed:
                continue
            recovery = recoveries.get(job.id)
            if recovery is None:
                self._must_have_ended(job.id)
            elif recovery.phase is RecoveryPhase.WAITING_FOR_CAPACITY:
                self._must_lack_room(job.id, recovery)
            else:
                self.judge.complain(None, f"{job.id} is {job.phase} and its recovery is stuck in {recovery.phase}")

    def _must_have_ended(self, job: str) -> None:
        ended = [r for r in self.run.store.history(Recovery, limit=1000) if r.job == job]
        if not ended or ended[0].phase is not RecoveryPhase.FAILED:
            self.judge.complain(None, f"{job} died and nobody looks after it")

    def _must_lack_room(self, job: str, recovery: Recovery) -> None:
        cases = {c.value.node for c in self.run.store.list(Case)}
        free = [
            n.name for n in self.world.nodes.values()
            if n.present and n.serving() and not n.job and not n.stuck and n.name not in cases
            and self._has_no_verdict(n.name) and n.name not in recovery.suspects
        ]  # fmt: skip
        stuck = "ranks of an earlier attempt" in recovery.refusal  # on a node that the limits keep us from taking
        if len(free) >= len(self.world.jobs[job].spec.nodes) and not stuck:
            self.judge.complain(None, f"{job} waits for capacity though {', '.join(free)} are free: {recovery.refusal}")

    def _has_no_verdict(self, name: str) -> bool:
        stored = self.run.store.get(NodeRecord, name)
        return stored is None or not (stored.value.latched or stored.value.lemon)


class HoldObeyed(Checker):
    """From the pass that heard a hold until its release, the case sends nothing new."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._held: set[str] = set()
        self._did: list[tuple[Fact, str]] = []

    def fact(self, fact: Fact) -> None:
        if fact.kind in ("treat-start", "cordon", "drain"):
            case = str(fact.detail.get("case") or str(fact.detail.get("key")).rsplit("/", 1)[0])
            self._did.append((fact, case))

    def moment(self) -> None:
        """Held before this turn and still held after it: nothing may have been done in between."""
        held = {c.value.id for c in self.run.store.list(Case) if c.value.held or c.value.paused}
        for fact, case in self._did:
            if case in self._held and case in held:
                self.judge.complain(fact, f"{fact.kind} of {fact.node} although {case} was held")
        self._held, self._did = held, []


class Climbs(Checker):
    """One ailment does not get the same treatment again and again: a relapse starts higher."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._given: dict[tuple[str, str], int] = defaultdict(int)

    def fact(self, fact: Fact) -> None:
        if fact.kind != "treat-start":
            return
        for _, ailment in self.world.ailing(fact.node):
            key = (f"{self.world.nodes[fact.node].instance}/{ailment.id}", str(fact.detail["verb"]))
            self._given[key] += 1
            retried = self._retries(fact.node)
            if self._given[key] > 3 + retried:
                self.judge.complain(
                    fact, f"{fact.node} got {key[1]} {self._given[key]} times for one {ailment.kind.name}"
                )

    def _retries(self, node: str) -> int:
        """A person who says retry, examine or abort asks for it again."""
        cases = [
            *self.run.store.history(Case, node=node),
            *(c.value for c in self.run.store.list(Case) if c.value.node == node),
        ]
        return sum(e.event in PERSONS for c in cases for e in c.journal)


PERSONS = frozenset({"RETRIED", "EXAMINED", "CANCELLED", "REJOINED"})


class TimedFairly(Checker):
    """A phase that timed out truly lasted as long as its setting: no clock jump or outage makes anything late."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._entered: dict[tuple[str, int], tuple[float, str]] = {}

    def moment(self) -> None:
        recent = [*self.run.store.history(Case, limit=6), *(c.value for c in self.run.store.list(Case))]
        for case in recent:
            key = (case.id, case.step)
            if key in self._entered:
                continue
            self._entered[key] = (self.world.now, case.phase.value)
            last = case.journal[-1] if case.journal else None
            if last is not None and last.event == "TIMED_OUT" and last.step == case.step:
                self._judge(case)

    def _judge(self, case: Case) -> None:
        before = self._entered.get((case.id, case.step - 1))
        setting = machine.DEADLINE_OF.get(Phase(before[1])) if before else None
        if before is None or setting is None:
            return
        due = float(getattr(self.run.settings.policy_for(case.pool), setting))
        lasted = self.world.now - before[0]
        if lasted < 0.9 * due - 30.0:
            self.judge.complain(None, f"{case.id} timed out in {before[1]} after {lasted:.0f} of {due:.0f} seconds")


class NumberedOnce(Checker):
    """A case number is never used again, and no node has two open cases."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._opened: dict[str, float] = {}

    def moment(self) -> None:
        for stored in self.run.store.list(Case):
            case = stored.value
            first = self._opened.setdefault(case.id, case.opened_at)
            if first != case.opened_at:
                self.judge.complain(None, f"{case.id} was used for two cases")
                self._opened[case.id] = case.opened_at


class EvidenceFirst(Checker):
    """Nothing is treated before its evidence was collected, or the try was given up."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._visited: set[str] = set()

    def moment(self) -> None:
        for stored in self.run.store.list(Case):
            if any(phase == Phase.COLLECTING.value for phase, _ in stored.value.timeline):
                self._visited.add(stored.value.id)

    def fact(self, fact: Fact) -> None:
        if fact.kind == "treat-start" and str(fact.detail["key"]).rsplit("/", 1)[0] not in self._visited:
            self.judge.complain(fact, f"{fact.detail['key']} treated {fact.node} before its evidence was collected")


class ToldOnce(Checker):
    """Nobody is told the same thing over and over: one notice has one key, and a flapping node does not flood."""

    def end(self) -> None:
        flaps: dict[str, int] = defaultdict(int)
        for case in self.run.store.history(Case, limit=10_000):
            dismissed = case.phase is Phase.DISMISSED and not case.cancelled
            flaps[case.node] += dismissed and not case.newcomer
        for node, count in flaps.items():
            if count > 12:
                self.judge.complain(None, f"{node} had {count} cases that went away by themselves")


ALL = (
    TreatedSafely, PlacedSafely, WithinLimits, ReturnedWell, LeftAsFound, PersonObeyed, HealthyJobsRun, Trustworthy,
    HoldObeyed, Climbs, TimedFairly, NumberedOnce, EvidenceFirst, ToldOnce, EndsOrRests, JobsMove,
)  # fmt: skip
