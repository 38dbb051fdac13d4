"""The keys we write on other people's objects, all made from one prefix, and the paths of the API.

The prefix and the words after it are those of the original suite (reference/originals, 002.10), so that its users'
queries keep working. Called by everybody in and around `kube`; it must never do IO.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, fields

from sickbay.kube.api import segment

PREFIX = "gpu-healthcheck.aws-samples.io"  # the originals'; kubernetes.prefix changes it
GROUP, VERSION = "sickbay.dev", "v1alpha1"
CONDITION = "GPUProblem"
UP, DOWN = "GPUsAreUp", "GPUsAreDown"  # its reasons when False and True, as the original node-problem-detector's
UNSEEN = "GPUsAreNotSeen"  # its reason when Unknown: nobody could look


@dataclass(frozen=True, slots=True)
class Keys:
    """The whole keys, e.g. status = gpu-healthcheck.aws-samples.io/status."""

    # the originals': labels
    status: str
    severity: str
    last_check: str
    mode: str  # =quarantine while one runs
    target_node: str  # on Jobs
    # the originals': annotations
    results: str
    quarantine_result: str
    # the originals': taints
    unhealthy: str
    maintenance: str
    # ours
    case: str  # taint (value: the case's number) and annotation (its id): who holds this node
    before: str  # annotation: what was there before our cordon, for RELEASE
    newcomer: str  # taint: not yet examined
    sweep: str  # annotation: owner and expiry of a maintenance taint
    last_sweep: str  # annotation: when its last level-2 sweep ended
    opt_out: str  # label: hands off this node
    action: str  # annotation on our Jobs: the action's key
    treatment: str  # annotation: the treatment that was last sent, its key, and what was before
    protection: str  # annotation: what we hold the node's group off by (scale-in protection, standby)


def keys(prefix: str = PREFIX) -> Keys:
    return Keys(*(f"{prefix}/{field.name.replace('_', '-')}" for field in fields(Keys)))


RECOVER = "sickbay.dev/recover"  # label on a job or namespace: managed | native
POOL = "sickbay.dev/pool"


def node(name: str) -> str:
    return f"/api/v1/nodes/{segment(name)}"


NODES, PODS, EVENTS_ALL = "/api/v1/nodes", "/api/v1/pods", "/api/v1/events"


def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{segment(namespace)}/pods"


def pod(namespace: str, name: str) -> str:
    return f"{pods(namespace)}/{segment(name)}"


def events(namespace: str) -> str:
    return f"/api/v1/namespaces/{segment(namespace)}/events"


def jobs(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{segment(namespace)}/jobs"


def lease(namespace: str, name: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{segment(namespace)}/leases/{segment(name)}"


_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # RFC 1123 subdomain
LONGEST_NAME = 253


def object_name(key: str) -> str:
    """The key itself where Kubernetes allows it; else as much of it as can be read, and a hash that tells it apart."""
    if len(key) <= LONGEST_NAME and _NAME.fullmatch(key):
        return key
    readable = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")[:200].rstrip("-")
    mark = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{readable}-{mark}" if readable else f"x-{mark}"


def custom(namespace: str, plural: str, name: str = "") -> str:
    base = f"/apis/{GROUP}/{VERSION}/namespaces/{segment(namespace)}/{plural}"
    return f"{base}/{segment(name)}" if name else base
