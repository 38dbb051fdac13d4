"""REBOOT: the machine is restarted by whoever owns it, once; done when the node is back Ready under another boot id.

platform.py calls `reboot`. EC2 instances by RebootInstances, other machines by a Job on the node (node_reboot.py). What
was sent is remembered on the node (treatment.py), so every later ask only looks. It must never reboot what guard.py
has not let through.
"""

from __future__ import annotations

from dataclasses import replace

from sickbay.kube.objects import NodeObject
from sickbay.model import Action, Done, Failed, Lost, Outcome, Started, Unguarded
from sickbay.platforms.kubernetes import node_jobs, node_reboot, out_of_service, treatment
from sickbay.platforms.kubernetes.answer import Answer
from sickbay.platforms.kubernetes.guard import unguarded
from sickbay.platforms.kubernetes.machines import EC2, NODE_JOB, amazon, calls, ec2, provider_of
from sickbay.platforms.kubernetes.machines.aws import instance_id
from sickbay.platforms.kubernetes.node_jobs import Running, Taken
from sickbay.platforms.kubernetes.sight import look
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.treatment import Treatment
from sickbay.platforms.kubernetes.views import answers, boot_of, instance_of, is_ready

AGAIN_S = 15.0
SOON_S = 1.0


def reboot(site: Site, action: Action) -> Outcome:
    node = treatment.read(site, action.place.node)
    known = treatment.treatment_on(site, node) if node else None
    if node is not None and known is not None and known.key == action.key:
        said = treatment.ended(known) or _watch(site, action, node, known)
        if not (isinstance(said, Lost) and action.call):
            return said
    elif not action.call:
        return treatment.forgotten(action, node)
    return _send(site, action, node)


def _send(site: Site, action: Action, node: NodeObject | None) -> Outcome:
    if node is not None and provider_of(site, node) not in (EC2, NODE_JOB):
        return Failed(f"nobody here may reboot {node.metadata.name}: kubernetes.machines is {site.settings.machines!r}")
    begun = treatment.begin(site, action, guard)
    if not isinstance(begun, tuple):
        return begun
    node, made = begun
    if provider_of(site, node) == NODE_JOB:
        return by_node_job(site, action, made)
    machine = node.spec.provider_id
    return calls.make(
        site, node.metadata.name, made, lambda: ec2.reboot(amazon(site, machine), instance_id(machine)),
        f"RebootInstances of {instance_id(machine)}", AGAIN_S,
    )  # fmt: skip


def guard(site: Site, action: Action) -> str:
    """The door's guard on a fresh look: "" or why not."""
    seen = look(site, action.place.node)
    return unguarded(site, action, seen) if seen is not None else f"there is no node {action.place.node}"


def by_node_job(site: Site, action: Action, made: Treatment) -> Outcome:
    """A Job on the node that carries the old boot id, and does nothing if the node has another one by then."""
    said = calls.make(
        site, action.place.node, made, lambda: node_reboot.send(site, action, made.boot_id),
        f"the reboot Job on {action.place.node}", node_jobs.SOON_S,
    )  # fmt: skip
    stands = node_reboot.standing(site, action) if isinstance(said, Started) else None
    return _held_back(site, action, made, stands) if isinstance(stands, Running) and stands.held else said


def _watch(site: Site, action: Action, node: NodeObject, known: Treatment) -> Outcome:
    said = booted(site, node, known)
    if not isinstance(said, Started) or provider_of(site, node) != NODE_JOB:
        return said
    if action.args.get("withdraw") == "1" and (lost := _withdrawn(site, action, known)):
        return lost
    stands = node_reboot.standing(site, action)
    if stands is None:
        return Lost(f"{action.key} never arrived: its Job was not made")
    if isinstance(stands, Answer) and stands.error:
        treatment.move(site, node.metadata.name, known, treatment.FAILED, stands.error)
        return Failed(f"the reboot Job on {node.metadata.name}: {stands.error}")
    if isinstance(stands, Running) and stands.held:
        return _held_back(site, action, known, stands)
    return replace(said, after_s=stands.again_s(AGAIN_S)) if isinstance(stands, Running) else said


def _withdrawn(site: Site, action: Action, known: Treatment) -> Outcome | None:
    """Taken back; None when it has begun, and is then seen to its end."""
    taken = node_reboot.take_back(site, action)
    if taken is Taken.BEGUN:
        return None
    if taken is Taken.GOING:
        return Started(SOON_S, f"the reboot Job on {action.place.node} is being taken back")
    why = f"the reboot Job on {action.place.node} had not started and is deleted"
    treatment.move(site, action.place.node, known, treatment.NEVER, why)
    return Lost(why)


def _held_back(site: Site, action: Action, known: Treatment, stands: Running) -> Outcome:
    """Waited for as long as a start may take. After that nothing was tried, so nothing harsher is next."""
    said = f"the reboot Job on {action.place.node} does not start: {stands.detail}"
    if site.clock.now() - known.at < node_jobs.START_S or node_reboot.take_back(site, action) is not Taken.BACK:
        return Started(stands.again_s(AGAIN_S), said, held=True)
    treatment.move(site, action.place.node, known, treatment.NEVER, said)
    return Unguarded(said)


def booted(site: Site, node: NodeObject, known: Treatment) -> Outcome:
    """Done when this machine runs under another boot id and its kubelet says Ready."""
    name, boot = node.metadata.name, boot_of(node)
    if instance_of(node) != known.instance:
        return Failed(f"{name} is another machine now: {instance_of(node)}, not {known.instance}")
    if not boot or boot == known.boot_id:
        return Started(AGAIN_S, f"{known.verb} of {name} is under way: it has not booted yet")
    if answers(node) and out_of_service.lift(site, node):
        return Started(SOON_S, f"{name} has booted ({boot}), and our out-of-service taint is taken off")
    if not is_ready(node):
        return Started(AGAIN_S, f"{name} has booted ({boot}) and is not Ready yet")
    return Done(f"{name} has booted: boot id {boot}")
