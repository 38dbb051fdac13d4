"""Whose word caused it: no source causes more than its ceiling lets it, in whoever's case it was said.

Worked out from the catalog's own rows and `settings.ceilings`, for each thing that was truly done.
"""

from __future__ import annotations

from typing import ClassVar

from sickbay.catalog import load
from sickbay.model import Case, Diagnosis, Verb, When
from sickbay.sim.checkers.checker import Checker, case_of
from sickbay.sim.world import Fact


class WithinCeilings(Checker):
    """A treatment is on the ladder of a fault that a source told which may cause it; a drain stops work that makes
    steps only for a fault that cannot wait, told by a source that may have nodes drained."""

    floor: ClassVar[float] = 200.0

    def fact(self, fact: Fact) -> None:
        stops = fact.kind == "drain" and fact.detail["job"] != "-" and fact.detail.get("moving", False)
        if fact.kind != "treat-start" and not stops:
            return
        case = self.judge.as_it_is(case_of(fact))
        if case is None:
            return
        verb = Verb.DRAIN if stops else Verb(str(fact.detail["verb"]))
        told = [d for d in case.diagnoses if self._may(d, verb)]
        words = f"{verb} of {fact.node} by {case.id}, which only {self._sources(case)} asked for"
        self.expect(bool(told), fact, words)

    def _may(self, d: Diagnosis, verb: Verb) -> bool:
        if verb not in self.run.settings.ceilings.get(d.source, frozenset()):
            return False
        fault, code = load().faults[d.fault], load().code(d.code)
        if verb is Verb.DRAIN:
            when = code.when if code is not None and code.when is not None else fault.when
            raised = d.severity > (fault.severity if code is None or code.severity is None else code.severity)
            return (d.when if raised else when) is not When.IDLE  # the driver itself may ask for more
        return any(rung.verb is verb for rung in load().ladders.get(fault.ladder, ()))

    def _sources(self, case: Case) -> str:
        return ", ".join(sorted({f"{d.source} ({d.fault})" for d in case.diagnoses}))
