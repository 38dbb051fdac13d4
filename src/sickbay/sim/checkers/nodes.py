"""What happens to nodes: treated safely, returned well, left as found, climbing, evidence first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from sickbay.model import Case, Phase
from sickbay.sim.checkers.checker import Checker, case_of, waited_s
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge


UNSEEN_S = 120.0  # how late sim/swarm.py tells a change at most
TAKEN_OVER_S = 120.0  # a mark that stands for a minute without a record is adopted
PERSONS = frozenset({"RETRIED", "EXAMINED", "CANCELLED", "REJOINED"})


def remade(fact: Fact, fleet: Iterable[str]) -> list[str]:
    """Nodes whose object was made again, or has lost what was written on it, by nobody's word."""
    if fact.kind in ("rejoined", "forgot"):
        return [fact.node]
    return list(fleet) if fact.kind == "etcd-restored" else []


class TreatedSafely(Checker):
    """No treatment of a node that is not cordoned by its case and drained; never twice for one action. What waited in
    a line may begin a moment after a platform has forgotten the mark, or was put back to before it."""

    floor: ClassVar[float] = 200.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._keys: dict[str, int] = defaultdict(int)
        self._remade: dict[str, float] = {}

    def fact(self, fact: Fact) -> None:
        self._remade.update(dict.fromkeys(remade(fact, self.world.nodes), fact.t))
        if fact.kind != "treat-start":
            return
        key, d = str(fact.detail["key"]), fact.detail
        self.exercised += 1
        self._keys[key] += 1
        if self._keys[key] > 1:
            self.complain(fact, f"{key} was carried out {self._keys[key]} times on {fact.node}")
        lost = fact.t - waited_s(fact) <= self._remade.get(fact.node, float("-inf"))
        if (d["mark"] != key.rsplit("/", 1)[0] or not d["cordoned"]) and not lost:
            self.complain(fact, f"{d['verb']} of {fact.node} by {key}, but its mark is {d['mark'] or 'none'}")
        if d["jobs"] != "-" and d["ready"]:
            self.complain(fact, f"{d['verb']} of {fact.node} while {d['jobs']} lives on it")


class ReturnedWell(Checker):
    """A returned node passes every check it was verified with, on the truth at that moment."""

    floor: ClassVar[float] = 170.0

    def fact(self, fact: Fact) -> None:
        if fact.kind == "release" and not fact.detail["cancel"]:
            ailing = [a.kind.name for _, a in self.world.ailing(fact.node)]
            words = f"{fact.node} returned by {fact.detail['case']} though it has {', '.join(ailing)}"
            self.expect(fact.detail["healthy"], fact, words)


class ExaminedAlone(Checker):
    """While a case examines its node nothing but the examination runs there: the node carries its mark and no job.

    An object that was just made again has no mark, nor one whose platform has just forgotten it or was put back to
    before it, and that news may be UNSEEN_S late; whether a deep check then runs is for the door to see
    (platforms/kubernetes/verify.py does). A mark that the case took over is as good as its own: a platform may forget
    that it was changed.
    """

    floor: ClassVar[float] = 300.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._remade: dict[str, float] = {}
        self._taken_over: dict[str, str] = {}  # case -> mark

    def fact(self, fact: Fact) -> None:
        self._remade.update(dict.fromkeys(remade(fact, self.world.nodes), fact.t))
        if fact.kind == "cordon" and fact.detail.get("was"):
            self._taken_over[str(fact.detail["case"])] = str(fact.detail["was"])
        if fact.kind != "verify-start":
            return
        self.exercised += 1
        d, case = fact.detail, case_of(fact)
        unseen = not d["mark"] and fact.t - self._remade.get(fact.node, float("-inf")) <= UNSEEN_S
        if d["job"] != "-":
            self.complain(fact, f"{d['key']} examined {fact.node} while {d['job']} runs on it")
        if d["mark"] not in (case, self._taken_over.get(case, case)) and not unseen:
            self.complain(fact, f"{d['key']} examined {fact.node}, but its mark is {d['mark'] or 'none'}")


