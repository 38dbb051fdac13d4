"""How far a part is trusted after it came back ill: a suspicion that is graded, fades and ends, and never forbids.

Called by core/triage.py (a case opens), core/decide.py (hours under load), core/capacity.py (who is taken last),
core/obey.py (a person knows better) and cli. Pure. It must never keep a node from work for ever: a part fails under
load or it does not, and only load can show which.

Why these numbers: Meta's lemon nodes failed about 1.5 times a day (RSC-1, HPCA'25), Summit's repeating GPUs again after
20 hours in the median. So of the parts that will fail again nineteen in twenty have done it within GOOD_S of load.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sickbay.model import Diagnosis, Doubt, Latch, Node, NodeRecord, When

GOOD_S = 48 * 3600.0  # of good work end one strike; two strikes take twice as long
KILLS = 3  # jobs that one part may end within KILLS_S; then a person decides
KILLS_S = 30 * 86_400.0
ONE_JOB_S = 600.0  # codes of one part within so long are a family, and ended the same job
DOUBTS_MAX = 16  # on one record: eight GPUs, the node itself, and parts that have left it
SMALL_GANG = 8  # nodes: up to so many, a job takes suspects as it finds them; it loses little when one fails
FIRST = 1  # suspects, besides those it ran on, that a larger gang takes at once
# And one more for each time it has waited so long. Four in ten suspects were truly ill (noisy, seeds from 900,000 on),
# and one that fails costs half an hour: so ten minutes of a whole gang's waiting are about what one suspect costs. At
# half an hour a gang that needed six of them waited for 46 % of a week.
PATIENCE_S = 600.0
DEEP = frozenset({"dcgm-l2", "dcgm-l4", "gpu-matmul", "nccl-allreduce"})  # checks that put a node under load
DEEP_DEFAULT = "dcgm-l2"


# --- how much ---------------------------------------------------------------------------------------------------------


def good_s(doubt: Doubt, now: float) -> float:
    """Good time under load since the last strike, the stretch that runs included: nothing is written meanwhile."""
    running = now - doubt.loaded_since if doubt.loaded_since is not None else 0.0
    return doubt.load_s + max(0.0, running)


def left_s(doubt: Doubt, now: float) -> float:
    """Good time under load that is still missing until it is trusted again."""
    return max(0.0, GOOD_S * doubt.strikes - good_s(doubt, now))


def grade(record: NodeRecord, now: float) -> float:
    """Of the node as a whole: its worst part, in strikes not yet made good. 0: nothing is held against it."""
    return max((left_s(doubt, now) / GOOD_S for doubt in record.doubts), default=0.0)


def is_checked(record: NodeRecord) -> bool:
    """Has every suspect part passed a deep check since its last strike?"""
    return all(doubt.checked for doubt in record.doubts if doubt.strikes)


def trusted_at(record: NodeRecord, now: float) -> float | None:
    """The watch time at which the next suspicion ends if the work on the node goes on."""
    times = [now + left_s(d, now) for d in record.doubts if d.strikes and d.loaded_since is not None]
    return min(times, default=None)


def most_suspects(gang: int, waited_s: float) -> int:
    """How many suspects that it did not run on a gang of so many nodes may take after so long a wait."""
    return gang if gang <= SMALL_GANG else FIRST + int(waited_s // PATIENCE_S)


# --- how it begins ----------------------------------------------------------------------------------------------------


def relapsed(record: NodeRecord, latches: Sequence[Latch], relapse_s: float, now: float) -> dict[str, str]:
    """Parts ("": the node) that were treated lately and are ill again, each with why. The same fault on another part
    of the node is another part's first illness."""
    treated = [p for p in record.past if p.rung is not None and now - p.ended <= relapse_s]
    found = {}
    for latch in latches:
        before = [p for p in treated if p.part == latch.part and (latch.part or p.fault == latch.fault)]
        if before:
            found[latch.part] = f"{latch.fault} came back after {before[-1].rung} ({before[-1].case})"
    return found


def strike(record: NodeRecord, parts: dict[str, str], at: float) -> NodeRecord:
    """One strike more against each; what was made good before counts no more."""
    for part, why in parts.items():
        old = _doubt(record, part)
        record = _with(record, replace(old, strikes=old.strikes + 1, why=why, at=at, load_s=0.0, loaded_since=None,
                                       checked=False))  # fmt: skip
    return record


