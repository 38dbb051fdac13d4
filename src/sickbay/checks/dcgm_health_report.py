"""`dcgmi health -c` taken apart: which watch of which GPU reports what. JSON, the table, or the engine's own log line.

`dcgm_health` judges it. Formats: dcgmi's Health.cpp and DcgmiOutput.cpp ("value", "children", "overflow"), DCGM 2 to 4;
nv-hostengine.log. Pure; it must never raise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sickbay.checks.dcgm_text import Row, rows

MOST = 1_024  # incidents
MOST_DEEP = 8  # levels of a report's tree; there are four
HEALTHS = ("healthy", "warning", "failure", "internal error")


@dataclass(frozen=True, slots=True)
class Incident:
    group: str  # "GPU", "NvSwitch", ...
    entity: str  # its number there
    system: str  # "NVLINK system", "Memory system", ...; "" the entity as a whole
    health: str  # "Warning", "Failure"
    messages: tuple[str, ...] = ()


def incidents(text: str) -> list[Incident] | None:
    """What the report complains of; [] if all is healthy, None if there is no report in the text."""
    body = _body(text)
    if body is not None:
        overall, found = _value(body.get("Overall Health")), list(_from_tree(body))
    else:
        overall, found = _from_table(text)
        found += _from_log(text)
    if not overall and not found:
        return None
    found = [i for i in found if i.health.lower() != "healthy"][:MOST]
    if not found and overall and overall.lower() != "healthy":
        found = [Incident("", "", "", overall)]
    return found


def _body(text: str) -> dict[str, Any] | None:
    decoder, at = json.JSONDecoder(), text.find("{")
    for _ in range(16):
        if at < 0:
            return None
        try:
            found, _ = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            found = None
        body = found.get("body") if isinstance(found, dict) else None
        if isinstance(body, dict) and "Overall Health" in body:
            return body
        at = text.find("{", at + 1)
    return None


def _value(node: object) -> str:
    return str(node.get("value") or "")[:40] if isinstance(node, dict) else ""


def _from_tree(body: Mapping[str, Any]) -> Iterator[Incident]:
    for group, node in list(body.items())[:64]:
        if group != "Overall Health":
            yield from _entities(str(group)[:40], node)


def _entities(group: str, node: object) -> Iterator[Incident]:
    """Entities by number; in older releases they stand at the top, without a group."""
    below = _children(node)
    if group.isdecimal():
        yield from _systems("GPU", group, node)
    for name, entity in below.items():
        if name.isdecimal():
            yield from _systems(group, name[:8], entity)


def _systems(group: str, number: str, entity: object) -> Iterator[Incident]:
    found = list(_watches(entity, 0))
    for name, node in found:
        lines = node.get("overflow")
        said = tuple(str(line)[:400] for line in lines[:32]) if isinstance(lines, list) else ()
        yield Incident(group, number, name[:40], _value(node), said)
    if not found and _value(entity):
        yield Incident(group, number, "", _value(entity))


def _watches(node: object, deep: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The nodes below that are watches: whatever has a health of its own, "Errors" in between or not."""
    if deep > MOST_DEEP:
        return
    for name, child in _children(node).items():
        if _value(child).lower() in HEALTHS:
            yield name, child
        else:
            yield from _watches(child, deep + 1)


def _children(node: object) -> dict[str, Any]:
    below = node.get("children") if isinstance(node, dict) else None
    return {str(k): v for k, v in list(below.items())[:256] if isinstance(v, dict)} if isinstance(below, dict) else {}


_ENTITY = re.compile(r"^(?:GPU ID: ?)?(\d{1,4})$")


def _from_table(text: str) -> tuple[str, list[Incident]]:
    """The same tree as rows: "-> " and its indentation make the levels, a row without a name goes on with a message."""
    overall, group, entity, open_ = "", "GPU", "", -1
    found: list[Incident] = []
    for row in rows(text):
        if not isinstance(row, Row):
            continue
        left, right = row.left.strip(), row.right.strip()
        name = left.removeprefix("->").strip()
        if left == "Overall Health":
            overall, open_ = right[:40], -1
        elif not left:
            if open_ >= 0 and right and len(found[open_].messages) < 32:
                found[open_] = _longer(found[open_], right[:400])
        elif number := _ENTITY.match(name):
            entity, open_ = number.group(1), _told(found, Incident(group, number.group(1), "", right), overall)
        elif right.lower() in HEALTHS and overall:
            _drop_summary(found, entity)
            open_ = _told(found, Incident(group, entity, name[:40], right[:40]), overall)
        elif not left.startswith("->") and overall:
            group, open_ = left[:40], -1
    return overall, found


def _told(found: list[Incident], incident: Incident, overall: str) -> int:
    """Where it was put; -1 if it says nothing or stands outside of a report."""
    if not overall or incident.health.lower() not in HEALTHS or len(found) >= MOST:
        return -1
    found.append(incident)
    return len(found) - 1


def _drop_summary(found: list[Incident], entity: str) -> None:
    """The entity's own row only repeats the worst of its watches."""
    if found and found[-1].entity == entity and not found[-1].system:
        found.pop()


def _longer(incident: Incident, line: str) -> Incident:
    return Incident(incident.group, incident.entity, incident.system, incident.health, (*incident.messages, line))


_LOG = re.compile(r"Detected an? (WARNING|FAILURE) in health system (\w{1,24}): '([^'\n]{0,800}(?:'s[^'\n]{0,800})?)")


def _from_log(text: str) -> list[Incident]:
    """nv-hostengine.log tells the same, a line each."""
    found = (match for _, match in zip(range(MOST), _LOG.finditer(text), strict=False))
    return [Incident("", "", f"{m[2]} system", m[1].capitalize(), (m[3].strip(),)) for m in found]
