"""Nobody fetches sick machines for ever: what a pool gets in the place of what was sent away is counted."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar

from sickbay.sim.checkers.checker import Checker, case_of
from sickbay.sim.world import Fact

if TYPE_CHECKING:
    from sickbay.sim.checkers import Judge

SLACK_S = 1800.0
DAY_S = 86_400.0
IN_A_ROW = 2  # successors of a pool that may be sent away one after the other


class FewSickSuccessors(Checker):
    """Where a pool gets nothing but sick machines, two in a row are sent away and no third one without a person's word.
    Of a row is who joined, under whatever name, and goes before it was ever opened for work; one that is opened ends
    the row, and so does a day. Whoever puts back or deletes the records takes the row with them."""

    floor: ClassVar[float] = 1.5

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._joined: set[str] = set()  # and not opened since
        self._row: dict[str, list[float]] = defaultdict(list)  # pool -> when each of them was sent away
        self._given: set[str] = set()  # cases whose REPLACE people have approved

    def fact(self, fact: Fact) -> None:
        d = fact.detail
        if fact.kind == "joined":
            self._joined.add(fact.node)
        if fact.kind == "release" and fact.node in self._joined:
            self._joined.discard(fact.node)
            self._row.pop(self.world.nodes[fact.node].pool, None)
        if fact.kind == "etcd-restored" or (fact.kind == "person" and d["act"] == "delete-ledger"):
            self._row.clear()
        if fact.kind == "person" and d["act"] == "approve" and d["verb"] == "REPLACE":
            self._given.add(str(d["case"]))
        if fact.kind == "treat-start" and d["verb"] == "REPLACE" and fact.node in self._joined:
            self._sent_away(fact)

    def _sent_away(self, fact: Fact) -> None:
        row = self._row[self.world.nodes[fact.node].pool]
        if row and fact.t - row[-1] > DAY_S - SLACK_S:
            row.clear()
        row.append(fact.t)
        known = len(row) <= IN_A_ROW or case_of(fact) in self._given
        self.expect(known, fact, f"{fact.node} is the {len(row)}. machine in a row that came sick and is sent away")
