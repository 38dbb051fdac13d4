"""Cluster API: the Machine behind a node, whether its MachineSet would make another, and giving it back.

Called by replace.py through machines/__init__.py. The node names its Machine by annotations that Cluster API puts on
it. Both served versions (v1beta1, v1beta2) have the fields used here. It must never touch a MachineSet.
"""

from __future__ import annotations

import msgspec

from sickbay.errors import ApiError
from sickbay.kube.api import Api, segment
from sickbay.kube.objects import Meta, NodeObject, Shape
from sickbay.platforms.kubernetes.machines.karpenter import same_machine

GROUP = "/apis/cluster.x-k8s.io"
MACHINE = "cluster.x-k8s.io/machine"
NAMESPACE = "cluster.x-k8s.io/cluster-namespace"
PAUSED = "cluster.x-k8s.io/paused"
CONTROL_PLANE = "cluster.x-k8s.io/control-plane"


class _Version(Shape):
    version: str = ""


class _Group(Shape):
    preferred_version: _Version = msgspec.field(default_factory=_Version)


class MachineSpec(Shape):
    cluster_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")


class MachineStatus(Shape):
    phase: str = ""


class MachineObject(Shape):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: MachineSpec = msgspec.field(default_factory=MachineSpec)
    status: MachineStatus = msgspec.field(default_factory=MachineStatus)


class SetSpec(Shape):
    replicas: int | None = None
    paused: bool = False


class Keeper(Shape):
    """A MachineSet or Cluster, as far as it says whether it is at work."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: SetSpec = msgspec.field(default_factory=SetSpec)


def claims_it(node: NodeObject) -> bool:
    return bool(node.metadata.annotation(MACHINE))


def machine_of(api: Api, node: NodeObject) -> MachineObject | None:
    namespace, name = node.metadata.annotation(NAMESPACE), node.metadata.annotation(MACHINE)
    base = _base(api)
    return api.find(f"{base}/namespaces/{segment(namespace)}/machines/{segment(name)}", MachineObject) if base else None


def _base(api: Api) -> str:
    """The version this server prefers; "" when it knows no Cluster API."""
    group = api.find(GROUP, _Group)
    return f"{GROUP}/{group.preferred_version.version}" if group and group.preferred_version.version else ""


def is_claimed(api: Api, machine: str) -> bool:
    """Does any Machine still stand for it?"""
    return bool(_machines_on(api, machine))


def is_leaving(api: Api, machine: str) -> bool:
    return any(found.metadata.deletion_timestamp for found in _machines_on(api, machine))


def _machines_on(api: Api, machine: str) -> list[MachineObject]:
    base = _base(api)
    try:
        machines = api.list(f"{base}/machines", MachineObject) if base else []
    except ApiError as error:
        if error.not_found:
            return []
        raise
    return [m for m in machines if m.spec.provider_id and same_machine(m.spec.provider_id, machine)]


def no_successor(api: Api, node: NodeObject) -> str:
    """Why nobody would make another Machine in its place; "" when its MachineSet would."""
    machine = machine_of(api, node)
    if machine is None:
        name = node.metadata.annotation(MACHINE)
        return f"its Machine {name} is not in this cluster: Sickbay must run where Cluster API's objects live"
    if machine.metadata.label(CONTROL_PLANE) or CONTROL_PLANE in (machine.metadata.labels or {}):
        return f"Machine {machine.metadata.name} belongs to the control plane"
    keeper = next((o for o in machine.metadata.owner_references or () if o.controller), None)
    if keeper is None or keeper.kind != "MachineSet":
        kind = keeper.kind if keeper else "nobody"
        return f"Machine {machine.metadata.name} is kept by {kind}, not by a MachineSet: no successor would be made"
    return _unwilling(api, machine, keeper.name)


def _unwilling(api: Api, machine: MachineObject, keeper: str) -> str:
    base = f"{_base(api)}/namespaces/{segment(machine.metadata.namespace)}"
    found = api.find(f"{base}/machinesets/{segment(keeper)}", Keeper)
    if found is None or found.metadata.deletion_timestamp:
        return f"its MachineSet {keeper} is not there any more"
    if (found.spec.replicas if found.spec.replicas is not None else 1) < 1:
        return f"its MachineSet {keeper} wants no machines"
    if PAUSED in (found.metadata.annotations or {}):
        return f"its MachineSet {keeper} is paused"
    cluster = api.find(f"{base}/clusters/{segment(machine.spec.cluster_name)}", Keeper)
    if cluster is not None and (cluster.spec.paused or PAUSED in (cluster.metadata.annotations or {})):
        return f"its Cluster {machine.spec.cluster_name} is paused: Cluster API would do nothing"
    return ""


def delete(api: Api, machine: MachineObject) -> None:
    body = {"preconditions": {"uid": machine.metadata.uid}}
    namespace, name = segment(machine.metadata.namespace), segment(machine.metadata.name)
    api.delete(f"{_base(api)}/namespaces/{namespace}/machines/{name}", body)
