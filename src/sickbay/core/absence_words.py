"""What people are told when many nodes are away together: that it began, what is lost after an hour, that it is over.

Called by core/explain.py and controller/absences.py. At most three notices an incident, and one for each further day.
It decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sickbay.core.naming import named
from sickbay.model import Absence, Case, Notice, Phase

NAMED = 8


def began(case: Case, absence: Absence, at: float, unkept: str = "") -> Notice:
    """`unkept`: the record that cannot be read, and so keeps this case from being written and from being decided."""
    body = [
        f"{_nodes(absence.count)} stopped answering at the same time: {named(absence.names, NAMED, absence.most)}.",
        f"What they share: {absence.shared}. Look there first.",
        "None of them is cordoned or treated. Jobs with ranks there are not started elsewhere while those ranks may "
        "still run and write. Who comes back goes on as before; this case ends by itself.",
        _choices(case, unkept),
    ]
    title = f"{absence.count} nodes are away together" if absence.count > 1 else "One more node is away"
    return Notice(f"{case.id}/began", "urgent", title, "\n".join(body), case.id, at)


def lost(
    case: Case, absence: Absence, news: str, gpus: int, jobs: Sequence[str], at: float, unkept: str = ""
) -> Notice:
    """After an hour (`news` is "lost"), and once a day while it lasts ("day-2")."""
    standing = f"Jobs that stand still for it: {named(jobs, NAMED)}." if jobs else ""
    body = [
        f"{_nodes(absence.count)} ({gpus} GPUs) have been away for {_how_long(news)}: "
        f"{named(absence.names, NAMED, absence.most)}. What they share: {absence.shared}.",
        *([standing] if standing else []),
        _choices(case, unkept),
    ]
    title = f"{_nodes(absence.count)} have been away for {_how_long(news)}"
    return Notice(f"{case.id}/{news}", "urgent", title, "\n".join(body), case.id, at)


def ended(case: Case, absence: Absence, why: str, at: float) -> Notice | None:
    """Nothing where nobody was told that it began: it is the return of an incident that people know."""
    if "began" not in absence.told:
        return None
    left = case.phase is Phase.DISMISSED
    how = "left to people" if left else "over"
    body = f"{why[:1].upper()}{why[1:]}. At its worst {absence.most} were away."
    if left:
        body += " Who is still away is yours for the time of policy.quiet_s; who is away after that is counted anew."
    return Notice(f"{case.id}/over", "info", f"The absence of {_nodes(absence.most)} is {how}", body, case.id, at)


def _choices(case: Case, unkept: str) -> str:
    if unkept:
        return f"You may decide about it once {unkept} is mended or removed: no command about it is heard until then."
    return (
        f"You may decide: sickbay case split {case.id} (treat those still away one by one, within the limits), "
        f"sickbay case abort {case.id} (leave them to you), or sickbay case approve {case.id} --verb REPLACE "
        "(exchange those still away)."
    )


def _how_long(news: str) -> str:
    days = news.removeprefix("day-")
    return "an hour" if news == "lost" else f"{days} day" + ("s" if days != "1" else "")


def _nodes(count: int) -> str:
    return f"{count} nodes" if count != 1 else "1 node"
