"""The central shell: gather, decide, commit, perform. Woken by events, sleeping until the next deadline.

One pass (`turn`) drains the inbox, lets core decide for every node and job that was touched or is due, commits each
decision under the leader's epoch, and only then asks the platform. If the process dies on any line, the next leader
reads the same records and goes on. It holds no decision of its own.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from sickbay.catalog import Catalog
from sickbay.controller import lost_ledger
from sickbay.controller.asking import Asking
from sickbay.controller.containment import Containment
from sickbay.controller.crew import Crew
from sickbay.controller.desk import Desk
from sickbay.controller.dispatch import Answer, Dispatcher, may_resend, sent
from sickbay.controller.jobs import JobDesk
from sickbay.controller.outbox import Post
from sickbay.controller.records import Records
from sickbay.controller.view import View
from sickbay.core.frozen import replace
from sickbay.core.turn import Now
from sickbay.errors import NotLeader, StoreError
from sickbay.model import (
    SENT_ONCE,
    TREATMENTS,
    Action,
    Change,
    Done,
    Failed,
    JobChanged,
    Node,
    NodeChanged,
    NodeDeleted,
    Outcome,
    Recovery,
    Retry,
    Started,
    Verb,
)
from sickbay.ports import Clock, Leader, Platform, Store
from sickbay.settings import Settings

log = logging.getLogger(__name__)

SAVE_S = 60.0  # watch time is on record at least this often
AT_WORK_S = 15.0  # and so often while a case moves: what a change of lead takes of it, its settle times wait again
LEDGER, ADMISSION = "the ledger of limits", "admission to treatment"  # as a person is told of them
RESTORE = "a store that was put back"
NEAR_PERIODS = 2  # a deadline nearer than this many idle periods is watched closely


class Controller:
    def __init__(
        self, platform: Platform, store: Store, catalog: Catalog, settings: Settings, clock: Clock, leader: Leader,
        outbox: Post, crew: Crew,
    ) -> None:  # fmt: skip
        self._platform, self._settings, self._clock, self._leader = platform, settings, clock, leader
        self._outbox, self._crew = outbox, crew
        self.view = View()
        self.records = Records(store, self.view, settings.cluster)
        self._inbox: deque[Change | Answer] = deque()
        self._beats: dict[str, Node] = {}  # signs of life, which no pass is made for
        self._news: set[str] = set()  # nodes with a change in the inbox: what they show next must come after it
        self.woken = threading.Event()
        self.containment = Containment()
        self._dispatcher = Dispatcher(platform, crew, clock, self._receive, self._wake)
        self._desk = Desk(self.view, self.records, catalog, settings, platform.verbs, platform.look, self.containment)
        self._jobs = JobDesk(self.view, self.records, catalog, settings, self.containment)
        self._unwatch: Callable[[], None] = lambda: None
        self._leads = False
        self._watch, self._last, self._planned = 0.0, 0.0, 0.0
        self._saved_watch = 0.0
        self._token: int | None = None
        self._dropped: set[str] = set()  # whose decision of this pass was not written: it is made again first
        self._pauses: frozenset[str] = frozenset()
        self._letters: dict[str, tuple[str, str]] = {}  # notice key -> (kind, owner)

    @property
    def contained(self) -> list[str]:
        """What was raised in this lead and kept from the rest of the pass, one line for each."""
        return self.containment.seen

    # -- life

    def start(self) -> bool:
        """Try to lead; read everything once, then follow changes. False while somebody else leads."""
        if not self._leader.acquire():
            return False
        self.records.attend = self._attend
        self.records.take_over()
        self._watch = self._saved_watch = self.records.ledger.watch_time
        self._last, self._planned = self._clock.monotonic(), 0.0
        self._unwatch = self._platform.watch(self._receive)
        self.resync()
        if not (self.records.ledger.last_pass or self.view.off.ledger):  # new, or it was deleted
            self._follow(LEDGER, self._now(), self._make_ledger_again)
        for rule, begin in (("what nodes are owed", self._desk.begin), ("what jobs are owed", self._jobs.begin)):
            self._follow(rule, self._now(), begin)
        self._leads = True
        log.info("leading epoch=%d open_cases=%d", self.records.epoch, len(self.view.cases))
        return True

    def _make_ledger_again(self, now: Now) -> None:
        lost_ledger.make_again(self.records, self.view, self._settings)

    def stop(self) -> None:
        """Leave cleanly: nothing new is asked, what is under way is left to the next leader."""
        self._unwatch()
        self._crew.close()
        if self._leads:
            with suppress(StoreError, NotLeader):  # what waited for the next write is only a notice told twice
                self.records.flush(float("inf"))
            self._leader.release()
        self.records.close()
        self._leads = False

    def abandon(self) -> None:
        """As a crash would: stop listening, release nothing."""
        self._unwatch()
        self.records.close()
        self._leads = False

    def resync(self) -> None:
        """Read everything again: at start, after a gap in the watch, and once in a while."""
        self.view.replace_all(self._platform.observe())
        for case in self.view.open_cases():
            if case.instance and case.node not in self.view.nodes:
                self._platform.ask_after(case.node, case.instance)
        for stored in self.view.recoveries.values():  # a machine that is gone may hide no rank, whatever its successor
            for node, machine in stored.value.hidden.items():  # is called
                if stored.value.told_of == stored.value.attempt and node not in self.view.nodes:
                    self._platform.ask_after(node, machine)

    def _receive(self, item: Change | Answer) -> None:
        if isinstance(item, NodeChanged):
            name = item.node.name
            if name not in self._news and not self.view.is_news(item.node):
                self._beats[name] = item.node
                return
            self._news.add(name)
            self._beats.pop(name, None)
        self._inbox.append(item)
        if not self.woken.is_set():  # a pass clears it before it empties the inbox, so nothing is missed
            self.woken.set()

    def _wake(self) -> None:
        self.woken.set()

    def _now(self) -> Now:
        return Now(self._watch, self._clock.now())

    # -- one pass

    def turn(self) -> float:
        """One pass; returns how many seconds to sleep at most. Raises NotLeader when a newer leader is there."""
        if not self._leads:
            raise NotLeader("this controller does not lead")
        self._advance()
        now = self._now()
        self._gather(now)
        self.view.touch_due(now.watch)
        self._follow("silent agents", now, self._desk.listen)
        self._desk.decide_touched(now)
        self._jobs.decide_touched(now, self._desk.take_suspects)
        self._desk.decide_touched(now)
        whole = not any(self.containment.rests("rule", rule, now) for rule in (LEDGER, RESTORE))
        admits = whole and self._follow(ADMISSION, now, self._desk.admit)
        self._save_ledger(now)
        asks = self._prepare_asks(now, admits)
        proved = self._commit(now)
        self._perform(asks, now, proved)
        self._follow("telling people", now, self._tell)
        return self._plan_sleep(now)

    def follow(self, rule: str, work: Callable[[], object]) -> None:
        """What whoever runs us does after a pass: an error in it is told as ours is, and no pass is missed for it."""
        now = self._now()
        if not self.containment.rests("rule", rule, now):
            self.containment.run("rule", rule, now, work)

    def _follow(self, rule: str, now: Now, work: Callable[[Now], None]) -> bool:
        """One part of the pass. False if it raised, or did so a while ago: the rest goes on without it."""
        return not self.containment.rests("rule", rule, now) and self.containment.run(
            "rule", rule, now, partial(work, now)
        )

    def _advance(self) -> None:
        """Watch time passes only while we watch: a gap counts as the planned sleep and one period at most."""
        mono = self._clock.monotonic()
        self._watch += max(0.0, min(mono - self._last, self._planned + self._settings.controller.period_s))
        self._last = mono

    def _gather(self, now: Now) -> None:
        self.woken.clear()
        self._read_people(now)
        self._heed_pauses(now)
        while self._beats:
            name, node = self._beats.popitem()
            self.containment.run("news of", name, now, partial(self.view.put_node, node))
        while self._inbox:
            item = self._inbox.popleft()
            self.containment.run("news of", _subject(item), now, partial(self._take, item, now))

    def _take(self, item: Change | Answer, now: Now) -> None:
        if isinstance(item, NodeChanged):
            self._news.discard(item.node.name)
        if isinstance(item, Answer):
            self._hear(item, now)
        else:
            self.view.apply(item)

    def _read_people(self, now: Now) -> None:
        """What others have written. An error of ours about one record or command stays with that; one about a rule is
        met again after a while, though nobody writes meanwhile."""
        token, mono = self.records.store.token(), self._clock.monotonic()
        if token == self._token and not self.records.wants_a_look(mono):
            return
        well = [
            self._follow("records that cannot be read", now, lambda now: self.records.read_unread(mono)),
            self._follow(RESTORE, now, lambda now: self.records.heed_restore(now.wall)),
            self._follow("records that were deleted", now, lambda now: self.records.find_lost()),
        ]
        self._unsay()  # not when the pass ends: what it is yet to decide about what was read again would not be said
        well.append(self._follow("what people asked for", now, self._take_commands))
        self._token = token if all(well) else None

    def _take_commands(self, now: Now) -> None:
        commands = self.records.read_people()
        if commands:
            self._desk.take_commands(self._jobs.take_commands(commands), now)

    def _attend(self, record: str, work: Callable[[], object]) -> bool:
        """About one record; False if that raised: it is told, and the others go on."""
        return self.containment.run("record", record, self._now(), work)

    def _heed_pauses(self, now: Now) -> None:
        """A pause that began or ran out wakes everything it may concern."""
        active = self.view.active_pauses(now.wall)
        if active != self._pauses:
            self._pauses = active
            for node in list(self.view.cases):
                self.view.touch_node(node)
            for job in list(self.view.recoveries):
                self.view.touch_job(job)

    def _hear(self, answer: Answer, now: Now) -> None:
        if answer.node is not None:
            self.view.put_node(answer.node)
        desk: Asking = self._desk if answer.kind == "node" else self._jobs
        action = desk.pending(answer.owner)
        if action is None or action.key != answer.key:
            return  # a late answer: the step it was for is over
        if isinstance(answer.outcome, Started | Retry):
            begun = isinstance(answer.outcome, Started)
            held = isinstance(answer.outcome, Started) and answer.outcome.held
            desk.waits_for(answer.owner, _words(answer.outcome), held=held, delivered=begun)
            return
        if may_resend(action, answer.outcome):
            desk.resend(answer.owner)
            if answer.called:  # else a leader died before he made the call: nobody waits for that
                desk.waits_for(answer.owner, _words(answer.outcome), held=True, delivered=False)
                self._dispatcher.resend_later(action, now.watch)
            return
        desk.hear(answer.owner, answer.key, answer.outcome)
        self._dispatcher.forget(answer.key)

    def _save_ledger(self, now: Now) -> None:
        """What a crash takes of watch time makes deadlines later, never sooner."""
        unsaved, alone, strays = self._watch - self._saved_watch, self.containment.named(), self._desk.strays(now)
        due = unsaved >= SAVE_S or (unsaved >= AT_WORK_S and self._desk.is_at_work())
        due = due or (alone, strays) != (self.records.ledger.unattended, self.records.ledger.strays)
        if due and not self.containment.rests("rule", LEDGER, now):
            ledger = replace(self.records.ledger, watch_time=self._watch, last_pass=now.wall)
            self.records.put_ledger(replace(ledger, unattended=alone, strays=strays))
            self._saved_watch = self._watch

    def _commit(self, now: Now) -> bool:
        """All that this pass decided, before anybody is asked or told. True: it also proved that we lead."""
        proved = self.records.flush(self._watch)
        spoilt, self.records.spoilt = self.records.spoilt, []
        for draft, error in spoilt:
            if not draft.owner:
                self.containment.contain("rule", LEDGER, error, now)
                continue
            desk: Asking = self._jobs if isinstance(draft.value, Recovery) else self._desk
            self.containment.contain(desk.kind, draft.owner, error, now)
            desk.leave_alone(draft.owner, now)
        dropped = self._unsay()
        if dropped:  # what people said is still on record, and is heard again before anything is done (seed 50000276)
            self._token = None
        self._dropped = dropped
        return proved

    def _unsay(self) -> set[str]:
        """Of what was read again nothing is said that was decided before it."""
        dropped, self.records.reread = self.records.reread, set()
        for each in (self._desk, self._jobs):
            each.unsay(dropped)
        return dropped

    # -- asking the platform

    def _prepare_asks(self, now: Now, admits: bool) -> list[tuple[Asking, str, Action]]:
        """What is due, with its `sent` mark where a second call would do harm: written before the call is made. While
        nobody can say what is admitted, nothing is begun that takes a node or treats it."""
        due = [*self._desk.due(self._dispatcher, now), *self._jobs.due(self._dispatcher, now)]
        if not self._leader.acquire():  # on every pass, also when nothing is due: so it knows that somebody is at work
            raise NotLeader("the lead was lost")
        asks: list[tuple[Asking, str, Action]] = []
        for kind, owner in ((kind, owner) for kind, owner in due if owner not in self._dropped):
            desk: Asking = self._desk if kind == "node" else self._jobs
            desk.attend(owner, now, partial(self._prepare_ask, desk, owner, now, admits, asks))
        return asks

    def _prepare_ask(
        self, desk: Asking, owner: str, now: Now, admits: bool, asks: list[tuple[Asking, str, Action]]
    ) -> None:
        action = desk.pending(owner)
        if action is not None and not admits and _disrupts(action):
            return
        if action is not None and action.verb in SENT_ONCE:
            action = self._prepare(desk, owner, action, now)
        if action is not None:
            asks.append((desk, owner, self._with_time_left(action, now)))

    def _with_time_left(self, action: Action, now: Now) -> Action:
        """A platform may be firmer with a drain whose time is nearly up, where its settings allow that."""
        deadline = self._desk.deadline(action.place.node) if action.verb is Verb.DRAIN else None
        if deadline is None:  # one that a person owns has no end: nobody is pushed
            return action
        left = max(0.0, deadline - now.watch)
        return replace(action, args={**action.args, "left_s": f"{left:.0f}"})

    def _prepare(self, desk: Asking, owner: str, action: Action, now: Now) -> Action | None:
        """Marked before the first call; afterwards only look, unless the first call is known lost."""
        if action.sends and not desk.wants_resend(owner):
            return replace(action, call=False)
        if self._is_misplaced(owner, action):
            return None
        before = self._dispatcher.before(action) if not action.sends else action.before
        if before is None:
            self._dispatcher.look_later(action, now.watch)
            return None
        action = sent(action, before, now.wall)
        desk.put_sent(owner, action)
        return action

    def _is_misplaced(self, owner: str, action: Action) -> bool:
        """A job is not begun on a node that is no good any more: other nodes are chosen for it."""
        refused = self._jobs.misplaced(owner) if action.verb is Verb.RESTART_JOB and action.call else ""
        if refused:
            self._receive(Answer(owner, "job", action.key, Failed(refused)))
        return bool(refused)

    def _perform(self, asks: list[tuple[Asking, str, Action]], now: Now, proved: bool) -> None:
        """Only what is written as it was decided: a record that somebody else had moved is decided again first, and
        where the end of a hold was not written it still holds. Nor a restart that counted on the end of a case, should
        that not be written: its node is not known to be good."""
        if asks and not proved:
            self.records.still_leads()
        for desk, owner, action in asks:
            pending = desk.may_ask_for(owner)
            decided = pending is not None and (pending.key, pending.sends) == (action.key, action.sends)
            if decided and not self._is_misplaced(owner, action):
                call = partial(self._dispatcher.perform, action, owner, desk.kind, now.watch)
                desk.attend(owner, now, call)

    # -- telling people

    def _tell(self, now: Now) -> None:
        for key, kind, owner, notice in (*self._desk.letters(), *self._jobs.letters()):
            self._letters[key] = (kind, owner)
            self.containment.run("notice", key, now, partial(self._outbox.put, (notice,)))
        self._outbox.put(self.containment.notices(now))
        delivered = self._outbox.pump(now.wall)
        by_owner: dict[tuple[str, str], set[str]] = {}
        for key in delivered:
            if key in self._letters:
                by_owner.setdefault(self._letters.pop(key), set()).add(key)
        for (kind, name), keys in by_owner.items():
            (self._jobs if kind == "job" else self._desk).told(kind, name, keys)

    # -- sleeping

    def _plan_sleep(self, now: Now) -> float:
        """Until the next deadline, ask or write. Short sleeps only near a deadline: a far one needs no close watch."""
        self._planned = 0.0
        if self.containment.rests("rule", LEDGER, now):  # nothing that is decided can be written: no haste
            self._planned = self._settings.controller.period_s
        elif not (self._inbox or self.view.touched_nodes or self.view.touched_jobs):
            limits = self._settings.controller
            due, ask = self.view.next_due(), self._next_ask()
            at = ask if due is None else min(due, ask)
            ahead = at - self._watch
            near = ahead < NEAR_PERIODS * limits.idle_period_s and not (at == due and self.view.looks_again_next())
            longest = limits.period_s if near else limits.idle_period_s
            write = self.records.next_due(self._watch) - self._watch
            self._planned = min(max(0.05, min(ahead, write)), longest)
        return self._planned

    def _next_ask(self) -> float:
        asks = [*self._desk.asks(self._dispatcher), *self._jobs.asks(self._dispatcher)]
        return min(asks, default=float("inf"))


def _subject(item: Change | Answer) -> str:
    """The node or job that it is about."""
    if isinstance(item, Answer):
        return item.owner
    if isinstance(item, NodeChanged):
        return item.node.name
    return item.name if isinstance(item, NodeDeleted) else item.job.id if isinstance(item, JobChanged) else item.job


def _disrupts(action: Action) -> bool:
    """Not yet begun, and it would take a node out of service, empty it or treat it."""
    return action.verb in (Verb.CORDON, Verb.DRAIN) or (action.verb in TREATMENTS and not action.sends)


def _words(outcome: Outcome) -> str:
    return outcome.detail if isinstance(outcome, Started | Done) else outcome.why
