"""Alertmanager's webhook (version 4) -> what it says of nodes. Pure; web/outside.py calls it with what was posted.

An alert is about the node that one of its labels names; one that names none of ours is left to others. Its code is
alert.<name>, which treats nothing until the operator gives it a severity (severity_overrides), or xid.<n> when a label
says so. Format: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from sickbay.web.letters import Refused

MOST_ALERTS = 2_000  # of one message; Alertmanager's max_alerts keeps below it
LONGEST_NAME, LONGEST_LINE = 128, 300
MOST_LABELS = 64

# Labels that name a node, the most trustworthy first: `instance` is often an exporter's own address.
NODE_LABELS = (
    "node", "kubernetes_node", "node_name", "nodename", "Hostname", "hostname", "kubernetes_io_hostname", "host",
    "exported_node", "exported_instance", "instance",
)  # fmt: skip
XID_LABELS = ("xid", "XID", "xid_code", "err_code")
UUID_LABELS, INDEX_LABELS, PCI_LABELS = ("UUID", "uuid", "gpu_uuid"), ("gpu", "GPU", "gpu_index"), ("pci_bus_id",)
WORDS = ("summary", "message", "description")  # annotations for people
_PORT = re.compile(r":\d{1,5}$")
_PCI = re.compile(r"(?:0000)?([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?")
_PLAIN = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that an outsider says of a node: it stands, or it stands no more. `mark` tells it from others."""

    nodes: tuple[str, ...]  # names the node may have, the likeliest first
    mark: str
    stands: bool
    code: str
    reason: str
    since: str = ""  # when it began, in the outsider's words: another one is another event
    evidence: tuple[str, ...] = ()
    device: str = ""
    traits: Mapping[str, str] = field(default_factory=dict)
    at: float = 0.0


class Alert(msgspec.Struct, rename="camel"):
    status: str
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    starts_at: str = ""
    fingerprint: str = ""


class Message(msgspec.Struct, rename="camel"):
    version: str = "4"
    alerts: list[Alert] = []


_decoder = msgspec.json.Decoder(Message)


def read_alerts(body: bytes) -> list[Said]:
    """Everything in it that names a node. Refused when it is no message of Alertmanager's."""
    try:
        message = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Refused(400, "unreadable", f"this is no webhook message of Alertmanager: {str(error)[:200]}") from error
    if message.version != "4":
        raise Refused(400, "unreadable", f"version {message.version[:20]!r} of Alertmanager's webhook; 4 is understood")
    if len(message.alerts) > MOST_ALERTS:
        raise Refused(
            413, "too-large", f"more than {MOST_ALERTS} alerts: set max_alerts in Alertmanager's webhook_config"
        )
    return [said for alert in message.alerts if (said := _said(alert)) is not None]


def _said(alert: Alert) -> Said | None:
    labels = dict(list(alert.labels.items())[:MOST_LABELS])
    nodes = nodes_of(labels)
    if not nodes or alert.status not in ("firing", "resolved"):
        return None
    name = labels.get("alertname", "unnamed")[:LONGEST_NAME]
    words = next((text for key in WORDS if (text := alert.annotations.get(key, ""))), "")
    traits = {"alert": name, "severity": labels.get("severity", "")[:LONGEST_NAME],
              "uuid": first(labels, UUID_LABELS), "gpu": first(labels, INDEX_LABELS)}  # fmt: skip
    code, sticky = code_of(name, labels)
    return Said(
        nodes=nodes,
        mark=line(alert.fingerprint or _mark(labels)),
        stands=alert.status == "firing",
        code=code,
        reason=line(f"Alert {name} fires" + (f": {words}" if words else "")),
        since=alert.starts_at[:64],
        evidence=(line(f"{name}{{{', '.join(f'{k}={v}' for k, v in sorted(labels.items()) if k != 'alertname')}}}"),),
        device=pci_of(first(labels, PCI_LABELS)),
        traits={key: value for key, value in {**traits, **sticky}.items() if value},
        at=seconds(alert.starts_at),
    )


def nodes_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    """What its labels may mean: as they stand, without a port, and the host's short name."""
    found: dict[str, None] = {}
    for key in NODE_LABELS:
        value = _PORT.sub("", labels.get(key, "")[:253]).strip()
        for name in (value, value.partition(".")[0]):
            if name and name.isprintable():
                found[name] = None
    return tuple(found)


def code_of(name: str, labels: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """xid.<n> when a label says so (the exporter's gauge keeps the last XID: it may be old), else alert.<name>."""
    number = first(labels, XID_LABELS)
    if number.isascii() and number.isdecimal() and 0 < int(number) < 10_000:
        return f"xid.{int(number)}", {"sticky": "yes"}
    return f"alert.{_PLAIN.sub('-', name)}", {}


def first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((labels[key][:LONGEST_NAME] for key in keys if labels.get(key)), "")


def pci_of(address: str) -> str:
    """00000000:3B:00.0 -> 0000:3b:00; "" for what is no address."""
    found = _PCI.fullmatch(address.lower())
    return ":".join(found.groups()) if found else ""


def line(text: str) -> str:
    """One printable line, bounded: labels and annotations are text that others wrote."""
    flat = "".join(char if char.isprintable() else " " for char in text[: LONGEST_LINE * 2])
    return flat if len(flat) <= LONGEST_LINE else flat[: LONGEST_LINE - 1] + "…"


def _mark(labels: Mapping[str, str]) -> str:
    return "\0".join(f"{key}={value}" for key, value in sorted(labels.items()))


def seconds(stamp: str) -> float:
    try:
        return datetime.fromisoformat(stamp[:64]).timestamp()
    except (ValueError, OverflowError):
        return 0.0
