"""What training jobs got out of their time: ETTR = R / W per job, interruptions, restarts, lost steps. docs/metrics.md.

Owned by controller/accounts.py, which calls it with its own lock held. Transitions are counted from the Recovery as it
is written, with the times of its journal; steps are taken from what the platform shows. A job whose steps nobody tells
is "not measured". An account begins when this process first sees the job: nothing here outlives the process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sickbay.controller.tallies import Tally
from sickbay.controller.view import View
from sickbay.model import Blame, Entry, Job, JobPhase, Recovery, RecoveryPhase

MOST_JOBS = 10_000
P = RecoveryPhase
OVER = frozenset({JobPhase.SUCCEEDED, JobPhase.SUSPENDED, JobPhase.GONE})
QUEUED, RUNNING, DOWN = "queued", "running", "down"
STATE = {P.RUNNING: RUNNING, P.STALLED: RUNNING, P.RESTARTING: RUNNING, P.WAITING_FOR_CAPACITY: QUEUED}
JUDGED = frozenset({"BLAMED", "GIVEN_UP", "TIMED_OUT"})  # events that leave EXAMINING: whose fault it was


@dataclass(slots=True)
class Span:
    """Seconds of one attempt, or of all that are over: wall, queued, and of training steps that survive."""

    wall: float = 0.0
    queued: float = 0.0
    productive: float = 0.0

    def add(self, other: Span) -> None:
        self.wall += other.wall
        self.queued += other.queued
        self.productive += other.productive


@dataclass(slots=True)
class JobAccount:
    job: str
    last: float  # wall time up to which it is counted
    state: str = QUEUED
    before: Span = field(default_factory=Span)  # attempts that are over
    attempt: Span = field(default_factory=Span)
    step: int | None = None  # last surviving step counted; None: the next one seen is the ground to count from
    nodes: tuple[str, ...] = ()
    gpus: int = 0
    measured: bool = False
    excluded: int = 0  # attempts that the user's own code ended

    @property
    def total(self) -> Span:
        """R can never be more than the time that was not spent queueing."""
        sum_ = Span()
        sum_.add(self.before)
        sum_.add(self.attempt)
        sum_.productive = min(max(0.0, sum_.productive), max(0.0, sum_.wall - sum_.queued))
        return sum_

    def advance(self, at: float) -> float:
        """Count the time since the last look in the state it was in; returns it, in node-seconds of running."""
        took = max(0.0, at - self.last)
        self.last = max(self.last, at)
        self.attempt.wall += took
        self.attempt.queued += took if self.state == QUEUED else 0.0
        return took * len(self.nodes) if self.state == RUNNING else 0.0

    def see_step(self, job: Job) -> None:
        """Steps made since the last look; fewer than before: those in between were lost and are taken back."""
        if not job.step_at and not job.step:
            return  # nobody tells, or a new attempt has not told yet
        self.measured = True
        saved = job.checkpoint.step if job.checkpoint else self.step
        survives = job.step if job.phase is JobPhase.RUNNING else min(job.step, saved if saved is not None else 0)
        if self.step is not None:
            self.attempt.productive += (survives - self.step) * job.step_s
        self.step = survives

    def end_attempt(self, by_user: bool) -> None:
        """What the user's own code ended is excluded from R, Q and U, and counted."""
        if by_user:
            self.excluded += 1
            self.step = None
        else:
            self.before.add(self.attempt)
        self.attempt = Span()


