"""Who holds a node closed for new work, besides us: people, autoscalers, other repairers, maintenance.

Called by views. Others' cordons are respected and counted, never undone (NVSentinel 9.4 #1424). A taint that only
steers work (nvidia.com/gpu, dedicated=..., node-role.kubernetes.io/...) holds nobody: it is how the cluster is built.
"""

from __future__ import annotations

import sys

from sickbay.kube.objects import NodeObject, Taint
from sickbay.platforms.kubernetes import marks
from sickbay.platforms.kubernetes.rival_rows import rows
from sickbay.platforms.kubernetes.site import Site

SOMEBODY = "somebody's cordon"
CLOSING = ("NoSchedule", "NoExecute")
# Words that say in a taint's key that a node is out on purpose, whoever wrote it. Kubernetes' own keys are left out:
# they follow from readiness, pressure and the cordon itself, which are seen directly.
WORDS = ("maintenance", "drain", "quarantine", "cordon", "unhealthy", "remediat", "repair", "decommission")
SYSTEM = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node-role.kubernetes.io/", "nvidia.com/gpu")


def others(site: Site, node: NodeObject) -> tuple[str, ...]:
    """Everybody who holds this node, but for our own case. Sorted, each once."""
    found = {_named(taint) for taint in node.spec.taints or () if _holds(site, taint)}
    found |= {row.title for row in rows() if _is_marked(node, row.marks)} if node.spec.unschedulable else set()
    if node.spec.unschedulable and not found and not _cordoned_by_us(site, node):
        found.add(SOMEBODY)
    return tuple(sys.intern(who) for who in sorted(found))


def is_closed(site: Site, node: NodeObject) -> bool:
    """Closed for new work, by anybody. Where our mark is, only the cordon counts: a person who uncordons a node of ours
    leaves our taint behind, and must be understood."""
    if node.spec.unschedulable:
        return True
    if marks.mark_of(node, site.keys):
        return marks.is_held_by_gate(node, site.keys)
    return any(_holds(site, taint) for taint in node.spec.taints or ())


def _cordoned_by_us(site: Site, node: NodeObject) -> bool:
    """Our mark is there, and the node was open before it. What we found then cannot be read: nobody can say."""
    found = marks.read_found(node, site.keys)
    return bool(marks.mark_of(node, site.keys)) and not (found and found.unschedulable)


def _holds(site: Site, taint: Taint) -> bool:
    keys = site.keys
    if taint.effect not in CLOSING or taint.key in (keys.case, keys.newcomer) or taint.key.startswith(SYSTEM):
        return False
    if any(row.puts(taint.key) for row in rows()):
        return True
    return any(word in taint.key.lower() for word in WORDS)


def _named(taint: Taint) -> str:
    """A rival by its title, anybody else by the taint."""
    known = next((row.title for row in rows() if row.puts(taint.key)), "")
    return known or f"taint {taint.key}"


def _is_marked(node: NodeObject, marks: tuple[str, ...]) -> bool:
    labels, annotations = node.metadata.labels or {}, node.metadata.annotations or {}
    return any(mark in labels or mark in annotations for mark in marks)
