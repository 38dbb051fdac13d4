"""What a Report becomes on the node object: the condition, the labels, the annotation. Pure.

agent/publishers/kubernetes sends it as one strategic patch of nodes/status. Names and words are the originals' (002.10,
003.3). It must never name a key, a condition or a field that is not ours: what is not in the patch stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sickbay import wire
from sickbay.agent.publishers import Told
from sickbay.checks import ALL
from sickbay.kube import results
from sickbay.kube.events import NORMAL, WARNING
from sickbay.kube.names import CONDITION, DOWN, UNSEEN, UP, Keys
from sickbay.kube.objects import Condition, NodeObject
from sickbay.model import Finding, Status

GATHER_S = 3.0
MOST_MESSAGE = 1_000  # bytes of a condition's message
STOPPED = "agent-stopped"  # the originals' label while no agent looks
FILES: Mapping[str, str] = {check.name: check.file for check in ALL if check.file}

# What the node's verdict is as a condition: status and reason. `warn` is watched and in service (originals 002.12 #7).
CONDITIONS: Mapping[str, tuple[str, str]] = {
    "pass": ("False", UP), "warn": ("False", UP), "fail": ("True", DOWN), "unknown": ("Unknown", UNSEEN),
}  # fmt: skip

Mark = tuple[str, int, frozenset[tuple[str, str, str, str, int]]]


def mark(told: Told) -> Mark:
    """Equal for reports that differ only in counts, times and wording: what is equal is no news."""
    rows = ((f.check, f.place.device, f.code, f.status.value, int(f.severity)) for f in told.report.findings)
    return (told.verdict.status, int(told.verdict.severity), frozenset(rows))


def wait(told: Told, sent: Told | None) -> float:
    """Seconds after `sent` for which news may wait: none if it changes the node's verdict. A fault is seldom told by
    one line: what follows the first (a second XID, nvidia-smi's own loss) becomes one write."""
    if sent is None or sent.report.boot_id != told.report.boot_id:
        return 0.0
    now, before = told.verdict, sent.verdict
    return GATHER_S if (now.status, now.severity) == (before.status, before.severity) else 0.0


def patch(told: Told, keys: Keys, known: Condition | None, *, label: bool, condition: bool) -> dict[str, Any]:
    """`known`: our condition as it stands. `label` off: none of our labels is left to grow old."""
    report, verdict = told.report, told.verdict
    labels: dict[str, str | None] = {
        keys.status: verdict.status, keys.severity: wire.to_originals(verdict.severity),
        keys.last_check: results.label_stamp(report.at),
    }  # fmt: skip
    text = results.encode(report, verdict.status, verdict.severity, FILES)
    body: dict[str, Any] = {
        "metadata": {"labels": labels if label else dict.fromkeys(labels), "annotations": {keys.results: text}}
    }
    if condition:
        body["status"] = {"conditions": [condition_of(told, known)]}
    return body


def stopped(keys: Keys) -> dict[str, Any]:
    """Nobody looks any more. Nothing is taken back: a stopped agent is not a healed node (originals 002.12 #6)."""
    return {"metadata": {"labels": {keys.status: STOPPED}}}


def condition_of(told: Told, known: Condition | None) -> dict[str, str]:
    status, reason = CONDITIONS[told.verdict.status]
    now = results.stamp(told.report.at)
    since = known.last_transition_time if known is not None and known.status == status else ""
    return {
        "type": CONDITION, "status": status, "reason": reason, "message": message(told), "lastHeartbeatTime": now,
        "lastTransitionTime": since or now,
    }  # fmt: skip


def event_of(now: Mapping[str, str], before: Condition | None) -> tuple[str, str, str] | None:
    """Type, reason and message of the Event to write: when the condition has changed, or its reason while it is True.
    Its first False is no news. In the words of node-problem-detector (originals 003.3)."""
    sick = now["status"] == "True"
    changed = sick if before is None else before.status != now["status"]
    if not changed and not (sick and before is not None and before.message != now["message"]):
        return None
    said = f"Node condition {now['type']} is now: {now['status']}, reason: {now['reason']}"
    return WARNING if sick else NORMAL, now["reason"], f'{said}, message: "{now["message"]}"'


def message(told: Told) -> str:
    """The worst finding in words an operator understands, where it is, and how many more there are."""
    said, verdict = [told.verdict.reason or "gpus are up"], told.verdict
    worst = worst_of(told)
    if verdict.status in ("fail", "warn") and worst is not None:
        place = f" on {worst.place.device}" if worst.place.device and worst.place.device not in said[0] else ""
        said.append(f"({worst.code}{place}, severity {wire.to_originals(verdict.severity)})")
        more = sum(f.status in (Status.FAILED, Status.DEGRADED) for f in told.report.findings) - 1
        if more > 0:
            said.append(f"and {more} more: see annotation results")
    text = " ".join(" ".join(said).split())
    data = text.encode("utf-8", "replace")
    return text if len(data) <= MOST_MESSAGE else data[: MOST_MESSAGE - 3].decode("utf-8", "ignore") + "…"


def worst_of(told: Told) -> Finding | None:
    """The finding that the verdict quotes, else the worst there is."""
    sick = [f for f in told.report.findings if f.status in (Status.FAILED, Status.DEGRADED)]
    quoted = (f for f in sick if f.reason == told.verdict.reason and f.severity == told.verdict.severity)
    return next(quoted, sick[0] if sick else None)


def our_condition(node: NodeObject | None) -> Condition | None:
    conditions = (node.status.conditions or []) if node is not None else []
    return next((one for one in conditions if one.type == CONDITION), None)
