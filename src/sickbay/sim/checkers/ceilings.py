"""Whose word caused it: no source causes more than its ceiling lets it, in whoever's case it was said.

Worked out from the catalog's own rows, `settings.ceilings` and what was truly said of the node (told.py), for each
thing that was truly done. Whose word it was is never taken from the case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sickbay.catalog import load
from sickbay.model import Case, Diagnosis, Verb, When
from sickbay.sim.checkers.checker import Checker, case_of
from sickbay.sim.world import Fact


class WithinCeilings(Checker):
    """A treatment is on the ladder of a fault that a source told which may cause it; a drain stops work that makes
    steps only for a fault that cannot wait, told by a source that may have nodes drained."""

    floor: ClassVar[float] = 200.0
    branches: ClassVar[Mapping[str, float | str]] = {"treatment": 170.0, "drain": 11.0}

    def fact(self, fact: Fact) -> None:
        stops = fact.kind == "drain" and fact.detail["job"] != "-" and fact.detail.get("moving", False)
        if fact.kind != "treat-start" and not stops:
            return
        case = self.judge.as_it_is(case_of(fact))
        if case is None:
            return
        verb = Verb.DRAIN if stops else Verb(str(fact.detail["verb"]))
        asked = [d for d in case.diagnoses if self.judge.told.is_said(d, case.node) and self._may(d, case.node, verb)]
        words = f"{verb} of {fact.node} by {case.id}, which only {self._sources(case)} asked for"
        self.expect(bool(asked), fact, words, "drain" if stops else "treatment")

    def _may(self, d: Diagnosis, node: str, verb: Verb) -> bool:
        if verb not in self.run.settings.ceilings.get(d.source, frozenset()):
            return False
        if verb is Verb.DRAIN:
            return self.judge.told.when(d, node) is not When.IDLE
        return any(rung.verb is verb for rung in load().ladders.get(load().faults[d.fault].ladder, ()))

    def _sources(self, case: Case) -> str:
        """As the case has them, and whether they truly said so."""
        said = {(d.source, d.fault): self.judge.told.is_said(d, case.node) for d in case.diagnoses}
        lies = {True: "", False: ", never said"}
        return ", ".join(f"{source} ({fault}{lies[true]})" for (source, fault), true in sorted(said.items()))
