"""One taint put on or taken off a node, with everybody else's left as they are.

Taints are one list, and a merge or an apply replaces all of it. So they are changed by JSON patches that append one or
remove one at a known place, each with a test; what is not as it was read is read again. Called by the agent's publisher
and whoever else marks nodes by a taint alone. It must never write a list that it has read before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import NodeObject, Taint

TRIES = 8  # reads; a rival would have to write between each read and our patch


def find_taint(node: NodeObject, key: str, effect: str = "NoSchedule") -> int:
    """Where it stands in the node's list; -1 if it does not."""
    taints = node.spec.taints or []
    return next((i for i, taint in enumerate(taints) if (taint.key, taint.effect) == (key, effect)), -1)


def put_taint(api: Api, node: NodeObject, taint: Taint) -> NodeObject:
    """The node as it is with it. `node`: as just read; that there is nothing to do is believed, all else is tested."""
    return _until(api, node, lambda seen: _adding(seen, taint))


def lift_taint(api: Api, node: NodeObject, key: str, effect: str = "NoSchedule") -> NodeObject:
    """The node as it is without it."""
    return _until(api, node, lambda seen: _removing(seen, key, effect))


def _until(api: Api, node: NodeObject, change: Any) -> NodeObject:
    """Patch, and read again as long as it was not as we thought. ApiError when it never is, or for anything else."""
    path, seen = names.node(node.metadata.name), node
    for left in range(TRIES - 1, -1, -1):
        patch = change(seen)
        if not patch:
            return seen
        try:
            return api.patch(path, patch, NodeObject, "json")
        except ApiError as error:
            if error.status not in (409, 422) or not left:  # 422: a test of ours did not hold
                raise
            seen = api.get(path, NodeObject)
    raise AssertionError("not reached")


def _adding(node: NodeObject, taint: Taint) -> list[Mapping[str, Any]]:
    place = find_taint(node, taint.key, taint.effect)
    new = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    if place >= 0:
        if (node.spec.taints or [])[place].value == taint.value:
            return []
        return [
            *_same(place, taint.key, taint.effect),
            {"op": "replace", "path": f"/spec/taints/{place}", "value": new},
        ]
    if node.spec.taints:
        return [{"op": "add", "path": "/spec/taints/-", "value": new}]
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version}
    return [unchanged, {"op": "add", "path": "/spec/taints", "value": [new]}]  # no list yet, and nobody made one since


def _removing(node: NodeObject, key: str, effect: str) -> list[Mapping[str, Any]]:
    place = find_taint(node, key, effect)
    return [] if place < 0 else [*_same(place, key, effect), {"op": "remove", "path": f"/spec/taints/{place}"}]


def _same(place: int, key: str, effect: str) -> tuple[Mapping[str, Any], ...]:
    at = f"/spec/taints/{place}"
    return (
        {"op": "test", "path": f"{at}/key", "value": key}, {"op": "test", "path": f"{at}/effect", "value": effect},
    )  # fmt: skip
