"""A gang read directly from the API server, never from a watch: what every verb about a job begins with.

Called by stop, restart, checkpoint and progress. A read costs three requests (the object, its pods, and its namespace
when the job itself does not say how it is to be recovered), however large the gang is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from sickbay.kube import names
from sickbay.kube.objects import Anything, Meta, NodeObject, PodObject
from sickbay.model import Action, JobPhase
from sickbay.platforms.kubernetes.gangs import kinds, ranks, show, words
from sickbay.platforms.kubernetes.gangs.index import (
    bare_name,
    bare_object,
    bare_shown,
    is_of_another,
    recover_of,
    with_jobs,
)
from sickbay.platforms.kubernetes.gangs.kinds import GangObject, Kind, id_of
from sickbay.platforms.kubernetes.gangs.show import Gang, Memory
from sickbay.platforms.kubernetes.site import Site

MANY = 16  # nodes: from here on one list is cheaper than a read of each

POD_LABEL = {
    "job": kinds.JOB_NAME,
    "jobset": kinds.JOBSET_NAME,
    "trainjob": kinds.JOBSET_NAME,  # Kubeflow Trainer gives its JobSet the TrainJob's own name
    "pytorchjob": kinds.KUBEFLOW_NAME,
    "gang": words.GANG,
}


@dataclass(frozen=True, slots=True)
class Found:
    """A gang, and its object as it stands, to be changed and written back. Of a bare gang: its ConfigMap, or {}."""

    gang: Gang
    whole: dict[str, Any]

    @property
    def path(self) -> str:
        meta = self.gang.object.metadata
        return self.gang.kind.path(meta.namespace, meta.name)

    @property
    def version(self) -> str:
        return str(self.whole.get("metadata", {}).get("resourceVersion", ""))


def job_named(action: Action) -> str:
    """The job an action is about: named, or the owner of its key ("{job}#{attempt}.{step}")."""
    return action.args.get("job", "") or action.key.rpartition("#")[0]


def read(site: Site, job: str) -> Found | None:
    """None when there is no such job."""
    known = kinds.parse(job)
    if known is None:
        return None
    kind, namespace, name = known
    if kind is kinds.BARE:
        return _read_bare(site, namespace, name)
    whole = find_whole(site, kind.path(namespace, name))
    if whole is None:
        return None
    obj = msgspec.convert(whole, GangObject)
    pods = pods_of(site, kind, namespace, name)
    owner = next((o for o in obj.metadata.owner_references or () if o.controller), None)
    if owner is not None and owner.kind in ("TrainJob", "JobSet"):  # people know the job by its topmost object
        return read(site, id_of(namespace, owner.kind.lower(), owner.name))
    if kind.word == "trainjob":
        obj = with_jobs(obj, site.api.find(kinds.BY_WORD["jobset"].path(namespace, name), GangObject))
    return Found(Gang(kind, obj, pods, _recover(site, obj, pods)), whole)


def find_whole(site: Site, path: str) -> dict[str, Any] | None:
    return site.api.find(path, dict[str, Any])


def pods_of(site: Site, kind: Kind, namespace: str, name: str) -> list[PodObject]:
    found = site.api.list(names.pods(namespace), PodObject, labelSelector=f"{POD_LABEL[kind.word]}={name}")
    word = "jobset" if kind.word == "trainjob" else kind.word
    return [pod for pod in found if ranks.job_of(pod) == id_of(namespace, word, name)]


def _read_bare(site: Site, namespace: str, name: str) -> Found | None:
    path = kinds.BARE_PATH.format(site.settings.namespace, bare_name(namespace, name))
    whole = find_whole(site, path)
    pods = pods_of(site, kinds.BARE, namespace, name)
    if whole is None and not pods:
        return None
    meta = msgspec.convert(whole["metadata"], Meta) if whole else None
    if meta is not None and is_of_another(meta, pods):
        meta, whole = None, None
    obj = bare_object(meta) if meta is not None else None
    shown = bare_shown(obj, namespace, name, pods)
    return Found(Gang(kinds.BARE, shown, pods, _recover(site, shown, pods)), whole or {})


def _recover(site: Site, obj: GangObject, pods: list[PodObject]) -> str:
    said = recover_of(obj, pods, "")
    if said or obj.metadata.label(words.RECOVER):
        return said
    space = site.api.find(f"/api/v1/namespaces/{obj.metadata.namespace}", Anything)
    return recover_of(obj, pods, space.metadata.label(words.RECOVER) if space else "")


def may_be_managed(site: Site, job: str, spaces: dict[str, str]) -> bool:
    """One small read for most jobs instead of three: a drain asks it about everything that lives on a node."""
    known = kinds.parse(job)
    if known is None:
        return False
    kind, namespace, name = known
    if namespace not in spaces:
        space = site.api.find(f"/api/v1/namespaces/{namespace}", Anything)
        spaces[namespace] = space.metadata.label(words.RECOVER) if space else ""
    if spaces[namespace] == words.MANAGED or kind.word in ("gang", "jobset"):  # a TrainJob may speak for its JobSet
        return True
    found = site.api.find(kind.path(namespace, name), Anything)
    return found is not None and found.metadata.label(words.RECOVER) == words.MANAGED


# --- nodes ------------------------------------------------------------------------------------------------------------


def marks(site: Site, wanted: Iterable[str]) -> dict[str, str]:
    """Those of the nodes that carry our mark or are not there, each with the case, or with why not."""
    found = nodes_named(site, wanted)
    return {name: said for name, node in found.items() if (said := _said(site, node))}


def nodes_named(site: Site, wanted: Iterable[str]) -> dict[str, NodeObject | None]:
    """As they are now. One that the list of ours does not show may have lost its label."""
    few = tuple(dict.fromkeys(wanted))
    seen: dict[str, NodeObject] = {}
    if len(few) > MANY:
        listed = site.api.list(names.NODES, NodeObject, labelSelector=site.settings.gpu_selector)
        seen = {node.metadata.name: node for node in listed}
    return {name: seen.get(name) or site.api.find(names.node(name), NodeObject) for name in few}


def _said(site: Site, node: NodeObject | None) -> str:
    return node.metadata.annotation(site.keys.case) if node is not None else "no such node"


def look(site: Site, found: Found) -> tuple[JobPhase, str]:
    """Its phase now, by direct reads."""
    pods = [pod for pod in found.gang.pods if ranks.disruption(pod) and pod.spec.node_name]
    held = marks(site, {pod.spec.node_name for pod in pods}) if pods else {}
    return show.phase_of(found.gang, Memory(), lambda node: held.get(node, ""))
