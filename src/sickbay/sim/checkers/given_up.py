"""Jobs that something shared stops or keeps from beginning: no job is given up for it.

Judged by what the world did to each attempt, not by what happened to be away at the time. Victims serves jobs.py too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Recovery, RecoveryPhase
from sickbay.settings import JobPolicy
from sickbay.sim.checkers.checker import Checker
from sickbay.sim.jobs import Attempt, JobSpec
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

MANY = 3  # nodes cut off: fewer are their own trouble
LATELY_S = 3_600.0  # cut off one after the other within it: one incident
GRACE_S = 60.0  # after it goes on, until its next step can be seen
UNEXPLAINED = 2  # attempts that nothing explains: a job that fails again so is its owner's, whatever its limit is
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
    again for most of a day; nor one that has not had `barren_limit` attempts of its own in a row, unless it is the
    program's own error, or two of them ended with nothing to explain it."""

    floor: ClassVar[float] = 60.0
    branches: ClassVar[Mapping[str, float | str]] = {
        "shared": 50.0, "user code": 6.0, "limit": 0.8, "unexplained": 0.1,
        "shared for long": "nothing shared lasts for half a day in a storm of eight hours; tests have it",
    }  # fmt: skip

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._open: set[str] = set()
        self._victims = Victims(self.run.settings.controller.absent_nodes)
        self._since: dict[str, float] = {}  # job -> when its first attempt in a row was stopped so
        # job -> attempts in a row that saved nothing, by nothing shared: is it known what ended them?
        self._spent: dict[str, list[bool]] = {}
        self._last: dict[str, Attempt] = {}  # job -> the last of these, while it may still turn out what ended it
        self._away_at: dict[str, float] = {}  # node -> when it went away or booted last
        self._cut_at: dict[str, float] = {}  # job -> when a cut made ranks of it hang
        self._hung: set[str] = set()  # jobs of whose attempt ranks hang by something of their own
        self._evicted: dict[str, Fact] = {}  # job -> its end by something shared
        self._ready_at: dict[str, float] = {}  # node -> when it answered again last

    def fact(self, fact: Fact) -> None:
        self._victims.fact(fact)
        job = str(fact.detail.get("job", ""))
        self._note_hung(fact, job)
        if fact.kind in ("not-ready", "boot", "treat-start"):
            self._away_at[fact.node] = fact.t
        if fact.kind == "ready":
            self._ready_at[fact.node] = fact.t
        if fact.kind == "place":
            self._explain(job)
            self._charge_unseen(job)
        if fact.kind == "place" and fact.detail["by"] == "owner":  # another one of the name, to whom nothing happened
            for known in (self._since, self._spent, self._last):
                known.pop(job, None)
        if fact.kind == "job-end":
            self._evicted.pop(job, None)
            what = self._victims.of(job, fact.t)
            evicted = str(fact.detail["why"]).startswith("evicted")
            by_itself = fact.detail["phase"] == "FAILED" and not evicted and what != "power"
            own = by_itself or job in self._hung or not what  # what died while it waited died of something else
            self._note_spent(fact, job, own)
            if own:
                self._since.pop(job, None)
            elif self.world.jobs[job].spec.managed:
                self.looked("shared")
                self._since.setdefault(job, fact.t)
                self._evicted.update({job: fact} if evicted else {})

    def _note_hung(self, fact: Fact, job: str) -> None:
        """Ranks on a node that is ill hang in a whole fabric too. Those that a cut makes hang, do so at once."""
        if fact.kind == "no-data":
            self._cut_at[job] = fact.t
        if fact.kind == "ranks-hung" and fact.detail["ranks"] and fact.t != self._cut_at.get(job):
            self._hung.add(job)
        if fact.kind == "place":
            self._hung.discard(job)

    def _charge_unseen(self, job: str) -> None:
        """Who led when it was evicted died before anything was written, and its nodes were back when the next one
        looked: nobody can know by what it ended (seed 1849)."""
        end = self._evicted.pop(job, None)
        led = min((b.led_since for b in self.run.brains if b.led_since is not None), default=0.0)
        if end is None or led <= end.t:
            return
        ended = self.world.jobs[job].lived(int(end.detail["attempt"]), end.t)
        if all(self._ready_at.get(name, 0.0) < led for name in ended.nodes):
            self._note_spent(end, job, True)

    def _note_spent(self, fact: Fact, job: str, own: bool) -> None:
        self._explain(job)
        ended = self.world.jobs[job].lived(int(fact.detail["attempt"]), fact.t)
        saved = any(c.attempt == ended.n for c in self.world.jobs[job].checkpoints)
        self._spent[job] = [] if saved else self._spent.get(job, [])
        if own and not saved:
            self._spent[job].append(False)
            self._last[job] = ended

    def _explain(self, job: str) -> None:
        """Until the next one begins it may turn out what ended an attempt: a node of it goes away, or prints what it
        has when it is examined."""
        ended = self._last.pop(job, None)
        if ended is not None:
            self._spent[job][-1] = any(self._is_to_blame(name, ended.started) for name in ended.nodes)

    def _is_to_blame(self, node: str, since: float) -> bool:
        printed = max(self.judge.told.printed(node).values(), default=float("-inf"))
        return max(printed, self._away_at.get(node, float("-inf"))) >= since

    def moment(self) -> None:
        now = {r.value.job for r in self.run.store.list(Recovery)}
        for job in sorted(self._open - now):
            self._judge(job)
        self._open = now

    def _judge(self, job: str) -> None:
        ended = next((r for r in self.run.store.history(Recovery, limit=50) if r.job == job), None)
        if ended is None or ended.phase is not RecoveryPhase.FAILED:
            return
        if ended.uid not in ("", self.world.jobs[job].uid):  # its owner has submitted another of the name since
            return
        if not could_begin(self.world.jobs[job].spec, self.run.settings.jobs):
            return
        last = self.world.jobs[job].attempts[-1]
        if job not in self._since:
            self._explain(job)
            spent = self._spent.get(job, [])
            least, unknown = self.run.settings.jobs.barren_limit, spent.count(False)
            enough = last.user_code or len(spent) >= least or unknown >= UNEXPLAINED
            words = f"{job} was given up after {len(spent)} attempts of its own, {unknown} of them unexplained"
            what = "user code" if last.user_code else "unexplained" if unknown >= UNEXPLAINED else "limit"
            self.expect(enough, None, f"{words}, of {least}: {last.end}; {'; '.join(ended.because[:1])}", what)
            return
        self.looked("shared for long")
        if self.world.now - self._since[job] < LONG_S:
            what = self._victims.of(job, self._since[job]) or "something shared"
            self.complain(None, f"{job} was given up for the {what}, which was away: {'; '.join(ended.because[:1])}")
