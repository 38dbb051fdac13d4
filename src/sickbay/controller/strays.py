"""Which of our marks have no record: seen in the view, standing for a while, and then read directly.

Asked by controller/desk.py before it decides about a node. A mark may outlive its case for moments (a view that is
late, an old leader's call that lands last, an object that goes with its machine), so it is a stray only when it still
stands after STANDS_S and on a fresh read. It decides nothing: core/strays.py does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sickbay.controller.view import View
from sickbay.core.strays import awaits_its_case, has_not_closed
from sickbay.core.turn import Now
from sickbay.errors import SickbayError
from sickbay.model import Node
from sickbay.settings import Policy

log = logging.getLogger(__name__)

STANDS_S = 60.0  # watch time
MOST_LISTED = 200  # on record: the Ledger is one object
UNREAD_S = 15.0  # until a node that could not be read is looked at again


class Strays:
    def __init__(self, view: View, look: Callable[[str], Node | None], policy_for: Callable[[str], Policy]) -> None:
        self._view, self._look, self._policy_for = view, look, policy_for
        self._due: dict[str, float] = {}  # node -> watch time from which its mark is one

    def find(self, name: str, now: Now) -> str:
        """The mark, if it is a stray; the view knows the fresh look then."""
        node = self._view.nodes.get(name)
        if node is None or not self._may_be(node, now):
            self._due.pop(name, None)
            return ""
        if now.watch < self._due.setdefault(name, now.watch + STANDS_S):
            return ""
        self._due[name] = now.watch + STANDS_S  # a case comes of it now, or it waits for others who are away too
        try:
            seen = self._look(name)
        except SickbayError as error:
            log.warning("node=%s carries the mark of %s and could not be read: %s", name, node.mark, error)
            self._due[name] = now.watch + UNREAD_S
            return ""
        if seen is not None:
            self._view.put_node(seen)
        return seen.mark if seen is not None and seen.mark == node.mark and self._may_be(seen, now) else ""

    def listed(self, now: Now) -> dict[str, str]:
        """Those that may be one, from the first look on: nobody shall read meanwhile that such a node is well."""
        nodes = ((name, self._view.nodes.get(name)) for name in sorted(self._due)[:MOST_LISTED])
        return {name: node.mark for name, node in nodes if node is not None and self._may_be(node, now)}

    def due(self, name: str) -> list[float]:
        """When it wants another look."""
        return [self._due[name]] if name in self._due else []

    def _may_be(self, node: Node, now: Now) -> bool:
        if not node.mark or node.gone or self._is_answered_for(node):
            return False
        known = self._view.records.get(node.name)
        return not awaits_its_case(node, known.value if known else None, now.watch, self._policy_for(node.pool))

    def _is_answered_for(self, node: Node) -> bool:
        case = self._view.cases.get(node.name)
        return case is not None and (not has_not_closed(case.value) or node.mark in (case.value.id, case.value.adopts))
