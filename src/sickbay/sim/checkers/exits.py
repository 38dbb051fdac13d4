"""Nothing lasts for ever and nothing goes round in circles: states have exits, disruptions and deaths are bounded."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Case, Ledger, NodeRecord, Notice, Pause, Phase, Recovery, RecoveryPhase
from sickbay.sim.checkers.checker import Checker, case_of, is_shared
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

SLACK_S = 1800.0
DAY_S = 86_400.0
FREE, EACH = 6, 5  # treatments of one place in any case, and for each true fault of it: a ladder has four rungs
TOUCHES = frozenset((
    "fault", "relapse", "boot-hung", "came-back", "joined", "outsider", "rolled-out", "person", "order", "forgot",
    "mark-put-back",
))  # fmt: skip
SAID = ("approve", "silence-agent", "pause", "resume", "opt-out", "opt-in")
WORDS = frozenset(SAID)  # what people only say
IN_A_ROW = 2  # successors of a pool that may be sent away one after the other
KILLS = 3  # jobs that one part may end before a person decides


class EveryStateHasAnExit(Checker):
    """After the calm: whoever is marked has an open case, whoever rests with a person was told of, the breaker closes
    by itself, and a job that has waited longer than `capacity_s` has told its owner. A verdict on a node without a case
    has a quiet time that ends, or was told with a command that ends it; so was every suspicion, and every pause or hold
    without an end once it is a day old."""

    floor: ClassVar[float] = 120.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._left_at = float("-inf")  # people closed a case about many that are away
        self._closed: set[str] = set()
        self._rests: dict[str, int] = {}  # case that rests with a person -> notices before it did
        self._told = 0  # notices, as of the last look
        self._over: set[str] = set()  # cases that have ended; a store that is put back opens them again

    def fact(self, fact: Fact) -> None:
        if fact.kind == "person" and str(fact.detail.get("case", "")).startswith("absence."):
            self._left_at = fact.t if fact.detail.get("act") == "delete-record" else self._left_at

    def moment(self) -> None:
        for case in self.judge.ended:
            self._over.add(case.id)
            if case.absence is not None and case.phase is Phase.DISMISSED and case.id not in self._closed:
                self._closed.add(case.id)
                self._left_at = self.world.now
        for case in self.judge.open:  # one that cannot be read for a while is not among them, and rests all the same
            if case.phase is Phase.ESCALATED:
                self._rests.setdefault(case.id, 0 if case.id in self._over else self._told)  # told when it rested first
            else:
                self._rests.pop(case.id, None)
        self._told = len(self.run.mailbox.notices)

    def end(self) -> None:
        notices = self.run.mailbox.notices
        words = " ".join(f"{n.title} {n.body}" for n in notices if n.level != "info")
        cases = {c.value.id: c.value for c in self.run.store.list(Case)}
        for case in cases.values():
            if case.phase is Phase.ESCALATED:
                told = self._told_of(notices[0 if case.absence else self._rests.get(case.id, 0) :])
                known = case.id in told or (case.absence is not None and self._goes_on())
                self.expect(known, None, f"{case.id} rests with a person, and no notice says so")
        marks = {mark for case in cases.values() for mark in (case.id, case.adopts)}
        for node in self.world.nodes.values():
            if node.mark and node.present:
                self.expect(node.mark in marks, None, f"{node.name} carries the mark of {node.mark}, which is no case")
        for stored in self.run.store.list(Ledger):
            self._closes(stored.value)
        for stored_job in self.run.store.list(Recovery):
            self._waits_in_the_open(stored_job.value, words)
        self._verdicts_end(cases)
        self._suspicions_are_told(cases)
        self._stops_are_told(cases)

    @staticmethod
    def _told_of(notices: Sequence[Notice]) -> set[str]:
        """Cases that a notice is about, or that one about many names."""
        many = " ".join(notice.body for notice in notices if not notice.case)
        return {notice.case for notice in notices} | set(re.findall(r"[\w.=-]+\.\d+", many))

    def _goes_on(self) -> bool:
        """Nodes that come and go together are one incident: people were told of it, and not yet that it is over."""
        said = [n.title for n in self.run.mailbox.notices if n.case.startswith("absence.")]
        return bool(said) and not said[-1].endswith(("is over", "is left to people"))

    def _verdicts_end(self, cases: Mapping[str, Case]) -> None:
        """What is held against a node that has no case. One that is shared rests with the case about that."""
        watched, away = {case.node for case in cases.values()}, self._away_with_many(cases)
        now = max((stored.value.watch_time for stored in self.run.store.list(Ledger)), default=0.0)
        for record in (stored.value for stored in self.run.store.list(NodeRecord)):
            node = self.world.nodes.get(record.node)
            if node is None or not node.present or node.opted_out or record.node in watched:
                continue
            for latch in record.latched:
                if is_shared(latch.fault, node, cases.values()) or node.name in away:  # nothing is done while it is
                    continue
                ends = any(until > now and key.startswith(latch.fault) for key, until in record.quiet.items())
                told = self._was_told(record.node, latch.fault, f"sickbay case reopen {record.node}")
                words = f"{latch.fault} is held against {record.node} without a case, a quiet time or a word to anybody"
                self.expect(ends or told, None, words)

    def _away_with_many(self, cases: Mapping[str, Case]) -> set[str]:
        """One case is about them all, and was told with what ends it; or people closed it, and they are theirs for a
        while, which was told too."""
        told = any(case.absence for case in cases.values()) and self._was_told("away together", "sickbay ")
        theirs = self.world.now <= self._left_at + self.run.settings.policy.quiet_s + SLACK_S
        told = told or (theirs and self._was_told("left to people", "quiet_s"))
        return {node.name for node in self.world.nodes.values() if told and not node.ready}

    def _suspicions_are_told(self, cases: Mapping[str, Case]) -> None:
        records = [stored.value for stored in self.run.store.list(NodeRecord)]
        for record in (*records, *(case.record for case in cases.values() if case.record is not None)):
            for doubt in (d for d in record.doubts if d.strikes):
                told = self._was_told(record.node, "suspicion", f"sickbay node acknowledge {record.node}")
                part = doubt.part or "the node"
                self.expect(told, None, f"{part} of {record.node} is under suspicion, and no notice says how that ends")

    def _stops_are_told(self, cases: Mapping[str, Case]) -> None:
        """What people stopped, and may have forgotten."""
        for pause in (stored.value for stored in self.run.store.list(Pause)):
            if pause.until is None and self.run.clock.now() - pause.since > DAY_S + SLACK_S:
                told = self._was_told(pause.scope.rpartition(":")[2], "paused", "sickbay resume")
                self.expect(told, None, f"{pause.scope} is paused without an end, and nobody was reminded of it")
        for case in cases.values():
            since = next((e.at for e in reversed(case.journal) if e.event == "HOLD"), None)
            if case.held and since is not None and self.run.clock.now() - since > DAY_S + SLACK_S:
                told = self._was_told(case.id, "held", f"sickbay case unhold {case.id}")
                self.expect(told, None, f"{case.id} is held, and nobody was reminded of it")

    def _was_told(self, *words: str) -> bool:
        """Does one notice say all of it?"""
        return any(all(word in f"{n.title}\n{n.body}" for word in words) for n in self.run.mailbox.notices)

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

    floor: ClassVar[float] = 350.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._faults: dict[str, int] = defaultdict(int)
        self._treated: dict[str, int] = defaultdict(int)
        self._touched: set[str] = set()  # something has befallen them, or was said of them

    def _is_order(self, fact: Fact) -> bool:
        return fact.kind == "order" and fact.detail["act"] in ("retry", "examine")

    def fact(self, fact: Fact) -> None:
        if fact.kind == "cut":
            self._touched.update(str(fact.detail["nodes"]).split(","))
        if fact.kind in TOUCHES and not (fact.kind == "person" and fact.detail["act"] in WORDS):
            self._touched.add(fact.node)
        if fact.kind == "cordon" and fact.detail["sick"]:
            self._touched.add(fact.node)
        by_person = fact.kind == "person" and fact.detail["act"] not in WORDS
        self._faults[fact.node] += by_person or fact.kind in ("fault", "boot-hung") or self._is_order(fact)
        if fact.kind == "treat-start":
            untouched = f"{fact.node} was treated though nothing had ever happened to it"
            self.expect(fact.node in self._touched, fact, untouched)
            self._treated[fact.node] += 1
            most = FREE + EACH * self._faults[fact.node]
            words = f"{fact.node} was treated {self._treated[fact.node]} times for {self._faults[fact.node]} faults"
            self.expect(self._treated[fact.node] <= most, fact, words)


class FewSickSuccessors(Checker):
    """Where a pool gets nothing but sick machines, two in a row are sent away and no third one without a person's word.
    Of a row is who joined, under whatever name, and goes before it was ever opened for work; one that is opened ends
    the row, and so does a day. Whoever puts back or deletes the records takes the row with them."""

    floor: ClassVar[float] = 1.5

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._joined: set[str] = set()  # and not opened since
        self._row: dict[str, list[float]] = defaultdict(list)  # pool -> when each of them was sent away
        self._given: set[str] = set()  # cases whose REPLACE people have approved

    def fact(self, fact: Fact) -> None:
        d = fact.detail
        if fact.kind == "joined":
            self._joined.add(fact.node)
        if fact.kind == "release" and fact.node in self._joined:
            self._joined.discard(fact.node)
            self._row.pop(self.world.nodes[fact.node].pool, None)
        if fact.kind == "etcd-restored" or (fact.kind == "person" and d["act"] == "delete-ledger"):
            self._row.clear()
        if fact.kind == "person" and d["act"] == "approve" and d["verb"] == "REPLACE":
            self._given.add(str(d["case"]))
        if fact.kind == "treat-start" and d["verb"] == "REPLACE" and fact.node in self._joined:
            self._sent_away(fact)

    def _sent_away(self, fact: Fact) -> None:
        row = self._row[self.world.nodes[fact.node].pool]
        if row and fact.t - row[-1] > DAY_S - SLACK_S:
            row.clear()
        row.append(fact.t)
        known = len(row) <= IN_A_ROW or case_of(fact) in self._given
        self.expect(known, fact, f"{fact.node} is the {len(row)}. machine in a row that came sick and is sent away")


class LemonsKillFewJobs(Checker):
    """One sick part ends at most three jobs that we placed on it; after a person's word, three more. Jobs that it ended
    since a backup was taken nobody knows of once that is put back, unless he who leads has led all the while."""

    floor: ClassVar[float] = 25.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._ours: set[tuple[str, int]] = set()
        self._killed: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)  # part -> attempts, and when

    def fact(self, fact: Fact) -> None:
        d = fact.detail
        if fact.kind == "place" and d["by"] not in ("owner", "scheduler"):
            self._ours.add((str(d["job"]), int(d["attempt"])))
        if fact.kind == "order" and d["act"] in ("retry", "examine"):
            self._decided(str(d["case"]))
        self._forget(fact)
        if fact.kind == "ranks-dead":
            job = self.world.jobs[str(d["job"])]
            self._blame(fact, job.id, job.attempt)

    def _forget(self, fact: Fact) -> None:
        """A person wants the node in service, whatever we think of it; or has deleted all that we knew of it."""
        acts = {"person": ("uncordon", "delete-node-record"), "order": ("acknowledge",)}
        if fact.detail.get("act") in acts.get(fact.kind, ()) and fact.node in self.world.nodes:
            for gpu in self.world.nodes[fact.node].gpus:
                self._killed.pop(gpu.serial, None)
        if fact.kind == "etcd-restored":
            since = self.forgotten_since(fact)
            for part, ended in self._killed.items():
                self._killed[part] = {each: at for each, at in ended.items() if at < since}

    def _decided(self, name: str) -> None:
        """Whoever wants it tried again knows that it rests with them, and why: by the case as it stood at that time."""
        case = next((c for c in self.judge.open if c.id == name and c.phase is Phase.ESCALATED), None)
        for diagnosis in case.diagnoses if case else ():
            self._killed.pop(diagnosis.part, None)

    def _blame(self, fact: Fact, job: str, attempt: int) -> None:
        """The part whose ailment killed this rank: of several with the same one, that which the rank worked on. Where
        the node's agent is bad nobody can know of it."""
        rank = int(str(fact.detail["ranks"]).split(",")[0])
        where = self.world.jobs[job].rank_nodes
        if rank >= len(where) or self.world.nodes[where[rank]].agent_fault:
            return
        found = [(g, a.kind.name) for g, a in self.world.ailing(where[rank]) if g is not None]
        sick = [gpu.serial for gpu, kind in found if kind == fact.detail["why"]]
        own = [gpu.serial for gpu in self.world.nodes[where[rank]].gpus][where[:rank].count(where[rank]) :][:1]
        for part in own if set(own) & set(sick) else sick:
            self._killed[part].setdefault((job, attempt), fact.t)
            count = len(self._killed[part])
            if (job, attempt) in self._ours:  # those that others placed there are known of too
                self.expect(count <= KILLS, fact, f"part {part} of {where[rank]} has killed {count} jobs")


class NoException(Checker):
    """Nothing raises in a pass: what the controller contained counts too."""

    floor: ClassVar[float] = 6000.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._seen: dict[int, tuple[object, int]] = {}  # brain -> its controller, and how much of it was read

    def moment(self) -> None:
        self.exercised += 1
        for brain in self.run.brains:
            controller = getattr(brain, "controller", None)
            contained = list(getattr(controller, "contained", ()))
            known, read = self._seen.get(id(brain), (None, 0))
            for line in contained[read if known is controller else 0 :]:
                self.complain(None, f"raised in a pass and contained: {line}")
            self._seen[id(brain)] = controller, len(contained)
