"""One incident of nodes that are away together: how often they went, and what people were told of it.

Each time is a case of its own; who goes away again within an hour goes on with the same story. A rack that came and
went for a day was told of as "over" after a quarter of an hour, and never again. The story outlives its cases and a
leader: it is kept in `told` of the record about absences. Pure; called by controller/absences.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sickbay.core.absence import DAY_S, LOST_S, NEVER, SAME_S, is_due
from sickbay.model import Absence, NodeRecord, Past, Phase

OFTEN = 3  # times: then it is no accident, and people hear that it comes and goes
PREFIX = "absence/"  # of its keys in NodeRecord.told
BEGAN = f"{PREFIX}began"
WRITTEN_S = 60.0  # after its record a case is written within that
UNTOLD = -1  # people know that it began, and nothing more


@dataclass(frozen=True, slots=True)
class Story:
    began: float  # watch time at which those went away who made them many
    times: int = 1  # that they went away
    most: int = 0  # away at its worst
    day: int = UNTOLD  # the last day of it that people were told of; 0: after an hour, or when it had come back twice
    opened: float = 0.0  # when its last case was; 0: written by an earlier version


def read(record: NodeRecord) -> Story | None:
    told = record.told
    if BEGAN not in told:
        return None
    times, most, day = (int(told.get(f"{PREFIX}{key}", 0)) for key in ("times", "most", "day"))
    return Story(told[BEGAN], times, most, day, told.get(f"{PREFIX}opened", 0.0))


def written(record: NodeRecord, story: Story | None) -> NodeRecord:
    told = {key: value for key, value in record.told.items() if not key.startswith(PREFIX)}
    if story is not None:
        named = {"began": story.began, "times": story.times, "most": story.most, "day": story.day}
        told |= {f"{PREFIX}{key}": float(value) for key, value in (named | {"opened": story.opened}).items()}
    return replace(record, told=told)


def of_old(absence: Absence) -> Story:
    """Of a case that an earlier version opened."""
    return Story(absence.since, 1, absence.most, 0 if "lost" in absence.told else UNTOLD)


def goes_on(story: Story | None, past: Sequence[Past], let_go: float, since: float) -> bool:
    """Do those go on with it whose going, then, made them many? Not if no case of it has ended: then nobody heard that
    it began. Nor if people closed it: they look after those whom they know of, and these are others (seed 811)."""
    ended = ended_at(past, let_go)
    return story is not None and ended >= story.began and since - ended <= SAME_S and not _is_closed(past, ended)


def again(story: Story, count: int) -> Story:
    return replace(story, times=story.times + 1, most=max(story.most, count))


def has_returned(before: Absence, after: Absence) -> bool:
    """All were back, for less than ends a case, and some are away again."""
    return before.all_back is not None and after.all_back is None


def goes_on_in(story: Story, before: Absence, after: Absence, now: float) -> Story:
    """What it is once those who are away are counted anew in a case that is open."""
    if is_another(before, after, now):
        return Story(now, most=after.most, opened=story.opened)
    is_again = has_returned(before, after) or _is_taken_up(before, after, now)
    return again(story, after.count) if is_again else story


def is_another(before: Absence, after: Absence, now: float) -> bool:
    """Only a case that somebody has stopped can be open so long after most were back, and people have heard nothing of
    those who are away now."""
    quiet_since = before.mostly_back if before.all_back is None else before.all_back
    return _is_taken_up(before, after, now) and quiet_since is not None and now - quiet_since > SAME_S


def _is_taken_up(before: Absence, after: Absence, now: float) -> bool:
    """It would have ended, had nobody stopped it, and many are away again."""
    return is_due(before, now) and after.mostly_back is None and after.all_back is None


def news(story: Story, now: float) -> int:
    """The day of it that people are told of now, 0 for the first word after the beginning; UNTOLD if they know. That
    first word may come days late, where nobody could read what it is about: the next is still that of the next day."""
    days = int((now - story.began) // DAY_S)
    if story.day == UNTOLD:
        return days if story.times >= OFTEN or now >= story.began + LOST_S else UNTOLD
    return days if days > story.day else UNTOLD


def next_news(story: Story) -> float:
    return story.began + (LOST_S if story.day == UNTOLD else (story.day + 1) * DAY_S)


def ended_at(past: Sequence[Past], let_go: float) -> float:
    """When the last case ended. `past`: of the record. `let_go`: when one ended that could not be kept."""
    return max([p.ended for p in past[-1:]] + [let_go])


def is_cut_short(record: NodeRecord, now: float) -> bool:
    """Asked by a new leader where no case is open and who is away is not many: the last one has not ended, and its
    story goes on. So somebody deleted it while nobody led. Not at once: whoever dies, or is refused, between the record
    and the case leaves the same behind, and nodes were left to people who had heard of nothing (50000769, 1239)."""
    story = read(record)
    opened = max(story.began, story.opened) if story is not None else now
    return ended_at(record.past, NEVER) < opened < now - WRITTEN_S


def over_at(story: Story | None, past: Sequence[Past], let_go: float) -> float | None:
    """When it is over if nobody goes away until then; None while nothing has ended, or if people closed it: they know
    that."""
    if story is None:
        return None
    ended = ended_at(past, let_go)
    return None if ended < story.began or _is_closed(past, ended) else ended + SAME_S


def _is_closed(past: Sequence[Past], ended: float) -> bool:
    """By people."""
    return any(p.ended == ended and p.end == Phase.DISMISSED.value for p in past[-1:])
