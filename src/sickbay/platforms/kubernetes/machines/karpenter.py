"""Karpenter: the NodeClaim behind a node, whether its NodePool would make another, and giving it back.

Called by replace.py through machines/__init__.py, and by gate.py. Field names: Karpenter's CRDs, karpenter.sh/v1. A
NodeClaim keeps its finalizer until the provider has let the instance go, so a claim that is not there any more is a
machine that is gone. It must never touch a NodePool.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from sickbay.errors import ApiError
from sickbay.kube.api import Api, segment
from sickbay.kube.objects import Condition, Meta, NodeObject, Shape, Taint

BASE = "/apis/karpenter.sh/v1"
POOL_LABEL = "karpenter.sh/nodepool"
_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
          "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")


class ClaimStatus(Shape):
    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    conditions: list[Condition] | None = None


class Claim(Shape):
    metadata: Meta = msgspec.field(default_factory=Meta)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)


class TemplateSpec(Shape):
    startup_taints: list[Taint] | None = None


class Template(Shape):
    spec: TemplateSpec = msgspec.field(default_factory=TemplateSpec)


class PoolSpec(Shape):
    limits: dict[str, Any] | None = None
    template: Template = msgspec.field(default_factory=Template)


class PoolStatus(Shape):
    resources: dict[str, Any] | None = None
    conditions: list[Condition] | None = None


class Pool(Shape):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: PoolSpec = msgspec.field(default_factory=PoolSpec)
    status: PoolStatus = msgspec.field(default_factory=PoolStatus)


def claims_it(node: NodeObject) -> bool:
    """Did Karpenter make this node? Its label and its owner reference say so; neither costs a request."""
    return bool(node.metadata.label(POOL_LABEL)) or bool(_owner(node))


def _owner(node: NodeObject) -> str:
    return next((o.name for o in node.metadata.owner_references or () if o.kind == "NodeClaim"), "")


def claim_of(api: Api, node: NodeObject) -> Claim | None:
    """By the node's owner reference; without one, the claim of its pool that names the node or its machine."""
    if owner := _owner(node):
        return api.find(f"{BASE}/nodeclaims/{segment(owner)}", Claim)
    pool, machine = node.metadata.label(POOL_LABEL), node.spec.provider_id
    claims = api.list(f"{BASE}/nodeclaims", Claim, labelSelector=f"{POOL_LABEL}={pool}")
    mine = [c for c in claims if c.status.node_name == node.metadata.name or c.status.provider_id == machine != ""]
    return mine[0] if mine else None


def is_claimed(api: Api, machine: str) -> bool:
    """Does any claim still hold this machine? For when its node is gone already: Karpenter removes that first."""
    return bool(_claims_on(api, machine))


def is_leaving(api: Api, machine: str) -> bool:
    """Is a claim on it on its way out?"""
    return any(claim.metadata.deletion_timestamp for claim in _claims_on(api, machine))


def _claims_on(api: Api, machine: str) -> list[Claim]:
    try:
        claims = api.list(f"{BASE}/nodeclaims", Claim)
    except ApiError as error:
        if error.not_found:  # no Karpenter here
            return []
        raise
    return [c for c in claims if c.status.provider_id and same_machine(c.status.provider_id, machine)]


def same_machine(provider_id: str, machine: str) -> bool:
    return machine != "" and (provider_id == machine or provider_id.endswith(f"/{machine}"))


def no_successor(api: Api, node: NodeObject, gpu_resource: str) -> str:
    """Why Karpenter would make no other node of this pool; "" when it would, once pods wait for one."""
    name = node.metadata.label(POOL_LABEL)
    pool = api.find(f"{BASE}/nodepools/{segment(name)}", Pool) if name else None
    if pool is None:
        return f"its NodePool {name or '(no label)'} is not there any more: Karpenter would make no successor"
    if pool.metadata.deletion_timestamp:
        return f"its NodePool {name} is being deleted: Karpenter would make no successor"
    ready = _condition(pool.status.conditions, "Ready")
    if ready is not None and ready.status == "False":
        return f"its NodePool {name} is not ready: {ready.reason} {ready.message}".strip()[:300]
    return _over(pool, gpu_resource) or _stuck(api, name)


def declares(api: Api, node: NodeObject, taint: str) -> bool:
    """Does its NodePool say in startupTaints that a new node carries this taint for a while? One that it does not
    expect makes Karpenter count the node as useless for the pods that wait, and make another."""
    name = node.metadata.label(POOL_LABEL)
    pool = api.find(f"{BASE}/nodepools/{segment(name)}", Pool) if name else None
    return pool is not None and any(one.key == taint for one in pool.spec.template.spec.startup_taints or ())


def _over(pool: Pool, gpu_resource: str) -> str:
    """Above its limit (not at it: what this node gives back is free again) nothing new is launched."""
    limits, used = pool.spec.limits or {}, pool.status.resources or {}
    for resource in ("nodes", gpu_resource, "cpu", "memory"):
        most, now = quantity(limits.get(resource)), quantity(used.get(resource))
        if most is not None and now is not None and now > most:
            return (
                f"its NodePool {pool.metadata.name} is above its limit of {limits[resource]} {resource} ({now:g} used)"
            )
    return ""


def _stuck(api: Api, pool: str) -> str:
    """Another claim of this pool cannot be launched just now: ours would wait behind it."""
    for claim in api.list(f"{BASE}/nodeclaims", Claim, labelSelector=f"{POOL_LABEL}={pool}"):
        launched = _condition(claim.status.conditions, "Launched")
        if launched is not None and launched.status == "False" and not claim.metadata.deletion_timestamp:
            said = f"{launched.reason} {launched.message}".strip()
            return f"NodeClaim {claim.metadata.name} of the same pool cannot be launched: {said}"[:300]
    return ""


def _condition(conditions: list[Condition] | None, kind: str) -> Condition | None:
    return next((c for c in conditions or () if c.type == kind), None)


def delete(api: Api, claim: Claim) -> None:
    """This very claim: one made anew under the same name is not ours to delete."""
    body = {"preconditions": {"uid": claim.metadata.uid}}
    api.delete(f"{BASE}/nodeclaims/{segment(claim.metadata.name)}", body)


def quantity(text: Any) -> float | None:
    """A Kubernetes quantity as a number; None when there is none, or none we can read."""
    found = _QUANTITY.fullmatch(str(text)) if text is not None else None
    if found is None or found.group(2) not in _UNITS:
        return None
    try:
        return float(found.group(1)) * _UNITS[found.group(2)]
    except ValueError:
        return None
