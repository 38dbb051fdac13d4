"""Trouble that many share: healthy nodes are left alone, no second attempt writes, no job is given up for it.

Judged by the world's cuts and services: who was cut off, for how long, and whether anything was wrong with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Recovery, RecoveryPhase
from sickbay.sim.checkers.checker import Checker, case_of
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

MANY, SHARE = 3, 0.05  # nodes away together, and of the fleet, that are one trouble and not many
STRAGGLES_S = 1_800.0  # most are back for so long: the others are treated for themselves
KNOWN_S = 300.0  # a platform is 40 s late, and a view of it some minutes
AFTER_S = 86_400.0  # for so long after its return nothing may be done to a node for having been away
SHARED_S = 3600.0  # a job that dies within this long of a shared outage may have died of it
BY_OTHERS = ("owner", "scheduler")


class _Outages(Checker):
    """Who is away with many others, and which shared thing is. Many is who is away now, however they became so."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self.away: dict[str, float] = {}  # node -> until when its absence explains it; inf while it is away with many
        self.many_since: dict[str, float] = {}
        self.cut_now: Counter[str] = Counter()  # node -> cuts that keep it from answering
        self.shared: dict[str, tuple[float, float]] = {}  # what -> since and until when it may explain a death

    def fact(self, fact: Fact) -> None:
        names = [n for n in str(fact.detail.get("nodes", "")).split(",") if n]
        if fact.kind == "cut":
            if self._are_many(names):
                self._begins(f"cut {fact.detail['what']}", fact.t)
            if fact.detail["what"] != "data":  # else they are ready, and nobody misses them
                self._go_away(names, fact.t)
        if fact.kind == "mended":
            self._ends(f"cut {fact.detail['what']}", fact.t)
            if fact.detail["what"] != "data":
                self._come_back(names, fact.t)
        if fact.kind == "service-away":
            self._begins(str(fact.detail["what"]), fact.t)
        if fact.kind == "service-back":
            self._ends(str(fact.detail["what"]), fact.t)

    def _go_away(self, names: Iterable[str], t: float) -> None:
        for name in names:
            self.cut_now[name] += 1
            if self.away.get(name) != float("inf"):
                self.away.pop(name, None)  # whatever it was away for before: this is another absence
        for name in self.cut_now if self._are_many(self.cut_now) else ():
            if self.away.get(name) != float("inf"):
                self.away[name], self.many_since[name] = float("inf"), t

    def _come_back(self, names: Iterable[str], t: float) -> None:
        for name in names:
            self.cut_now[name] -= 1
            if self.cut_now[name] <= 0:
                del self.cut_now[name]
        back = [name for name in names if name not in self.cut_now and name in self.away]
        self.away.update(dict.fromkeys(back, t + AFTER_S))
        if not self._are_many(self.cut_now):  # who is left is soon an ordinary patient
            left = [name for name in self.cut_now if self.away.get(name) == float("inf")]
            self.away.update(dict.fromkeys(left, t + STRAGGLES_S))

    def _begins(self, what: str, t: float) -> None:
        since, until = self.shared.get(what, (t, 0.0))
        self.shared[what] = (since if t <= until else t, float("inf"))

    def _ends(self, what: str, t: float) -> None:
        if what in self.shared:  # else it was one node's, and nobody shared it
            self.shared[what] = (self.shared[what][0], t + SHARED_S)

    def _are_many(self, names: Collection[str]) -> bool:
        return len(names) >= MANY and len(names) >= SHARE * len(self.world.nodes)


class HealthyLeftAlone(_Outages):
    """A node with nothing wrong is neither treated nor replaced because it vanished together with many others, nor
    after it is back; unless a person approved it."""

    floor: ClassVar[float] = 1.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._approved: set[str] = set()
        self._own: set[str] = set()  # cut off, with something of their own

    def fact(self, fact: Fact) -> None:
        before = self._missing()
        super().fact(fact)
        self._own &= set(self.cut_now)
        for name in self._missing() - before:
            self.exercised += 1
            if name in self._own or self.world.ailing(name):  # though the cut itself may cure it: a boot does
                self._spare(name)
        if fact.kind in ("fault", "relapse", "boot-hung", "came-back", "joined"):
            self._spare(fact.node)  # it has something of its own now, or is another machine
        if fact.kind == "person" and fact.detail.get("act") == "approve":
            self._approved.add(str(fact.detail["case"]))
        if fact.kind == "treat-start" and self._is_explained(fact) and not self._is_ill(fact):
            words = f"{fact.detail['verb']} of {fact.node}, which had nothing wrong: it was away with many others"
            self.expect(case_of(fact) in self._approved, fact, words)

    def _missing(self) -> set[str]:
        return {name for name, until in self.away.items() if until == float("inf")}

    def _spare(self, name: str) -> None:
        self.away.pop(name, None)
        self._own.add(name)

    def _is_explained(self, fact: Fact) -> bool:
        """Away with many, and for long enough that it could be known: what was sent before that is under way."""
        known = fact.t >= self.many_since.get(fact.node, 0.0) + KNOWN_S
        return known and fact.t <= self.away.get(fact.node, -1.0)

    def _is_ill(self, fact: Fact) -> bool:
        return bool(self.world.ailing(fact.node))


class OneAttemptWrites(Checker):
    """We start no attempt beside ranks of an earlier one that still write, wherever they are: cut off too."""

    floor: ClassVar[float] = 1.0

    def fact(self, fact: Fact) -> None:
        if fact.kind == "evict":
            self.exercised += 1
        if fact.kind == "two-attempts" and fact.detail["by"] not in BY_OTHERS:
            d = fact.detail
            words = f"{d['job']} attempt {d['attempt']} began while attempt {d['beside']} writes on {d['nodes']}"
            self.expect(not d["writes"], fact, words)


class NoJobGivenUp(_Outages):
    """No job is given up that died while something was away which many share."""

    floor: ClassVar[float] = 1.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._open: set[str] = set()

    def moment(self) -> None:
        now = {r.value.job for r in self.run.store.list(Recovery)}
        for job in sorted(self._open - now):
            self._judge(job)
        self._open = now

    def _judge(self, job: str) -> None:
        ended = next((r for r in self.run.store.history(Recovery, limit=50) if r.job == job), None)
        known = self.world.jobs.get(job)
        if ended is None or known is None or not known.attempts or known.attempts[-1].user_code:
            return
        died = known.attempts[-1].ended or self.world.now
        shared = [what for what, (since, until) in self.shared.items() if since <= died <= until]
        if not shared or self.run.settings.jobs.restarting_s < known.spec.init_s:  # no job could ever start
            return
        words = f"{job} was given up though {', '.join(shared)} was away: {'; '.join(ended.because[:1])}"
        self.expect(ended.phase is not RecoveryPhase.FAILED, None, words)
