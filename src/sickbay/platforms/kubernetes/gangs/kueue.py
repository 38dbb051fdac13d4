"""Kueue: a job that it admitted is stopped and resumed by its Workload's spec.active, never by its own suspend.

Called by stop and restart. Kueue owns `suspend` of the jobs it manages: who writes it too makes it fight back, and a
job resumed behind its back runs without quota (https://kueue.sigs.k8s.io/docs/concepts/workload/#active).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sickbay.kube.api import segment
from sickbay.kube.objects import Meta, Shape
from sickbay.platforms.kubernetes.gangs import kinds
from sickbay.platforms.kubernetes.gangs.read import Found
from sickbay.platforms.kubernetes.site import Site

VERSIONS = ("v1beta1", "v1beta2")  # the older one first: it is served by every Kueue that serves the newer one
JOB_UID = "kueue.x-k8s.io/job-uid"  # label that Kueue puts on a Workload


class WorkloadSpec(Shape):
    active: bool | None = None


class Workload(Shape):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)


@dataclass(frozen=True, slots=True)
class Admitted:
    """The Workload that stands for a job, and where it is."""

    path: str
    workload: Workload

    @property
    def active(self) -> bool:
        return self.workload.spec.active is not False


def is_queued(found: Found) -> bool:
    return bool(found.gang.object.metadata.label(kinds.QUEUE))


def find(site: Site, found: Found) -> Admitted | None:
    """None when Kueue does not look after this job, or has not made its Workload yet (see `is_queued`)."""
    meta = found.gang.object.metadata
    for version in VERSIONS:
        folder = f"/apis/kueue.x-k8s.io/{version}/namespaces/{segment(meta.namespace)}/workloads"
        many = site.api.find(folder, Workloads, labelSelector=f"{JOB_UID}={meta.uid}")
        if many is None:
            continue  # no such version here, or no Kueue at all
        if not many.items:
            owned = site.api.list(folder, Workload)
            many.items = [w for w in owned if any(o.uid == meta.uid for o in w.metadata.owner_references or ())]
        live = [w for w in many.items if not w.metadata.deletion_timestamp]
        return Admitted(f"{folder}/{segment(live[0].metadata.name)}", live[0]) if live else None
    return None


class Workloads(Shape):
    items: list[Workload] = msgspec.field(default_factory=list)


def set_active(site: Site, admitted: Admitted, on: bool) -> None:
    """Provided that nobody has changed the Workload since we read it."""
    if admitted.active == on:
        return
    version = admitted.workload.metadata.resource_version
    patch = {"metadata": {"resourceVersion": version}, "spec": {"active": on}}
    site.api.patch(admitted.path, patch, Workload)