class LeftAsFound(Checker):
    """DISMISSED and DEFERRED leave no mark; a resolved case neither. A mark that a restored etcd put back was not
    left by its case; that it does not stay is seen at the end. Nor does one stay that was on a machine which its
    provider says it replaced and only started again: the next case of the node takes it over in that minute."""

    floor: ClassVar[float] = 350.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._seen: set[tuple[str, float]] = set()  # by number and opening: a restored store uses numbers again
        self._put_back: set[str] = set()
        self._replaced: list[tuple[Case, float]] = []  # whose machine should be gone, and since when

    def fact(self, fact: Fact) -> None:
        if fact.kind == "mark-put-back":
            self._put_back.add(str(fact.detail["mark"]))
        if fact.kind == "cordon":
            self._put_back.discard(str(fact.detail["case"]))

    def moment(self) -> None:
        for case in self.judge.ended:
            if (case.id, case.opened_at) in self._seen:
                continue
            self._seen.add((case.id, case.opened_at))
            if case.journal and case.journal[-1].event == "REPLACED":
                self._replaced.append((case, self.world.now))
            else:
                self._judge(case)
        due = [case for case, at in self._replaced if self.world.now - at > TAKEN_OVER_S]
        self._replaced = [(case, at) for case, at in self._replaced if case not in due]
        for case in due:
            self._judge(case)

    def _judge(self, case: Case) -> None:
        node = self.world.nodes.get(case.node)
        if node is not None:
            left = node.mark == case.id and node.present and case.id not in self._put_back
            left = left and not self._bears_its_number(case)
            self.expect(not left, None, f"{case.id} ended {case.phase} and left its mark on {case.node}")

    def _bears_its_number(self, case: Case) -> bool:
        """Another one that is open, after a store was put back (seed 50001824)."""
        live = self.judge.as_it_is(case.id)
        return live is not None and live.opened_at != case.opened_at


class Climbs(Checker):
    """One ailment does not get the same treatment again and again: a relapse starts higher."""

    floor: ClassVar[float] = 200.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._given: dict[tuple[str, str], int] = defaultdict(int)

    def fact(self, fact: Fact) -> None:
        if fact.kind != "treat-start":
            return
        for _, ailment in self.world.ailing(fact.node):
            key = (f"{self.world.nodes[fact.node].instance}/{ailment.id}", str(fact.detail["verb"]))
            self._given[key] += 1
            retried = self._retries(fact.node)
            words = f"{fact.node} got {key[1]} {self._given[key]} times for one {ailment.kind.name}"
            self.expect(self._given[key] <= 3 + retried, fact, words)

    def _retries(self, node: str) -> int:
        """A person who says retry, examine or abort asks for it again."""
        cases = [
            *self.run.store.history(Case, node=node),
            *(c.value for c in self.run.store.list(Case) if c.value.node == node),
        ]
        return sum(e.event in PERSONS for c in cases for e in c.journal)


class EvidenceFirst(Checker):
    """Nothing is treated before its evidence was truly collected, or its time for that was over."""

    floor: ClassVar[float] = 200.0

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._collected: set[str] = set()
        self._began: dict[str, float] = {}  # case -> when it began to collect, by the world's clock

    def moment(self) -> None:
        for case in self.judge.open:
            if case.phase is Phase.COLLECTING:
                self._began.setdefault(case.id, self.world.now)

    def fact(self, fact: Fact) -> None:
        if fact.kind == "collect":
            self._collected.add(case_of(fact))
        if fact.kind == "treat-start":
            words = f"{fact.detail['key']} treated {fact.node} before its evidence was collected"
            case = case_of(fact)
            self.expect(case in self._collected or self._is_late(fact, case), fact, words)

    def _is_late(self, fact: Fact, case: str) -> bool:
        began = self._began.get(case)
        if began is None:
            return False
        lasted = fact.t - began + self.judge.leapt_s(began)
        return lasted >= 0.9 * self.policy_of(fact.node).collect_s - 30.0
