"""The node side of a pass: build a slice, call core/decide, commit; then seats, commands and pending actions.

Called by controller/loop.py. Everything it keeps between passes can be rebuilt from the view.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sickbay.catalog import Catalog
from sickbay.controller import hands_off
from sickbay.controller.absences import Absences
from sickbay.controller.asking import Asking
from sickbay.controller.barred import Barred
from sickbay.controller.blinking import Blinking
from sickbay.controller.bystander import Bystander
from sickbay.controller.containment import Containment
from sickbay.controller.crowd import Crowd
from sickbay.controller.dispatch import UNREAD_S
from sickbay.controller.heartbeats import Heartbeats
from sickbay.controller.monitor import Monitor
from sickbay.controller.records import Records
from sickbay.controller.strays import Strays
from sickbay.controller.successors import Successors
from sickbay.controller.unheeded import Unheeded, why_not
from sickbay.controller.view import View
from sickbay.controller.windows import opens_in
from sickbay.core import (
    absence,
    keeping,
    machine,
    plan,
    progress,
    quiet,
    reminders,
    sight,
    suspicion,
    triage,
    undelivered,
)
from sickbay.core import admit as admission
from sickbay.core.decide import decide, wake_at
from sickbay.core.frozen import replace
from sickbay.core.turn import Context, Decision, JobDecision, NodeSlice, Now
from sickbay.errors import SickbayError
from sickbay.model import (
    Action,
    Case,
    Command,
    Finding,
    JobPhase,
    Ledger,
    Node,
    NodeRecord,
    Notice,
    Phase,
    Place,
    RecoveryPhase,
    Severity,
    Status,
    Verb,
)
from sickbay.ports import Stored
from sickbay.settings import Policy, Settings

log = logging.getLogger(__name__)

ROUNDS_MAX = 4  # a node touched again by its own commit waits for the next pass after this many
UNSEEN_MOST = 1024  # machines that one condemned part keeps in mind
LONGEST_WORD = 100  # of a command, where people are told of it
# What a case in this phase wants a place for; QUEUED: its next rung. In HOLDING only once it is ready to evict.
QUEUES = (Phase.WAITING, Phase.QUEUED)
ASKS = {Phase.WAITING: Verb.CORDON, Phase.HOLDING: Verb.DRAIN, Phase.QUEUED: None}


class Desk(Asking):
    kind = "node"

    def __init__(
        self, view: View, records: Records, catalog: Catalog, settings: Settings, verbs: frozenset[Verb],
        look: Callable[[str], Node | None], containment: Containment,
    ) -> None:  # fmt: skip
        super().__init__(containment, records, view)
        self._look = look
        self._catalog, self._settings, self._verbs = catalog, settings, verbs
        self._commands: dict[str, list[Command]] = defaultdict(list)
        self._set_aside: set[str] = set()  # commands that raised
        self._monitor_findings: dict[str, list[Finding]] = defaultdict(list)
        self._wants: dict[str, None] = {}
        self._contexts: dict[str, Context] = {}  # by pool, of this pass
        self._monitor = Monitor(view, records, catalog, settings, self._unsaid)
        self._heartbeats = Heartbeats(view, settings.controller)
        self._strays = Strays(view, look, settings.policy_for)
        self._absences = Absences(view, records, settings, self._unsaid)
        self._successors = Successors(view, records)
        self._crowd = Crowd(view)
        self._barred = Barred(view)
        self._unheeded = Unheeded()
        self._blinking = Blinking(view)
        self._bystander = Bystander(view, records, self._context)
        self._escalated = 0
        self._seats_stale, self._sweeps_at = True, float("inf")
        self._told_keys: set[str] = set()
        self._unread: SickbayError | None = None  # why a node could not be read in this pass

    def begin(self, now: Now) -> None:
        """What the last leader wrote down and did not deliver: a case at rest would never say it by itself."""
        for name in dict.fromkeys((*self._view.cases, *self._view.records)):
            self._say(name)
        self._owe("ledger", "", self._ledger.notices)
        self._monitor.begin()

    @property
    def _ledger(self) -> Ledger:
        return self._records.ledger

    def is_at_work(self) -> bool:
        """Does time run for any case? One in the hands of a person has none."""
        return any(case.phase is not Phase.ESCALATED for case in self._view.open_cases())

    def strays(self, now: Now) -> dict[str, str]:
        """Node -> a mark of ours that no record answers for."""
        return self._strays.listed(now)

    # -- hearing

    def listen(self, now: Now) -> None:
        """Agents that fell silent, and those that are back. A silent pool is one notice, so first count them all."""
        self._follow("what came to nodes", now, self._monitor.note_changes)
        self._follow("nodes that joined", now, self._successors.note)
        late, back = self._heartbeats.listen(now)
        for name in (*late, *back):
            self._monitor.note_instruments(self._view.nodes[name])
        for name in late:
            node = self._view.nodes[name]
            if not self._monitor.are_silent(node.pool):
                self._monitor_findings[name].append(
                    sight.agent_silent(node, self._settings.controller.heartbeat_s, now)
                )
                self._view.touch_node(name)
        self._absences.look(now)
        self._follow("causes that are over", now, self._monitor.tend)
        if back:  # what can be seen again may be good again
            self._view.touched_jobs.update(dict.fromkeys(sorted(self._view.waiting_jobs)))

    def _follow(self, rule: str, now: Now, work: Callable[[Now], None]) -> None:
        if not self._containment.rests("rule", rule, now):
            self._containment.run("rule", rule, now, partial(work, now))

    # -- deciding

    def decide_touched(self, now: Now) -> None:
        for _ in range(ROUNDS_MAX):
            if not self._view.touched_nodes:
                break
            names = list(self._view.touched_nodes)
            self._view.touched_nodes.clear()
            for name in names:
                self.attend(name, now, partial(self._decide, name, now))
            self._containment.run("rule", "common causes", now, partial(self._monitor.look, now))

    def _context(self, pool: str, now: Now) -> Context:
        known = self._contexts.get(pool)
        if known is None or known.now is not now:
            policy, settings = self._settings.policy_for(pool), self._settings
            known = Context(self._catalog, policy, self._verbs, now, settings.cluster, settings.ceilings)
            self._contexts[pool] = known
        return known

    def _decide(
        self, name: str, now: Now, *, granted: bool = False, refusal: admission.Refusal | None = None
    ) -> Case | None:
        view = self._view
        if view.is_off(name):
            self._monitor_findings.pop(name, None)
            if name not in view.cases:  # somebody deleted its case meanwhile: who let go of it says so later
                self._wants.pop(name, None)
                self._expect(name, False)
            return None
        stray = self._strays.find(name, now)
        node, stored = view.nodes.get(name), view.cases.get(name)
        case = stored.value if stored else None
        key, outcome = self._answers.pop(name, ("", None))
        known, member = view.records.get(name), self._absences.member(name, now, self._heartbeats)
        s = NodeSlice(
            record=known.value if known else NodeRecord(name, cluster=self._settings.cluster),
            node=node, gone=name in view.gone, case=case,
            findings=tuple(self._monitor_findings.pop(name, ())),
            outcome=outcome, answers=key, commands=tuple(self._commands.get(name, ())),
            granted=granted, refusal=refusal, beside=case is not None and admission.is_beside(self._ledger, case),
            busy=self._is_busy(node, now), loaded=self._is_loaded(node), died=self._has_died(node),
            paused=view.paused(node, name, now.wall),
            mute=node is not None and self._monitor.are_silent(node.pool),
            explained=self._monitor.explains(node), condemned=view.condemned, returned=view.returned,
            carriers=view.carriers,
            taken_back=self._monitor.taken_back(case, node),
            stray=stray, lost=view.lost.pop(name, None),
            read_again=name in view.read_again or machine.was_passed_over(case, now.watch),
            joined=self._successors.since(name, node, now), came_sick=self._successors.before(case, now),
            away_since=member.since, absent=member.absent, exchange=member.exchange, witness=member.witness,
            over=self._absences.over if name == absence.NAME else self._monitor.over.pop(name, ""),
        )  # fmt: skip
        if case is None:
            view.read_again.discard(name)
        ctx = self._context(case.pool if case else (node.pool if node else "default"), now)
        s, decision = self._judge(s, ctx)
        if case is None and decision.case is not None and name not in view.records:
            s, decision = self._numbered_on(s, decision, ctx)
        self._commands.pop(name, None)
        return self._commit(name, s, decision, ctx)

    def _judge(self, s: NodeSlice, ctx: Context) -> tuple[NodeSlice, Decision]:
        """A command that raises is set aside; the node is attended without it, unless it raises by itself."""
        try:
            return s, decide(s, ctx)
        except Exception:
            if not s.commands:
                raise
        decide(replace(s, commands=()), ctx)
        s = replace(s, commands=tuple(c for c in s.commands if self._can_be_obeyed(c, s, ctx)))
        return s, decide(s, ctx)

    def _numbered_on(self, s: NodeSlice, decision: Decision, ctx: Context) -> tuple[NodeSlice, Decision]:
        """Nothing is known of this node: that may be because somebody deleted its record, and the number of its last
        case with it. The archive still has that."""
        last_n = self._records.last_ended(s.record.node)
        if not last_n:
            return s, decision
        return self._judge(replace(s, record=replace(s.record, last_n=last_n)), ctx)

    def _can_be_obeyed(self, c: Command, s: NodeSlice, ctx: Context) -> bool:
        if self._containment.run("command", _named(c), ctx.now, lambda: decide(replace(s, commands=(c,)), ctx)):
            return True
        self._set_aside.add(c.id)
        return False

    def leave_alone(self, owner: str, now: Now) -> None:
        self._wants.pop(owner, None)
        super().leave_alone(owner, now)

    def _is_busy(self, node: Node | None, now: Now) -> bool:
        """Does a job that makes progress live here?"""
        for job in node.jobs if node else ():
            recovery, known = self._view.recoveries.get(job), self._view.jobs.get(job)
            if recovery is not None and progress.may_move(recovery.value, known, now.watch):
                return True
            if recovery is None and (known is None or known.phase is JobPhase.RUNNING):
                return True
        return False

    def _has_died(self, node: Node | None) -> bool:
        """Did a job die here a moment ago? Asked of nodes only that say something is wrong."""
        if node is None or node.jobs or not any(f.status is Status.FAILED for f in node.findings):
            return False
        jobs = self._view.jobs
        mine = (s.value for s in self._view.recoveries.values() if node.name in s.value.nodes)
        return any(progress.has_just_died(r, jobs.get(r.job)) for r in mine)

    def _is_loaded(self, node: Node | None) -> bool:
        """Does a job make steps here, as far as we can tell?"""
        for job in node.jobs if node else ():
            recovery, known = self._view.recoveries.get(job), self._view.jobs.get(job)
            phase = recovery.value.phase if recovery else None
            if phase is RecoveryPhase.RUNNING or (phase is None and known and known.phase is JobPhase.RUNNING):
                return True
        return False

    # -- committing

    def _commit(self, name: str, s: NodeSlice, d: Decision, ctx: Context) -> Case | None:
        """Written at the end of the pass. An open case carries the record; one that ends gives it back."""
        d = _handed_on(d) if d.ended else d
        self._monitor.note(s, d, ctx.now)
        if d.pardon:  # before the command is consumed: after a crash it is obeyed again
            self._records.pardon(d.pardon)
        if d.case is None:
            if d.consumed:
                self._records.consume(d.consumed)
        elif d.ended or (
            d.case is not s.case and d.case != s.case
        ):  # a leader may have died after he wrote that it ended, before he put it away
            parts = partial(self._close_parts, d.case, dict(d.condemn), ctx.now) if d.ended else None
            self._records.put_case(d.case, d.ended, d.consumed, patience=keeping.patience(s, d), first=parts)
            self._after_move(s.case, d, ctx.now)
        _log_remarks(s.record, d.record)
        if d.ended or keeping.is_worth_a_write(s.record, d.record, name in self._view.records):
            self._records.put_record(d.record, patience=keeping.patience(s, d))
        self._settle(name, None if d.ended else d.case, d.record, ctx)
        return d.case

    def _after_move(self, before: Case | None, d: Decision, now: Now) -> None:
        case = d.case
        assert case is not None
        if before is None or before.phase is not case.phase:
            _log_moves(before, case)
            self._seats_stale = True
            self._escalated += admission.counts_as_failed(case)
            node = self._view.nodes.get(case.node)
            for job in node.jobs if node else ():
                self._view.touch_job(job)
        self._owe("node", case.node, case.notices)
        if d.ended and case.absence is not None:
            self._absences.ended(case, now)
        elif d.ended:
            self._view.explained_no_more(case)
            self._absences.note_end(case, now)
            self._successors.ended(case, now)
        if d.ended:
            self._view.touch_node(case.node)  # what was found meanwhile may open the next case
            self._view.touched_jobs.update(dict.fromkeys(sorted(self._view.waiting_jobs)))

    def _close_parts(self, case: Case, condemned: dict[str, str], now: Now) -> None:
        """Before the case is archived: whoever comes after a crash in between ends it again, and says it again."""
        unseen = self._unseen(case.node, now) if condemned else ()
        for part in sorted({d.part for d in case.diagnoses if d.part}):
            self._records.put_part(part, case.node, case.id, condemned.get(part, ""), unseen)
        if condemned:
            self._records.read_parts()

    def _unseen(self, leaves: str, now: Now) -> tuple[str, ...]:
        """Machines that were there before this and whose GPUs nobody knows: no newcomers, which parts may come with."""
        there = (n for name, n in self._view.nodes.items() if name != leaves and not (n.gpus or n.gate or n.gone))
        old = (n.instance for n in there if n.instance and self._successors.since(n.name, n, now) is None)
        return tuple(sorted(old))[:UNSEEN_MOST]

    def _settle(self, name: str, case: Case | None, record: NodeRecord, ctx: Context) -> None:
        """Indexes and the next turn of this node."""
        self._owe("record", name, record.notices)
        wants = case is not None and not case.factor and (case.phase in QUEUES or bool(case.ready))
        (self._wants.__setitem__(name, None) if wants else self._wants.pop(name, None))
        asks = case is not None and case.pending is not None
        self._expect(name, asks)
        due = self._absences.due if name == absence.NAME else self._wake(case, record, ctx)
        self._view.due("node", name, due, second_look=case is not None and due is not None and due == case.retry_at)

    def _wake(self, case: Case | None, record: NodeRecord, ctx: Context) -> float | None:
        if case is not None:
            ahead = [t for t in (wake_at(case, record, ctx), *self._strays.due(record.node)) if t is not None]
            return min([*ahead, *self._stops(case, ctx.now)], default=None)
        times = [quiet.until(record, latch) for latch in record.latched] if record.quiet else []
        if record.not_ready_since is not None:
            times.append(absence.missed_at(record.not_ready_since, ctx.policy))
        if (trusted := suspicion.trusted_at(record, ctx.now.watch)) is not None:
            times.append(trusted)
        times += self._strays.due(record.node)
        ahead = [t for t in times if t > ctx.now.watch]
        return min(ahead) if ahead else None

    def _stops(self, case: Case, now: Now) -> list[float]:
        """When a gang that is being stopped is waited for no longer."""
        node = self._view.nodes.get(case.node) if case.phase is Phase.HOLDING else None
        stored = [
            self._view.recoveries[job].value for job in (node.jobs if node else ()) if job in self._view.recoveries
        ]
        times = [r.entered + progress.STOPS_S for r in stored if r.phase is RecoveryPhase.STOPPING]
        return [t for t in times if t > now.watch]

    # -- seats

    def admit(self, now: Now) -> None:
        """Seats first, in the Ledger; then the cases that got one move."""
        self._sweep(now)
        requests, refused = self._requests(now)
        counts = self._view.counts(self._absences.out_by_nobody)
        admitted = admission.admit(requests, self._ledger, counts, self._settings.policy_for, now.watch)
        ledger = admission.trip(admitted.ledger, self._settings.policy, self._escalated, now.watch)
        self._crowd.hear(requests, admitted.refused)
        self._barred.hear(requests, admitted.refused)
        ledger = self._tell(ledger, counts, now)
        self._escalated = 0
        if ledger is not self._ledger:
            self._records.put_ledger(ledger)
        for name in sorted(case_id.rpartition(".")[0] for case_id in admitted.granted):
            self.attend(name, now, partial(self._decide, name, now, granted=True))
        refused.update(admitted.refused)
        self._crowd.log(refused)
        for case_id, refusal in refused.items():
            name = case_id.rpartition(".")[0]
            if not self._still_refused(name, refusal, now):
                self.attend(name, now, partial(self._decide, name, now, refusal=refusal))

    def _still_refused(self, name: str, refusal: admission.Refusal, now: Now) -> bool:
        """Refused in the very words that stand in its case: nothing is decided or written for that, only when it is
        looked at again is kept, in memory."""
        stored, known = self._view.cases.get(name), self._view.records.get(name)
        if stored is None or known is None or stored.value.refusal != refusal.why or self._view.is_off(name):
            return False
        case = replace(stored.value, retry_at=refusal.again_at)
        self._view.cases[name] = Stored(case, stored.version, stored.epoch)
        self._settle(name, case, known.value, self._context(case.pool, now))
        return True

    def _sweep(self, now: Now) -> None:
        """A seat given back may stay on record for a while: the next leader sweeps by the same cases."""
        if self._seats_stale or now.watch >= self._sweeps_at:
            self._seats_stale = False
            cases = {case.id: case for case in self._view.open_cases()}
            swept = self._swept(cases, now)
            self._sweeps_at = admission.sweeps_at(swept, cases)
            if swept != self._ledger:
                self._records.put_ledger(swept, patience=keeping.LATER_S)
                self._look_again()

    def _swept(self, cases: Mapping[str, Case], now: Now) -> Ledger:
        """A case that cannot be read keeps its seat: its node may well be out. Each once: kept here and swept too,
        seats were twice as many after every sweep, until the memory was full."""
        unread = tuple(seat for seat in self._ledger.seats if seat.case in self._view.off.cases)
        if not unread:
            return admission.sweep(self._ledger, cases, now.watch)
        readable = replace(self._ledger, seats=tuple(seat for seat in self._ledger.seats if seat not in unread))
        swept = admission.sweep(readable, cases, now.watch)
        return replace(swept, seats=(*swept.seats, *unread))

    def _look_again(self) -> None:
        """A seat came free: refusals are looked at again at once."""
        for name in self._wants:
            stored = self._view.cases.get(name)
            if stored is not None and stored.value.retry_at is not None:
                self._view.cases[name] = replace(stored, value=replace(stored.value, retry_at=None))

    def _requests(self, now: Now) -> tuple[list[admission.Request], dict[str, admission.Refusal]]:
        requests: list[admission.Request] = []
        refused: dict[str, admission.Refusal] = {}
        self._unread = None
        for name in [name for name in self._wants if self._may_want(name, now)]:
            self.attend(name, now, partial(self._want, name, now, requests, refused))
        return requests, refused

    def _may_want(self, name: str, now: Now) -> bool:
        """Most wait for their next look."""
        stored = self._view.cases.get(name)
        return stored is None or not (stored.value.held or stored.value.paused or now.watch < _asks_at(stored.value))

    def _want(
        self, name: str, now: Now, requests: list[admission.Request], refused: dict[str, admission.Refusal]
    ) -> None:
        """What this case asks for now, if anything; or why it need not even ask."""
        case = self._view.cases[name].value
        if self._view.is_off(name):
            return
        policy = self._settings.policy_for(case.pool)
        allowed = plan.allowed(case, policy, self._verbs, self._settings.ceilings)
        verb = ASKS.get(case.phase) or machine.next_rung(case, allowed)
        if case.phase is Phase.QUEUED and not self._has_settled(case, policy, now):
            return
        if case.phase in (Phase.WAITING, Phase.QUEUED) and name not in self._view.nodes:
            return  # an object that is not there is given no mark, no treatment: it comes back, or its machine is gone
        if verb is Verb.CORDON and Verb.CORDON not in allowed:
            refused[case.id] = admission.Refusal(_why_not(policy), now.watch + max(policy.window_s, admission.AGAIN_S))
        elif why := self._absences.forbids(case, now, self._heartbeats) or self._spreads(case, verb):
            refused[case.id] = admission.Refusal(why, now.watch + admission.AGAIN_S)
        elif verb is not None:
            try:
                requests.append(self._request(case, verb, policy, now))
            except SickbayError as error:
                why = f"{name} cannot be read just now: {error}"
                refused[case.id] = admission.Refusal(why, now.watch + UNREAD_S)

    def _spreads(self, case: Case, verb: Verb | None) -> str:
        node = self._view.nodes.get(case.node)
        if verb is None:
            return ""
        return self._monitor.spreads(node, verb) or self._monitor.unproven(case, node, verb)

    def _has_settled(self, case: Case, policy: Policy, now: Now) -> bool:
        known = self._view.records.get(case.node)
        return known is None or now.watch >= triage.settles_at(case, known.value, policy)

    def _request(self, case: Case, verb: Verb, policy: Policy, now: Now) -> admission.Request:
        node = self._fresh(case.node) if case.phase is Phase.WAITING else self._view.nodes.get(case.node)
        opens_s = opens_in(policy.windows, now.wall)
        return admission.request_of(
            case, node, verb, when=triage.urgency(case, node), severity=triage.severity(case),
            in_window=not opens_s, opens_s=opens_s, alive=self._is_busy(node, now),
            blinks=absence.blinks(self._view.away.get(case.node), now.watch),
        )  # fmt: skip

    def _fresh(self, name: str) -> Node | None:
        """What is down needs no free seat, but only on a fresh read: a late view must not give a place away. Where one
        read of a pass failed, no other is tried: a hundred that wait in vain would take a hundred times as long."""
        node = self._view.nodes.get(name)
        if node is None or (node.ready and not node.others and not node.gate):
            return node
        if self._unread is not None:
            raise self._unread
        try:
            seen = self._look(name)
        except SickbayError as error:
            self._unread = error
            raise
        if seen is not None:
            self._view.put_node(seen)
        return seen or node

    def _tell(self, ledger: Ledger, counts: admission.Counts, now: Now) -> Ledger:
        """About full limits, silent instruments, what we may not touch and records that cannot be read."""
        fresh = list(self._monitor.tell_silence(now, self._told_keys))
        fresh += hands_off.notices(self._view.off, self._told_keys, now.wall)
        fresh += self._crowd.notices(ledger, counts, now)
        fresh += self._barred.notices(now)
        fresh += self._unheeded.notices(now)
        fresh += self._bystander.notices(now)
        fresh += self._blinking.notices(self._absences.members, now)
        fresh += self._remind(now)
        if not fresh:
            return ledger
        self._owe("ledger", "", fresh)
        return replace(ledger, notices=keeping.owed(ledger.notices, fresh))

    def _remind(self, now: Now) -> list[Notice]:
        """Once a day of what people have stopped for long; what cannot be read has a notice of its own."""
        pauses = [pause for scope, pause in self._view.pauses.items() if scope not in self._view.off.scopes]
        cases = [case for case in self._view.open_cases() if case.held or case.paused]
        if not (pauses or cases or self._told_keys):
            return []
        due = {n.key: n for n in reminders.due(pauses, cases, self._jobs_down(now), now.wall)}
        fresh = [notice for key, notice in due.items() if key not in self._told_keys]
        self._told_keys -= {key for key in self._told_keys if key.startswith("reminder/") and key not in due}
        self._told_keys |= due.keys()
        return fresh

    def _jobs_down(self, now: Now) -> dict[str, list[str]]:
        """Scope of a pause -> jobs that it keeps from being brought back."""
        down: dict[str, list[str]] = defaultdict(list)
        for job in self._view.frozen_jobs if self._view.pauses else ():
            stored = self._view.recoveries.get(job)
            if stored is not None and stored.value.phase is not RecoveryPhase.RUNNING:
                pause = self._view.pause_over_job(stored.value.nodes, now.wall)
                down[pause.scope if pause else ""].append(job)
        return down

    # -- people

    def take_commands(self, commands: Sequence[Command], now: Now) -> None:
        """Give each command to the node it is for; one that nobody can obey is removed, and told."""
        known = {c.id for queue in self._commands.values() for c in queue}
        by_id = {case.id: case.node for case in self._view.open_cases()}
        for c in commands:
            if c.id in known or c.id in self._set_aside:
                continue
            if not self._containment.run("command", _named(c), now, partial(self._take_command, c, by_id)):
                self._set_aside.add(c.id)

    def _take_command(self, command: Command, by_id: Mapping[str, str]) -> None:
        name = by_id.get(command.target) or (command.target if command.target in self._view.nodes else "")
        owner = name or command.target.rpartition(".")[0] or command.target  # of a case that was not read with its node
        if (
            command.target in self._view.off.cases
            or self._view.is_off(name or command.target)
            or self._view.is_off(owner)
        ):
            return  # it waits with the record it is about
        if why := why_not(command, name, is_open=name in self._view.cases):
            self._records.consume((command.id,))
            self._unheeded.note(command, why)
            return
        self._commands[name].append(command)
        self._view.touch_node(name)

    def take_suspects(self, d: JobDecision, now: Now) -> None:
        """A silent rank makes its node a suspect: our own monitor says so. What was found there is more than that."""
        for finding in d.found:
            self._monitor_findings[finding.place.node].append(finding)
            self._view.touch_node(finding.place.node)
        for name, why in d.suspects:
            node = self._view.nodes.get(name)
            if node is None or self._absences.excuses(name, now):
                continue
            self._monitor_findings[name].append(
                Finding(
                    id=f"{node.boot_id}/{int(now.watch) + 1}", source="monitor", check="monitor", place=Place(name),
                    status=Status.FAILED, code="monitor.silent-rank", reason=why, evidence=(why,),
                    severity=Severity.MONITOR, boot_id=node.boot_id, at=now.wall, received_at=now.wall,
                )
            )  # fmt: skip
            self._view.touch_node(name)

    # -- pending actions and notices, for the loop

    def pending(self, owner: str) -> Action | None:
        stored = self._view.cases.get(owner)
        return stored.value.pending if stored else None

    def deadline(self, owner: str) -> float | None:
        stored = self._view.cases.get(owner)
        return stored.value.deadline if stored else None

    def waits_for(self, owner: str, words: str, *, held: bool = False, delivered: bool = True) -> None:
        """Said when the time is up, and written with the next write; at once where a person may have to act."""
        stored = self._view.cases.get(owner)
        if stored is not None and words and stored.value.refusal != words and not machine.is_frozen(stored.value):
            case = replace(stored.value, refusal=words)
            log.log(
                logging.WARNING if held else logging.INFO, "case=%s phase=%s waits_for=%r", case.id, case.phase, words
            )
            patience = keeping.NOW if held else keeping.SOON_S
            self._records.put_case(case, False, (), patience=patience)

    def put_sent(self, owner: str, action: Action) -> None:
        case = self._view.cases[owner].value
        self._resend.discard(owner)
        self._records.put_case(replace(case, pending=action), False, ())

    def _touch(self, owner: str) -> None:
        self._view.touch_node(owner)

    def _may_ask(self, owner: str) -> bool:
        return not machine.is_frozen(self._view.cases[owner].value) and not self._view.is_off(owner)

    def _say(self, owner: str) -> None:
        case, record = self._view.cases.get(owner), self._view.records.get(owner)
        self._owe("node", owner, case.value.notices if case else ())
        self._owe("record", owner, record.value.notices if record else ())

    def told(self, kind: str, owner: str, keys: set[str]) -> None:
        if kind == "node" and owner in self._view.cases:
            case = self._view.cases[owner].value
            told = replace(case, notices=_without(case.notices, keys))
            self._records.put_case(told, False, (), patience=keeping.RARELY_S)
        elif kind == "record" and owner in self._view.records:
            record = self._view.records[owner].value
            self._records.put_record(replace(record, notices=_without(record.notices, keys)), patience=keeping.RARELY_S)
        elif kind == "ledger":
            left = _without(self._ledger.notices, keys)
            self._records.put_ledger(replace(self._ledger, notices=left), patience=keeping.RARELY_S)


def _named(c: Command) -> str:
    """As people are told of it; whoever may write commands may write long ones."""
    return " ".join(text[:LONGEST_WORD] for text in (c.verb, c.target, "by", c.by, f"({c.id})"))


def _asks_at(case: Case) -> float:
    return max(case.retry_at or 0.0, undelivered.again_at(case))


def _log_moves(before: Case | None, case: Case) -> None:
    """One line for each thing that happened to a case."""
    if log.isEnabledFor(logging.INFO):
        known = before.step if before else -1
        for e in (e for e in case.journal if e.step > known):
            log.info("case=%s phase=%s event=%s by=%s why=%r", case.id, e.phase, e.event, e.by, e.why)


def _log_remarks(before: NodeRecord, record: NodeRecord) -> None:
    """Of many that are alike people get one message: each node's own words stand here."""
    if record.notices is not before.notices:
        known = {notice.key for notice in before.notices}
        for notice in record.notices:
            if notice.alike and notice.key not in known:
                log.info("node=%s remark=%r", record.node, notice.body)


def _handed_on(d: Decision) -> Decision:
    """A case that ends leaves what is not delivered yet to its node's record: nobody looks into the archive for it."""
    assert d.case is not None
    record = replace(d.record, notices=keeping.owed(d.record.notices, d.case.notices))
    return replace(d, case=replace(d.case, notices=()), record=record)


def _without(notices: tuple[Notice, ...], keys: set[str]) -> tuple[Notice, ...]:
    return tuple(n for n in notices if n.key not in keys)


def _why_not(policy: Policy) -> str:
    if policy.max_verb == "OBSERVE":
        return "policy.max_verb is OBSERVE: this install only watches; raise it to CORDON to let nodes be taken out"
    return "the source of this verdict may not take a node out of service"
