"""Nothing lasts for ever and nothing goes round in circles: states have exits, disruptions and deaths are bounded."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Case, Ledger, Phase, Recovery, RecoveryPhase
from sickbay.sim.checkers.checker import Checker
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

SLACK_S = 1800.0
FREE, EACH = 6, 5  # treatments of one place in any case, and for each true fault of it: a ladder has four rungs
KILLS = 3  # jobs that one part may end before a person decides


class EveryStateHasAnExit(Checker):
    """After the calm: whoever is marked has an open case, whoever rests with a person was told of, the breaker closes
    by itself, and a job that has waited longer than `capacity_s` has told its owner."""

    def end(self) -> None:
        told = {notice.case for notice in self.run.mailbox.notices}
        words = " ".join(f"{n.title} {n.body}" for n in self.run.mailbox.notices)
        cases = {c.value.id: c.value for c in self.run.store.list(Case)}
        for case in cases.values():
            if case.phase is Phase.ESCALATED:
                self.expect(case.id in told, None, f"{case.id} rests with a person, and no notice says so")
        marks = {mark for case in cases.values() for mark in (case.id, case.adopts)}
        for node in self.world.nodes.values():
            if node.mark and node.present:
                self.expect(node.mark in marks, None, f"{node.name} carries the mark of {node.mark}, which is no case")
        for stored in self.run.store.list(Ledger):
            self._closes(stored.value)
        for stored_job in self.run.store.list(Recovery):
            self._waits_in_the_open(stored_job.value, words)

    def _closes(self, ledger: Ledger) -> None:
        if ledger.breaker:
            longest = self.run.settings.policy.breaker_quiet_s + SLACK_S
            ahead = ledger.breaker_until - ledger.watch_time
            self.expect(-SLACK_S <= ahead <= longest, None, f"the breaker stays open for {ahead:.0f} s more")

    def _waits_in_the_open(self, recovery: Recovery, words: str) -> None:
        since = self.judge.diary.jobs.get((recovery.job, recovery.step), self.world.now)
        waits = recovery.phase is RecoveryPhase.WAITING_FOR_CAPACITY
        if waits and self.world.now - since > self.run.settings.jobs.capacity_s + SLACK_S:
            self.expect(recovery.job in words, None, f"{recovery.job} waits for capacity and nobody was told")


class DisruptionsBounded(Checker):
    """Treatments of one place are bounded by the faults that truly struck it: no loop of any verb."""

    floor: ClassVar[float] = 100.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._faults: dict[str, int] = defaultdict(int)
        self._treated: dict[str, int] = defaultdict(int)

    def fact(self, fact: Fact) -> None:
        self._faults[fact.node] += fact.kind in ("fault", "boot-hung", "person")
        if fact.kind == "treat-start":
            self._treated[fact.node] += 1
            most = FREE + EACH * self._faults[fact.node]
            words = f"{fact.node} was treated {self._treated[fact.node]} times for {self._faults[fact.node]} faults"
            self.expect(self._treated[fact.node] <= most, fact, words)


class LemonsKillFewJobs(Checker):
    """One sick part ends at most three jobs that we placed on it."""

    floor: ClassVar[float] = 20.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._ours: set[tuple[str, int]] = set()
        self._killed: dict[str, set[tuple[str, int]]] = defaultdict(set)

    def fact(self, fact: Fact) -> None:
        d = fact.detail
        if fact.kind == "place" and d["by"] not in ("owner", "scheduler"):
            self._ours.add((str(d["job"]), int(d["attempt"])))
        if fact.kind == "ranks-dead":
            job = self.world.jobs[str(d["job"])]
            if (job.id, job.attempt) in self._ours:
                self._blame(fact, job.id, job.attempt)

    def _blame(self, fact: Fact, job: str, attempt: int) -> None:
        """The part whose ailment killed this rank."""
        rank = int(str(fact.detail["ranks"]).split(",")[0])
        where = self.world.jobs[job].rank_nodes
        for gpu, ailment in self.world.ailing(where[rank]) if rank < len(where) else ():
            if gpu is not None and ailment.kind.name == fact.detail["why"]:
                self._killed[gpu.serial].add((job, attempt))
                count = len(self._killed[gpu.serial])
                self.expect(count <= KILLS, fact, f"part {gpu.serial} of {where[rank]} has killed {count} jobs")


class NoException(Checker):
    """Nothing raises in a pass: what the controller contained counts too."""

    floor: ClassVar[float] = 1000.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._seen: dict[int, int] = {}

    def moment(self) -> None:
        self.exercised += 1
        for brain in self.run.brains:
            controller = getattr(brain, "controller", None)
            contained = list(getattr(controller, "contained", ()))
            for line in contained[self._seen.get(id(controller), 0) :]:
                self.complain(None, f"raised in a pass and contained: {line}")
            self._seen[id(controller)] = len(contained)
