"""GPU nodes of the test cluster: made, rebooted, their kubelet killed and revived, taken away.

Called by Cluster's methods of the same names. Only nodes made here may be touched.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject
from testbed.plane import KUBELET
from testbed.waiting import until

HOLD = "sim.test/hold"
MADE = "sim.test/made"  # label: this node is of the testbed
AT_ONCE = 16
KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def gpu_node(
    name: str, *, gpus: int = 8, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (), boot_id: str = "", provider_id: str | None = None,
    instance_type: str = "p5.48xlarge", zone: str = "us-west-2a", kubelet: str = "alive", pad: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """As a kubelet of a p5.48xlarge would register itself. `pad`: bytes of annotations, as real nodes carry."""
    sizes = {"cpu": "192", "memory": "2Ti", "pods": "110", "ephemeral-storage": "1Ti", "nvidia.com/gpu": str(gpus)}
    if not gpus:
        del sizes["nvidia.com/gpu"]
    ours = {
        MADE: "true", KUBELET: kubelet, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/zone": zone, **({"nvidia.com/gpu.present": "true"} if gpus else {}),
    }  # fmt: skip
    padding = {"sim.test/padding": "x" * pad} if pad else {}
    instance = f"aws:///{zone}/i-{secrets.token_hex(9)[:17]}" if provider_id is None else provider_id
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {**ours, **(labels or {})},
                     "annotations": {**padding, **(annotations or {})}},
        "spec": {"providerID": instance, "taints": [dict(taint) for taint in taints]},
        "status": {"capacity": sizes, "allocatable": sizes, "nodeInfo": _node_info(boot_id or str(uuid.uuid4())),
                   "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "10.1.0.1"}]},
    }  # fmt: skip


def add(api: Api, bodies: Iterable[Mapping[str, Any]], *, wait: bool = True, within_s: float = 30.0) -> list[str]:
    """Create them all; with `wait`, until each is Ready and without the taint that says it is not."""
    made = [str(body["metadata"]["name"]) for body in bodies]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda body: api.create(names.NODES, body, Anything), bodies))
        if wait:
            list(pool.map(lambda name: wait_ready(api, name, within_s), made))
    return made


def wait_ready(api: Api, name: str, within_s: float = 30.0) -> NodeObject:
    def ready() -> NodeObject | None:
        node = api.get(names.node(name), NodeObject)
        tainted = any(taint.key.startswith("node.kubernetes.io/not-ready") for taint in node.spec.taints or ())
        return node if _ready(node) == "True" and not tainted else None

    found = until(ready, f"node {name} is Ready", within_s, 0.1)
    assert found is not None
    return found


def remove(api: Api, doomed: Sequence[str]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda name: _remove(api, name), doomed))


def _remove(api: Api, name: str) -> None:
    where = {"fieldSelector": f"spec.nodeName={name}"}
    for pod in api.list(names.PODS, Anything, **where):
        meta = pod.metadata
        api.delete(f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}", {"gracePeriodSeconds": 0})
    api.delete(names.node(name))


def reboot(api: Api, name: str, boot_id: str = "") -> str:
    """It goes NotReady, comes back under a new boot id, and is Ready again when kwok has seen it. Returns the id."""
    fresh = boot_id or str(uuid.uuid4())
    go_down(api, name)
    come_up(api, name, fresh)
    return fresh


def go_down(api: Api, name: str) -> None:
    """Not Ready, and it stays so."""
    api.patch(names.node(name), {"metadata": {"annotations": {HOLD: "rebooting"}}}, Anything)
    _say(api, name, "False", "KubeletNotReady", "container runtime is down")


def come_up(api: Api, name: str, boot_id: str) -> None:
    """It has booted; kwok makes it Ready."""
    _status(api, name, {"nodeInfo": {"bootID": boot_id}})
    api.patch(names.node(name), {"metadata": {"annotations": {HOLD: None}}}, Anything)


def kill_kubelet(api: Api, name: str) -> None:
    """Its heart stops: kwok lets go, and what the node lifecycle controller would say after the grace period is said
    now. The unreachable taint then comes from the real controller."""
    api.patch(names.node(name), {"metadata": {"labels": {KUBELET: "dead"}}}, Anything)

    def unknown() -> bool:
        _say(api, name, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        return _tainted(api.get(names.node(name), NodeObject), "node.kubernetes.io/unreachable")

    until(unknown, f"node {name} is unreachable", every_s=0.3)


def revive_kubelet(api: Api, name: str) -> None:
    api.patch(names.node(name), {"metadata": {"labels": {KUBELET: "alive"}}}, Anything)
    wait_ready(api, name)


def _tainted(node: NodeObject, key: str) -> bool:
    return any(taint.key == key for taint in node.spec.taints or ())


def _say(api: Api, name: str, status: str, reason: str, message: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    stamps = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    kinds = KUBELET_CONDITIONS if status == "Unknown" else ("Ready",)
    said = [{"type": kind, "status": status, "reason": reason, "message": message, **stamps} for kind in kinds]
    _status(api, name, {"conditions": said})


def _status(api: Api, name: str, status: Mapping[str, object]) -> None:
    try:
        api.patch(names.node(name) + "/status", {"status": status}, Anything, how="strategic")
    except ApiError as error:
        if not error.conflict:
            raise
        _status(api, name, status)


def _ready(node: NodeObject) -> str:
    return next((one.status for one in node.status.conditions or () if one.type == "Ready"), "")


def _node_info(boot_id: str) -> dict[str, str]:
    return {
        "bootID": boot_id, "machineID": uuid.uuid4().hex, "systemUUID": str(uuid.uuid4()), "architecture": "amd64",
        "operatingSystem": "linux", "kernelVersion": "6.8.0-1021-aws", "osImage": "Ubuntu 24.04 LTS",
        "containerRuntimeVersion": "containerd://2.0.0", "kubeletVersion": "v1.34.11", "kubeProxyVersion": "",
    }  # fmt: skip
