"""After the calm: every case has ended or rests with a person, no sickness is forgotten, every job moves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Case, JobPhase, NodeRecord, Phase, Recovery, RecoveryPhase, Status
from sickbay.settings import LEVELS
from sickbay.sim.checkers.checker import OURS, Checker
from sickbay.sim.checkers.given_up import could_begin
from sickbay.sim.checkers.people import DEADLINES
from sickbay.sim.faults import kinds
from sickbay.sim.hardware import SimNode
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

OFF = ("stopped", "terminated")  # by its provider's word: no rank runs there
AGAIN_S = 3_600.0  # a job that does not begin is tried again at least so often
LEAST_QUIET_S = 3600.0  # docs/settings.md: after a deferral or a time-out, however short `quiet_s` is
SHOWN_S = 120.0  # by then a view that is late shows what was so
REMADE_S = 120.0  # docs/cases.md: the record of a job that runs is written again within a minute
SLACK_S = 600.0  # watch time runs a little behind the world's


class EndsOrRests(Checker):
    """After the calm every case has ended or rests with a person, and no visible sickness is forgotten. What a person
    has acknowledged is theirs until something new befalls the node: they have said that it is well. A program that
    fails on it befalls its job (seed 50003097)."""

    floor: ClassVar[float] = 480.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._seen: set[str] = set()
        self._left_alone: dict[str, float] = {}  # node -> until when, after a case that ended without proof of health
        self._well: set[str] = set()  # by a person's word

    def fact(self, fact: Fact) -> None:
        if fact.kind == "order" and fact.detail["act"] == "acknowledge":
            self._well.add(fact.node)
        if fact.kind in ("relapse", "boot") or (fact.kind == "fault" and not _is_of_a_program(fact)):
            self._well.discard(fact.node)

    def moment(self) -> None:
        for case in self.judge.ended:
            if case.id not in self._seen:
                self._seen.add(case.id)
                by_person = any(e.event == "CANCELLED" and e.by != OURS for e in case.journal)
                if by_person or case.phase is Phase.DEFERRED or case.journal[-1].event == "TIMED_OUT":
                    quiet_s = self.run.settings.policy_for(case.pool).quiet_s
                    least_s = 0.0 if by_person else LEAST_QUIET_S
                    self._left_alone[case.node] = self.world.now + max(quiet_s, least_s) + SLACK_S

    def end(self) -> None:
        cases = {c.value.node: c.value for c in self.run.store.list(Case)}
        self.exercised += len(self._seen) + len(cases)
        for case in cases.values():
            if not self._may_stay(case):
                self.complain(None, f"{case.id} is still {case.phase} after the calm ({case.refusal or 'no reason'})")
            self._is_closed(case)
        for name, node in self.world.nodes.items():
            if (
                node.present
                and node.ready
                and node.mark
                and (name not in cases or node.mark not in _marks(cases[name]))
            ):
                self.judge.complain(None, f"{name} carries the mark of {node.mark}, and nobody has a record of it")
            known = name in cases or self._is_explained(node, cases.values())
            if not known and node.present and node.serving() and not node.opted_out:
                self._is_forgotten(name)

    def _is_explained(self, node: SimNode, cases: Collection[Case]) -> bool:
        """A case is open about a value that it has (a driver, a rack), which truly causes what it shows."""
        return self.judge.commons.explain(node, cases, self.run.settings.controller)

    def _stands_still(self, case: Case, node: SimNode) -> bool:
        """While a case about what it shares with others rests with a person, its own does nothing and says so."""
        if not node.ready and case.refusal and self._is_away_with_others(node):
            return True
        return self._is_explained(node, [stored.value for stored in self.run.store.list(Case)])

    def _is_away_with_others(self, node: SimNode) -> bool:
        """A case about nodes that are away is open, and this one is not the only one: by the world's own looking."""
        cases = [stored.value for stored in self.run.store.list(Case)]
        away = [n for n in self.world.nodes.values() if n.present and not n.ready]
        return node in away and len(away) > 1 and any(case.absence is not None for case in cases)

    def _may_stay(self, case: Case) -> bool:
        if case.phase is Phase.ESCALATED or case.held:
            return True
        node = self.world.nodes.get(case.node)
        if case.paused and node is not None and self._stands_still(case, node):
            return True
        if case.phase is Phase.HOLDING and (node is None or not node.job):
            since = self.judge.diary.entered.get((case.id, case.step))
            settle_s = self.run.settings.policy_for(case.pool).settle_s
            return since is not None and self.world.now - since.at <= 2 * settle_s + SLACK_S
        return self._has_time(case)

    def _has_time(self, case: Case) -> bool:
        """Its phase is not over yet, by the judge's own dates; and it says what it waits for."""
        since = self.judge.diary.entered.get((case.id, case.step))
        if case.phase not in DEADLINES:
            return False
        due = float(getattr(self.run.settings.policy_for(case.pool), DEADLINES[case.phase]))
        said = bool(case.refusal) or case.phase not in (Phase.WAITING, Phase.QUEUED)
        return said and since is not None and self.world.now - since.at <= due + SLACK_S

    def _is_closed(self, case: Case) -> None:
        """An escalated node is cordoned, or an open notice says why not."""
        node = self.world.nodes.get(case.node)
        if case.phase is not Phase.ESCALATED or node is None or not node.present or node.cordoned or case.factor:
            return
        if not any(n.case == case.id for n in self.run.mailbox.notices):
            self.complain(None, f"{case.id} is escalated, {case.node} is open, and nobody was told")

    def _is_forgotten(self, name: str) -> None:
        if self.world.truly_healthy(name, ("nvidia-smi",)):
            return
        if name not in self._well and self.world.now >= self._left_alone.get(name, 0.0):
            ailing = [a.kind.name for _, a in self.world.ailing(name)]
            self.complain(None, f"{name} is in service with {', '.join(ailing)} and nobody has a case for it")


