"""Is what is done done on evidence that still holds? Worked out from what tools printed, boots, and who was ready.

Nothing is treated for what had truly been refuted before: by the boot, the healthy cycle or the return that the fault's
row names (`cleared_by`), as docs/cases.md promises. Nothing is returned on an examination of an earlier boot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from sickbay.catalog import load
from sickbay.model import Case, Phase
from sickbay.sim.checkers.checker import Checker, case_of
from sickbay.sim.checkers.diary import is_frozen
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

TOLD_S = 150.0  # what changed is told two minutes late at most, and a pass begins
VIEW_S = 750.0  # whoever has just taken the lead may have been shown a fleet as it was ten minutes before
ABSENCE, NEWCOMER = "node-not-ready", "newcomer"
BEFORE_TREATMENT = frozenset((
    Phase.WAITING, Phase.CORDONING, Phase.HOLDING, Phase.DRAINING, Phase.COLLECTING, Phase.QUEUED, Phase.REPAIRING,
))  # fmt: skip
JOBS = 3  # that a part has ended: from then on no boot and no check clears it


class FreshEvidence(Checker):
    """No node is treated for what its fault's row calls refuted by then, and none is returned on an examination of an
    earlier boot. Exercised by each case whose evidence is refuted while it could still be treated, and each return."""

    floor: ClassVar[float] = 220.0
    branches: ClassVar[Mapping[str, float | str]] = {
        "return": 190.0,
        "absence": 20.0,
        "boot": 2.5,
        "cycle": 0.4,
        "agents silent": "agents of a seed send no heartbeats (World.heartbeats): nobody could know of their silence",
        "booted since the look": "look and call are one instant here; the tests of each platform's door have it",
    }

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._begun: set[str] = set()  # cases that have treated or examined, or a person said: treat it
        self._refuted: dict[str, tuple[str, float]] = {}  # case -> how, and since when, in the judge's watch time
        self._tempted: set[tuple[str, str]] = set()
        self._boots: Counter[str] = Counter()
        self._booted_at: dict[str, float] = {}
        self._passed: dict[str, int] = {}  # case -> in which boot its node passed its examination
        self._ready_at: dict[str, float] = {}
        self._returns: dict[str, list[float]] = defaultdict(list)
        self._killed: Counter[str] = Counter()  # node -> gangs that lost a rank there

    def fact(self, fact: Fact) -> None:
        self._note(fact)
        case = case_of(fact) if fact.detail.get("key") or fact.detail.get("case") else ""
        if fact.kind == "release" and not fact.detail["cancel"]:
            self._judge_return(fact, case)
        if fact.kind == "treat-start":
            self._judge_treatment(fact, case)
        if fact.kind in ("treat-start", "verify-start") or (fact.kind == "order" and fact.detail["act"] == "retry"):
            self._begun.add(case)

    def _note(self, fact: Fact) -> None:
        if fact.kind == "boot":
            self._boots[fact.node] += 1
            self._booted_at[fact.node] = fact.t
        if fact.kind in ("boot", "ready"):
            self._ready_at[fact.node] = fact.t
            self._returns[fact.node].append(fact.t)
        if fact.kind in ("not-ready", "joined"):
            self._ready_at.pop(fact.node, None)
        if fact.kind == "verify" and not fact.detail["bad"]:
            self._passed[case_of(fact)] = self._boots[fact.node]
        if fact.kind == "ranks-dead":
            where = self.world.jobs[str(fact.detail["job"])].rank_nodes
            ranks = [int(rank) for rank in str(fact.detail["ranks"]).split(",") if rank]
            self._killed.update({where[rank] for rank in ranks if rank < len(where)})

    def _judge_return(self, fact: Fact, case: str) -> None:
        """One that booted a moment ago was looked at before that could be seen."""
        lately = fact.t - self._booted_at.get(fact.node, float("-inf")) <= TOLD_S + VIEW_S
        words = f"{fact.node} returned by {case} on an examination of an earlier boot, or on none"
        self.expect(self._passed.get(case) == self._boots[fact.node] or lately, fact, words, "return")

    def _judge_treatment(self, fact: Fact, name: str) -> None:
        case = self.judge.as_it_is(name)
        if case is None or name in self._begun or self._is_disbelieved(case, fact.t):
            return
        if self._faults(case) <= {ABSENCE, NEWCOMER}:
            words = f"{fact.detail['verb']} of {fact.node} by {name}, for its absence only, when it was ready again"
            self.expect(not fact.detail["ready"], fact, words, "absence")
            return
        how, since = self._refuted.get(name, ("", 0.0))
        if how and self._refuted_at(case) < float("inf"):
            lasted = self.judge.watched - since
            words = (
                f"{fact.detail['verb']} of {fact.node} by {name}, whose evidence a {how} had refuted {lasted:.0f} s ago"
            )
            self.expect(lasted <= self._settles_s(case) + self._seen_s(fact.t), fact, words, how)

    def moment(self) -> None:
        """Whose evidence is refuted, from when on, and for how long somebody has watched since."""
        now = dict[str, tuple[str, float]]()
        for case in self.judge.open:
            waits = case.phase in BEFORE_TREATMENT and case.id not in self._begun and not is_frozen(case)
            if waits and (how := self._how(case)):
                now[case.id] = self._refuted.get(case.id, (how, self.judge.watched))
                self._note_tempted(case, how)
        self._refuted = now

    def _note_tempted(self, case: Case, how: str) -> None:
        """It could be treated all the same: this would be complained of."""
        if (case.id, how) not in self._tempted:
            self._tempted.add((case.id, how))
            self.looked("absence" if self._faults(case) <= {ABSENCE, NEWCOMER} else how)

    # -- what refutes

    def _faults(self, case: Case) -> set[str]:
        return {d.fault for d in case.diagnoses if self.judge.told.is_said(d, case.node)}

    def _how(self, case: Case) -> str:
        """What has refuted all of it by now: a boot, a healthy cycle; "" if something stands."""
        node, faults = self.world.nodes.get(case.node), self._faults(case)
        if node is None or not node.present or not node.ready or not faults or self._killed[case.node] >= JOBS:
            return ""
        at = self._refuted_at(case)
        if at == float("inf") or case.newcomer:
            return ""
        return "boot" if {"boot", "reset"} & {load().faults[fault].cleared_by for fault in faults} else "cycle"

    def _refuted_at(self, case: Case) -> float:
        """The latest of what its rows ask for; infinite where that has not happened, or only a person can say so."""
        return max((self._cleared_at(case.node, fault) for fault in self._faults(case)), default=float("inf"))

    def _cleared_at(self, node: str, fault: str) -> float:
        by, never = load().faults[fault].cleared_by, float("inf")
        if by == "ready":
            return self._ready_at.get(node, never)
        said, well = self.judge.told.last(node), self.world.agents.well_at.get(node, float("-inf"))
        if by in ("boot", "reset"):  # what was said before that boot; and its agent has looked in it
            booted = self._booted_at.get(node, never)
            return well if said < booted <= well else never
        return well if by == "pass:nvidia-smi" and well > said else never

    def _seen_s(self, now: float) -> float:
        """How late whoever leads may have seen it."""
        led = max((brain.led_since or 0.0 for brain in self.run.brains), default=0.0)
        late_s = TOLD_S + self.run.settings.controller.period_s
        return late_s + (VIEW_S if now - led <= late_s + VIEW_S else 0.0)

    def _settles_s(self, case: Case) -> float:
        return max(load().faults[fault].settle_s for fault in self._faults(case))

    def _is_disbelieved(self, case: Case, now: float) -> bool:
        """What goes away by itself again and again is treated in the end (`flaps_accepted`)."""
        policy, faults = self.policy_of(case.node), {d.fault for d in case.diagnoses}
        flaps = [c for c in self.run.store.history(Case, node=case.node) if faults & {d.fault for d in c.diagnoses}]
        back = [t for t in self._returns[case.node] if now - t <= policy.flap_window_s]
        return len(flaps) >= policy.flaps_accepted or len(back) > policy.flaps_accepted
