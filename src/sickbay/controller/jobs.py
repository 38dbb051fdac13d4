"""The job side of a pass: build a slice, call core/recover, commit; and say which nodes are known to be good.

Called by controller/loop.py.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields
from functools import partial
from operator import attrgetter

from sickbay.catalog import Catalog
from sickbay.controller.asking import Asking
from sickbay.controller.containment import Containment
from sickbay.controller.drafts import patiently
from sickbay.controller.outages import Outages, away_with_many
from sickbay.controller.records import Records
from sickbay.controller.view import View
from sickbay.core import (
    blame,
    capacity,
    deleted,
    namesake,
    progress,
    proved,
    reach,
    recover,
    suspects,
    suspicion,
    versions,
)
from sickbay.core.frozen import replace
from sickbay.core.keeping import NOW, RARELY_S, SOON_S, owed
from sickbay.core.recover_table import AFTER_ITS_END
from sickbay.core.turn import JobDecision, JobSlice, Now
from sickbay.model import Action, Case, Command, Cost, Entry, Job, JobPhase, Recovery, RecoveryPhase, Verb
from sickbay.ports import Stored
from sickbay.settings import LEVELS, Settings

log = logging.getLogger(__name__)

TellSuspects = Callable[[JobDecision, Now], None]


class JobDesk(Asking):
    kind = "job"

    def __init__(
        self, view: View, records: Records, catalog: Catalog, settings: Settings, containment: Containment
    ) -> None:
        super().__init__(containment, records, view)
        self._settings = settings
        self._kinds = {name: fault.kind for name, fault in catalog.faults.items()}
        self._harmless = frozenset(name for name, row in catalog.codes.items() if row.fault in suspects.SAFE)
        self._gangs: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {}  # job -> its nodes, also as a set
        self._compared: dict[str, tuple[int, tuple[str, ...]]] = {}  # job -> attempt and nodes whose versions were seen
        self._compare_at: dict[str, float] = {}
        self._outages = Outages()
        self._kept_back: dict[str, tuple[str, str]] = {}  # job -> key of its action, why that cannot be delivered
        self._orders: dict[str, list[Command]] = {}  # job -> what people asked for, until it is decided
        self._verdicts: dict[str, tuple[object, blame.BlameVerdict | None]] = {}  # job -> its exits, what they say
        self._looked_for: dict[tuple[frozenset[str], int], list[str]] = {}  # pools, GPUs wanted -> good and free nodes
        self._past: dict[str, Recovery | None] = {}  # job without a record -> the last one, if it was asked for
        self._led_since = -math.inf  # watch time

    def begin(self, now: Now) -> None:
        """A new leader has not watched yet: a stall is counted from now, never from somebody else's last look."""
        self._led_since = now.watch
        for job, stored in self._view.recoveries.items():
            fresh = replace(stored.value, progressed=max(stored.value.progressed, now.watch), behind=-1.0)
            self._view.recoveries[job] = replace(stored, value=fresh)
            self._say(job)

    # -- deciding

    def decide_touched(self, now: Now, tell: TellSuspects) -> None:
        jobs = list(self._view.touched_jobs)
        self._view.touched_jobs.clear()
        self._looked_for.clear()
        for job in jobs:
            self.attend(job, now, partial(self._decide, job, now, tell))
        if not self._settings.jobs.enabled:
            self._view.retold.clear()
            return
        self._containment.run("rule", "versions within a job", now, partial(self._compare_versions, now))

    def _decide(self, job_id: str, now: Now, tell: TellSuspects) -> None:
        job, stored = self._view.jobs.get(job_id), self._view.recoveries.get(job_id)
        unknown = job is None and stored is None and job_id not in self._view.lost_jobs
        if unknown or job_id in self._view.off.jobs:
            return
        asked = job_id in self._answers or job_id in self._orders
        if job and stored and not asked and progress.only_progressed(stored.value, job):
            fresh = progress.progressed(stored.value, job, now)  # kept in memory: the store hears of transitions
            self._view.recoveries[job_id] = Stored(fresh, stored.version, stored.epoch)
            self._view.due("job", job_id, self._wake(fresh, now))
            return
        s = self._slice(job_id, job, stored, now)
        self._note_frozen(job_id, s.paused)
        d = self._noted(recover.decide(s, self._settings.jobs, now, self._settings.cluster))
        if d.recovery is None:
            return
        patience = NOW if stored is None or s.commands else _patience(stored.value, d.recovery)
        if patience is not None:
            self._records.put_recovery(d.recovery, d.ended, [c.id for c in s.commands], patience=patience)
        if not d.ended:
            known = self._view.recoveries[job_id]
            self._view.recoveries[job_id] = Stored(d.recovery, known.version, known.epoch)
        self._settle(d.recovery, d.ended, stored, now)
        if d.ended and (s.lost is not None or namesake.is_another(d.recovery, job)):
            self._view.touch_job(job_id)  # if it runs, it gets a new record
        if d.suspects or d.found:
            tell(d, now)
            self._looked_for.clear()  # who is suspected is not good any more

    def _note_frozen(self, job: str, why: str) -> None:
        if why:
            self._view.frozen_jobs[job] = why
        else:
            self._view.frozen_jobs.pop(job, None)

    # -- versions

    def _compare_versions(self, now: Now) -> None:
        """Of jobs whose attempt has just begun, and later of those on nodes that tell something else by then."""
        for job in self._view.retold:
            self._compare_at.setdefault(job, now.watch + RETOLD_S)
        self._view.retold.clear()
        for job in [job for job, at in self._compare_at.items() if at <= now.watch]:
            del self._compare_at[job]
            stored, nodes = self._view.recoveries.get(job), self._view.nodes
            if stored is None or stored.value.phase is not RecoveryPhase.RUNNING:
                continue
            found = versions.compare({n: nodes[n].factors for n in stored.value.nodes if n in nodes})
            told = versions.noted(stored.value, found, now.wall)
            if told is not stored.value:
                self._records.put_recovery(told, False)
                self._unsaid.update({n.key: ("job", job, n) for n in told.notices})
                log.info("job=%s event=%s why=%r", job, versions.EVENT, told.journal[-1].why)

    def _note_start(self, r: Recovery, now: Now) -> None:
        if r.phase is RecoveryPhase.RUNNING and self._compared.get(r.job) != (r.attempt, r.nodes):
            self._compared[r.job] = (r.attempt, r.nodes)
            self._compare_at[r.job] = now.watch

    def _slice(self, job_id: str, job: Job | None, stored: Stored[Recovery] | None, now: Now) -> JobSlice:
        key, outcome = self._answers.pop(job_id, ("", None))
        recovery = stored.value if stored else None
        nodes = job.nodes if job else ()
        waiting, away = recovery is not None and recovery.phase in WANTS_NODES, self._away(job, recovery, now)
        left = self._left_on(job_id, now) if recovery is not None and recovery.phase in AFTER_ITS_END else {}
        dark = {n: reach.may_hide_ranks(self._view.nodes.get(n)) for n in (*away, *left)}
        return JobSlice(
            job=job, recovery=recovery, outcome=outcome, answers=key, cases=self._cases(job), kinds=self._kinds,
            harmless=self._harmless, verdict=self._verdict(job) if recovery and recovery.phase in READS_LOGS else None,
            good=(good := self._good(job, now) if waiting and job else None), doubts=self._doubts(good or (), now),
            on_demand=self._on_demand(nodes),
            unreachable={n: t for n, t in away.items() if dark[n]},
            left_on={n: t for n, t in left.items() if dark[n]},
            machines=self._view.machines(nodes) if away else {},
            powerless=tuple(n for n, hides in dark.items() if not hides),
            ending=self._ending(job) if waiting and job else (),
            outage=self._outage(recovery, job, away, now) if recovery and waiting else "",
            explained=self._explained(nodes) if waiting else {},
            commands=tuple(self._orders.pop(job_id, ())),
            paused=self._paused(nodes, now) or self._forbidden(job, recovery),
            given_up=stored is None and job is not None and self._gave_up(job, now),
            lost=self._view.lost_jobs.pop(job_id, None), unknown=self._is_unknown(job_id),
            undelivered=self._undelivered(recovery),
        )  # fmt: skip

    def _is_unknown(self, job: str) -> bool:
        """Said once, as that it was lost is."""
        unknown = job in self._view.unknown_jobs
        self._view.unknown_jobs.discard(job)
        return unknown

    def _verdict(self, job: Job | None) -> blame.BlameVerdict | None:
        """What the logs of the ranks that died by themselves say: read once for each death, however often it is asked
        while the nodes are examined."""
        if job is None:
            return None
        exits, verdict = self._verdicts.get(job.id, (None, None))
        if exits != job.exits:
            verdict = blame.blame_gang([x.tail for x in job.exits])
            self._verdicts[job.id] = (job.exits, verdict)
        return verdict

    def _away(self, job: Job | None, recovery: Recovery | None, now: Now) -> dict[str, float]:
        """Nodes of the job's last attempt that do not answer, and since when. Where its owner was told that ranks may
        run on some, a node that was there then and has no object now is one of them for whoever leads anew."""
        if job is None:
            return {}
        absent = self._view.out_of_reach(job.nodes)
        if recovery is not None and recovery.told_of == max(job.attempt, recovery.attempt):
            known = self._view.nodes.keys() | self._view.gone
            there = recovery.hidden or job.nodes  # one that had left before is no longer on record (1370)
            absent = {**dict.fromkeys(n for n in job.nodes if n in there and n not in known), **absent}
        return {n: self._since(n, since, now) for n, since in absent.items()}

    def _left_on(self, job: str, now: Now) -> dict[str, float]:
        return {n: self._since(n, since, now) for n, since in self._view.left_on(job).items()}

    def _ending(self, job: Job) -> tuple[str, ...]:
        """Nodes of its last attempt that answer and show it still."""
        known = ((name, self._view.nodes.get(name)) for name in dict.fromkeys(job.nodes))
        return tuple(name for name, node in known if node is not None and node.ready and job.id in node.jobs)

    def _since(self, name: str, since: float | None, now: Now) -> float:
        """Who was away already when we began to look may have been for ever: with ranks on it."""
        if name not in self._view.answered:
            return float("-inf")
        return now.watch if since is None else since

    def _explained(self, nodes: Sequence[str]) -> dict[str, str]:
        """Not by what is said of the nodes of this very job: that may be its own doing."""
        over = {name: self._view.causes_over(self._view.nodes.get(name)) for name in nodes}
        return {name: case.id for name, cases in over.items() for case in cases if not case.id.startswith("job=")}

    def _outage(self, r: Recovery, job: Job | None, away: Mapping[str, float], now: Now) -> str:
        """What its last attempt failed by together with others, or because of something that has a case of its own."""
        if r.phase is not RecoveryPhase.RESTARTING:
            return away_with_many(self._view, r, away, self._records.ledger) or self._outages.of(r.job, now.watch)
        if not recover.has_ended_again(r, job):
            lost = self._view.out_of_reach(self._outages.ended_on(r.job))
            away = {n: self._since(n, since, now) for n, since in lost.items()}
        return away_with_many(self._view, r, away, self._records.ledger)

    def take_commands(self, commands: Sequence[Command]) -> list[Command]:
        """Keep those about jobs that we look after; the others are returned."""
        known = {c.id for queue in self._orders.values() for c in queue}
        mine = [c for c in commands if c.target in self._view.recoveries and c.target not in self._view.nodes]
        for command in mine:
            if command.id not in known:
                self._orders.setdefault(command.target, []).append(command)
                self._view.touch_job(command.target)
        return [c for c in commands if c not in mine]

    def _on_demand(self, nodes: Sequence[str]) -> bool | None:
        """By the first of its nodes that is to be seen: a gang lives in one pool."""
        seen = next((self._view.nodes[name] for name in nodes if name in self._view.nodes), None)
        return seen.on_demand if seen is not None else None

    def _gave_up(self, job: Job, now: Now) -> bool:
        """Did we give up the attempt that a drain has stopped, or that a new leader sees running, whose first look may
        be from before its end? Whoever has resumed the very same attempt is believed a little later."""
        drained = job.phase is JobPhase.STOPPED and job.stopped_by.startswith("drain:")
        believed = self._led_since + progress.LATE_S
        is_first_look = job.phase is JobPhase.RUNNING and now.watch < believed
        last = self._last_ended(job.id) if job.managed and (drained or is_first_look) else None
        if last is None or not _was_left(last) or job.attempt > last.attempt or namesake.is_another(last, job):
            return False
        if drained or last.stopped < 0:  # one that stalled and ran on when its record was deleted may run still
            return drained
        self._view.due("job", job.id, believed)
        return True

    def _last_ended(self, job: str) -> Recovery | None:
        """The archive is asked once in a lead, and again after each end that we write."""
        if job not in self._past:
            self._past[job] = patiently(lambda: self._records.store.last_ended(Recovery, job))
        return self._past[job]

    def _paused(self, nodes: Sequence[str], now: Now) -> str:
        return self._view.paused(*self._view.first_of(nodes), now.wall)

    def _forbidden(self, job: Job | None, recovery: Recovery | None) -> str:
        """Why the policy lets nobody stop this job, or "". A stop is a drain of the job and takes the same level; what
        we have stopped ourselves is always brought back."""
        if not self._settings.jobs.enabled:
            return "jobs.enabled is false: jobs are only watched, and none is stopped or restarted"
        if job is None or job.phase is JobPhase.STOPPED or (recovery and recovery.phase not in BEFORE_THE_STOP):
            return ""
        least = min((self._settings.policy_for(pool).max_verb for pool in self._pools(job)), key=LEVELS.index)
        if LEVELS.index(least) >= LEVELS.index(Verb.DRAIN):
            return ""
        return (
            f"policy.max_verb is {least}: this job is only watched; raise it to DRAIN to let hurt jobs be stopped "
            "and restarted on good nodes"
        )

    def _cases(self, job: Job | None) -> tuple[Case, ...]:
        """Open cases on the nodes of a job, in their order. Cases are few; a gang may have thousands of nodes."""
        if job is None or not self._view.cases:
            return ()
        gang, members = self._gangs.get(job.id, ((), frozenset()))
        if gang is not job.nodes:
            members = frozenset(job.nodes)
            self._gangs[job.id] = (job.nodes, members)
        found = [s.value for n, s in self._view.cases.items() if n in members and not s.value.newcomer]
        return tuple(sorted(found, key=lambda case: job.nodes.index(case.node)) if len(found) > 1 else found)

    def _good(self, job: Job, now: Now) -> tuple[str, ...]:
        """Nodes known to be good and free: nobody's case, no verdict latched, not promised to another job.
        Free is one with nothing on it, or with as many GPUs as the job wants there."""
        pools, wanted = self._pools(job), capacity.gpus_per_node(job)
        promised = {n for j, s in self._view.recoveries.items() if j != job.id
                    and s.value.phase is RecoveryPhase.RESTARTING for n in s.value.nodes}  # fmt: skip
        return tuple(n for n in self._good_and_free(frozenset(pools), wanted, now) if n not in promised)

    def _good_and_free(self, pools: frozenset[str], wanted: int, now: Now) -> list[str]:
        """Looked for once a pass: a hundred jobs that wait after an outage ask in the same one."""
        if (found := self._looked_for.get((pools, wanted))) is None:
            free = self._view.free | (self._view.with_room(wanted) if wanted else set())
            found = self._looked_for[pools, wanted] = [n for n in sorted(free) if self._is_good(n, pools, now)]
        return found

    def _pools(self, job: Job) -> set[str]:
        """Of the nodes of its last attempt. Where each successor has a name of its own none of them may be there any
        more: it waited for nodes of another pool, for ever (seed 111)."""
        stored = self._view.recoveries.get(job.id)
        known = set(stored.value.pools) if stored is not None else set[str]()
        return self._seen_in(job.nodes) or known or {"default"}

    def _seen_in(self, nodes: Sequence[str]) -> set[str]:
        return {self._view.nodes[n].pool for n in nodes if n in self._view.nodes}

    def _noted(self, d: JobDecision) -> JobDecision:
        """With the pools of its nodes on record."""
        r = d.recovery
        seen = self._seen_in(r.nodes) if r is not None else set[str]()
        if r is None or seen <= set(r.pools):
            return d
        return replace(d, recovery=replace(r, pools=tuple(sorted(seen))))

    def _is_good(self, name: str, pools: Set[str], now: Now) -> bool:
        node, known = self._view.nodes[name], self._view.records.get(name)
        if self._view.is_off(name):
            return False
        if node.pool not in pools or name in self._view.cases or self._view.paused(node, name, now.wall):
            return False
        if not proved.is_proved(known.value if known else None, node):
            return False
        if name in self._view.silent or any(f.status.value == "UNKNOWN" for f in node.findings):
            return False  # we cannot see it, so it is not known to be good
        return known is None or not known.value.latched

    def _doubts(self, good: Sequence[str], now: Now) -> dict[str, capacity.Trust]:
        """Those of the good ones that came back ill once and have not made it good yet."""
        known = {n: self._view.records[n].value for n in good if n in self._view.records}
        graded = {n: suspicion.grade(record, now.watch) for n, record in known.items() if record.doubts}
        return {n: capacity.Trust(grade, suspicion.is_checked(known[n])) for n, grade in graded.items() if grade}

    def _settle(self, r: Recovery, ended: bool, before: Stored[Recovery] | None, now: Now) -> None:
        job = r.job
        self._owe("ledger" if ended else "job", job, r.notices)
        if ended and r.notices:  # nobody looks into the archive for what is not delivered yet
            ledger = self._records.ledger
            self._records.put_ledger(replace(ledger, notices=owed(ledger.notices, r.notices)))
        waiting = not ended and r.phase is RecoveryPhase.WAITING_FOR_CAPACITY
        (self._view.waiting_jobs.add if waiting else self._view.waiting_jobs.discard)(job)
        asks = not ended and r.pending is not None
        self._expect(job, asks)
        if ended:
            self._past.pop(job, None)
            self._view.frozen_jobs.pop(job, None)
            self._gangs.pop(job, None)
            self._compared.pop(job, None)
            self._kept_back.pop(job, None)
        else:
            self._note_start(r, now)
        waits = r.phase is RecoveryPhase.WAITING_FOR_CAPACITY
        self._view.due("job", job, None if ended else self._wake(r, now), second_look=waits)
        if before is None or before.value.phase is not r.phase:
            last = r.journal[-1]
            if ended or r.phase is RecoveryPhase.RUNNING:
                self._outages.forget(job)
                self._verdicts.pop(job, None)
            if r.phase is RecoveryPhase.STOPPING:
                verdict = self._verdict(self._view.jobs.get(job)) if last.event == "DIED" else None
                self._outages.note(job, _how(last, verdict), now.watch, r.nodes)
            log.info("job=%s phase=%s event=%s attempt=%d why=%r", job, r.phase, last.event, r.attempt, last.why)
            for node in r.nodes:
                if node in self._view.cases or self._view.is_doubted(node):
                    self._view.touch_node(node)

    def _wake(self, r: Recovery, now: Now) -> float | None:
        look_at = now.watch + LOOK_AGAIN_S
        if r.phase is RecoveryPhase.WAITING_FOR_CAPACITY:
            return look_at
        if r.deadline is not None:
            late = (look_at,) if r.cost is Cost.ONE else ()  # what it shared may yet come to light
            times = [t for t in (r.deadline, capacity.again_at(r), *late) if t > now.watch]
            return min(times, default=now.watch + 1.0)
        quiet = progress.most_quiet_s(r, self._view.jobs.get(r.job), self._settings.jobs)
        believed = r.behind + progress.LATE_S
        if now.watch < believed and r.behind >= 0:
            return min(believed, max(r.progressed + quiet, now.watch + 1.0))
        return max(r.progressed + quiet, now.watch + 1.0)

    # -- pending actions and notices, for the loop

    def pending(self, owner: str) -> Action | None:
        stored = self._view.recoveries.get(owner)
        return stored.value.pending if stored else None

    def waits_for(self, owner: str, words: str, *, held: bool = False, delivered: bool = True) -> None:
        """Kept in memory for as long as the same action is asked for: what keeps it from being delivered is said."""
        action = self.pending(owner)
        self._kept_back[owner] = (action.key if action else "", "" if delivered else words)

    def _undelivered(self, recovery: Recovery | None) -> str:
        asked = recovery.pending if recovery is not None else None
        key, words = self._kept_back.get(recovery.job, ("", "")) if recovery is not None else ("", "")
        return words if asked is not None and asked.key == key else ""

    def put_sent(self, owner: str, action: Action) -> None:
        self._resend.discard(owner)
        self._records.put_recovery(replace(self._view.recoveries[owner].value, pending=action), False)

    def misplaced(self, job: str) -> str:
        """A node that got a case after it was chosen is not used."""
        stored = self._view.recoveries.get(job)
        nodes = stored.value.nodes if stored else ()
        sick = [n for n in nodes if n in self._view.cases]
        if sick:
            return f"{sick[0]} has an open case now"
        off = [n for n in nodes if self._view.is_off(n)]
        return f"{off[0]} is left alone: a record about it cannot be read" if off else ""

    def _touch(self, owner: str) -> None:
        self._view.touch_job(owner)

    def _may_ask(self, owner: str) -> bool:
        return owner not in self._view.frozen_jobs and owner not in self._view.off.jobs

    def _say(self, owner: str) -> None:
        stored = self._view.recoveries.get(owner)
        self._owe("job", owner, stored.value.notices if stored else ())

    def told(self, kind: str, owner: str, keys: set[str]) -> None:
        stored = self._view.recoveries.get(owner)
        if stored is not None:
            left = tuple(n for n in stored.value.notices if n.key not in keys)
            self._records.put_recovery(replace(stored.value, notices=left), False, patience=RARELY_S)


