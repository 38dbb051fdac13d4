"""Who waits before a full limit, gathered over passes: a case asks once a minute, so no single pass sees them all.

Called by controller/desk.py after admission. What it remembers, a new leader gathers again within a minute. It must
never decide who gets a place.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sickbay.controller.view import View
from sickbay.core import admit, crowd
from sickbay.core.turn import Now
from sickbay.model import Ledger, Notice, Phase, When

log = logging.getLogger(__name__)


class Crowd:
    def __init__(self, view: View) -> None:
        self._view = view
        self._waiting: dict[str, tuple[crowd.Waiter, admit.Refusal]] = {}
        self._since: dict[str, float] = {}  # scope -> watch time since when somebody has waited before it
        self._told: dict[str, crowd.Told] = {}
        self._logged: set[tuple[str, Phase]] = set()

    def hear(self, requests: Sequence[admit.Request], refused: Mapping[str, admit.Refusal]) -> None:
        """Who asked in this pass, and was refused because a limit is full."""
        if not (requests or self._waiting):
            return
        for request in requests:
            self._waiting.pop(request.case, None)
            refusal = refused.get(request.case)
            if refusal is not None and refusal.full:
                waiter = crowd.Waiter(request.case, request.node, request.when is When.NOW)
                self._waiting[request.case] = (waiter, refusal)
        for case_id in [c for c, (waiter, _) in self._waiting.items() if not self._still_waits(waiter)]:
            del self._waiting[case_id]

    def _still_waits(self, waiter: crowd.Waiter) -> bool:
        case = self._view.case_by_id(waiter.case)
        return case is not None and case.phase is Phase.WAITING and not case.held and not case.paused

    def notices(self, ledger: Ledger, counts: admit.Counts, now: Now) -> Iterator[Notice]:
        """One for each full limit that has news."""
        if not (self._waiting or self._since):
            return
        scopes: dict[str, list[tuple[crowd.Waiter, admit.Refusal]]] = defaultdict(list)
        for waiter, refusal in self._waiting.values():
            scopes[refusal.full].append((waiter, refusal))
        self._since = {scope: self._since.get(scope, now.watch) for scope in scopes}
        for scope, waiting in sorted(scopes.items()):
            waiters = [waiter for waiter, _ in waiting]
            told = crowd.told(waiters, now.watch)
            settled = now.watch - self._since[scope] >= crowd.SETTLE_S
            if settled and crowd.is_news(self._told.get(scope), told):
                self._told[scope] = told
                yield crowd.notice(self._full(waiting[-1][1], ledger, counts), waiters, now.watch, now.wall)

    def _full(self, refusal: admit.Refusal, ledger: Ledger, counts: admit.Counts) -> crowd.Full:
        out = sorted(admit.out_of_service(refusal.full, ledger, counts))
        ours = {seat.node: self._view.case_by_id(seat.case) for seat in ledger.seats if seat.kind == admit.OUT}
        stuck = [c.id for n in out if (c := ours.get(n)) is not None and c.phase is Phase.ESCALATED]
        away = [name for name in out if name in counts.absent]
        others = [name for name in out if name not in ours and name not in counts.absent]
        return crowd.Full(refusal.full, refusal.setting, refusal.most, out, stuck, others, away)

    def log(self, refused: Mapping[str, admit.Refusal]) -> None:
        """Why each one waits: once for a case and phase, though it is refused every minute."""
        if not refused:
            return
        self._logged = {
            (case_id, phase) for case_id, phase in self._logged if self._view.case_by_id(case_id) is not None
        }
        for case_id, refusal in refused.items():
            case = self._view.case_by_id(case_id)
            if case is not None and (case_id, case.phase) not in self._logged:
                self._logged.add((case_id, case.phase))
                log.info("case=%s phase=%s waits_for=%r", case_id, case.phase, refusal.why)
