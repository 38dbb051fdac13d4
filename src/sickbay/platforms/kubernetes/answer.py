"""What a Job on a node says, small enough for a pod's termination message: one JSON object of at most 4,096 bytes.

Written by `sickbay node …` to /dev/termination-log, read by node_jobs from the pod's status: so an answer needs neither
rights nor network, only the kubelet and the API server. Worst first; what does not fit is counted, never guessed. It
must never raise for anything a node can write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from sickbay.model import Finding, Place, Severity, Status
from sickbay.typed import built

MOST_BYTES = 4_000  # the kubelet cuts at 4,096, and half a JSON object is none
REASON, EVIDENCE = 200, 160  # characters kept of each
MOST_READ = 64 * 1024
_WORST = {Status.FAILED: 0, Status.DEGRADED: 1, Status.UNKNOWN: 2, Status.OK: 3}


class Told(msgspec.Struct, array_like=True):
    """A finding without what all of them share."""

    check: str
    status: str
    code: str = ""
    severity: str = "NONE"
    device: str = ""
    part: str = ""
    reason: str = ""
    evidence: str = ""
    count: int = 1
    number: int = 0


class Answer(msgspec.Struct, omit_defaults=True):
    """`ok`: checks that found nothing, by name. `did`: what a treatment or collection did; `error`: why it did not."""

    key: str
    boot: str = ""
    at: float = 0.0
    number: int = 0  # of the last finding before ours: ids go on from there
    ok: list[str] = msgspec.field(default_factory=list)
    found: list[Told] = msgspec.field(default_factory=list)
    cut: int = 0  # findings that found no room
    did: str = ""
    error: str = ""
    sha256: str = ""  # of the archive that its log carries (parcel.py), and how many bytes it has
    size: int = 0


def encode(answer: Answer, most: int = MOST_BYTES) -> bytes:
    """Within `most` bytes: evidence goes first, then reasons, then the least bad findings, then names."""
    for shorter in (_as_is, _without_evidence, _with_short_reasons):
        data = msgspec.json.encode(shorter(answer))
        if len(data) <= most:
            return data
    small = _with_short_reasons(answer)
    while small.found and len(data) > most:
        kept = small.found[: len(small.found) - max(1, len(small.found) // 8)]
        small = msgspec.structs.replace(small, found=kept, cut=small.cut + len(small.found) - len(kept))
        data = msgspec.json.encode(small)
    if len(data) > most:
        bare = Answer(answer.key[:200], answer.boot[:64], error=answer.error[:500], cut=len(answer.found))
        return msgspec.json.encode(bare)
    return data


def _as_is(answer: Answer) -> Answer:
    return answer


def _without_evidence(answer: Answer) -> Answer:
    found = [msgspec.structs.replace(one, evidence="") for one in answer.found]
    return msgspec.structs.replace(answer, found=found, did=answer.did[:500], error=answer.error[:1_000])


def _with_short_reasons(answer: Answer) -> Answer:
    bare = _without_evidence(answer)
    found = [msgspec.structs.replace(one, reason=one.reason[:60]) for one in bare.found]
    return msgspec.structs.replace(bare, found=found, error=bare.error[:500])


def decode(text: str, key: str) -> Answer | None:
    """The answer to this key; None if there is none, it is cut or garbled, or it answers another question."""
    try:
        answer = msgspec.json.decode(text[:MOST_READ].encode("utf-8", "replace"), type=built(Answer))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return answer if answer.key == key else None


def pack(key: str, boot: str, at: float, number: int, findings: Sequence[Finding]) -> Answer:
    """Findings as an answer, worst first. A check whose every finding is OK is only named."""
    sick = {one.check for one in findings if not _plain(one)}
    ok = list(dict.fromkeys(one.check for one in findings if one.check not in sick))
    ordered = sorted((f for f in findings if f.check in sick), key=lambda f: (_WORST[f.status], -f.severity))
    told = [
        Told(
            f.check, f.status.value, f.code, f.severity.name, f.place.device, f.part, f.reason[:REASON],
            " | ".join(f.evidence)[:EVIDENCE], f.count, max(0, _number(f.id) - number),
        )
        for f in ordered
    ]  # fmt: skip
    return Answer(key, boot, at, number, ok, told)


def _plain(one: Finding) -> bool:
    return one.status is Status.OK and not one.code


def _number(identity: str) -> int:
    tail = identity.rpartition("/")[2]
    return int(tail) if tail.isdecimal() else 0


def unpack(answer: Answer, node: str) -> list[Finding]:
    """The findings as they were, each answering the key. Of a status or severity we do not know: UNKNOWN."""
    blank = Finding(
        "", "agent", "", Place(node), Status.OK, "", "", boot_id=answer.boot[:64], at=answer.at, answers=answer.key
    )
    told = [_unpacked(one, answer, blank) for one in answer.found]
    last = max((one.number for one in answer.found), default=0)
    well = [
        replace(blank, id=f"{answer.boot}/{answer.number + last + i}", check=name, reason=f"{name}: nothing found")
        for i, name in enumerate(answer.ok, 1)
    ]
    return [*told, *well]


def _unpacked(one: Told, answer: Answer, blank: Finding) -> Finding:
    known = one.status in Status.__members__ and one.severity in Severity.__members__
    return replace(
        blank, id=f"{answer.boot}/{answer.number + max(1, one.number)}", check=one.check,
        status=Status(one.status) if known else Status.UNKNOWN, code=one.code,
        severity=Severity[one.severity] if known else Severity.NONE, reason=one.reason,
        evidence=(one.evidence,) if one.evidence else (), count=max(1, one.count), part=one.part,
        place=Place(blank.place.node, one.device),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blind:
    """Nobody could look: why, in words. What was asked is then UNKNOWN, never well. `kept_out`: its Job was not let in,
    so nobody has tried."""

    why: str
    kept_out: bool = False


def blind_findings(
    node: str, checks: Sequence[str], why: str, *, key: str, at: float, boot: str = "", code: str = "node.unreachable"
) -> list[Finding]:
    """One UNKNOWN for each check that was asked for."""
    return [
        Finding(
            f"{key}/{i}", "agent", name, Place(node), Status.UNKNOWN, code, f"{name} could not be run on {node}: {why}",
            boot_id=boot, at=at, answers=key,
        )
        for i, name in enumerate(checks, 1)
    ]  # fmt: skip
