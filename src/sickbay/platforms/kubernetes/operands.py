"""The GPU operator's own clients of the GPUs on a node: told to leave before a reset, and to come back after it.

The operator's DaemonSets select nodes by labels nvidia.com/gpu.deploy.<operand>=true; another value sends a pod away,
as the operator's own MIG manager does it. reset.py pauses and resumes; cordon.release resumes, whatever became of the
reset: a node whose device plugin stays away has no GPUs to offer. A label with our value is ours, and nothing else has
to be remembered.
"""

from __future__ import annotations

from sickbay.kube import names
from sickbay.kube.objects import Anything, NodeObject
from sickbay.platforms.kubernetes.site import Site

DEPLOY = "nvidia.com/gpu.deploy."  # + operand
CLIENTS = frozenset({"device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm", "mig-manager"})
PAUSED = "paused-for-gpu-reset"


def pause(site: Site, node: NodeObject) -> bool:
    """Those that run here are told to leave; one that somebody has switched off stays so. No write where there are
    none."""
    return _label(site, node, "true", PAUSED)


def resume(site: Site, node: NodeObject | None) -> bool:
    """Told to come back, if it was we who sent them away. Also for RELEASE, after whatever happened in between."""
    return node is not None and _label(site, node, PAUSED, "true")


def _label(site: Site, node: NodeObject, old: str, new: str) -> bool:
    labels = node.metadata.labels or {}
    ours = {
        key: new
        for key, value in labels.items()
        if key.startswith(DEPLOY) and key.removeprefix(DEPLOY) in CLIENTS and value == old
    }
    if not ours:
        return False
    body = {"metadata": {"labels": ours, "uid": node.metadata.uid}}
    site.api.patch(names.node(node.metadata.name), body, Anything)
    return True
