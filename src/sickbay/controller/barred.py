"""Who waits for a setting that allows none, or for a window that opens too late: a case asks once a minute, or once a
window, so they are gathered over passes.

Called by controller/desk.py after admission. What it remembers, a new leader gathers again. It decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sickbay.controller.view import View
from sickbay.core import admit, crowd
from sickbay.core.turn import Now
from sickbay.model import Notice, Phase, When


class Barred:
    def __init__(self, view: View) -> None:
        self._view = view
        self._waiting: dict[str, tuple[crowd.Waiter, crowd.Bar, str, Phase]] = {}
        self._since: dict[crowd.Bar, float] = {}
        self._told: dict[crowd.Bar, crowd.Told] = {}

    def hear(self, requests: Sequence[admit.Request], refused: Mapping[str, admit.Refusal]) -> None:
        """Who asked in this pass, and was refused because a setting allows none (in time)."""
        if not (requests or self._waiting):
            return
        for request in requests:
            self._waiting.pop(request.case, None)
            refusal, case = refused.get(request.case), self._view.case_by_id(request.case)
            if refusal is not None and refusal.none and case is not None:
                waiter = crowd.Waiter(request.case, request.node, request.when is When.NOW)
                bar = crowd.Bar(refusal.none, request.pool)
                self._waiting[request.case] = (waiter, bar, refusal.why, case.phase)
        for case_id in [c for c, (_, _, _, phase) in self._waiting.items() if not self._still_waits(c, phase)]:
            del self._waiting[case_id]

    def _still_waits(self, case_id: str, phase: Phase) -> bool:
        case = self._view.case_by_id(case_id)
        return case is not None and case.phase is phase and not case.held and not case.paused

    def notices(self, now: Now) -> Iterator[Notice]:
        """One for each bar that has news."""
        if not (self._waiting or self._since):
            return
        bars: dict[crowd.Bar, list[tuple[crowd.Waiter, str]]] = defaultdict(list)
        for waiter, bar, why, _ in self._waiting.values():
            bars[bar].append((waiter, why))
        self._since = {bar: self._since.get(bar, now.watch) for bar in bars}
        for bar, waiting in sorted(bars.items(), key=lambda item: (item[0].setting, item[0].pool)):
            waiters = [waiter for waiter, _ in waiting]
            told, settled = crowd.told(waiters, now.watch), now.watch - self._since[bar] >= crowd.SETTLE_S
            if settled and crowd.is_news(self._told.get(bar), told):
                self._told[bar] = told
                yield crowd.barred(bar, waiters, waiting[0][1], now.watch, now.wall)
