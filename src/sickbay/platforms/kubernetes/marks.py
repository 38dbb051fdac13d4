"""Our mark on a node: how it is made, read and taken off, as JSON patches that change nothing else.

Called by cordon, drain and guard. Pure: an object as it was read goes in, operations come out. Each operation is
preceded by tests of what was read, so that the API server applies all of them to the newest version or none, and a
rival who writes other fields all the time neither loses his writes nor holds up ours. Taints are one list to everybody
else: here one is added at its end or removed at its place, the others are never rewritten.

What we read back was on an object that others can write: it is bounded, checked and never trusted beyond our own keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from sickbay.kube.names import Keys
from sickbay.kube.objects import Meta, NodeObject, Shape, Taint
from sickbay.model import Action

MANAGER = "sickbay"  # our name in managedFields
NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
OUT_OF_SERVICE, SHUT_DOWN = "node.kubernetes.io/out-of-service", "nodeshutdown"

# The rivals' own words for "hands off": Karpenter's consolidation and drift, Cluster Autoscaler's scale-down.
NODE_POOL = "karpenter.sh/nodepool"  # label: Karpenter made it
HOLD_OFF = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
}
LONGEST = 256  # of a rival's value that we keep for him
MOST_BYTES = 4_096  # of the whole memory

Op = dict[str, Any]


class Managed(Shape):
    manager: str = ""
    fields_v1: dict[str, Any] | None = msgspec.field(default=None, name="fieldsV1")


class HeldMeta(Meta):
    managed_fields: list[Managed] | None = None


class HeldNode(NodeObject):
    """A node and who wrote its fields: only RELEASE needs to know, and it is long."""

    metadata: HeldMeta = msgspec.field(default_factory=HeldMeta)


@dataclass(frozen=True, slots=True)
class Found:
    """What we found when we closed the node. `out_of_service`: that taint is ours too. `home`: the namespace of the
    Sickbay that closed it; "" by an earlier version."""

    unschedulable: bool = False
    annotations: dict[str, str | None] | None = None
    out_of_service: bool = False
    home: str = ""

    def value(self, key: str) -> str | None:
        return (self.annotations or {}).get(key)


def case_of(action: Action) -> str:
    """Keys of cases begin with the case: "{case}/{step}-{opened}"."""
    return action.args.get("case") or action.key.rpartition("/")[0]


def adopted_of(action: Action) -> str:
    """An older mark of ours that has no record: the controller says so, having read the store and the node."""
    return action.args.get("adopts", "")


def number_of(case: str) -> str:
    """What the taint says: the case's number, since a taint's value is short and has no room for a node's name."""
    number = case.rpartition(".")[2]
    return number if number.isdigit() and len(number) <= 63 else "0"


def mark_of(node: NodeObject, keys: Keys) -> str:
    """The case that our annotation names. The node is held only while our taint is there too: see views.mark_of."""
    return node.metadata.annotation(keys.case)


def is_held_by_gate(node: NodeObject, keys: Keys) -> bool:
    """Karpenter's, and still behind the gate that its NodePool declares: the gate closes it, and no cordon may.
    Karpenter expects that one taint to go; with any other the node is useless for the pods that wait, and it makes the
    next, and the next."""
    return bool(node.metadata.label(NODE_POOL)) and find_taint(node, keys.newcomer) is not None


def is_closed(node: NodeObject, keys: Keys, case: str) -> bool:
    """Wholly ours: annotation, cordon and taint; behind a gate the annotation."""
    if is_held_by_gate(node, keys):
        return mark_of(node, keys) == case
    place = find_taint(node, keys.case)
    taints = node.spec.taints or []
    ours = place is not None and taints[place].value == number_of(case)
    return mark_of(node, keys) == case and node.spec.unschedulable and ours


def find_taint(node: NodeObject, key: str, effect: str = NO_SCHEDULE) -> int | None:
    return next((i for i, t in enumerate(node.spec.taints or ()) if (t.key, t.effect) == (key, effect)), None)


# --- what was there before --------------------------------------------------------------------------------------------


def write_found(found: Found) -> str:
    return msgspec.json.encode(found).decode()


def read_found(node: NodeObject, keys: Keys) -> Found | None:
    """None when there is none, or when what is there cannot have been written by us."""
    text = node.metadata.annotation(keys.before)
    if not text or len(text) > MOST_BYTES:
        return None
    try:
        found = msgspec.json.decode(text.encode(), type=Found)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    kept = {k: v for k, v in (found.annotations or {}).items() if k in HOLD_OFF and len(v or "") <= LONGEST}
    return replace(found, annotations=kept)


def find(node: NodeObject, keys: Keys, case: str, adopts: str = "") -> Found:
    """What a cordon of this node has to remember. Our own earlier cordon is not somebody else's."""
    known = read_found(node, keys)
    ours = mark_of(node, keys) in (case, adopts or case) or (
        not mark_of(node, keys) and find_taint(node, keys.case) is not None
    )
    if known is None or not ours:
        there = node.metadata.annotations or {}
        return Found(node.spec.unschedulable, {key: there.get(key) for key in _free(node)})
    return known if node.spec.unschedulable else replace(known, unschedulable=False)


def _free(node: NodeObject) -> list[str]:
    """The rivals' keys that we may set: a value too long to be kept for him stays as it is."""
    return [key for key in HOLD_OFF if len(node.metadata.annotation(key)) <= LONGEST]


