"""Trouble that many share: healthy nodes are left alone, no second attempt writes, no job is given up for it.

Judged by the world's cuts and services: who was cut off, for how long, and whether anything was wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Recovery, RecoveryPhase
from sickbay.sim.checkers.checker import Checker, case_of
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

MANY, SHARE = 3, 0.05  # nodes away together, and of the fleet, that are one trouble and not many
AFTER_S = 86_400.0  # for so long after its return nothing may be done to a node for having been away
SHARED_S = 3600.0  # a job that dies within this long of a shared outage may have died of it
BY_OTHERS = ("owner", "scheduler")


class _Outages(Checker):
    """Who is away with many others, and which shared thing is."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self.away: dict[str, float] = {}  # node -> until when its absence explains it; inf while it is away
        self.shared: dict[str, float] = {}  # what -> until when it may explain a death

    def fact(self, fact: Fact) -> None:
        names = [n for n in str(fact.detail.get("nodes", "")).split(",") if n]
        if fact.kind == "cut" and self._are_many(names):
            self.shared[f"cut {fact.detail['what']}"] = float("inf")
            if fact.detail["what"] != "data":  # else they are ready, and nobody misses them
                self.away.update(dict.fromkeys(names, float("inf")))
        if fact.kind == "mended":
            self.shared[f"cut {fact.detail['what']}"] = fact.t + SHARED_S
            self.away.update({n: fact.t + AFTER_S for n in names if n in self.away})
        if fact.kind == "service-away":
            self.shared[str(fact.detail["what"])] = float("inf")
        if fact.kind == "service-back":
            self.shared[str(fact.detail["what"])] = fact.t + SHARED_S

    def _are_many(self, names: list[str]) -> bool:
        return len(names) >= MANY and len(names) >= SHARE * len(self.world.nodes)


class HealthyLeftAlone(_Outages):
    """A node with nothing wrong is neither treated nor replaced because it vanished together with many others, nor
    after it is back; unless a person approved it."""

    floor: ClassVar[float] = 1.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._approved: set[str] = set()

    def fact(self, fact: Fact) -> None:
        before = set(self.away)
        super().fact(fact)
        for name in set(self.away) - before:
            self.exercised += 1
            if self.world.ailing(name):  # though the cut itself may cure it: a boot does
                del self.away[name]
        if fact.kind in ("fault", "relapse", "boot-hung", "came-back", "joined"):
            self.away.pop(fact.node, None)  # it has something of its own now, or is another machine
        if fact.kind == "person" and fact.detail.get("act") == "approve":
            self._approved.add(str(fact.detail["case"]))
        if fact.kind == "treat-start" and fact.t <= self.away.get(fact.node, -1.0) and not self._is_ill(fact):
            words = f"{fact.detail['verb']} of {fact.node}, which had nothing wrong: it was away with many others"
            self.expect(case_of(fact) in self._approved, fact, words)

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
        shared = [what for what, until in self.shared.items() if self.world.now <= until]
        known = self.world.jobs.get(job)
        if ended is None or not shared or known is None or (known.attempts and known.attempts[-1].user_code):
            return
        words = f"{job} was given up though {', '.join(shared)} was away: {'; '.join(ended.because[:1])}"
        self.expect(ended.phase is not RecoveryPhase.FAILED, None, words)
