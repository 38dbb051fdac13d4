"""The annotation `results` on a node: what its agent says, in the originals' words and, under "report", in ours.

The agent's publisher writes it (`encode`); whoever shows nodes reads it (`decode`). At most 16 KB, worst first. Anybody
who may patch nodes could have written what is read: `decode` is bounded, never raises, and believes a node about itself
only (testimony). It must never do IO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from sickbay import wire
from sickbay.errors import StoreError
from sickbay.model import Finding, Report, Severity, Status
from sickbay.testimony import Unbelievable, believed

MOST_BYTES = 16 << 10
MOST_READ = 64 << 10  # of an annotation that somebody else wrote; longer ones are not looked at
MOST_CHECKS = 48
LONGEST_NAME = 64

# How hard findings are cut, mildest first: (characters a text, quoted lines, with traits). After the last one the
# least bad findings go, half of them at a time.
_CUTS = ((400, 4, True), (240, 2, True), (160, 1, False), (80, 0, False))

_WORDS = {Status.FAILED: "FAIL", Status.DEGRADED: "WARN", Status.UNKNOWN: "SKIP", Status.OK: "PASS"}
_BADNESS = {"FAIL": 3, "WARN": 2, "SKIP": 1, "PASS": 0}


def stamp(at: float) -> str:
    """2026-11-16T03:40:00Z, as the API server writes times and the originals' annotation."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def label_stamp(at: float) -> str:
    """The same without colons, which a label may not hold: the originals' `last-check`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H%M%SZ")


# --- writing ----------------------------------------------------------------------------------------------------------


def encode(report: Report, status: str, severity: Severity, names: Mapping[str, str] | None = None) -> str:
    """The annotation's text. `names`: our name of a check -> the originals' (nvidia-smi -> 0-nvidia-smi-check)."""
    head = {
        "timestamp": stamp(report.at), "hostname": report.node[:253],
        "instance_type": report.factors.get("instance-type", "")[:LONGEST_NAME], "status": status,
        "severity": wire.to_originals(severity), "checks": _checks(report.findings, names or {}),
    }  # fmt: skip
    room = MOST_BYTES - len(msgspec.json.encode(head)) - len(b',"report":')
    return msgspec.json.encode({**head, "report": _fitting(report, room)}).decode()


def _checks(findings: Sequence[Finding], names: Mapping[str, str]) -> list[dict[str, str]]:
    """One row a check, its worst word, worst first."""
    worst: dict[str, tuple[str, Severity]] = {}
    for one in findings:
        word = "WARN" if one.status is Status.FAILED and one.severity <= Severity.MONITOR else _WORDS[one.status]
        before = worst.get(one.check)
        if before is None or (_BADNESS[word], one.severity) > (_BADNESS[before[0]], before[1]):
            worst[one.check] = (word, one.severity)
    ordered = sorted(worst.items(), key=lambda row: (-row[1][1], -_BADNESS[row[1][0]], row[0]))
    return [
        {"check": (names.get(check) or check)[:LONGEST_NAME], "status": word, "severity": _word(severity)}
        for check, (word, severity) in ordered[:MOST_CHECKS]
    ]


def _word(severity: Severity) -> str:
    """A check that passed has no severity (originals 002.12 #2)."""
    return wire.to_originals(severity) if severity else ""


def _fitting(report: Report, room: int) -> dict[str, Any] | None:
    """The report as plain values within so many bytes; None if even the bare one would not fit."""
    for characters, lines, traits in _CUTS:
        cut = replace(report, findings=tuple(_cut(one, characters, lines, traits) for one in report.findings))
        if _size(tree := _tree(cut)) <= room:
            return tree
    while len(cut.findings) > 1:
        cut = replace(cut, findings=cut.findings[: len(cut.findings) // 2])
        if _size(tree := _tree(cut)) <= room:
            return tree
    bare = (replace(cut, gpus=()), replace(cut, gpus=(), factors={}), replace(cut, gpus=(), factors={}, findings=()))
    return next((tree for one in bare if _size(tree := _tree(one)) <= room), None)


def _cut(finding: Finding, characters: int, lines: int, traits: bool) -> Finding:
    evidence = tuple(line[:characters] for line in finding.evidence[:lines])
    kept = {name: text[:characters] for name, text in finding.traits.items()} if traits else {}
    return replace(finding, reason=finding.reason[:characters], evidence=evidence, traits=kept)


def _tree(report: Report) -> dict[str, Any]:
    """By wire, without what is as it is by default: most of a node's annotation would be empty texts and zeros."""
    tree = wire.to_json(report)
    tree["findings"] = [_spare(one, _FINDING) for one in tree["findings"]]
    return _spare(tree, _REPORT)


def _defaults(kind: type[Any]) -> dict[str, Any]:
    blank = {
        field.name: field.default for field in fields(kind) if isinstance(field.default, str | int | float | tuple)
    }
    return {name: [] if value == () else value for name, value in blank.items()}


_FINDING = {**_defaults(Finding), "severity": Severity.NONE.name, "traits": {}}
_REPORT = {**_defaults(Report), "factors": {}}


def _spare(tree: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name not in defaults or value != defaults[name]}


def _size(tree: dict[str, Any]) -> int:
    return len(msgspec.json.encode(tree))


# --- reading ----------------------------------------------------------------------------------------------------------


def decode(text: str, node: str = "", received_at: float = 0.0, cluster: str = "") -> Report | None:
    """The report in an annotation of this node ("": of whom it says); None if none is to be believed. Never raises."""
    if not text or len(text) > MOST_READ:
        return None
    try:
        tree = msgspec.json.decode(text)
        found = tree.get("report") if isinstance(tree, dict) else None
        if not isinstance(found, dict):
            return None
        report = wire.from_json(Report, found)
        if node and report.node != node:
            return None
        return believed(report, report.node, cluster or report.cluster[:LONGEST_NAME], received_at)
    except (StoreError, Unbelievable, msgspec.MsgspecError, RecursionError):
        return None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):  # whatever else hostile text may cause
        return None
