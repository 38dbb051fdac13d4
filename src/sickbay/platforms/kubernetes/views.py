"""A Kubernetes node as the controller sees it: NodeObject and the work on it in, model.Node out.

Called by sight (a direct look) and watching (every change). Pure but for `Memory`, which times what must be timed by
our own clock. It reads what the API server says and decides nothing; what it cannot know stays at its default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from sickbay import catalog
from sickbay.kube.objects import NodeObject, PodObject
from sickbay.model import Finding, Node, Place, Report, Status
from sickbay.platforms.kubernetes import conditions, holders, machines, marks
from sickbay.platforms.kubernetes.memory import Memory, Testimony
from sickbay.platforms.kubernetes.quarantine_result import findings_on
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.tenants import STUCK_S, Tenant, is_gpu, job_of, tenant_of
from sickbay.platforms.reported import fold

SHUT_DOWN = "node.cloudprovider.kubernetes.io/shutdown"  # by the cloud controller: the provider says it has no power
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
GPU_COUNT = "nvidia.com/gpu.count"  # by GPU feature discovery

# Factor -> labels that tell it; the first one a node carries counts. What none tells is read from nodeInfo.
FACTORS: Mapping[str, tuple[str, ...]] = {
    "driver": ("nvidia.com/cuda.driver-version.full",),  # GPU feature discovery
    "image": ("eks.amazonaws.com/nodegroup-image", "kubernetes.azure.com/node-image-version"),
    "instance-type": (TYPE, "beta.kubernetes.io/instance-type"),
    "zone": (ZONE, "failure-domain.beta.kubernetes.io/zone"),
}
OLD_DRIVER = ("nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev")


class Shown(msgspec.Struct, frozen=True, gc=False):
    """A node, and after how many seconds it must be shown again although nothing will have changed."""

    node: Node
    due_s: float | None = None


def show_node(site: Site, node: NodeObject, pods: Iterable[PodObject], memory: Memory | None = None) -> Node:
    """The node with those of the pods that are work. Without a memory nothing has been watched for any time yet."""
    found = (tenant_of(site, pod, job_of) for pod in pods)
    return show(site, node, [t for t in found if t is not None], memory or Memory(site.clock)).node


def show(
    site: Site, node: NodeObject, tenants: Iterable[Tenant], memory: Memory, known_as: Callable[[str], str] = str
) -> Shown:
    """`known_as`: the id under which a job is told, where its pods know it by another."""
    meta, keys = node.metadata, site.keys
    labels, taints = meta.labels or {}, node.spec.taints or ()
    said = memory.said(meta, keys.results)
    told = conditions.hear(node, conditions.rules(site.settings.conditions), memory, told=_says_sick(said.report))
    ready, tenants = is_ready(node), tuple(tenants)
    jobs, stuck, due_s = lodged(tenants, memory, known_as, ready=ready)
    shown = Node(
        name=meta.name,
        uid=meta.uid,
        instance=instance_of(node),
        pool=pool_of(site, node),
        rack=_first(labels, site.settings.rack_labels),
        domain=_first(labels, site.settings.domain_labels),
        factors=_factors(site, node, said),
        ready=ready,
        boot_id=boot_of(node),
        cordoned=holders.is_closed(site, node),
        mark=sys.intern(marks.mark_of(node, keys)),
        gate=any(taint.key == keys.newcomer for taint in taints),
        others=holders.others(site, node),
        jobs=jobs,
        stuck=stuck,
        gpus_expected=gpus_expected(site, node),
        gpus_allocatable=_amount((node.status.allocatable or {}).get(site.settings.gpu_resource)),
        gpus_taken=sum(tenant.gpus for tenant in tenants),
        findings=(*told.findings, *findings_on(site, node), *(() if said.readable else (_unreadable(site, node),))),
        last_check=memory.heard(meta.name, meta.uid, meta.label(keys.last_check)),
        capacity=machines.capacity(site, node),
        on_demand=machines.on_demand(site, node),
        opted_out=meta.label(keys.opt_out) == "true",
        version=meta.version,
        leaving="its object is being deleted" if meta.deletion_timestamp else "",
        machine=memory.machine(meta.name, instance_of(node), ready=ready) or machine_by_taint(node),
    )
    if said.report is not None:
        shown = fold(shown, said.report, shown.last_check)
    return Shown(shown, _sooner(due_s, told.due_s))


def machine_by_taint(node: NodeObject) -> str:
    """What the cloud controller has written on it; the provider's own word, where it was asked, is fresher."""
    return "off" if any(taint.key == SHUT_DOWN for taint in node.spec.taints or ()) else ""


def _says_sick(report: Report | None) -> bool:
    return report is not None and any(f.status in (Status.FAILED, Status.DEGRADED) for f in report.findings)