def in_service(node: HeldNode, keys: Keys) -> HeldNode:
    """The node as it will be without an out-of-service taint of ours."""
    found = read_found(node, keys)
    if found is None or not found.out_of_service:
        return node
    left = [taint for taint in node.spec.taints or () if taint.key != OUT_OF_SERVICE]
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=left))


# --- patches ----------------------------------------------------------------------------------------------------------


def cordon_ops(node: NodeObject, keys: Keys, case: str, adopts: str = "", home: str = "") -> list[Op]:
    """Close the node in the name of `case`; empty when it is. `adopts`: a mark of ours that it takes the place of."""
    if is_closed(node, keys, case):
        return []
    found = replace(find(node, keys, case, adopts), home=home)
    ops = [same("/metadata/uid", node.metadata.uid), *_room(node)]
    ops += annotate(node, keys.case, case) + annotate(node, keys.before, write_found(found))
    for key in _free(node):
        ops += annotate(node, key, HOLD_OFF[key])
    if is_held_by_gate(node, keys):
        return ops
    ops += [same("/spec/unschedulable", node.spec.unschedulable or None), add("/spec/unschedulable", True)]
    return ops + taint_ops(node, Taint(keys.case, NO_SCHEDULE, number_of(case)))


def release_ops(node: HeldNode, keys: Keys, case: str, *, cancel: bool) -> list[Op]:
    """Take off what is ours and put back what was there; empty when nothing of ours is there."""
    found, ops = read_found(node, keys), []
    examined = () if cancel else (keys.quarantine_result,)  # what a sweep found has been treated and verified since
    for key in (keys.case, keys.before, keys.treatment, *examined):
        ops += annotate(node, key, None)
    ops += _hand_back(node, found)
    if opens(node, keys, case):
        ops += [same("/spec/unschedulable", True), {"op": "remove", "path": "/spec/unschedulable"}]
    gone = [(keys.case, NO_SCHEDULE)] + ([] if cancel else [(keys.newcomer, NO_SCHEDULE)])
    if found is not None and found.out_of_service:
        gone.append((OUT_OF_SERVICE, NO_EXECUTE))
    ops += untaint_ops(node, gone)
    return [same("/metadata/uid", node.metadata.uid), *ops] if ops else []


def opens(node: HeldNode, keys: Keys, case: str) -> bool:
    """May RELEASE lift the cordon? Only if we closed a node that was open, and nobody has closed it since."""
    found = read_found(node, keys)
    ours = mark_of(node, keys) == case or find_taint(node, keys.case) is not None
    return bool(node.spec.unschedulable and ours and found and not found.unschedulable and not closed_by(node))


def closed_by(node: HeldNode) -> tuple[str, ...]:
    """Who else wrote `unschedulable`, by the API server's own record: he closed the node after us, or with us."""
    return tuple(
        entry.manager
        for entry in node.metadata.managed_fields or ()
        if entry.manager != MANAGER and "f:unschedulable" in _fields(entry.fields_v1, "f:spec")
    )


def _fields(fields: dict[str, Any] | None, name: str) -> dict[str, Any]:
    inner = (fields or {}).get(name)
    return inner if isinstance(inner, dict) else {}


def _hand_back(node: NodeObject, found: Found | None) -> list[Op]:
    """A rival's marker that is no longer as we set it is his again."""
    ops: list[Op] = []
    for key in (found.annotations or {}) if found else ():
        if found and node.metadata.annotation(key) == HOLD_OFF[key]:
            ops += annotate(node, key, found.value(key))
    return ops


def annotate(node: NodeObject, key: str, value: str | None) -> list[Op]:
    """Set one annotation, or remove it (None), provided that it is still as we read it."""
    there, path = (node.metadata.annotations or {}).get(key), f"/metadata/annotations/{_escaped(key)}"
    if there == value:
        return []
    if value is None:
        return [same(path, there), {"op": "remove", "path": path}]
    return [same(path, there), add(path, value)]


def taint_ops(node: NodeObject, taint: Taint) -> list[Op]:
    """Add one at the end, or correct the value of the one that is there."""
    place = find_taint(node, taint.key, taint.effect)
    if place is not None:
        there = (node.spec.taints or [])[place]
        if there.value == taint.value:
            return []
        return [*_is(place, there.key, there.effect), add(f"/spec/taints/{place}/value", taint.value)]
    made = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    if node.spec.taints:
        return [add("/spec/taints/-", made)]
    return [same("/spec/taints", None), add("/spec/taints", [made])]


def untaint_ops(node: NodeObject, gone: list[tuple[str, str]]) -> list[Op]:
    places = sorted((p for key, effect in gone if (p := find_taint(node, key, effect)) is not None), reverse=True)
    taints, ops = node.spec.taints or [], []
    for place in places:  # from the end, so that the places before it stay what they are
        ops += [*_is(place, taints[place].key, taints[place].effect), {"op": "remove", "path": f"/spec/taints/{place}"}]
    return ops


def _is(place: int, key: str, effect: str) -> list[Op]:
    return [same(f"/spec/taints/{place}/key", key), same(f"/spec/taints/{place}/effect", effect)]


def _room(node: NodeObject) -> list[Op]:
    """A node without any annotation has no place to put one."""
    return [] if node.metadata.annotations else [same("/metadata/annotations", None), add("/metadata/annotations", {})]


def same(path: str, value: object) -> Op:
    """None: it is not there."""
    return {"op": "test", "path": path, "value": value}


def add(path: str, value: object) -> Op:
    return {"op": "add", "path": path, "value": value}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
