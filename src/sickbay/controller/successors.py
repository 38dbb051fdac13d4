"""Who joined while we looked on, and whether such machines come sick or well: the row that core/successors.py judges.

Called by controller/desk.py. Since when somebody is there is kept in memory until a case is opened, which notes it; the
row is in the Ledger. A new leader takes everybody for established whom he finds: one link less in a row.
"""

from __future__ import annotations

from sickbay.controller.records import Records
from sickbay.controller.view import View
from sickbay.core import comebacks, successors
from sickbay.core.turn import Now
from sickbay.model import Case, Event, Ledger, Node, Phase


class Successors:
    def __init__(self, view: View, records: Records) -> None:
        self._view, self._records = view, records
        self._since: dict[str, float] = {}  # node -> watch time at which it joined, until it has proved itself

    def note(self, now: Now) -> None:
        """Who has joined since the last pass, and who has been well for long enough."""
        while self._view.joined:
            self._since.setdefault(self._view.joined.pop(), now.watch)
        for name in [n for n, since in self._since.items() if now.watch - since >= successors.PROVED_S]:
            self._look(name)

    def _look(self, name: str) -> None:
        node, known = self._view.nodes.get(name), self._view.records.get(name)
        if node is None:
            del self._since[name]
        elif name not in self._view.cases and node.ready and not node.gate and not (known and known.value.latched):
            self._prove(name, node.pool)

    def since(self, name: str, node: Node | None, now: Now) -> float | None:
        """One at its gate has just joined, whoever saw it come."""
        gated = now.watch if node is not None and node.gate else None
        return self._since.get(name, gated)

    def before(self, case: Case | None, now: Now) -> int:
        """How many of this one's row were sent away, are going, or rest with a person."""
        if case is None or case.phase is not Phase.QUEUED or not successors.has_joined(case):
            return 0
        others = (c for c in self._view.open_cases() if c.pool == case.pool and c.id != case.id)
        return len(successors.row(self._ledger, case.pool, now.watch)) + sum(map(successors.is_of_a_row, others))

    def ended(self, case: Case, now: Now) -> None:
        if not successors.has_joined(case):
            return
        if comebacks.has_left(case):
            self._records.put_ledger(successors.sent_away(self._ledger, case.pool, now.watch))
        elif case.phase is Phase.RESOLVED and case.journal[-1].event == Event.DONE:
            self._prove(case.node, case.pool)

    def _prove(self, name: str, pool: str) -> None:
        self._since.pop(name, None)
        if f"{pool}/{successors.WINDOW}" in self._ledger.windows:
            self._records.put_ledger(successors.proved(self._ledger, pool))

    @property
    def _ledger(self) -> Ledger:
        return self._records.ledger
