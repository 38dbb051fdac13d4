"""Another repairer on the same nodes: found before two doctors treat one patient.

The platform asks at the start and every few minutes; where one is `sure`, its pool is only observed, and a notice says
what to do. Rows are data (rivals.toml). Everything is read: discovery, Deployments and DaemonSets, the objects of known
repairers, and the marks they leave on nodes. What our rights do not let us read is told as such, never as "nobody".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.objects import Meta, NodeObject, Shape
from sickbay.model import Notice
from sickbay.platforms.kubernetes.rival_rows import Row, rows
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.views import pool_of

WORKLOADS = ("deployments", "daemonsets")
APP = "app.kubernetes.io/name"
LONGEST = 300
RIGHTS = "give Sickbay's controller the right to get and list it (deploy/kubernetes has the rules), or see for yourself"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rival:
    """Who, on which pool, and how we know. Not `sure`: it may repair there, and only a person can tell."""

    name: str
    pool: str
    why: str
    sure: bool = True
    title: str = ""
    advice: str = ""


class Env(Shape):
    name: str = ""
    value: str = ""


class Program(Shape):
    args: list[str] | None = None
    command: list[str] | None = None
    env: list[Env] | None = None


class PodTemplateSpec(Shape):
    containers: list[Program] | None = None


class Template(Shape):
    spec: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)


class WorkloadSpec(Shape):
    replicas: int | None = None  # None: a DaemonSet
    template: Template = msgspec.field(default_factory=Template)


class Workload(Shape):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)


class Requirement(Shape):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class Selector(Shape):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class CheckSpec(Shape):
    selector: Selector = msgspec.field(default_factory=Selector)


class HealthCheck(Shape):
    """A NodeHealthCheck or MachineHealthCheck."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: CheckSpec = msgspec.field(default_factory=CheckSpec)


class GroupVersion(Shape):
    group_version: str = ""


class ApiGroup(Shape):
    name: str = ""
    preferred_version: GroupVersion = msgspec.field(default_factory=GroupVersion)


class ApiGroups(Shape):
    groups: list[ApiGroup] | None = None


@dataclass(slots=True)
class Surroundings:
    """What can be seen of a cluster. `blind`: what we may not read, in words."""

    nodes: list[NodeObject]
    groups: Mapping[str, str]  # API group -> its preferred version
    workloads: list[Workload] = field(default_factory=list)
    blind: list[str] = field(default_factory=list)


def rivals(site: Site) -> list[Rival]:
    """Everybody else who repairs nodes that we look after, once a pool. ApiError when the nodes cannot be read."""
    found: dict[tuple[str, str], Rival] = {}
    seen = _look_around(site)
    for row in (row for row in rows() if row.repairs):
        for nodes, why, sure in _evidence(site, row, seen):
            for pool in sorted({pool_of(site, node) for node in nodes}):
                found.setdefault((row.name, pool), Rival(row.name, pool, why, sure, row.title, row.advice))
    blind = (f"whether another repairer is at work cannot be seen: {why}" for why in dict.fromkeys(seen.blind))
    return [*found.values(), *(Rival("unknown", "", why, False, "Another repairer", RIGHTS) for why in blind)]


def observed_pools(found: Sequence[Rival]) -> frozenset[str]:
    """Pools in which somebody else surely repairs: Sickbay only watches there."""
    return frozenset(rival.pool for rival in found if rival.sure)


def notices(found: Sequence[Rival], at: float) -> list[Notice]:
    """One for each rival, whatever the number of pools. The key changes when it is found on another pool."""
    by_name: dict[tuple[str, bool], list[Rival]] = {}
    for rival in found:
        by_name.setdefault((rival.name, rival.sure), []).append(rival)
    return [_notice(same, at) for same in by_name.values()]


def _notice(same: Sequence[Rival], at: float) -> Notice:
    first, pools = same[0], ", ".join(sorted({rival.pool for rival in same if rival.pool}))
    where = f" in pool {pools}" if pools else ""
    how = f"How we know: {'; '.join(dict.fromkeys(rival.why for rival in same))}."[:2_000]
    if first.sure:
        title = f"{first.title} repairs nodes{where}: Sickbay only watches there"
        body = "Two repairers on one node undo each other's work, so Sickbay acts on nothing there."
    else:
        title = f"{first.title} may repair nodes{where}"
        body = "That cannot be seen from inside the cluster. Sickbay goes on; two repairers on one node would collide."
    key = f"rival/{first.name}/{'sure' if first.sure else 'maybe'}/{pools}"[:200]
    return Notice(key, "warning", title, f"{body} {how} To change it: {first.advice}.", at=at)


