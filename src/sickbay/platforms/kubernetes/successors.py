"""Successors that are due: which pools expect a machine in place of a replaced one, so that it is examined first.

replace.py writes a line here just before it gives a machine back; the newcomer gate reads them when a GPU node joins
(`due`, `answered_by`) and strikes the line out when the gate is closed (`met`). Only a node that joined after its line
was written can be the successor, however long nobody looked. One ConfigMap, bounded; a line that nobody met is
forgotten after a week.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import msgspec

from sickbay.kube.api import segment
from sickbay.kube.conflicts import settle
from sickbay.kube.objects import Meta, NodeObject, Shape
from sickbay.model import Action
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.verify import stamp
from sickbay.platforms.kubernetes.views import instance_of

NAME = "sickbay-successors"
MOST = 200
FORGET_S = 7 * 86_400.0
SKEW_S = 120.0  # between whoever wrote the line and the API server, which says when a node joined

Lines = dict[str, "Successor"]


class ConfigMap(Shape):
    metadata: Meta = msgspec.field(default_factory=Meta)
    data: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Successor:
    """One that is due: of this pool, for this action, since then."""

    key: str
    node: str
    instance: str
    pool: str
    at: float  # wall time of the API server


def pool_of(site: Site, labels: Mapping[str, str]) -> str:
    return next((labels[key] for key in site.settings.pool_labels if labels.get(key)), "default")


def expect(site: Site, action: Action, node: NodeObject) -> None:
    """Write it down; the same action again is the same line."""
    line = Successor(action.key, node.metadata.name, instance_of(node), pool_of(site, node.metadata.labels or {}),
                     site.server_now())  # fmt: skip
    _change(site, lambda lines: {**lines, _slot(action.key): line})


def due(site: Site) -> list[Successor]:
    return list(_lines(site, _read(site)).values())


def answered_by(site: Site, lines: Sequence[Successor], node: NodeObject) -> Successor | None:
    """The line this node answers: its own name, or the oldest of its pool. None for the very machine that was left, and
    for one that had joined before."""
    joined, mine = stamp(node.metadata.creation_timestamp), pool_of(site, node.metadata.labels or {})
    after = [s for s in lines if s.instance != instance_of(node) and joined >= s.at - SKEW_S]
    fits = [s for s in after if s.node == node.metadata.name] or [s for s in after if s.pool == mine]
    return min(fits, key=lambda s: s.at, default=None)


def met(site: Site, successor: Successor) -> None:
    """It has come and its gate is closed."""
    _change(site, lambda lines: {slot: s for slot, s in lines.items() if s.key != successor.key})


# --- the ConfigMap ----------------------------------------------------------------------------------------------------


def _slot(key: str) -> str:
    """A ConfigMap's keys take letters, digits, '-', '_' and '.'."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in key)[:253]


def _folder(site: Site) -> str:
    return f"/api/v1/namespaces/{segment(site.settings.namespace)}/configmaps"


def _read(site: Site) -> ConfigMap | None:
    return site.api.find(f"{_folder(site)}/{NAME}", ConfigMap)


def _lines(site: Site, found: ConfigMap | None) -> dict[str, Successor]:
    lines: dict[str, Successor] = {}
    for slot, text in ((found.data if found else None) or {}).items():
        try:
            lines[slot] = msgspec.json.decode(text.encode(), type=Successor)
        except (msgspec.MsgspecError, UnicodeError):
            continue
    now = site.server_now()
    fresh = sorted((item for item in lines.items() if now - item[1].at < FORGET_S), key=lambda item: item[1].at)
    return dict(fresh[-MOST:])


def _change(site: Site, change: Callable[[Lines], Lines]) -> None:
    """Read, change, write while nobody else did; made when it is not there."""
    settle(partial(_change_once, site, change))


def _change_once(site: Site, change: Callable[[Lines], Lines]) -> None:
    found = _read(site)
    before = _lines(site, found)
    data = {slot: msgspec.json.encode(asdict(line)).decode() for slot, line in change(before).items()}
    meta = {"name": NAME, "namespace": site.settings.namespace}
    if found is None:
        site.api.create(_folder(site), {"metadata": meta, "data": data}, ConfigMap)
    else:
        meta["resourceVersion"] = found.metadata.resource_version
        site.api.replace(f"{_folder(site)}/{NAME}", {"metadata": meta, "data": data}, ConfigMap)
