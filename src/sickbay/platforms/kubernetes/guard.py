"""The guard at the door of every treatment: is what the case believes still true at this moment?

Called by reboot, power, replace and reset just before they act, with what was read for this very call. Reading it here
and not in the case is what makes a late, repeated or misdirected call harmless. It must never let a doubt pass.
"""

from __future__ import annotations

from dataclasses import replace

from sickbay.kube import names
from sickbay.kube.objects import NodeObject
from sickbay.model import Action, Node, Verb
from sickbay.platforms.kubernetes import marks, treatment
from sickbay.platforms.kubernetes.evictions import is_stuck, pods_on
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.tenants import is_work, job_of


def unguarded(site: Site, action: Action, node: Node | None) -> str:
    """Why the treatment is refused, or nothing. Reads once more what only the objects say: the pods that it would end,
    and the treatment that the node remembers."""
    if node is not None and node.ready and (node.jobs or action.verb is not Verb.RESET_GPU):
        node = replace(node, jobs=_living(site, action, node.name))
    why = refusal(action, node)
    if why or node is None:
        return why
    held = site.api.find(names.node(node.name), NodeObject)
    if held is None or held.metadata.uid != node.uid:
        return f"{node.name} was deleted or made anew while we looked"
    return treatment.under_way(site, held, but=action.key)


def _living(site: Site, action: Action, name: str) -> tuple[str, ...]:
    """Whose pods the treatment would end: a reset those on the GPUs, every other all that a drain can move elsewhere.
    Judged as DRAIN judges it, or a drained node could never be treated: what no signal ends only a boot removes."""
    whole = action.verb is not Verb.RESET_GPU
    pods = [pod for pod in pods_on(site, name, whole=whole) if whole or is_work(site, pod)]
    return tuple(sorted({job_of(pod) for pod in pods if not is_stuck(site, pod)}))


def refusal(action: Action, node: Node | None) -> str:
    """The part of it that a view of the node tells. Pure."""
    case, before = marks.case_of(action), action.before
    if node is None:
        return f"there is no node {action.place.node}"
    if before.uid and node.uid != before.uid:
        return f"{node.name} is another object now: it was deleted and made again"
    if before.instance not in ("", node.instance, node.uid):
        return f"{node.name} is another machine now: {node.instance}, not {before.instance}"
    if node.mark != case:
        return f"our mark on {node.name} is {node.mark or 'gone'}, not {case}"
    if not node.cordoned:
        return f"{node.name} is not cordoned"
    if node.jobs and node.ready:
        return f"{node.name} is not empty: {', '.join(node.jobs)}"
    if before.boot_id and node.boot_id != before.boot_id:
        return f"{node.name} has booted since: {node.boot_id}, not {before.boot_id}"
    return ""
