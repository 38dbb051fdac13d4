"""Where and from which step a job goes on: nodes known to be good, and the right checkpoint.

Called by core/recover.py; controller/jobs.py says which nodes are good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sickbay.core import suspicion
from sickbay.model import Checkpoint, Job, Recovery

REFUSED = "REFUSED"
REFUSED_S = 15.0


def has_new_checkpoint(job: Job, r: Recovery) -> bool:
    """Did it get further since the last restart? Then an unexplained failure weeks later is a first one again. What its
    last attempt has saved counts also where we would not start from it: that a node of it may have corrupted memory
    makes it no attempt that came to nothing (seed 1508)."""
    start = start_from(job, r)
    own = any(c.attempt == r.attempt > 0 and c.step > r.checkpoint_step for c in _complete(job))
    return own or (start is not None and start.step > r.checkpoint_step)


def before_it(job: Job) -> int:
    """The newest step that was saved before the attempt which runs, -1 if none was. One that is taken up in the middle
    of its work has got further by all that it saved itself, also before we looked: its record was deleted, it fell ill,
    and that counted as an attempt which had come to nothing (seed 72440045)."""
    return max((c.step for c in _complete(job) if c.attempt < job.attempt), default=-1)


def again_at(r: Recovery) -> float:
    """A refused restart is tried again later, and later each time: whatever refused it needs time to change."""
    refused = sum(e.event == REFUSED for e in r.journal[-16:])
    last = bool(r.journal) and r.journal[-1].event == REFUSED
    return r.entered + (REFUSED_S * 2 ** min(refused, 5) if last else 0.0)


@dataclass(frozen=True, slots=True)
class Trust:
    """How far a node that serves is suspected (core/suspicion.py)."""

    grade: float
    checked: bool  # it has passed a deep check since


def words(job: Job, nodes: tuple[str, ...], doubts: Mapping[str, Trust]) -> str:
    old, chosen = frozenset(job.nodes), frozenset(nodes)
    new, last = [n for n in nodes if n not in old], [n for n in nodes if n in doubts]
    tail = f"; {', '.join(last)} is under suspicion and taken because nothing better is free" if last else ""
    if not new:
        return f"the same nodes are good{tail}"
    return f"{', '.join(new)} takes the place of {', '.join(n for n in job.nodes if n not in chosen)}{tail}"


def gpus_per_node(job: Job) -> int:
    """The most that a node of this job must have for it; 0 when nobody knows."""
    return job.gpus_per_rank * max(Counter(job.rank_nodes).values(), default=0)


def choose(
    job: Job, good: Sequence[str], suspects: Sequence[str], need: int = 0,
    doubts: Mapping[str, Trust] | None = None, most: int = 0,
) -> tuple[str, ...] | None:  # fmt: skip
    """The job's own nodes where they are good, the free good ones for the rest, and at last those under suspicion, the
    least suspected first: its own, on which it ran, and up to `most` others; None if there are not enough. `suspects`
    of this very failure are left out. `need`: how many, where that is more than its own."""
    shunned, doubts = frozenset(suspects), doubts or {}
    clean = dict.fromkeys(n for n in good if n not in shunned and n not in doubts)
    wanted = [*job.nodes, *[""] * (need - len(job.nodes))]
    own = frozenset(job.nodes)
    last = _least_suspected([n for n in good if n not in shunned], doubts, len(wanted), most)
    others = [n for n in last if n not in own][:most]
    spare = iter([*(n for n in clean if n not in own), *(n for n in last if n in own), *others])
    chosen = [n if n in clean else next(spare, None) for n in wanted]
    return tuple(n for n in chosen if n is not None) if None not in chosen else None


def _least_suspected(good: Sequence[str], doubts: Mapping[str, Trust], gang: int, most: int) -> list[str]:
    """What has passed a deep check since comes first; a large gang takes the others only when it has waited, for a
    person who let a case go may have left them so for ever."""
    unseen = most if gang <= suspicion.SMALL_GANG else most - suspicion.FIRST
    fit = [n for n in good if n in doubts and (doubts[n].checked or unseen > 0)] if most else []
    return sorted(fit, key=lambda n: (not doubts[n].checked, doubts[n].grade, n))


def start_from(job: Job, r: Recovery) -> Checkpoint | None:
    """The newest complete checkpoint; after memory corruption the newest one older than the first evidence."""
    known = _complete(job)
    if r.distrust and r.evidence_at is not None:
        known = tuple(c for c in known if c.at < r.evidence_at)
    return max(known, key=lambda c: (c.step, c.attempt), default=None)


def _complete(job: Job) -> tuple[Checkpoint, ...]:
    return job.checkpoints or ((job.checkpoint,) if job.checkpoint else ())
