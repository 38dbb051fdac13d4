"""The labels and annotations by which a training job and Sickbay speak with each other, and what a stop leaves behind.

Read by every file of this package, and by users (docs/jobs-kubernetes.md). Ours to write: ATTEMPT, STOPPED, STOPPED_BY,
FROM_STEP, RESTARTED_BY, IN_PODS, BASE, CHECKPOINTS, REQUESTED. All others are the owner's, and never written by us.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from sickbay.kube.names import RECOVER
from sickbay.model import Checkpoint, RankExit

MANAGED, NATIVE = "managed", "native"

# --- the owner's
OWNER = "sickbay.dev/owner"
PROGRESS = "sickbay.dev/progress"  # log:<regex> | http:<port><path> | file:<path> | annotation
SAVES = "sickbay.dev/checkpoints-by"  # log:<regex> | file:<path> | annotation (the default)
HOW_TO_SAVE = "sickbay.dev/checkpoint"  # annotation | signal | hook:<port><path> | none
STEP = "sickbay.dev/step"  # on the job, or on the pod of any rank: the step it has finished
SAVED = "sickbay.dev/checkpoint-saved"  # likewise: the step of the newest complete checkpoint
RECREATE = "sickbay.dev/recreate"  # never: a job that its controller has ended is not made anew
FENCED = "sickbay.dev/fenced-checkpoints"  # "true": what an old attempt writes no later one reads
GANG = "sickbay.dev/gang"  # label of bare pods: the gang's name
RANK = "sickbay.dev/rank"  # label of bare pods

# --- ours
ATTEMPT = "sickbay.dev/attempt"
IN_PODS = "sickbay.dev/attempt-in-pods"  # true: the pods of this attempt carry ATTEMPT too
BASE = "sickbay.dev/attempt-base"  # the controller's own restarts when we wrote ATTEMPT
STOPPED = "sickbay.dev/stopped"  # a Stop, as JSON
STOPPED_BY = "sickbay.dev/stopped-by"  # the same key in plain words, for people
FROM_STEP = "sickbay.dev/from-step"
RESTARTED_BY = "sickbay.dev/restarted-by"
CHECKPOINTS = "sickbay.dev/checkpoints"  # [[step, at, attempt], ...], oldest first
REQUESTED = "sickbay.dev/checkpoint-requested"

MOST_CHECKPOINTS = 16
MOST_RECORD = 160_000  # bytes of a Stop; all annotations of an object may have 262,144
MOST_TAILS = 8_000  # bytes of log lines in it
MOST_STEP = 2**53

__all__ = ["RECOVER"]


class Exit(msgspec.Struct, omit_defaults=True):
    rank: int
    node: str
    code: int | None = None
    tail: list[str] = []


class Stop(msgspec.Struct, omit_defaults=True):
    """Written with the suspension, in the same write: who stopped which attempt, where it ran and what had died.

    Afterwards the pods are gone, and this is all that is known of them.
    """

    key: str
    attempt: int
    at: float = 0.0
    step: int = 0
    nodes: list[str] = []  # of each rank
    exits: list[Exit] = []  # those that died first come first
    silent: list[int] = []
    gpus: int = 0  # of the largest rank

    def rank_exits(self) -> tuple[RankExit, ...]:
        return tuple(RankExit(x.rank, x.node, x.code, tuple(x.tail)) for x in self.exits)


def stop_text(stop: Stop) -> str:
    """As an annotation, bounded: the tails go first, then the exits, and the nodes last."""
    small = Stop(
        stop.key, stop.attempt, stop.at, stop.step, stop.nodes, _bounded(stop.exits), stop.silent[:64], stop.gpus
    )
    for lighter in (small, _without(small, exits=True), _without(small, exits=True, nodes=True)):
        text = msgspec.json.encode(lighter)
        if len(text) <= MOST_RECORD:
            break
    return text.decode()


def _without(stop: Stop, *, exits: bool = False, nodes: bool = False) -> Stop:
    return Stop(
        stop.key, stop.attempt, stop.at, stop.step, [] if nodes else stop.nodes, [] if exits else stop.exits,
        stop.silent, stop.gpus,
    )  # fmt: skip


def _bounded(exits: Sequence[Exit]) -> list[Exit]:
    """Each gets its share of the lines, and the first, who died first, at least a quarter of what is left."""
    left, kept = MOST_TAILS, []
    talk = sum(bool(one.tail) for one in exits[:256])
    for one in exits[:256]:
        tail = _last(one.tail, max(left // 4, left // talk)) if one.tail else []
        left -= sum(len(line.encode()) for line in tail)
        talk -= bool(one.tail)
        kept.append(Exit(one.rank, one.node, one.code, tail))
    return kept


def _last(lines: Sequence[str], room: int) -> list[str]:
    """As many of the last lines as have room."""
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line.encode())
        if room < 0:
            break
        kept.insert(0, line)
    return kept


def read_stop(text: str) -> Stop | None:
    try:
        return msgspec.json.decode(text, type=Stop) if text else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # somebody wrote over it: then we did not stop this job


def number(text: str, default: int = 0) -> int:
    """A count that somebody else wrote: plain decimal digits and not absurd, else the default."""
    clean = text.strip()
    return int(clean) if clean.isascii() and clean.isdigit() and len(clean) < 17 else default


def read_checkpoints(text: str) -> tuple[Checkpoint, ...]:
    try:
        rows: Any = json.loads(text) if text else []
    except ValueError:
        return ()
    found = [made for row in (rows if isinstance(rows, list) else ())[:256] if (made := _checkpoint(row))]
    return tuple(sorted(found, key=lambda c: (c.step, c.attempt)))[-MOST_CHECKPOINTS:]


def _checkpoint(row: Any) -> Checkpoint | None:
    if not isinstance(row, list) or not 1 <= len(row) <= 3 or not all(isinstance(x, int | float) for x in row):
        return None
    if not all(math.isfinite(x) for x in row) or not 0 <= row[0] < MOST_STEP:
        return None
    step, at, attempt = (*row, 0, 0)[:3]
    return Checkpoint(int(step), float(at), int(attempt))


def checkpoints_text(known: Sequence[Checkpoint]) -> str:
    return json.dumps([[c.step, c.at, c.attempt] for c in known[-MOST_CHECKPOINTS:]], separators=(",", ":"))
