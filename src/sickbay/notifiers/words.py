"""A notice as others read it: plain text, and the originals' event payload beside our own fields.

Called by the notifiers that leave this machine. Text in a notice may quote hostile or secret log lines: credentials are
blotted out, characters that no encoding takes are replaced, and everything has a bound. It must never do IO.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from sickbay.model import Notice
from sickbay.notifiers.log import without_secrets

LONGEST_BODY = 32_000
LONGEST_NAME = 253
_XID = re.compile(r"\bXID[ _:#.]*(\d{1,4})\b", re.IGNORECASE)

# The originals' own lists (reference/originals, 000.7): what their SNS handler called critical, and what a warning.
CRITICAL_XIDS = frozenset({"999", "79", "74"})
URGENCY = {"urgent": "CRITICAL", "warning": "WARNING"}
HEALTH = {"urgent": "GPU_HEALTH_ERROR", "warning": "GPU_HEALTH_WARNING"}


def clean(text: str, longest: int = LONGEST_BODY) -> str:
    """Sendable anywhere: no lone surrogates, no control characters but line ends, no credentials, bounded."""
    known = text[: longest * 2].encode("utf-8", "replace").decode("utf-8")
    safe = "".join(char if char.isprintable() or char in "\n\t" else "?" for char in without_secrets(known))
    return safe if len(safe) <= longest else safe[: longest - 1] + "…"


def node_of(notice: Notice) -> str:
    """The node of "{node}.{n}"; "" for what is about no node."""
    node, _, number = notice.case.rpartition(".")
    return clean(node, LONGEST_NAME) if number.isdecimal() else ""


def stamp(at: float) -> str:
    """ISO 8601 and Z, as the originals; a time that is none is now's absence, not an error."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):
        return "1970-01-01T00:00:00Z"


def error_type(notice: Notice) -> str:
    """In the originals' vocabulary: XID_CRITICAL_79, XID_WARNING_31, GPU_HEALTH_ERROR, GPU_HEALTH_WARNING."""
    found = _XID.search(f"{notice.title[:2000]} {notice.body[:8000]}")
    if found:
        kind = "CRITICAL" if found.group(1) in CRITICAL_XIDS else "WARNING"
        return f"XID_{kind}_{found.group(1)}"
    return HEALTH.get(notice.level, "GPU_HEALTH_INFO")


def payload(notice: Notice, cluster: str, instance: str = "") -> dict[str, Any]:
    """The originals' keys, so that their receivers keep working, and ours under "notice"."""
    ours = {
        "key": clean(notice.key, 512), "level": clean(notice.level, 64), "title": clean(notice.title, 1_000),
        "body": clean(notice.body), "case": clean(notice.case, 512), "at": stamp(notice.at), "schema": 1,
    }  # fmt: skip
    return {
        "timestamp": stamp(notice.at),
        "error_type": error_type(notice),
        "node_name": node_of(notice),
        "instance_id": clean(instance, LONGEST_NAME),
        "error_details": f"{ours['title']}\n{ours['body']}"[:LONGEST_BODY],
        "cluster_name": clean(cluster, LONGEST_NAME),
        "notice": ours,
    }


def plain(notice: Notice, cluster: str, longest: int = LONGEST_BODY) -> str:
    """For people: what happened, then where to look. The end stays whole when the middle is cut."""
    rows = (
        ("urgency", URGENCY.get(notice.level, "INFO") + f" ({clean(notice.level, 64)})"), ("time", stamp(notice.at)),
        ("cluster", clean(cluster, LONGEST_NAME)), ("node", node_of(notice)), ("case", clean(notice.case, 512)),
        ("notice", clean(notice.key, 512)),
    )  # fmt: skip
    foot = "\n".join(f"{name}: {value}" for name, value in rows if value)
    return f"{clean(notice.body, max(100, longest - len(foot) - 2))}\n\n{foot}"
