"""Commands that nobody could obey: they are removed, and whoever gave one is told why.

A command about an open case or a job is answered in its journal. One about nothing that is there has no such place, and
vanished in silence; so it becomes a notice: in the log, as an Event of our namespace, and wherever else people are
told. Gathered by controller/desk.py. Anybody who may write commands may write thousands: one notice a minute names a
few. What a crash takes of it is only told less.
"""

from __future__ import annotations

from collections.abc import Iterator

from sickbay.core.naming import named
from sickbay.core.turn import Now
from sickbay.model import Command, Notice

EVERY_S = 60.0
MOST_NAMED = 10
LONGEST = 100  # characters of each name in it
OF_A_NODE = ("acknowledge", "reopen")  # what can be said of a node without an open case


class Unheeded:
    def __init__(self) -> None:
        self._named: list[str] = []
        self._count, self._again_at = 0, 0.0

    def note(self, command: Command, why: str) -> None:
        self._count += 1
        if len(self._named) < MOST_NAMED:
            verb, target, by = (text[:LONGEST] for text in (command.verb, command.target, command.by))
            self._named.append(f"{verb} {target} by {by}: {why}")

    def notices(self, now: Now) -> Iterator[Notice]:
        if not self._count or now.watch < self._again_at:
            return
        said, count = named(self._named, total=self._count), self._count
        self._named, self._count, self._again_at = [], 0, now.watch + EVERY_S
        title = "a command was not obeyed" if count == 1 else f"{count} commands were not obeyed"
        body = f"Nothing was done. {said}. What there is to command is listed by `sickbay cases` and `sickbay nodes`."
        yield Notice(f"unheeded/{now.wall:.0f}", "warning", title, body, "", now.wall)


def why_not(command: Command, node: str, *, is_open: bool) -> str:
    """Why nobody can obey it; "" if somebody can. `node`: whom it is about, "" if nobody."""
    if not node:
        return "no open case, node or job has this name (a case may have ended meanwhile)"
    if is_open or command.verb in OF_A_NODE:
        return ""
    return f"{node} has no open case; without one it can be acknowledged or reopened"