def _marks(case: Case) -> tuple[str, str]:
    return case.id, case.adopts


def _is_of_a_program(fact: Fact) -> bool:
    return kinds()[str(fact.detail["what"])].scope == "job"


class JobsMove(Checker):
    """After the calm no managed job waits although there is room for it, and none is lost. One that has nodes out of
    reach, where nobody can say that its ranks write no more, waits rightly: once its owner was told how to end it."""

    floor: ClassVar[float] = 17.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._left: dict[str, float] = {}  # job -> when somebody deleted the record of it; no attempt since

    def fact(self, fact: Fact) -> None:
        """ "Hands off" of a job that does not run, and of one that falls before its record is written again."""
        if fact.kind == "person" and fact.detail.get("act") == "delete-recovery":
            self._left[str(fact.detail["job"])] = fact.t if fact.detail["live"] else float("inf")
        job = str(fact.detail.get("job", ""))
        if fact.kind == "job-end" and fact.t <= self._left.get(job, float("-inf")) + REMADE_S:
            self._left[job] = float("inf")
        if fact.kind == "place":
            self._left.pop(job, None)

    def end(self) -> None:
        recoveries = {r.value.job: r.value for r in self.run.store.list(Recovery)}
        for job in self.world.jobs.values():
            ended = job.phase in (JobPhase.SUCCEEDED, JobPhase.GONE, JobPhase.SUSPENDED)
            if ended or job.live or not job.spec.managed or self._is_only_watched(job.nodes):
                continue
            if self._left.get(job.id) == float("inf"):  # a person starts it again, if anybody does
                continue
            recovery = recoveries.get(job.id)
            self.exercised += 1
            if recovery is None:
                self._must_have_ended(job.id)
            elif recovery.phase is RecoveryPhase.WAITING_FOR_CAPACITY:
                self._must_lack_room(job.id, recovery)
            else:
                self.complain(None, f"{job.id} is {job.phase} and its recovery is stuck in {recovery.phase}")

    def _is_only_watched(self, nodes: Sequence[str]) -> bool:
        """Jobs are stopped and restarted from DRAIN on, and only where they are looked after at all."""
        tops = [self.policy_of(name).max_verb for name in nodes]
        return not self.run.settings.jobs.enabled or any(LEVELS.index(t) < LEVELS.index("DRAIN") for t in tops)

    def _must_have_ended(self, job: str) -> None:
        ended = [r for r in self.run.store.history(Recovery, limit=1000) if r.job == job]
        if self._died_unseen(job):
            return
        if not ended or ended[0].phase is not RecoveryPhase.FAILED:
            self.complain(None, f"{job} died and nobody looks after it")

    def _died_unseen(self, job: str) -> bool:
        """Dead before anybody led, or sooner than a view shows that it ran at all: nobody knows whether its owner still
        wants it, so it is not brought back (seed 50000422)."""
        led = min((b.first_led for b in self.run.brains if b.first_led is not None), default=0.0)
        ends = [fact.t for fact in self.world.log if fact.kind == "job-end" and fact.detail["job"] == job]
        began = [f for f in self.world.log if f.kind == "place" and f.detail["job"] == job]
        unseen = bool(began and ends) and began[-1].detail["by"] == "owner" and ends[-1] - began[-1].t <= SHOWN_S
        return unseen or (bool(ends) and ends[-1] < led)

    def _must_lack_room(self, job: str, recovery: Recovery) -> None:
        cases = {c.value.node for c in self.run.store.list(Case)}
        free = [
            n.name for n in self.world.nodes.values()
            if n.present and n.serving() and not n.stuck and n.name not in cases
            and self.world.gangs.has_room(self.world.jobs[job], n)
            and self._has_no_verdict(n.name)
        ]  # fmt: skip
        stuck = any(job in n.stuck and not n.mark for n in self.world.nodes.values())  # where the limits keep us out
        waits = stuck or (self._hides_ranks(job) and self._can_be_ended(job)) or self._is_tried_in_vain(job)
        if len(free) >= len(self.world.jobs[job].spec.nodes) and not waits:
            self.complain(None, f"{job} waits for capacity though {', '.join(free)} are free: {recovery.refusal}")

    def _hides_ranks(self, job: str) -> bool:
        """Is a node of its last attempt silent, or one on which ranks of an earlier one were left, whose machine nobody
        calls off?"""
        known = self.world.jobs[job]
        names = (*known.nodes, *self.world.gangs.unended(known, silent=True))
        silent = [node for name in names if not (node := self.world.nodes[name]).ready and not node.gone]
        return not known.spec.fenced and any(node.provider_status not in OFF for node in silent)

    def _is_tried_in_vain(self, job: str) -> bool:
        """The settings leave no time for a first step: it is tried again all the same, and its owner was told."""
        known = self.world.jobs[job]
        lately = self.world.now - known.attempts[-1].started <= AGAIN_S
        told = any(job in f"{notice.title} {notice.body}" for notice in self.run.mailbox.notices)
        return lately and told and not could_begin(known.spec, self.run.settings.jobs)

    def _can_be_ended(self, job: str) -> bool:
        return any(f"sickbay job restart {job}" in notice.body for notice in self.run.mailbox.notices)

    def _has_no_verdict(self, name: str) -> bool:
        stored = self.run.store.get(NodeRecord, name)
        mute = any(f.status is Status.UNKNOWN for f in self.world.nodes[name].findings.values())
        return not mute and (stored is None or not stored.value.latched)
