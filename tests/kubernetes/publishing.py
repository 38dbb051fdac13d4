"""For the tests of the agent's publisher: reports about nodes of the test cluster, and what became of them there."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sickbay.agent.publishers import Told
from sickbay.agent.publishers.kubernetes import KubernetesPublisher, Where
from sickbay.agent.verdicts import NodeVerdict
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.names import CONDITION, keys
from sickbay.kube.objects import Condition, EventObject, NodeObject
from sickbay.model import Finding, Place, Report, Severity
from sickbay.settings import AgentSettings
from tests.agent.builders import a_finding, passed

KEYS = keys()
LOST = "GPU 0000:3b:00 has fallen off the bus (Xid 79)"
WORDS = {"pass": Severity.NONE, "warn": Severity.MONITOR, "fail": Severity.REBOOT, "unknown": Severity.NONE}
REASONS = {
    "pass": "8 checks pass",
    "warn": "persistence mode is off",
    "fail": LOST,
    "unknown": "nvidia-smi is not here",
}
CODES = {"fail": "xid.79", "warn": "xid.13"}


def told(node: str, status: str = "pass", number: int = 1, **changed: Any) -> Told:
    """A report with the verdict `status`; `changed`: fields of the Report."""
    found: tuple[Finding, ...] = (passed("nvidia-smi", number),)
    if status in CODES:
        found = (a_finding(CODES[status], number, reason=REASONS[status]), *found)
    placed = tuple(replace(one, place=Place(node, one.place.device)) for one in found)
    given: dict[str, Any] = {"at": time.time(), "findings": placed, **changed}
    report = Report(node, "boot-a", number, **given)
    return Told(report, NodeVerdict(status, WORDS[status], REASONS[status]))


def a_publisher(
    api: Api, node: str, folder: Path, settings: AgentSettings | None = None, **more: Any
) -> KubernetesPublisher:
    used = settings or AgentSettings()
    return KubernetesPublisher(Where(api, node, KEYS, folder), lambda: used, **more)


def say(publisher: KubernetesPublisher, item: Told) -> float | None:
    publisher.publish(item)
    return publisher.work()


def seen(api: Api, node: str) -> NodeObject:
    return api.get(names.node(node), NodeObject)


def condition(api: Api, node: str) -> Condition | None:
    return next((one for one in seen(api, node).status.conditions or () if one.type == CONDITION), None)


def taint_keys(api: Api, node: str) -> list[str]:
    """But for the node controller's own, which come and go by themselves."""
    found = [taint.key for taint in seen(api, node).spec.taints or ()]
    return [key for key in found if not key.startswith("node.kubernetes.io/")]


def said_of(api: Api, node: str) -> list[EventObject]:
    where = {"fieldSelector": f"involvedObject.kind=Node,involvedObject.name={node},source=sickbay-agent"}
    return api.list(names.events("default"), EventObject, **where)


def label_time(text: str) -> float:
    """`last-check` as seconds since the epoch; 0.0 when it is none."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return 0.0
