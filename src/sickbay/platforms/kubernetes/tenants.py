"""Who lives on a node: which pods are work, whose job they belong to, and which of them cannot be killed.

Called by views and watching; also by anybody who must know whether a node is empty. Pure: pods in, answers out. A pod
that has ended is not work (originals 002.12 #10), and neither are daemons, mirror pods or our own Jobs on a node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from sickbay.kube.objects import Container, PodObject
from sickbay.platforms.kubernetes.gangs import ranks
from sickbay.platforms.kubernetes.site import Site

ENDED = frozenset({"Succeeded", "Failed"})
MIRROR = "kubernetes.io/config.mirror"  # set by a kubelet on pods that come from its own disk, which no API call ends
STUCK_S = 120.0  # beyond its grace period: a kubelet needs moments to report, a process in D state stays for ever
GRACE_S = 30.0  # Kubernetes' own default


class Tenant(msgspec.Struct, frozen=True, gc=False):
    """A pod that is work, as far as its node's view needs it: thousands are kept."""

    uid: str
    node: str
    job: str
    leaving: bool = False  # somebody has deleted it, and it is still there
    grace_s: float = GRACE_S
    gpus: int = 0


def tenant_of(site: Site, pod: PodObject, job_of: Callable[[PodObject], str]) -> Tenant | None:
    """None when the pod is no work, or waits for a node."""
    if not pod.spec.node_name or not is_work(site, pod):
        return None
    meta, job = pod.metadata, job_of(pod)
    grace = meta.deletion_grace_period_seconds
    return Tenant(
        meta.uid, pod.spec.node_name, job, bool(meta.deletion_timestamp), GRACE_S if grace is None else float(grace),
        ranks.gpus_of(pod, site.settings.gpu_resource),
    )  # fmt: skip


def job_of(pod: PodObject) -> str:
    """The id of the job it belongs to; of work that is no gang its owner, and a pod on its own is its own job."""
    if known := ranks.job_of(pod):
        return sys.intern(known)
    meta, owner = pod.metadata, ranks.controller_of(pod)
    word, name = (owner.kind.lower(), owner.name) if owner else ("pod", meta.name)
    return sys.intern(f"{meta.namespace}/{word}/{name}")


def is_work(site: Site, pod: PodObject) -> bool:
    """Does it use GPUs, now, on somebody's behalf?"""
    if pod.status.phase in ENDED or not asks_for_gpus(pod, site.settings.gpu_resource):
        return False
    return not is_daemon(pod) and not is_ours(site, pod)


def is_daemon(pod: PodObject) -> bool:
    owners = pod.metadata.owner_references or ()
    return any(owner.kind in ("DaemonSet", "Node") for owner in owners) or bool(pod.metadata.annotation(MIRROR))


def is_ours(site: Site, pod: PodObject) -> bool:
    """One of our own Jobs on a node: in our namespace, and it says for which action."""
    meta = pod.metadata
    return meta.namespace == site.settings.namespace and bool(
        meta.annotation(site.keys.action) or meta.label(site.keys.target_node)
    )


def asks_for_gpus(pod: PodObject, resource: str) -> bool:
    """By the resource, a share or slice of it (MIG, time slicing), or a claim (dynamic resource allocation)."""
    if pod.spec.resource_claims:
        return True
    containers: Iterable[Container] = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    return any(_names_gpus(wants, resource) for c in containers if c.resources for wants in _wanted(c))


def _wanted(container: Container) -> Iterable[Mapping[str, Any]]:
    resources = container.resources
    return (resources.limits or {}, resources.requests or {}) if resources else ()


def _names_gpus(wants: Mapping[str, Any], resource: str) -> bool:
    return any(is_gpu(name, resource) and str(amount) not in ("0", "") for name, amount in wants.items())


def is_gpu(name: str, resource: str) -> bool:
    """nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb."""
    vendor = resource.partition("/")[0]
    return name == resource or name.startswith((f"{resource}.", f"{vendor}/mig-"))