def _look_around(site: Site) -> Surroundings:
    nodes = site.api.list(names.NODES, NodeObject, labelSelector=site.settings.gpu_selector)
    groups = site.api.get("/apis", ApiGroups).groups or []
    seen = Surroundings(nodes, {group.name: group.preferred_version.group_version for group in groups})
    for plural in WORKLOADS:
        seen.workloads += _listed(site, f"/apis/apps/v1/{plural}", Workload, seen)
    return seen


def _listed(site: Site, path: str, kind: type[T], seen: Surroundings) -> list[T]:
    try:
        return site.api.list(path, kind)
    except ApiError as error:
        if error.refused:
            seen.blind.append(f"{path}: {error.said}"[:LONGEST])
        elif not error.not_found:
            raise
    return []


def _evidence(site: Site, row: Row, seen: Surroundings) -> Iterator[tuple[list[NodeObject], str, bool]]:
    """(nodes, why, sure). A mark on a node is proof by itself; else what the row names, for the nodes it minds."""
    for node in seen.nodes:
        if mark := next((mark for mark in row.marks if _carries(node, mark)), ""):
            yield [node], f"it is at work on {node.metadata.name}, which carries {mark}", True
    minded = [node for node in seen.nodes if _is_minded(row, node)]
    if row.evidence == "nodes":
        yield minded, f"nodes carry {row.nodes}", row.sure
    elif row.evidence == "workload" and (found := _workload(row, seen)) is not None:
        says = f" with {row.gate}" if row.gate else ""
        yield minded, f"{found.metadata.namespace}/{found.metadata.name} runs{says}", row.sure
    elif row.evidence == "resource":
        for check in _checks(site, row, seen):
            # A MachineHealthCheck selects machines, whose labels we do not read: then all nodes made from machines.
            picked = [node for node in minded if row.nodes or selects(check.spec.selector, node.metadata.labels or {})]
            yield picked, f"{check.metadata.name} of {row.resource} is there", row.sure


def _is_minded(row: Row, node: NodeObject) -> bool:
    """Does it look after this node, and has nobody taken the node out of its hands?"""
    return (not row.nodes or _carries(node, row.nodes)) and not (row.spares and _carries(node, row.spares))


def _carries(node: NodeObject, mark: str) -> bool:
    """A label or annotation: `key`, or `key=value`."""
    key, equals, value = mark.partition("=")
    there = (node.metadata.labels or {}).get(key) or (node.metadata.annotations or {}).get(key)
    return there == value if equals else there is not None


def _workload(row: Row, seen: Surroundings) -> Workload | None:
    for one in seen.workloads:
        named = {one.metadata.name, one.metadata.label(APP)}.intersection(row.workloads)
        if named and one.spec.replicas != 0 and row.gate.lower() in _words(one).lower():
            return one
    return None


def _words(workload: Workload) -> str:
    """Its programs' arguments and environment."""
    programs = workload.spec.template.spec.containers or ()
    each = ((*(p.command or ()), *(p.args or ()), *(f"{e.name}={e.value}" for e in p.env or ())) for p in programs)
    return " ".join(word for words in each for word in words)


def _checks(site: Site, row: Row, seen: Surroundings) -> list[HealthCheck]:
    group, _, plural = row.resource.partition("/")
    version = seen.groups.get(group, "")
    return _listed(site, f"/apis/{version}/{plural}", HealthCheck, seen) if version else []


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """As metav1.LabelSelector: all of it must fit. An operator we do not know fits, so that nobody is overlooked."""
    exact = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return exact and all(_fits(one, labels) for one in selector.match_expressions or ())


def _fits(one: Requirement, labels: Mapping[str, str]) -> bool:
    there, values = labels.get(one.key), one.values or []
    fits = {
        "In": there in values,
        "NotIn": there not in values,
        "Exists": there is not None,
        "DoesNotExist": there is None,
    }
    return fits.get(one.operator, True)
