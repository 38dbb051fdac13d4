"""What people have stopped and may have forgotten: a pause or a hold without an end is brought to mind once a day.

Called by controller/desk.py. While one lasts, sick nodes stand still or stay in service and nobody looks. It ends
nothing by itself: who stopped it knows why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sickbay.core.moment import moment
from sickbay.core.naming import named
from sickbay.model import Case, Notice, Pause

DAY_S = 86_400.0


def due(pauses: Iterable[Pause], cases: Sequence[Case], wall: float) -> Iterator[Notice]:
    for pause in pauses:
        if pause.until is None and wall - pause.since >= DAY_S:
            yield of_pause(pause, [case.id for case in cases if case.paused], wall)
    for case in cases:
        since = _held_since(case)
        if since is not None and wall - since >= DAY_S:
            yield of_hold(case, since, wall)


def of_pause(pause: Pause, still: Sequence[str], wall: float) -> Notice:
    kind, _, name = pause.scope.partition(":")
    what, option = (f"{kind} {name}", f"--{kind} {name}") if name else ("the whole fleet", "--all")
    cases = f" These cases stand still: {named(still)}." if still else ""
    body = (
        f"{what} has been paused since {moment(pause.since)} by {pause.by}{_why(pause.why)}, without an end. Nothing "
        f"is taken out or treated there, and no job restarted.{cases} It is ended by: sickbay resume {option}."
    )
    key = f"reminder/pause/{pause.scope}/{pause.since:.0f}/{_day(pause.since, wall)}"
    return Notice(key, "warning", f"{what} is still paused", body, "", wall)


def of_hold(case: Case, since: float, wall: float) -> Notice:
    body = (
        f"{case.factor or case.node} has been held since {moment(since)} ({case.refusal or case.id}). Nothing is done "
        f"in this case until somebody says so: sickbay case unhold {case.id}."
    )
    key = f"reminder/hold/{case.id}/{since:.0f}/{_day(since, wall)}"
    return Notice(key, "warning", f"{case.id} is still held", body, case.id, wall)


def _held_since(case: Case) -> float | None:
    return next((e.at for e in reversed(case.journal) if e.event == "HOLD"), None) if case.held else None


def _day(since: float, wall: float) -> int:
    return int((wall - since) // DAY_S)


def _why(why: str) -> str:
    return f" ({why})" if why else ""