def lodged(
    tenants: Iterable[Tenant], memory: Memory, known_as: Callable[[str], str] = str, *, ready: bool
) -> tuple[tuple[str, ...], tuple[str, ...], float | None]:
    """(jobs that live here, jobs whose pods cannot be killed, seconds until the next pod counts as one of those).

    A pod long past its grace period on a node that answers has a process that no signal ends. On a node that does not
    answer nobody can tell, and it still counts as living there: its kubelet, once back, has its whole grace again.
    """
    jobs: set[str] = set()
    stuck: set[str] = set()
    due: float | None = None
    for tenant in tenants:
        if tenant.leaving and not ready:
            memory.forget_pod(tenant.uid)
        left = tenant.grace_s + STUCK_S - memory.leaving_s(tenant.uid) if tenant.leaving and ready else None
        if left is not None and left <= 0:
            stuck.add(known_as(tenant.job))
            continue
        jobs.add(known_as(tenant.job))
        due = _sooner(due, max(left, 1.0)) if left is not None else due
    return tuple(sorted(jobs)), tuple(sorted(stuck)), due


def is_ready(node: NodeObject) -> bool:
    if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints or ()):
        return False
    return answers(node)


def answers(node: NodeObject) -> bool:
    """Its kubelet says Ready, whatever taints say."""
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())


def instance_of(node: NodeObject) -> str:
    """aws:///us-west-2a/i-0abc -> i-0abc. Without a provider by what the machine itself says, which stays when its
    object is deleted and made again; where it says nothing it is told apart by its object."""
    info = node.status.node_info
    own = (info.system_uuid or info.machine_id) if info is not None else ""
    return node.spec.provider_id.rpartition("/")[2] or own or node.metadata.uid


def is_machine(node: NodeObject, wanted: str) -> bool:
    """Is it the machine that a case names? Older records name one without a provider by its object."""
    return wanted in (instance_of(node), node.metadata.uid)


def pool_of(site: Site, node: NodeObject) -> str:
    return _first(node.metadata.labels or {}, site.settings.pool_labels) or "default"


def boot_of(node: NodeObject) -> str:
    return node.status.node_info.boot_id if node.status.node_info else ""


def gpus_expected(site: Site, node: NodeObject) -> int:
    """By the type's profile; else the most that any instrument has counted. Where GPUs are cut into MIG slices only
    the whole ones are counted by the resource, so what the kubelet has is all that can be expected."""
    capacity = node.status.capacity or {}
    counted = _amount(capacity.get(site.settings.gpu_resource))
    if any(is_gpu(name, site.settings.gpu_resource) and "/mig-" in name and _amount(n) for name, n in capacity.items()):
        return counted
    profile = catalog.load().profiles.get(node.metadata.label(TYPE))
    return profile.gpus if profile is not None else max(counted, _amount(node.metadata.label(GPU_COUNT)))


def _factors(site: Site, node: NodeObject, said: Testimony) -> Mapping[str, str]:
    """What nodes may share: by labels, nodeInfo and its agent. Of another machine's agent nothing counts."""
    labels, info = node.metadata.labels or {}, node.status.node_info
    found = {name: _first(labels, keys) for name, keys in FACTORS.items()}
    found["driver"] = found["driver"] or ".".join(labels[key] for key in OLD_DRIVER if key in labels)
    found["rack"] = _first(labels, site.settings.rack_labels)
    if info is not None:
        found["image"] = found["image"] or info.os_image
        found["kernel"] = info.kernel_version
    if said.report is not None and said.report.instance in ("", instance_of(node)):
        found.update(said.factors)
    return _shared(tuple((name, value) for name, value in found.items() if value))


@lru_cache(maxsize=10_000)
def _shared(factors: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """One mapping for all nodes that agree: thousands are kept."""
    return dict(factors)


def _unreadable(site: Site, node: NodeObject) -> Finding:
    """There is a report and it cannot be believed: then nobody says that this node is well."""
    name, boot = node.metadata.name, boot_of(node)
    reason = f"The report in annotation {site.keys.results} of {name} cannot be read: we do not know how this node is"
    return Finding(
        f"{boot or node.metadata.uid}/1", "monitor", "monitor", Place(name), Status.UNKNOWN,
        "monitor.unreadable-report", reason, boot_id=boot,
    )  # fmt: skip


def _first(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    return sys.intern(next((labels[key] for key in keys if labels.get(key)), ""))


def _amount(quantity: Any) -> int:
    """A count of devices: extended resources are whole numbers."""
    text = str(quantity)
    return int(text) if text.isdecimal() else 0


def _sooner(one: float | None, other: float | None) -> float | None:
    return min((t for t in (one, other) if t is not None), default=None)
