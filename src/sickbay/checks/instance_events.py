"""instance-events: what EC2 has announced for this instance: maintenance, retirement, a Spot interruption.

Asked through the metadata service, so that no credentials are needed. Off EC2 there is nothing to see and nothing is
asked: the DMI table tells at once. An announcement that was cancelled or is over is no finding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sickbay.checks.signs import Ask, Check, Reading, Sign, quote
from sickbay.identity import metadata
from sickbay.model import Status
from sickbay.ports import Completed, Host

NAME = "instance-events"
SCHEDULED = "events/maintenance/scheduled"
SPOT = "spot/instance-action"
REBALANCE = "events/recommendations/rebalance"
MOST = 16
_OVER = ("completed", "canceled", "cancelled")
_CODES = {
    "instance-reboot": ("ec2.reboot-scheduled", "EC2 will reboot this instance"),
    "system-reboot": ("ec2.reboot-scheduled", "EC2 will reboot the host of this instance"),
    "system-maintenance": (
        "ec2.maintenance-scheduled",
        "EC2 will work on the network or power of this instance's host",
    ),
    "instance-stop": ("ec2.retirement-scheduled", "EC2 will stop this instance: its host is failing"),
    "instance-retirement": ("ec2.retirement-scheduled", "EC2 will retire this instance: its host is failing"),
}


def collect(host: Host, ask: Ask) -> Reading:
    if not metadata.on_ec2(host):
        return Reading(Completed(0, "", ""), files={"ec2": None})
    base = ask.options.get("imds", metadata.IMDS)
    session = metadata.token(host, base)
    if not session:
        return Reading(Completed(None, "", "", timed_out=True), files={"ec2": "yes"})
    answers = {path: metadata.ask(host, path, session, base) for path in (SCHEDULED, SPOT, REBALANCE)}
    return Reading(Completed(0, "", ""), files={"ec2": "yes", **answers})


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if not reading.files.get("ec2"):
        return []
    if reading.done.timed_out:
        said = f"EC2's announcements cannot be read: {metadata.BLOCKED}"
        return [Sign("tool.timeout", said, status=Status.UNKNOWN)]
    return [*_scheduled(reading.files.get(SCHEDULED)), *_spot(reading)]


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return text


def _scheduled(text: str | None) -> Iterator[Sign]:
    events = _parsed(text)
    if isinstance(events, dict):
        events = [events]
    if events is None:
        return
    if not isinstance(events, list):
        said = "EC2's scheduled events cannot be read"
        yield Sign("tool.unreadable", said, evidence=quote(text or ""), status=Status.UNKNOWN)
        return
    for event in events[:MOST]:
        if isinstance(event, dict) and not _is_over(event):
            yield _event(event)


def _is_over(event: dict[str, Any]) -> bool:
    told = _text(event, "Description").lower()
    return _text(event, "State").lower() in _OVER or told.startswith(tuple(f"[{word}]" for word in _OVER))


def _text(event: dict[str, Any], key: str) -> str:
    value = event.get(key)
    return value[:200] if isinstance(value, str) else ""


def _event(event: dict[str, Any]) -> Sign:
    kind, begins = _text(event, "Code"), _text(event, "NotBefore")
    code, what = _CODES.get(kind, ("ec2.event", f"EC2 has announced an event ({kind[:60] or 'of no kind'})"))
    when = f", from {begins}" if begins else ""
    shown = quote(
        f"{kind} {_text(event, 'EventId')}: {_text(event, 'Description')} ({begins} to {_text(event, 'NotAfter')})"
    )
    traits = {"event": kind, "id": _text(event, "EventId"), "not_before": begins, "not_after": _text(event, "NotAfter")}
    return Sign(code, f"{what}{when}", evidence=shown, traits={k: v for k, v in traits.items() if v})


def _spot(reading: Reading) -> Iterator[Sign]:
    action, advice = _parsed(reading.files.get(SPOT)), _parsed(reading.files.get(REBALANCE))
    if isinstance(action, dict) and _text(action, "action"):
        verb, at = _text(action, "action"), _text(action, "time")
        said = f"EC2 takes this Spot instance back ({verb}) at {at or 'any moment'}"
        yield Sign("ec2.spot-interruption", said, evidence=quote(reading.files.get(SPOT) or ""), traits={"at": at})
    elif isinstance(advice, dict) and _text(advice, "noticeTime"):
        said = "EC2 expects to take this Spot instance back soon (rebalance recommendation)"
        yield Sign("ec2.spot-rebalance", said, evidence=quote(reading.files.get(REBALANCE) or ""))


CHECK = Check(NAME, None, collect, judge)
