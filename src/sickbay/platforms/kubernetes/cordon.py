"""CORDON and RELEASE: close a node for new work in the name of a case, and take off again what is ours and no more.

Called by platform.perform, CORDON possibly with what the watch knows of the node (`known`): then it is one round trip,
because the patch itself tests that this is still true. Each verb makes one write at most. Neither may ever touch a
cordon, taint or annotation that somebody else has put there.
"""

from __future__ import annotations

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.objects import Anything, NodeObject
from sickbay.model import Action, Done, Failed, Outcome, Refuted, Retry
from sickbay.platforms.kubernetes import holders, marks, operands, rights
from sickbay.platforms.kubernetes.marks import HeldNode, Op
from sickbay.platforms.kubernetes.site import Site, awaited
from sickbay.platforms.kubernetes.views import instance_of, is_machine, is_ready, show_node

TRIES = 5  # reads of a node on which others keep changing the very fields we need
ASK_AGAIN_S = 30.0
BUSY_S = 1.0


def cordon(site: Site, action: Action, known: NodeObject | None = None) -> Outcome:
    name, case = action.place.node, marks.case_of(action)
    adopts, unless = marks.adopted_of(action), action.args.get("unless", "")
    node = None if unless else known
    for _ in range(TRIES):
        fresh = node is None
        node = node or site.api.find(names.node(name), NodeObject)
        if node is None:
            return awaited(name)
        why = _refusal(site, action, node)
        ops = marks.cordon_ops(node, site.keys, case, adopts, site.settings.namespace)
        if fresh and why:
            return Failed(why)
        if unless and (opened := _is_open(site, action, node)):
            return Refuted(opened)
        if fresh and not ops:
            return Done(_closed(site, node, case, adopts))
        if not why and ops and (answer := _write(site, node, ops, Done(_closed(site, node, case, adopts)))):
            return answer
        node = None  # what we knew is not true any more, or says that there is nothing to do: look
    return Retry(BUSY_S, f"others keep changing the marks of {name}; it is not closed yet")


def _write(site: Site, node: NodeObject, ops: list[Op], done: Done) -> Outcome | None:
    """None when a test failed: read again."""
    name = node.metadata.name
    try:
        site.api.patch(names.node(name), ops, Anything, how="json", fieldManager=marks.MANAGER)
    except ApiError as error:
        if error.stale or error.not_found:
            return None
        if error.refused and not error.passing:
            lacks = rights.is_missing(error)  # then core asks for it again until it is back
            why = rights.words(error) if lacks else error.said
            return Failed(f"the API server refuses our write to {name}: {why}", lacks=lacks)
        raise
    return done


def _refusal(site: Site, action: Action, node: NodeObject) -> str:
    name, mark, case = node.metadata.name, marks.mark_of(node, site.keys), marks.case_of(action)
    if (wanted := action.before.instance) and not is_machine(node, wanted):
        return f"{name} is another machine now: {instance_of(node)}, not {wanted}"
    if mark not in ("", case, marks.adopted_of(action)):
        key = site.keys.case
        return f"{name} carries the mark of {mark}; if that case is over: kubectl annotate node {name} {key}-"
    return ""


def _is_open(site: Site, action: Action, node: NodeObject) -> str:
    """Why it is not closed: what the action says must not be so; "" if it is not."""
    name, marked = node.metadata.name, bool(marks.mark_of(node, site.keys))
    if action.args["unless"] == "opened":
        opened = marked and not node.spec.unschedulable and not marks.is_held_by_gate(node, site.keys)
        return f"{name} carries our mark, and somebody has opened it" if opened else ""
    return f"{name} was out and is in service again" if _serves(site, action, node) else ""


def _serves(site: Site, action: Action, node: NodeObject) -> bool:
    """Nobody keeps work from it, and it is no newcomer at its gate."""
    ours = (marks.case_of(action), marks.adopted_of(action))
    closed = any(marks.is_closed(node, site.keys, name) for name in ours if name)
    gated = marks.find_taint(node, site.keys.newcomer) is not None
    return is_ready(node) and not (closed or gated or holders.others(site, node))


def _closed(site: Site, node: NodeObject, case: str, adopts: str = "") -> str:
    before = marks.find(node, site.keys, case, adopts).unschedulable
    also = "; it was cordoned before us, and will stay so" if before else ""
    return f"{node.metadata.name} is closed for new work{also}"


# --- release ----------------------------------------------------------------------------------------------------------


def release(site: Site, action: Action) -> Outcome:
    name, cancel = action.place.node, action.args.get("cancel") == "1"
    for _ in range(TRIES):
        node = site.api.find(names.node(name), HeldNode)
        if answer := _settled(site, action, node):
            return answer
        assert node is not None
        if operands.resume(site, node) and not cancel:
            return Retry(ASK_AGAIN_S, f"the GPU operator's pods were still away from {name} and are told to come back")
        if not cancel and (refused := _unfit(site, node)):
            return refused
        case = marks.case_of(action)
        ops, done = marks.release_ops(node, site.keys, case, cancel=cancel), Done(_opened(site, node, case))
        if not ops:
            return done
        if answer := _write(site, node, ops, done):
            return answer
    return Retry(BUSY_S, f"others keep changing the marks of {name}; ours is still on it")


def _settled(site: Site, action: Action, node: HeldNode | None) -> Outcome | None:
    """There is nothing of this case to take off."""
    name, case = action.place.node, marks.case_of(action)
    if node is None:
        return Done(f"{name} is not there any more")
    mark = marks.mark_of(node, site.keys)
    if mark not in ("", case, marks.adopted_of(action)):
        return Done(f"{name} carries no mark of {case}, but of {mark}")
    if not mark and (wanted := action.before.instance) and not is_machine(node, wanted):
        return Done(f"{name} is another machine now, and carries no mark of {case}")
    return None


def _unfit(site: Site, held: HeldNode) -> Outcome | None:
    """A node goes back to work whole or not at all (originals 000.10 #5)."""
    node = show_node(site, marks.in_service(held, site.keys), ())
    if not node.ready:
        return Retry(ASK_AGAIN_S, f"{node.name} is not ready")
    if node.gpus_allocatable < node.gpus_expected:
        there = f"{node.gpus_allocatable} of {node.gpus_expected} GPUs of {node.name}"
        return Retry(ASK_AGAIN_S, f"only {there} are allocatable yet")  # after a boot the device plugin takes moments
    return None


def _opened(site: Site, node: HeldNode, case: str) -> str:
    """With what a person has to know when the node does not open although our mark is gone."""
    name, found, since = node.metadata.name, marks.read_found(node, site.keys), marks.closed_by(node)
    if not node.spec.unschedulable or marks.opens(node, site.keys, case):
        return f"our mark is off {name}"
    if found is None and not since and marks.mark_of(node, site.keys):
        unknown = "what was there before our cordon cannot be read"
        return f"our mark is off {name}; {unknown}, so it stays cordoned: kubectl uncordon {name}"
    who = f" by {', '.join(since)[:200]}" if since else ""
    before = ", as it was before us" if found and found.unschedulable else ""
    return f"our mark is off {name}; it stays cordoned{who}{before}"
