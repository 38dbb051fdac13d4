"""How far a gang is: the step its trainer names in its log, at an address of rank 0, in a file or in an annotation.

Called by stop (has the job moved?) and by the reader (pulse.py). The job's annotation sickbay.dev/progress says how:
`log:<regex>` (first group: the step; the log of the lowest running rank), `http:<port><path>` (the same rank's pod,
JSON with "step" or "global_step", a Prometheus sample of that name, or a bare number), `file:<path>` (the same, in a
file below kubernetes.progress_root), or `annotation` (the default: sickbay.dev/step on the job or on any rank's pod).
All of it is text of the job's owner: bounded, only ever a number. A source that cannot be read says nothing about its
job: the reading carries why, and nobody may take it for a silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sickbay.errors import ApiError, InputError
from sickbay.kube import names
from sickbay.kube.objects import NodeObject, PodObject
from sickbay.platforms.kubernetes.gangs import address, files, logs, patterns, ranks, show, words
from sickbay.platforms.kubernetes.gangs.show import Gang
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.views import is_ready

LOG_LINES = 200
STEP_NAME = re.compile(r"\b(?:global_)?step(?:_total)?(?:\{[^}\n]{0,200}\})?\s+(\d{1,15})(?:\.0+)?\b")
PLAIN = re.compile(r"^\s*(\d{1,15})\s*$")


@dataclass(frozen=True, slots=True)
class Reading:
    step: int = -1  # -1: nothing was said
    saved: tuple[int, ...] = ()  # steps of complete checkpoints that it names
    unread: str = ""  # why its steps cannot be read now


def how(gang: Gang, key: str) -> str:
    """What the job's owner says about itself: on the job, or for bare gangs on a pod."""
    said = gang.object.metadata.annotation(key)
    return said or next((p.metadata.annotation(key) for p in gang.pods if p.metadata.annotation(key)), "")


def read(site: Site, gang: Gang) -> Reading:
    told, saves = how(gang, words.PROGRESS), how(gang, words.SAVES)
    pod = _speaker(gang)
    if pod is None or not (told or saves):
        return Reading(show.step_of(gang) or -1)
    look = Look(site, pod)
    try:
        step, why = step_by(look, told) if is_asked(told) else show.step_of(gang) or -1, ""
    except (InputError, ApiError) as error:
        step, why = -1, unread(look, error)
    try:
        return Reading(step, _saved_by(look, saves), why)
    except (InputError, ApiError):
        return Reading(step, unread=why)


def is_asked(told: str) -> bool:
    """Does somebody have to be asked? What is in an annotation the watches tell."""
    return told.partition(":")[0] in _STEP_BY


def _speaker(gang: Gang) -> PodObject | None:
    """Rank 0; the lowest that runs, where rank 0 is gone."""
    newest = show.current(gang)
    return next((newest[rank] for rank in sorted(newest) if ranks.runs(newest[rank])), None)


def unread(look: Look, error: Exception) -> str:
    """Why; "" on a node that is not ready: there the silence is the rank's own."""
    try:
        node = look.site.api.find(names.node(look.pod.spec.node_name), NodeObject)
    except ApiError:
        return _why(error)
    return _why(error) if node is not None and is_ready(node) else ""


def _why(error: Exception) -> str:
    said = error.said if isinstance(error, ApiError) else str(error)
    return " ".join(said.split())[:200]


# --- one source each --------------------------------------------------------------------------------------------------


class Look:
    """One rank, whose log is read once for all that is looked for in it."""

    def __init__(self, site: Site, pod: PodObject) -> None:
        self.site, self.pod = site, pod
        self._lines: tuple[str, ...] | None = None

    def lines(self) -> tuple[str, ...]:
        if self._lines is None:
            self._lines = logs.read(self.site, self.pod, LOG_LINES)
        return self._lines

    def file(self, path: str) -> str:
        return files.read(self.site.settings.progress_root, path)


def step_by(look: Look, told: str) -> int:
    """The step that this rank names, -1 if it names none. InputError or ApiError when nobody can say."""
    word, _, what = told.partition(":")
    return _STEP_BY[word](look, what)


def _newest(steps: Iterable[int]) -> int:
    return next(iter(steps), -1)


_STEP_BY: dict[str, Callable[[Look, str], int]] = {
    "log": lambda look, what: _newest(patterns.found(reversed(look.lines()), what)),
    "http": lambda look, what: step_in(address.fetch(look.pod, what)),
    "file": lambda look, what: step_in(look.file(what)),
}


def _saved_by(look: Look, saves: str) -> tuple[int, ...]:
    word, _, what = saves.partition(":")
    if word == "log":
        return tuple(dict.fromkeys(patterns.found(look.lines(), what)))[-words.MOST_CHECKPOINTS :]
    step = step_in(look.file(what)) if word == "file" else -1
    return (step,) if step >= 0 else ()


def step_in(text: str) -> int:
    """A bare number, JSON with "step" or "global_step", or a Prometheus sample of such a name; else -1."""
    if plain := PLAIN.match(text):
        return int(plain.group(1))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return max((int(m.group(1)) for m in STEP_NAME.finditer(text)), default=-1)
    said = [found.get(name) for name in ("step", "global_step")] if isinstance(found, dict) else []
    return next((s for s in said if isinstance(s, int) and not isinstance(s, bool) and 0 <= s < words.MOST_STEP), -1)
