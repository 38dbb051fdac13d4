"""Ranks of an earlier attempt that are still there: whom a stop waits for, and beside whom no restart is made.

Called by stop and restart. The same rule as core/reach.py, which decides whom a restart may leave behind: a mark on a
node that does not answer is no fence, for nobody there has read it. On a node that answers ranks end within their
grace, and are waited for; only those that no signal ends (D state, long beyond it) are left, where our mark keeps the
node closed.
It must never take an earlier look for what is so now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sickbay.kube.objects import NodeObject, PodObject
from sickbay.platforms.kubernetes import marks
from sickbay.platforms.kubernetes.gangs import ranks
from sickbay.platforms.kubernetes.gangs.read import Found, nodes_named
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.tenants import GRACE_S, STUCK_S
from sickbay.platforms.kubernetes.views import answers, machine_by_taint

ALL = "all"  # of the action's `behind`: by the owner's word, or because attempts write apart
NAMED = 3


@dataclass(frozen=True, slots=True)
class Left:
    """`ending`: their node answers. `hidden`: it does not, and nobody can say whether they run."""

    ending: Sequence[PodObject]
    hidden: Sequence[PodObject]


def left(site: Site, found: Found) -> Left:
    pods = [pod for pod in found.gang.pods if ranks.lives(pod) and pod.spec.node_name]
    nodes = nodes_named(site, (pod.spec.node_name for pod in pods)) if pods else {}
    ending, hidden = [], []
    for pod in pods:
        node = nodes[pod.spec.node_name]
        if node is None or not answers(node):
            if node is None or machine_by_taint(node) != "off":
                hidden.append(pod)
        elif not (marks.mark_of(node, site.keys) and is_stuck(site, pod, node)):
            ending.append(pod)
    return Left(ending, hidden)


def beside(found: Found, there: Left, behind: str) -> str:
    """Why no attempt may be made beside these; "" when it may. `behind`: "all", or the nodes whose ranks may stay."""
    job = found.gang.id
    if there.ending:
        return f"an earlier attempt of {job} still lives on {where(there.ending)} ({len(there.ending)} pods)"
    known = behind.split(",")
    held = [pod for pod in there.hidden if behind != ALL and pod.spec.node_name not in known]
    if not held:
        return ""
    return (
        f"ranks of an earlier attempt of {job} may still run on {where(held)}, where no kubelet answers; if you know "
        f"that they write nothing any more: sickbay job restart {job}"
    )


def where(pods: Iterable[PodObject]) -> str:
    return ", ".join(sorted({pod.spec.node_name for pod in pods})[:NAMED])


def is_stuck(site: Site, pod: PodObject, node: NodeObject) -> bool:
    """Long beyond its grace under a kubelet that has had the time to end it: of a node that is back, since it is. (By
    that node's own clock; of one that is wrong the node's view knows better, which core asks first: views.lodged.)"""
    grace, now = pod.metadata.deletion_grace_period_seconds, site.server_now()
    asked = _time(pod.metadata.deletion_timestamp)
    back = _ready_since(node) + (GRACE_S if grace is None else grace)
    return asked > 0 and now - max(asked, back if _ready_since(node) <= now else 0.0) > STUCK_S


def _ready_since(node: NodeObject) -> float:
    said = (c.last_transition_time for c in node.status.conditions or () if c.type == "Ready")
    return _time(next(said, ""))


def _time(stamp: str) -> float:
    """0.0 when there is none."""
    try:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