class JobBook:
    def __init__(self) -> None:
        self.open: dict[str, JobAccount] = {}
        self.entered, self.interruptions, self.restarts = Tally(), Tally(), Tally()
        self.lost_steps, self.capacity_wait_s, self.node_s = Tally(), Tally(), Tally()
        self.ended, self.ended_wall_s, self.ended_productive_s = Tally(), Tally(), Tally()
        self.excluded = Tally()
        for blame in Blame:
            self.interruptions.begin(blame.value)
            self.restarts.begin(blame.value)
        for phase in P:
            self.entered.begin(phase.value)
        self._known: dict[str, tuple[int, int]] = {}  # job -> (step of its last transition, restarts) as last written

    # -- transitions

    def know(self, recovery: Recovery) -> None:
        self._known[recovery.job] = (recovery.step, recovery.restarts)

    def wrote(self, recovery: Recovery, ended: bool) -> None:
        step, restarts = self._known.get(recovery.job, (-1, 0))
        entries = recovery.journal
        for before, entry in zip((None, *entries), entries, strict=False):
            if entry.step > step:
                self._entered(recovery, before, entry)
        if recovery.restarts > restarts:
            self.restarts.add(_blame(recovery), by=recovery.restarts - restarts)
            self.lost_steps.add(by=recovery.lost_steps)
        self.know(recovery)
        if ended:
            del self._known[recovery.job]
            self._close(recovery.job, recovery)

    def _entered(self, recovery: Recovery, before: Entry | None, entry: Entry) -> None:
        if entry.phase not in P.__members__:
            return  # a note, not a transition
        phase = P(entry.phase)
        self.entered.add(phase.value)
        judged = before is not None and before.phase == P.EXAMINING and entry.event in JUDGED
        if judged or entry.event == "SPARED":  # stopped by our own drain: nobody has to ask
            self.interruptions.add(_blame(recovery))
        if before is not None and before.phase == P.WAITING_FOR_CAPACITY:
            self.capacity_wait_s.add(by=max(0.0, entry.at - before.at))
        account = self.open.get(recovery.job)
        if account is None:
            return
        self._advance(account, entry.at)
        account.state = STATE.get(phase, DOWN)
        if phase is P.RESTARTING:
            account.end_attempt(by_user=recovery.blame is Blame.USER_CODE)

    # -- time and steps

    def look(self, view: View, now: float) -> None:
        for job in view.jobs.values():
            stored = view.recoveries.get(job.id)
            if stored is None and (job.phase in OVER or job.phase in (JobPhase.FAILED, JobPhase.STOPPED)):
                self._close(job.id, None)
                continue
            if job.id not in self.open and len(self.open) >= MOST_JOBS:
                continue
            account = self.open.setdefault(job.id, JobAccount(job.id, now))
            self._advance(account, now)
            if stored is None:
                account.state = RUNNING if job.phase is JobPhase.RUNNING else QUEUED
            else:
                account.state = STATE.get(stored.value.phase, DOWN)
            account.see_step(job)
            _place(account, job.nodes, view)
        for gone in [name for name in self.open if name not in view.jobs]:
            self._close(gone, None)

    def _advance(self, account: JobAccount, at: float) -> None:
        self.node_s.add(by=account.advance(at))

    def _close(self, job: str, recovery: Recovery | None) -> None:
        account = self.open.pop(job, None)
        if account is None:
            return
        by_user = recovery is not None and recovery.phase is P.FAILED and recovery.blame is Blame.USER_CODE
        account.end_attempt(by_user)
        total, measured = account.total, "true" if account.measured else "false"
        self.ended.add(measured)
        self.excluded.add(by=account.excluded)
        if account.measured:
            self.ended_wall_s.add(by=total.wall * account.gpus)
            self.ended_productive_s.add(by=total.productive * account.gpus)


def largest(accounts: Iterable[JobAccount], most: int) -> list[JobAccount]:
    """Those with the most GPUs, for labels that must stay few."""
    return sorted(accounts, key=lambda account: (-account.gpus, account.job))[:most]


def _blame(recovery: Recovery) -> str:
    return recovery.blame.value if recovery.blame else Blame.UNKNOWN.value


def _place(account: JobAccount, nodes: tuple[str, ...], view: View) -> None:
    if nodes and nodes != account.nodes:
        known = [view.nodes[n] for n in nodes if n in view.nodes]
        account.nodes, account.gpus = nodes, sum(n.gpus_expected or len(n.gpus) for n in known)
