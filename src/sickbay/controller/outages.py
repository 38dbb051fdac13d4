"""Keeps in memory how jobs failed lately, and sees whose nodes went away with many.

Kept by controller/jobs.py, which tells core/recover.py; core/outages.py says which failures are shared, and that they
cost no attempt.
"""

from __future__ import annotations

from collections.abc import Mapping

from sickbay.controller.view import View
from sickbay.core import absence
from sickbay.core import outages as core
from sickbay.model import Ledger, Recovery


class Outages:
    def __init__(self) -> None:
        self._known = core.Failures()
        self._ended_on: dict[str, tuple[str, ...]] = {}  # job -> nodes of the attempt that failed last

    def note(self, job: str, how: str, now: float, nodes: tuple[str, ...] = ()) -> None:
        self._known = core.noted(self._known, core.Failure(now, how, job))
        self._ended_on[job] = nodes

    def ended_on(self, job: str) -> tuple[str, ...]:
        """Its own object shows the nodes of the next attempt as soon as that is made."""
        return self._ended_on.get(job, ())

    def forget(self, job: str) -> None:
        """It runs, or has ended."""
        self._ended_on.pop(job, None)
        self._known = core.forgotten(self._known, job)

    def of(self, job: str, now: float) -> str:
        return core.of_several(self._known, job, now)


def away_with_many(view: View, r: Recovery, away: Mapping[str, float], ledger: Ledger) -> str:
    """Has its last attempt ended because nodes of it went away together with many others? `away`: since when each of
    them does not answer. One without power is away like any other, though no rank can hide there. That people have
    decided meanwhile what becomes of these nodes changes nothing of why they went (seed 1849)."""
    many = view.cases.get(absence.NAME)
    lot = many.value.absence if many is not None else None
    missed = [since for name, since in away.items() if _is_missed(view, name)]
    ended = [since for since in missed if core.may_have_ended(r, since)]
    if many is not None and any(lot is None or not absence.is_after(lot, since) for since in ended):
        return f"its nodes are away together with many others ({many.value.id})"
    if any(absence.was_decided(since, ledger) for since in ended):
        return "its nodes went away together with many others, whose case is closed by now"
    return ""


def _is_missed(view: View, name: str) -> bool:
    """Not while we treat it, nor when somebody has taken it away."""
    node, case = view.nodes.get(name), view.cases.get(name)
    return node is None or not absence.excuse(node, case.value if case else None)
