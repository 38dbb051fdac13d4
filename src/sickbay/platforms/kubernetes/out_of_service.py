"""Our taint node.kubernetes.io/out-of-service: put on a machine that is surely down, and off as soon as it answers.

drain.py puts it, so that Kubernetes itself removes the pods and volumes of a machine without power, and lifts it; so
does reboot.booted, for a machine that came back before they were gone: nothing may run under that taint, and a node
that carries it is not ready. The node remembers whether it is ours (marks.Found). It must never touch somebody else's.
"""

from __future__ import annotations

from dataclasses import replace

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.objects import NodeObject, Taint
from sickbay.platforms.kubernetes import marks
from sickbay.platforms.kubernetes.site import Site


def put(site: Site, node: NodeObject) -> None:
    """One write, once. Somebody else's taint of that name is left as it is, and stays his."""
    taint = Taint(marks.OUT_OF_SERVICE, marks.NO_EXECUTE, marks.SHUT_DOWN)
    found = marks.read_found(node, site.keys)
    if found is None or marks.find_taint(node, taint.key, taint.effect) is not None:
        return
    memory = marks.write_found(replace(found, out_of_service=True))
    _patch(site, node, [*marks.annotate(node, site.keys.before, memory), *marks.taint_ops(node, taint)])


def lift(site: Site, node: NodeObject) -> bool:
    """Take ours off; False when there is none."""
    found = marks.read_found(node, site.keys)
    if found is None or not found.out_of_service:
        return False
    memory = marks.write_found(replace(found, out_of_service=False))
    ops = marks.untaint_ops(node, [(marks.OUT_OF_SERVICE, marks.NO_EXECUTE)])
    _patch(site, node, [*marks.annotate(node, site.keys.before, memory), *ops])
    return True


def _patch(site: Site, node: NodeObject, ops: list[marks.Op]) -> None:
    """What has changed meanwhile is met at the next ask."""
    ops = [marks.same("/metadata/uid", node.metadata.uid), *ops]
    try:
        site.api.patch(names.node(node.metadata.name), ops, NodeObject, how="json", fieldManager=marks.MANAGER)
    except ApiError as error:
        if not error.stale:
            raise
