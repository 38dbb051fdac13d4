"""What people have stopped and may have forgotten: a pause of more than a day, or a hold, is told once a day.

Called by controller/desk.py. While one lasts, sick nodes stand still or stay in service and nobody looks. It ends
nothing by itself: who stopped it knows why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sickbay.core.moment import moment
from sickbay.core.naming import named
from sickbay.model import Case, Notice, Pause

DAY_S = 86_400.0


def due(
    pauses: Iterable[Pause], cases: Sequence[Case], jobs: Mapping[str, Sequence[str]], wall: float
) -> Iterator[Notice]:
    """`jobs`: scope of a pause -> jobs that it keeps from being brought back."""
    for pause in pauses:
        if wall - pause.since >= DAY_S and (pause.until is None or wall < pause.until):
            still = [case.id for case in cases if case.paused and covers(pause, case)]
            yield of_pause(pause, still, jobs.get(pause.scope, ()), wall)
    for case in cases:
        since = _held_since(case)
        if since is not None and wall - since >= DAY_S:
            yield of_hold(case, since, wall)


def covers(pause: Pause, case: Case) -> bool:
    return pause.scope in ("fleet", f"node:{case.node}", f"pool:{case.pool}")


def scope_words(pause: Pause) -> tuple[str, str]:
    """What is paused, and the command that ends it."""
    kind, _, name = pause.scope.partition(":")
    return (
        (f"{kind} {name}", f"sickbay resume --{kind} {name}") if name else ("the whole fleet", "sickbay resume --all")
    )


def lasts(pause: Pause) -> str:
    return "without an end" if pause.until is None else f"until {moment(pause.until)}"


def of_pause(pause: Pause, still: Sequence[str], jobs: Sequence[str], wall: float) -> Notice:
    what, resume = scope_words(pause)
    cases = f" These cases stand still: {named(still)}." if still else ""
    down = f" These jobs are down, and are not restarted: {named(jobs)}." if jobs else ""
    body = (
        f"{what} has been paused since {moment(pause.since)} by {pause.by}{_why(pause.why)}, {lasts(pause)}. Nothing "
        f"is taken out or treated there, and no job restarted.{cases}{down} It is ended by: {resume}."
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