def _was_left(last: Recovery) -> bool:
    """Given up by us, or by the person who deleted its record."""
    return last.phase is RecoveryPhase.FAILED or any(entry.event == deleted.LET_GO for entry in last.journal[-1:])


def _how(last: Entry, verdict: blame.BlameVerdict | None) -> str:
    """How it failed, in a few words that are the same for all that fail by the same thing; "" if a drain of ours ended
    it: nodes that are sick at the same time are nothing that their jobs share."""
    if last.event == "DRAINED":
        return ""
    line = verdict.because[0] if verdict is not None and verdict.because else ""
    return f"{last.event}: {line[:60]}" if line else last.event


LOOK_AGAIN_S = 30.0  # for nodes, after a refused restart too: nothing else may change that would wake the job
RETOLD_S = 600.0  # two cycles of an agent: a gang's nodes do not all speak at once
WANTS_NODES = frozenset(
    {RecoveryPhase.STOPPING, RecoveryPhase.EXAMINING, RecoveryPhase.WAITING_FOR_CAPACITY, RecoveryPhase.RESTARTING}
)
READS_LOGS = frozenset({RecoveryPhase.EXAMINING})
BEFORE_THE_STOP = frozenset({RecoveryPhase.RUNNING, RecoveryPhase.STALLED, RecoveryPhase.STOPPING})


# Of a phase that goes on; a new one is told anyhow
IN_MEMORY = ("job_step", "progressed", "refusal", "entered", "behind")
_on_record = attrgetter(*(field.name for field in fields(Recovery) if field.name not in IN_MEMORY))


def _patience(before: Recovery, after: Recovery) -> float | None:
    """For how long what changed may wait for another write; None: it is kept in memory, as a further step of a running
    job is. The store hears of transitions at once, and of what a job waits for in time for whoever reads the list."""
    if _on_record(before) != _on_record(after):
        return NOW
    return SOON_S if before.refusal != after.refusal else None
