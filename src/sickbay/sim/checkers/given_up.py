"""Jobs that something shared stops or keeps from beginning: no job is given up for it.

Judged by what the world did to each attempt, not by what happened to be away at the time. Victims serves jobs.py too.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Recovery, RecoveryPhase
from sickbay.settings import JobPolicy
from sickbay.sim.checkers.checker import Checker
from sickbay.sim.jobs import JobSpec
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

MANY = 3  # nodes cut off: fewer are their own trouble
LATELY_S = 3_600.0  # cut off one after the other within it: one incident
GRACE_S = 60.0  # after it goes on, until its next step can be seen
LONG_S = 12 * 3600.0  # a job that never begins for so long may be given up, whatever the reason


def could_begin(spec: JobSpec, limits: JobPolicy) -> bool:
    """Is there time for a first step, by the settings? Else every attempt ends before it, whatever is well."""
    return limits.restarting_s > spec.init_s + spec.step_s


class Victims:
    """Jobs whose attempt something shared has stopped, or keeps from beginning: by what the world did to them."""

    BY: ClassVar[dict[str, str]] = {
        "no-image": "registry", "storage-hangs": "storage", "no-peers": "subnet manager", "no-data": "data network",
        "evict": "control plane",
    }  # fmt: skip

    def __init__(self, absent_nodes: int = MANY) -> None:
        self._many = max(MANY, absent_nodes)  # without power: by the settings so many may never be many
        self._of: dict[str, tuple[str, float]] = {}  # job -> what, and until when it says anything
        self._cut: Counter[str] = Counter()  # node -> cuts in force
        self._cut_at: dict[str, float] = {}  # node -> when it was cut off last
        self._why: dict[str, str] = {}  # job -> how its last attempt ended
        self._off: set[str] = set()  # nodes that a cut took the power from and that have not booted since
        self._shown: set[str] = set()  # jobs whose last attempt ended with a node that was without power with many

    def fact(self, fact: Fact) -> None:
        job, cut = str(fact.detail.get("job", "")), fact.kind in ("cut", "mended")
        for name in str(fact.detail.get("nodes", "")).split(",") if cut else ():
            self._cut[name] += 1 if fact.kind == "cut" else -1
            self._cut_at[name] = fact.t if fact.kind == "cut" else self._cut_at.get(name, fact.t)
        self._note_power(fact)
        if fact.kind == "job-end":
            self._why[job] = str(fact.detail["why"])
            self._shown.discard(job)
        if fact.kind in ("job-end", "cut"):
            self._shown.update(name for name, why in self._why.items() if self._is_powerless(why))
        if fact.kind == "job-end" and self._is_powerless(self._why[job]):
            self._of[job] = ("power", float("inf"))
        few = fact.kind in ("no-data", "evict") and sum(1 for n in self._cut.values() if n > 0) < MANY
        if fact.kind in self.BY and not few:
            self._of[job] = (self.BY[fact.kind], float("inf"))
        if fact.kind == "place":
            self._of.pop(job, None)
        if fact.kind in ("goes-on", "started") and job in self._of:
            self._of[job] = (self._of[job][0], fact.t + GRACE_S)

    def _note_power(self, fact: Fact) -> None:
        if fact.kind == "cut" and fact.detail["what"] == "power":
            self._off.update(str(fact.detail["nodes"]).split(","))
        if fact.kind in ("boot", "joined", "treat-start"):  # whom we treat is away by our own doing
            self._off.discard(fact.node)

    def _is_powerless(self, why: str) -> bool:
        """A node of it went down with many others, also if they lost their power one after the other."""
        return len(self._off) >= self._many and why.endswith(" went down") and why.split()[0] in self._off

    def has_shown_itself(self, job: str, t: float) -> bool:
        """Was it the first whom a failing supply took a node from? That shows when more have lost theirs, also if its
        own has booted since (seed 68). Nor need those be away at the same moment: who goes away beside many others is
        one of them (seed 50001989)."""
        why = self._why.get(job, "")
        lately = sum(1 for at in self._cut_at.values() if t - at <= LATELY_S)
        return job in self._shown or (why.startswith("evicted") and lately >= self._many)

    def of(self, job: str, t: float) -> str:
        what, until = self._of.get(job, ("", -1.0))
        return what if t <= until else ""


class NoJobGivenUp(Checker):
    """No job is given up whose last attempt something shared has stopped or kept from beginning, unless it was tried
    again for most of a day. Exercised by each such attempt."""

    floor: ClassVar[float] = 60.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._open: set[str] = set()
        self._victims = Victims(self.run.settings.controller.absent_nodes)
        self._since: dict[str, float] = {}  # job -> when its first attempt in a row was stopped so
        self._spent: dict[str, int] = {}  # job -> attempts in a row that saved nothing, by nothing shared
        self._cut_at: dict[str, float] = {}  # job -> when a cut made ranks of it hang
        self._hung: set[str] = set()  # jobs of whose attempt ranks hang by something of their own

    def fact(self, fact: Fact) -> None:
        self._victims.fact(fact)
        job = str(fact.detail.get("job", ""))
        self._note_hung(fact, job)
        if fact.kind == "job-end":
            what = self._victims.of(job, fact.t)
            evicted = str(fact.detail["why"]).startswith("evicted")
            by_itself = fact.detail["phase"] == "FAILED" and not evicted and what != "power"
            own = by_itself or job in self._hung or not what  # what died while it waited died of something else
            self._note_spent(fact, job, own)
            if own:
                self._since.pop(job, None)
            elif self.world.jobs[job].spec.managed:
                self.exercised += 1
                self._since.setdefault(job, fact.t)

    def _note_hung(self, fact: Fact, job: str) -> None:
        """Ranks on a node that is ill hang in a whole fabric too. Those that a cut makes hang, do so at once."""
        if fact.kind == "no-data":
            self._cut_at[job] = fact.t
        if fact.kind == "ranks-hung" and fact.detail["ranks"] and fact.t != self._cut_at.get(job):
            self._hung.add(job)
        if fact.kind == "place":
            self._hung.discard(job)

    def _note_spent(self, fact: Fact, job: str, own: bool) -> None:
        n = fact.detail["attempt"]
        saved = any(c.attempt == n for c in self.world.jobs[job].checkpoints)
        self._spent[job] = int(own) + (0 if saved else self._spent.get(job, 0))

    def moment(self) -> None:
        now = {r.value.job for r in self.run.store.list(Recovery)}
        for job in sorted(self._open - now):
            self._judge(job)
        self._open = now

    def _judge(self, job: str) -> None:
        ended = next((r for r in self.run.store.history(Recovery, limit=50) if r.job == job), None)
        if ended is None or ended.phase is not RecoveryPhase.FAILED:
            return
        if not could_begin(self.world.jobs[job].spec, self.run.settings.jobs):
            return
        last = self.world.jobs[job].attempts[-1]
        if job not in self._since:
            least = min(2, self.run.settings.jobs.barren_limit)
            enough = last.user_code or self._spent.get(job, 0) >= least
            words = f"{job} was given up after {self._spent.get(job, 0)} attempts of its own: {last.end}"
            self.expect(enough, None, f"{words}; {'; '.join(ended.because[:1])}")
            return
        if self.world.now - self._since[job] < LONG_S:
            what = self._victims.of(job, self._since[job]) or "something shared"
            self.complain(None, f"{job} was given up for the {what}, which was away: {'; '.join(ended.because[:1])}")
