"""Nothing lasts for ever: every state has an exit that people were told of, and nothing raises in a pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Case, Ledger, NodeRecord, Notice, Pause, Phase, Recovery, RecoveryPhase
from sickbay.sim.checkers.checker import Checker
from sickbay.sim.checkers.ends import LEAST_QUIET_S
from sickbay.sim.checkers.load import LEAST_LOAD_S, Load
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

SLACK_S = 1800.0
DAY_S = 86_400.0
ENDS = ("retry", "examine", "abort", "approve", "split")  # what a person may say of a case that rests with them
STANDS = ("waits for capacity", "does not begin", "gets no good nodes", "out of reach", "not restarted")


class EveryStateHasAnExit(Checker):
    """After the calm: whoever is marked has an open case, whoever rests with a person was told of with a command that
    ends it, the breaker closes by itself, and of a job that has waited longer than `capacity_s` it was told that it
    waits. A verdict on a node without a case has a quiet time no longer than the settings', or was told with a command
    that ends it; so was every suspicion, which fades with good hours under load, and every pause or hold without an end
    once it is a day old: a hold in the storm too, where the clock of the brain leaps."""

    floor: ClassVar[float] = 90.0
    branches: ClassVar[Mapping[str, float | str]] = {
        "rest": 30.0, "mark": 28.0, "verdict": 10.0, "suspicion": 15.0, "faded": 5.0, "hold": 0.5, "breaker": 1.5,
        "job": "in the calm the jobs of a seed find their nodes, or are told; tests have it",
        "pause": "a storm's pauses end with it, within a day; tests have it",
    }  # fmt: skip

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._left_at = float("-inf")  # people closed a case about many that are away
        self._closed: set[str] = set()
        self._rests: dict[str, int] = {}  # case that rests with a person -> notices before it did
        self._told = 0  # notices, as of the last look
        self._tripped = False  # the breaker was open at some time
        self._over: set[str] = set()  # cases that have ended; a store that is put back opens them again
        self._overdue: dict[str, float] = {}  # case that has been held for a day -> world time since then
        self._load = Load(self.world)

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
        self._tripped = self._tripped or any(stored.value.breaker for stored in self.run.store.list(Ledger))
        self._holds_are_told(self.judge.open)
        self._load.look(stored.value for stored in self.run.store.list(NodeRecord))

    def end(self) -> None:
        cases = {c.value.id: c.value for c in self.run.store.list(Case)}
        for case in [case for case in cases.values() if case.phase is Phase.ESCALATED]:
            self._was_put_with_a_person(case)
        marks = {mark for case in cases.values() for mark in (case.id, case.adopts)}
        for node in self.world.nodes.values():
            if node.mark and node.present:
                words = f"{node.name} carries the mark of {node.mark}, which is no case"
                self.expect(node.mark in marks, None, words, "mark")
        for stored in self.run.store.list(Ledger):
            self._closes(stored.value)
        for stored_job in self.run.store.list(Recovery):
            self._waits_in_the_open(stored_job.value)
        self._verdicts_end(cases)
        self._suspicions_are_told(cases)
        self._stops_are_told(cases)

    def _was_put_with_a_person(self, case: Case) -> None:
        """Since it rests; or before, in the same words, where nobody but us had it in hand in between."""
        notices = self.run.mailbox.notices
        since = notices[0 if case.absence else self._rests.get(case.id, 0) :]
        told = [notice for notice in since if _is_about(notice, case.id)]
        why = _rests_why(case)
        told = told or [n for n in notices if why and _is_about(n, case.id) and _gist(why, n) in n.body]
        known = bool(told) or (case.absence is not None and self._goes_on())
        self.expect(known, None, f"{case.id} rests with a person, and no notice says so", "rest")
        ended = any(_says(notice, case.id) for notice in told) or not told
        words = f"{case.id} rests with a person, and no notice says by which command that ends"
        self.expect(ended, None, words, "rest")

    def _goes_on(self) -> bool:
        """Nodes that come and go together are one incident: people were told of it, and not yet that it is over."""
        said = [n.title for n in self.run.mailbox.notices if n.case.startswith("absence.")]
        return bool(said) and not said[-1].endswith(("is over", "is left to people"))

    def _verdicts_end(self, cases: Mapping[str, Case]) -> None:
        """What is held against a node that has no case. One that is shared rests with the case about that."""
        watched, away = {case.node for case in cases.values()}, self._away_with_many(cases)
        now = self._watch()
        for record in (stored.value for stored in self.run.store.list(NodeRecord)):
            node = self.world.nodes.get(record.node)
            if node is None or not node.present or node.opted_out or record.node in watched:
                continue
            for latch in record.latched:
                shared = self.judge.commons.explain(node, cases.values(), self.run.settings.controller)
                if shared or node.name in away:  # nothing is done while it is
                    continue
                longest = now + max(self.policy_of(record.node).quiet_s, LEAST_QUIET_S) + SLACK_S
                ends = any(
                    now < until <= longest and key.startswith(latch.fault) for key, until in record.quiet.items()
                )
                told = self._was_told(record.node, latch.fault, f"sickbay case reopen {record.node}")
                held = f"{latch.fault} is held against {record.node} without a case"
                words = f"{held}, a quiet time that ends or a word to anybody"
                self.expect(ends or told, None, words, "verdict")

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
                words = f"{part} of {record.node} is under suspicion, and no notice says how that ends"
                self.expect(told, None, words, "suspicion")
        for record in records:
            for doubt, good_s, counted_s in self._load.of(record, self._watch()):
                words = (
                    f"{doubt.part or record.node} has worked well for {good_s:.0f} s and is trusted for {counted_s:.0f}"
                )
                self.expect(good_s < LEAST_LOAD_S or counted_s >= good_s / 2, None, words, "faded")

    def _watch(self) -> float:
        return max((stored.value.watch_time for stored in self.run.store.list(Ledger)), default=0.0)

    def _holds_are_told(self, cases: Iterable[Case]) -> None:
        """As soon as the clock of the brain says that it was a day ago, and somebody has led for a while since then."""
        held = {c.id: at for c in cases if c.held and (at := _held_at(c)) is not None}
        over = {name for name, at in held.items() if self.run.clock.now() - at > DAY_S + SLACK_S}
        self._overdue = {name: self._overdue.get(name, self.world.now) for name in over}
        led = min((b.led_since for b in self.run.brains if b.led_since is not None), default=self.world.now)
        for name in [n for n, at in self._overdue.items() if self.world.now - max(at, led) > SLACK_S]:
            told = self._was_told(name, "held", f"sickbay case unhold {name}")
            self.expect(told, None, f"{name} is held, and nobody was reminded of it", "hold")

    def _stops_are_told(self, cases: Mapping[str, Case]) -> None:
        """What people stopped, and may have forgotten."""
        for pause in (stored.value for stored in self.run.store.list(Pause)):
            if pause.until is None and self.run.clock.now() - pause.since > DAY_S + SLACK_S:
                told = self._was_told(pause.scope.rpartition(":")[2], "paused", "sickbay resume")
                words = f"{pause.scope} is paused without an end, and nobody was reminded of it"
                self.expect(told, None, words, "pause")
        for case in cases.values():
            since = _held_at(case)
            if case.held and since is not None and self.run.clock.now() - since > DAY_S + SLACK_S:
                told = self._was_told(case.id, "held", f"sickbay case unhold {case.id}")
                self.expect(told, None, f"{case.id} is held, and nobody was reminded of it", "hold")

    def _was_told(self, *words: str) -> bool:
        """Does one notice say all of it?"""
        return any(all(word in f"{n.title}\n{n.body}" for word in words) for n in self.run.mailbox.notices)

    def _closes(self, ledger: Ledger) -> None:
        """One that was open at any time has closed by now, or soon will."""
        if ledger.breaker or self._tripped:
            longest = self.run.settings.policy.breaker_quiet_s + SLACK_S
            ahead = ledger.breaker_until - ledger.watch_time
            words = f"the breaker stays open for {ahead:.0f} s more"
            self.expect(not ledger.breaker or -SLACK_S <= ahead <= longest, None, words, "breaker")

    def _waits_in_the_open(self, recovery: Recovery) -> None:
        since = self.judge.diary.jobs.get((recovery.job, recovery.step), self.world.now)
        waits = recovery.phase is RecoveryPhase.WAITING_FOR_CAPACITY
        if waits and self.world.now - since > self.run.settings.jobs.capacity_s + SLACK_S:
            told = any(_says_that_it_stands(notice, recovery.job) for notice in self.run.mailbox.notices)
            self.expect(told, None, f"{recovery.job} waits for capacity and nobody was told that it does", "job")


def _is_about(notice: Notice, case: str) -> bool:
    """About it alone, or about many of which it is one."""
    return notice.case == case or (not notice.case and case in re.findall(r"[\w.=-]+\.\d+", notice.body))


def _gist(why: str, notice: Notice) -> str:
    """One about many tells three of them in full: the sixth machine in a row rests for what the third does."""
    return why if notice.case else why.lstrip("0123456789").partition(":")[0]


def _rests_why(case: Case) -> str:
    """As it was put there, whatever happened to it since."""
    there = Phase.ESCALATED
    put = [new.why for old, new in pairwise(case.journal) if new.phase == there and old.phase != there]
    return put[-1] if put else ""


def _says(notice: Notice, case: str) -> bool:
    """Does it name a command that ends it? One about many names that of the first."""
    about = case if notice.case else ""
    return any(f"sickbay case {verb} {about}" in notice.body for verb in ENDS)


def _says_that_it_stands(notice: Notice, job: str) -> bool:
    """One about several jobs names them in its body."""
    words = f"{notice.title}\n{notice.body}"
    return notice.level != "info" and job in words and any(stands in notice.title for stands in STANDS)


def _held_at(case: Case) -> float | None:
    return next((e.at for e in reversed(case.journal) if e.event == "HOLD"), None)


class NoException(Checker):
    """Nothing raises in a pass: what the controller contained counts too, and so does an answer that its cluster did
    not give, where nothing of it was away."""

    floor: ClassVar[float] = 210.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._seen: dict[int, tuple[object, int]] = {}  # brain -> its controller, and how much of it was read
        self._unprovoked: Counter[int] = Counter()  # brain -> how much was read of what nothing had provoked

    def moment(self) -> None:
        """Exercised by each process whose list was read at least once: not by each look at it."""
        for brain in self.run.brains:
            for line in getattr(brain, "unprovoked", [])[self._unprovoked[id(brain)] :]:
                self._unprovoked[id(brain)] += 1
                self.complain(None, f"left a pass though nothing was away: {line}")
            controller = getattr(brain, "controller", None)
            contained = list(controller.contained) if controller is not None else []
            if controller is not None and self._seen.get(id(brain), (None, 0))[0] is not controller:
                self.looked()
            known, read = self._seen.get(id(brain), (None, 0))
            for line in contained[read if known is controller else 0 :]:
                self.complain(None, f"raised in a pass and contained: {line}")
            self._seen[id(brain)] = controller, len(contained)
