"""Which rank of a gang that stands still is the one that the others wait for: asked before they are all stopped.

Called by stop. Ranks tell their steps in their own log, at their own address or on their own pod; a file is the whole
gang's. Only what is clear counts: a rank whose node is not Ready, or one alone that is behind all others, who agree.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from sickbay.errors import ApiError, InputError
from sickbay.kube.objects import PodObject
from sickbay.platforms.kubernetes.gangs import progress, ranks, show, words
from sickbay.platforms.kubernetes.gangs.show import Gang
from sickbay.platforms.kubernetes.site import Site

MOST_RANKS, AT_ONCE = 64, 16
BEGIN_S = 3.0  # no rank is asked any more after that: a stop must answer within ten
LEAST = 3  # ranks that tell a step: of two that differ nobody knows which one is wrong
LOST = -2


def silent_ranks(site: Site, gang: Gang) -> list[int]:
    newest, told = show.current(gang), progress.how(gang, words.PROGRESS)
    asked = {rank: newest[rank] for rank in sorted(newest) if ranks.runs(newest[rank])}
    few = dict(list(asked.items())[:MOST_RANKS])
    end = time.monotonic() + BEGIN_S
    with ThreadPoolExecutor(AT_ONCE) as pool:
        steps = pool.map(lambda pod: _step(site, pod, told) if time.monotonic() < end else -1, few.values())
        return behind(dict(zip(few, steps, strict=True)))


def _step(site: Site, pod: PodObject, told: str) -> int:
    """Its step; -1 when it tells none or nobody can say, LOST when that is because its node is not Ready."""
    if told.startswith("file:"):
        return -1
    if not progress.is_asked(told):
        return words.number(pod.metadata.annotation(words.STEP), -1)
    look = progress.Look(site, pod)
    try:
        return progress.step_by(look, told)
    except (InputError, ApiError) as error:
        return -1 if progress.unread(look, error) else LOST


def behind(steps: Mapping[int, int]) -> list[int]:
    """Of each rank's step: those that are lost; else the one that is behind, if it is one and all others agree."""
    if lost := [rank for rank, step in steps.items() if step == LOST]:
        return lost
    known = {rank: step for rank, step in steps.items() if step >= 0}
    late = [rank for rank, step in known.items() if step < max(known.values())]
    return late if len(late) == 1 and len(known) >= LEAST else []
