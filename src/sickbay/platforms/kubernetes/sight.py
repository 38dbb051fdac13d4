"""One direct look at a node: the object and its pods, read from the API server and never from a cache.

Called by the verbs before they act, and by Platform.look. A read of what is there; it changes and remembers nothing.
"""

from __future__ import annotations

from sickbay.kube import names
from sickbay.kube.objects import NodeObject, PodObject
from sickbay.model import Node
from sickbay.platforms.kubernetes.memory import Memory
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.views import show_node


def look(site: Site, name: str, memory: Memory | None = None) -> Node | None:
    """None if there is no such object. Without a memory nothing has been watched for any time: nothing is stuck yet,
    and a condition that must stand for a while does not count."""
    found = read(site, name)
    return show_node(site, *found, memory) if found is not None else None


def read(site: Site, name: str) -> tuple[NodeObject, list[PodObject]] | None:
    """The node, then its pods: what landed on it in between is seen."""
    node = site.api.find(names.node(name), NodeObject)
    return (node, pods_on(site, name)) if node is not None else None


def pods_on(site: Site, name: str) -> list[PodObject]:
    """Every pod that the API server says is on this node, whatever it is."""
    return site.api.list(names.PODS, PodObject, fieldSelector=f"spec.nodeName={name}")
