"""What people are told when many nodes are away together: that it began, after an hour what is lost or that they come
and go, that it is over.

Called by core/explain.py and controller/absences.py. At most three notices an incident, and one for each further day
(core/absence_story.py). It decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sickbay.core import machine
from sickbay.core.absence_story import Story
from sickbay.core.naming import named
from sickbay.model import Absence, Case, Notice

NAMED = 8


def began(case: Case, absence: Absence, at: float, unkept: str = "") -> Notice:
    """`unkept`: the record that cannot be read, and so keeps this case from being written and from being decided."""
    body = [
        _stopped(absence),
        f"What they share: {absence.shared}. Look there first.",
        "None of them is cordoned or treated. Jobs with ranks there are not started elsewhere while those ranks may "
        f"still run and write. Who comes back goes on as before{_ends(case)}.",
        _choices(case, unkept),
    ]
    title = f"{absence.count} nodes are away together" if absence.count > 1 else f"{_who(absence)} is away too"
    return Notice(f"{case.id}/{_nth(case)}", "urgent", title, "\n".join(body), case.id, at)


AGAIN = "AGAIN"  # in the journal: others went away in a case that was over and that somebody had stopped


def again(case: Case, absence: Absence, at: float) -> Case:
    why = f"{_nodes(absence.count)} are away together, long after most were back; what they share: {absence.shared}"
    return machine.note(case, AGAIN, at=at, by="sickbay", why=why)


def _nth(case: Case) -> str:
    """Of the words that it began: of each absence once."""
    times = sum(entry.event == AGAIN for entry in case.journal)
    return f"began/{times + 1}" if times else "began"


def _ends(case: Case) -> str:
    return "" if machine.is_frozen(case) else "; this case ends by itself"


def lost(case: Case, absence: Absence, day: int, gpus: int, jobs: Sequence[str], at: float, unkept: str = "") -> Notice:
    """After an hour (`day` is 0), and once a day while it lasts."""
    how_long = f"{day} day" + ("s" if day != 1 else "") if day else "an hour"
    body = [
        f"{_who(absence)} ({gpus} GPUs) {_have(absence)} been away for {how_long}"
        f"{_which(absence)}. What they share: {absence.shared}.",
        *_standing(jobs),
        _choices(case, unkept),
    ]
    title = f"{_who(absence)} {_have(absence)} been away for {how_long}"
    return Notice(f"{case.id}/{f'day-{day}' if day else 'lost'}", "urgent", title, "\n".join(body), case.id, at)


def comes_and_goes(
    case: Case, absence: Absence, story: Story, day: int, jobs: Sequence[str], now: float, at: float, unkept: str = ""
) -> Notice:
    """When it has come back for the second time or after an hour, and once a day while that goes on."""
    body = [
        f"{_nodes(absence.count)} are away together again: {named(absence.names, NAMED, absence.most)}. They went away "
        f"{story.times} times within {_span(now - story.began)}. What they share: {absence.shared}. Look there first: "
        "each time that they stay away for long, the work on them is evicted.",
        *_standing(jobs),
        "You hear of it once a day while it goes on, and when nobody has gone away for an hour.",
        _choices(case, unkept),
        ""
        if unkept
        else "Each time has a case of its own, which ends ten minutes after they are back; the number of "
        "the one that is open: sickbay cases.",
    ]
    title = f"{_nodes(absence.most)} come and go together"
    return Notice(f"{case.id}/comes-and-goes/{day}", "urgent", title, "\n".join(filter(None, body)), case.id, at)


def readable(case: Case, absence: Absence, at: float) -> Notice:
    """The last word about it named no command, for its record could not be read. About that record, as the word that it
    could not be: it counts in no incident."""
    away = f"{_nodes(absence.count)} {'is still away' if absence.count == 1 else 'are still away together'}"
    body = f"{away}{_which(absence)}. Its record can be read again: commands are heard.\n{_choices(case, '')}"
    key = f"{case.id}/readable/{len(absence.told)}"
    return Notice(key, "urgent", f"{case.id} can be decided about again: {away}", body, "", at)


def left(case: Case, absence: Absence, why: str, at: float) -> Notice | None:
    """A person closed it. Nothing where people heard nothing in this case: it is the return of what they know."""
    return left_to_people(case.id, absence.most, why, at) if absence.told else None


def deleted(case: str, story: Story | None, at: float) -> Notice:
    """Somebody deleted its record: a cancel."""
    return left_to_people(
        case, story.most if story else 0, f"somebody deleted the record of {case}, which closes it", at
    )


def left_to_people(case: str, most: int, why: str, at: float) -> Notice:
    body = f"{why[:1].upper()}{why[1:]}. At its worst {most} were away."
    body += " Who is still away is yours for the time of policy.quiet_s; who is away after that is counted anew."
    return Notice(f"{case}/over", "info", f"The absence of {_nodes(most)} is left to people", body, case, at)


def over(case: str, story: Story, away: Sequence[str], at: float) -> Notice:
    """An hour after the last case of it. `away`: who is by then, alone."""
    often = f"They went away {story.times} times. " if story.times > 1 else ""
    body = f"Its nodes have not gone away together for an hour. {often}At its worst {story.most} were away."
    if away:
        body += f" Away now, each by itself: {named(away, NAMED)}. What is done about one: sickbay why {away[0]}."
    return Notice(f"{case}/over", "info", f"The absence of {_nodes(story.most)} is over", body, case, at)


def _standing(jobs: Sequence[str]) -> list[str]:
    return [f"Jobs that stand still for it: {named(jobs, NAMED)}."] if jobs else []


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes < 120 else f"{minutes // 60} hours"


def _choices(case: Case, unkept: str) -> str:
    if unkept:
        return f"You may decide about it once {unkept} is mended or removed: no command about it is heard until then."
    stopped = f" It stands still, and so does what you decide: {case.refusal}." if machine.is_frozen(case) else ""
    return (
        f"You may decide: sickbay case split {case.id} (treat those still away one by one, within the limits), "
        f"sickbay case abort {case.id} (leave them to you), or sickbay case approve {case.id} --verb REPLACE "
        f"(exchange those still away).{stopped}"
    )


def _stopped(absence: Absence) -> str:
    together = " at the same time" if absence.count > 1 else ""
    return f"{_who(absence)} stopped answering{together}{_which(absence)}."


def _who(absence: Absence) -> str:
    """By its name where it is one: "one more node" tells nobody where to look."""
    return absence.names[0] if absence.most == 1 and absence.names else _nodes(absence.count)


def _which(absence: Absence) -> str:
    return f": {named(absence.names, NAMED, absence.most)}" if absence.most > 1 else ""


def _have(absence: Absence) -> str:
    return "has" if absence.count == 1 else "have"


def _nodes(count: int) -> str:
    return f"{count} nodes" if count != 1 else "1 node"
