"""How long a case took and what it was: the five parts of MTTR, disruptive or not, fault found or not. docs/metrics.md.

Pure questions about one case, asked by the live controller's accounts and by the simulator's reports, so that both
count alike. It must never decide anything.
"""

from __future__ import annotations

from sickbay.model import Case, Event, Phase

PARTS = ("detect", "decide", "drain", "repair", "verify")
RELAPSE_S = 7 * 86_400.0
DISRUPTS = (Phase.CORDONING.value,)


def is_disruptive(case: Case) -> bool:
    return any(phase in DISRUPTS for phase, _ in case.timeline)


def is_false(case: Case) -> bool:
    """Of a disruptive case that has ended: no fault was found. No rung was needed, or a person aborted it."""
    return case.phase is Phase.DISMISSED or (case.phase is Phase.RESOLVED and not case.rungs_tried)


def is_replaced(case: Case) -> bool:
    """Its machine is not there any more: MTTR ends when the successor has passed its checks."""
    events = [e.event for e in case.journal]
    return Event.REPLACED in events or Event.GONE in events


def begin(case: Case) -> float:
    """The first line of evidence, where it is known and believable."""
    return min(case.first_evidence_at or case.opened_at, case.opened_at)


def end(case: Case) -> float:
    return case.timeline[-1][1]


def split(case: Case, well_at: float) -> dict[str, float]:
    """The five parts; they add up to the whole. A phase that was skipped takes no time."""
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for phase, at in case.timeline:
        first.setdefault(phase, at)
        last[phase] = at
    admitted = first.get(Phase.CORDONING, well_at)
    empty = min(max(first.get(Phase.COLLECTING, end(case)), admitted), well_at)
    answered = min(max(last.get(Phase.VERIFYING, end(case)), empty), well_at)
    marks = (begin(case), case.opened_at, admitted, empty, answered, well_at)
    return {part: max(0.0, b - a) for part, a, b in zip(PARTS, marks, marks[1:], strict=False)}
