"""A node that falls ill again and again: the third time within a day is told as that, and its single cases no more.

A node that was cut off every hour sent two messages an hour, all of them true and none of them news. Called by
core/steps.py. What a person must do something about is always told, and so is the end of what they were told of.
"""

from __future__ import annotations

from dataclasses import replace

from sickbay.core.turn import Turn
from sickbay.model import Case, Notice, Phase

DAY_S = 86_400.0
OFTEN = 2  # earlier cases of the same fault within a day
TOLD = "recurring"  # in NodeRecord.told: when people last heard of it


def instead(turn: Turn, case: Case, notice: Notice) -> Notice | None:
    """What is told in place of this: itself, that it happens again and again, or nothing."""
    if notice.level != "info" or not (count := _earlier(turn, case)) or _was_a_persons(case):
        return notice
    now, last = turn.ctx.now, turn.record.told.get(TOLD)
    if case.phase is not Phase.CORDONING or (last is not None and now.watch - last < DAY_S):
        return None
    turn.record = replace(turn.record, told={**turn.record.told, TOLD: now.watch})
    return _notice(case, notice, count)


def _earlier(turn: Turn, case: Case) -> int:
    """Cases of the same fault that ended here within a day; 0 while they are few."""
    faults, now = {d.fault for d in case.diagnoses}, turn.ctx.now.watch
    ended = {p.case for p in turn.record.past if p.fault in faults and now - p.ended <= DAY_S}
    return len(ended - {case.id}) if len(ended - {case.id}) >= OFTEN else 0


def _was_a_persons(case: Case) -> bool:
    return any(phase == Phase.ESCALATED for phase, _ in case.timeline)


def _notice(case: Case, notice: Notice, count: int) -> Notice:
    body = (
        f"{notice.body}\nIt is case {count + 1} of this on {case.node} within a day. The next ones are not told one by "
        f"one; what needs a person is. All of them: sickbay why {case.node}. To keep us off it while you look: "
        f"sickbay pause --node {case.node}."
    )
    return replace(notice, level="warning", title=f"{notice.title}, for the {_nth(count + 1)} time today", body=body)


def _nth(number: int) -> str:
    return f"{number}{'th' if number % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