def note_kills(record: NodeRecord, said: Iterable[Diagnosis], now: float) -> NodeRecord:
    """A job that makes steps was on the node when this began: it is lost. One job, one kill, of each part."""
    for part in dict.fromkeys(d.part for d in said if d.when is When.NOW):
        old = _doubt(record, part)
        recent = tuple(t for t in old.kills if now - t < KILLS_S)
        if recent and now - recent[-1] < ONE_JOB_S:
            continue
        record = _with(record, replace(old, kills=(*recent, now)[-KILLS:]))
    return record


def kills(record: NodeRecord, parts: Iterable[str], now: float) -> tuple[str, int]:
    """The part of these that has ended the most jobs lately, and how many."""
    counts = [(d.part, sum(now - t < KILLS_S for t in d.kills)) for d in record.doubts if d.part in set(parts)]
    return max(counts, key=lambda pair: pair[1], default=("", 0))


def needs_a_person(record: NodeRecord, parts: Iterable[str], now: float) -> str:
    """Why only a person may go on with it, "" if nobody needs to."""
    part, count = kills(record, parts, now)
    if count < KILLS:
        return ""
    return f"{name(part, record.node)} has ended {count} jobs within {KILLS_S / 86_400:.0f} days: a person decides"


def told(record: NodeRecord, now: float) -> list[str]:
    """Each suspicion in a clause: what, why, and what is missing until it is over."""
    return [
        f"{name(d.part, record.node)}: {d.why}; over after {left_s(d, now) / 3600:.0f} more hours of good work"
        for d in record.doubts if d.strikes
    ]  # fmt: skip


def name(part: str, node: str) -> str:
    return f"GPU {part} of {node}" if part else node


# --- how it fades and ends --------------------------------------------------------------------------------------------


def note_load(record: NodeRecord, *, loaded: bool, now: float) -> NodeRecord:
    """Work that makes steps began or ended on the node. Two writes for a job, none for an hour."""
    if not any(doubt.strikes for doubt in record.doubts):
        return record
    kept = tuple(left for doubt in record.doubts if (left := _after_load(doubt, loaded, now)) is not None)
    return record if kept == record.doubts else replace(record, doubts=kept)


def _after_load(doubt: Doubt, loaded: bool, now: float) -> Doubt | None:
    """What is left of it; None once it is made good."""
    if not doubt.strikes:
        return doubt
    if not left_s(doubt, now):
        return Doubt(doubt.part, kills=doubt.kills) if doubt.kills else None
    if loaded == (doubt.loaded_since is not None):
        return doubt
    return replace(doubt, load_s=good_s(doubt, now), loaded_since=now if loaded else None)


def note_check(record: NodeRecord, checks: Iterable[str]) -> NodeRecord:
    """The node has passed these."""
    if not DEEP.intersection(checks) or is_checked(record):
        return record
    return replace(record, doubts=tuple(replace(d, checked=True) for d in record.doubts))


def with_deep_check(checks: tuple[str, ...]) -> tuple[str, ...]:
    """What came back once is examined under load before it returns."""
    return checks if DEEP.intersection(checks) else (*checks, DEEP_DEFAULT)


def forgive(record: NodeRecord) -> NodeRecord:
    """A person knows better: nothing is held against the node and its parts any more."""
    return replace(record, doubts=(), lemon="")


def decided(record: NodeRecord, parts: Iterable[str]) -> NodeRecord:
    """A person has looked at these parts and wants them treated: the jobs they ended ask for no other decision."""
    chosen = set(parts)
    return replace(record, doubts=tuple(replace(d, kills=()) if d.part in chosen else d for d in record.doubts))


def moved(record: NodeRecord, node: Node) -> tuple[Doubt, ...]:
    """Another machine under this name: what is known of a part stays with the part, if it came along."""
    names = {name for gpu in node.gpus for name in (gpu.serial, gpu.uuid) if name}
    return tuple(d for d in record.doubts if d.part in names)


def adopt(record: NodeRecord, at: float) -> NodeRecord:
    """A record of an earlier version says "lemon", for ever: one strike against the node, which fades."""
    if not record.lemon:
        return record
    return replace(strike(record, {"": record.lemon}, at), lemon="")


def _doubt(record: NodeRecord, part: str) -> Doubt:
    return next((d for d in record.doubts if d.part == part), Doubt(part))


def _with(record: NodeRecord, doubt: Doubt) -> NodeRecord:
    others = tuple(d for d in record.doubts if d.part != doubt.part)
    return replace(record, doubts=(*others, doubt)[-DOUBTS_MAX:])
