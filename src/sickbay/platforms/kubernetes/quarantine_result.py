"""What a sweep or a quarantine found, on the node: the annotation `quarantine-result`, written and read.

Written by sweep and quarantine, read by views for the controller. It is the original's ({timestamp, node, suite,
status, severity, recommendation}) and holds besides what was found, so that a case can be opened of it where that is
allowed (`act`). It speaks of the boot it was found in and no other, and never that a node is well: whoever holds the
sweeper's token can write it. So its source is "sweep", whose ceiling has no treatment: one follows only from what the
controller's own VERIFY then finds on the node. It must never raise for what stands on a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from sickbay import wire
from sickbay.kube.objects import NodeObject
from sickbay.kube.results import stamp
from sickbay.model import Finding, Severity, Status
from sickbay.platforms.kubernetes.answer import Answer, encode, pack, unpack
from sickbay.platforms.kubernetes.site import Site

SOURCE = "sweep"  # of a ceiling of its own, and with a counter of its own: the agent's numbers go on without these
SICK = (Status.FAILED, Status.DEGRADED)
MOST_BYTES = 16 << 10  # of an annotation that somebody else may have written
RECOMMENDS = {"pass": "return", "warn": "return", "fail": "investigate", "unknown": "investigate"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an examination ended: pass, warn, fail, or unknown when somebody could not look."""

    status: str
    severity: Severity
    recommendation: str
    why: str
    findings: tuple[Finding, ...]


def verdict(found: Sequence[Finding], checks: Sequence[str]) -> Verdict:
    """The worst decides; and what was asked and could not be looked at is no pass."""
    sick = [one for one in found if one.status is Status.FAILED and one.severity > Severity.MONITOR]
    if sick:
        worst = max(sick, key=lambda one: one.severity)
        advice = "replace" if worst.severity is Severity.REPLACE else RECOMMENDS["fail"]
        return Verdict("fail", worst.severity, advice, worst.reason, tuple(found))
    passed = {one.check for one in found if one.status in (Status.OK, Status.DEGRADED)}
    if blind := [name for name in checks if name not in passed]:
        why = next((one.reason for one in found if one.check == blind[0]), f"{blind[0]} gave no answer")
        return Verdict("unknown", Severity.NONE, RECOMMENDS["unknown"], why, tuple(found))
    watched = [one for one in found if one.status is not Status.OK]
    status, severity = ("warn", Severity.MONITOR) if watched else ("pass", Severity.NONE)
    return Verdict(status, severity, RECOMMENDS[status], watched[0].reason if watched else "all passed", tuple(found))


# --- the annotation ---------------------------------------------------------------------------------------------------


class Annotation(msgspec.Struct):
    """The original's fields first; ours after."""

    timestamp: str
    node: str
    suite: str
    status: str
    severity: str
    recommendation: str
    act: bool = False  # may a controller open a case of it?
    answer: Answer | None = None


def annotation(name: str, suite: str, said: Verdict, key: str, at: float, *, act: bool) -> str:
    boot = next((one.boot_id for one in said.findings if one.boot_id), "")
    number = min((_number(one.id) for one in said.findings), default=1) - 1
    answer = msgspec.json.decode(encode(pack(key, boot, at, max(0, number), said.findings)), type=Answer)
    made = Annotation(
        stamp(at), name, suite, said.status, wire.to_originals(said.severity), said.recommendation, act, answer
    )
    return msgspec.json.encode(made).decode()


def _number(identity: str) -> int:
    tail = identity.rpartition("/")[2]
    return int(tail) if tail.isdecimal() else 1


def findings_on(site: Site, node: NodeObject) -> tuple[Finding, ...]:
    """What a sweep or quarantine found ill, for the controller, in this boot; nothing where it is not to act on it."""
    text = node.metadata.annotation(site.keys.quarantine_result)
    if not text or len(text) > MOST_BYTES:
        return ()
    try:
        told = msgspec.json.decode(text.encode(), type=Annotation)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ()
    boot = node.status.node_info.boot_id if node.status.node_info is not None else ""
    if not told.act or told.answer is None or told.node != node.metadata.name or told.answer.boot != boot:
        return ()
    found = (one for one in unpack(told.answer, told.node) if one.status in SICK)
    return tuple(replace(one, source=SOURCE, answers="") for one in found)
