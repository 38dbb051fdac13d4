"""REPLACE: the machine is given back to whoever made it, who makes another; done when the old one is gone.

platform.py calls `replace`. What the successor depends on is read first (the reservation and its end, the Auto Scaling
group, the NodePool, the MachineSet), and REPLACE is refused with words while none can be expected: that capacity is
missing must never be learnt after the terminate. The case pins (name, uid, instance); the successor passes the newcomer
gate, for which successors.py remembers that one is due.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sickbay.errors import UserError
from sickbay.kube.objects import NodeObject
from sickbay.model import Action, Done, Failed, Lost, Outcome, Started, Unguarded
from sickbay.platforms.kubernetes import groups, successors, treatment
from sickbay.platforms.kubernetes.machines import (
    EC2,
    STANDBY,
    amazon,
    asg,
    calls,
    cluster_api,
    ec2,
    is_gone,
    karpenter,
    provider_of,
)
from sickbay.platforms.kubernetes.machines.aws import Aws, instance_id, is_amazons, words
from sickbay.platforms.kubernetes.reboot import guard
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.treatment import Treatment
from sickbay.platforms.kubernetes.views import instance_of

AGAIN_S = 20.0
ARRIVED_S = 120.0  # a terminate shows within seconds


@dataclass(frozen=True, slots=True)
class Source:
    """Who made a node's machine: whether they would make another, and how to give this one back."""

    name: str
    no_successor: Callable[[], str]
    give_back: Callable[[], None]


def replace(site: Site, action: Action) -> Outcome:
    node = treatment.read(site, action.place.node)
    if node is None or (action.before.uid and node.metadata.uid != action.before.uid):
        return _left(site, action, node)
    known = treatment.treatment_on(site, node)
    if known is not None and known.key == action.key:
        said = treatment.ended(known) or _watch(site, node, known)
        if not (isinstance(said, Lost) and action.call):
            return said
    elif not action.call:
        return treatment.forgotten(action, node)
    return _send(site, action, node)


def _send(site: Site, action: Action, node: NodeObject) -> Outcome:
    if why := guard(site, action):
        return Unguarded(why)
    try:
        source = source_of(site, node)
        why = source.no_successor() if isinstance(source, Source) else source
    except Exception as error:
        return _unread(error)
    if why or not isinstance(source, Source):
        return Failed(f"not replaced, nothing was terminated: {why}")
    begun = treatment.begin(site, action, guard)
    if not isinstance(begun, tuple):
        return begun
    node, made = begun
    successors.expect(site, action, node)
    return calls.make(site, node.metadata.name, made, source.give_back, f"giving {source.name} back", AGAIN_S)


def _unread(error: Exception) -> Outcome:
    """A capacity source that cannot be read promises nothing."""
    if not (is_amazons(error) or isinstance(error, UserError)):
        raise error
    said = calls.cannot_look(error)
    if isinstance(said, Failed):
        return Failed(
            f"not replaced, nothing was terminated: what it would be replaced by cannot be read: {words(error)}"
        )
    return said


# --- who made it ------------------------------------------------------------------------------------------------------


def source_of(site: Site, node: NodeObject) -> Source | str:
    """The maker of this node's machine, or why there is none that we may ask."""
    if site.settings.machines == "none":
        return "kubernetes.machines is 'none'"
    if karpenter.claims_it(node):
        return _karpenter(site, node)
    if cluster_api.claims_it(node):
        return _cluster_api(site, node)
    if provider_of(site, node) != EC2:
        return f"nobody is known who would make another machine in place of {node.metadata.name}"
    return _ec2(site, node)


def _karpenter(site: Site, node: NodeObject) -> Source | str:
    claim = karpenter.claim_of(site.api, node)
    if claim is None:
        return f"{node.metadata.name} has no NodeClaim any more: Karpenter does not know it"
    why = _reserved(site, node)
    return Source(
        f"NodeClaim {claim.metadata.name}",
        lambda: why or karpenter.no_successor(site.api, node, site.settings.gpu_resource),
        lambda: karpenter.delete(site.api, claim),
    )


def _cluster_api(site: Site, node: NodeObject) -> Source | str:
    machine = cluster_api.machine_of(site.api, node)
    if machine is None:
        return cluster_api.no_successor(site.api, node)
    return Source(
        f"Machine {machine.metadata.name}",
        lambda: cluster_api.no_successor(site.api, node),
        lambda: cluster_api.delete(site.api, machine),
    )


def _reserved(site: Site, node: NodeObject) -> str:
    """What a reservation says, for machines of somebody else's making that run on EC2."""
    if provider_of(site, node) != EC2:
        return ""
    aws = amazon(site, node.spec.provider_id)
    found = ec2.find(aws, instance_id(node.spec.provider_id))
    return ec2.no_successor(aws, found, site.clock.now()) if found else ""


def _ec2(site: Site, node: NodeObject) -> Source | str:
    aws, name = amazon(site, node.spec.provider_id), instance_id(node.spec.provider_id)
    found = ec2.find(aws, name)
    if found is None:
        return f"EC2 knows no instance {name}: are these the credentials of its account?"
    ending = ec2.no_successor(aws, found, site.clock.now())
    member = asg.member(aws, name)
    if member is not None:
        ours = STANDBY in groups.holds_on(site, node)  # a power cycle that did not come back has left it there
        return Source(
            name,
            lambda: ending or asg.no_successor(aws, member, ours=ours),
            lambda: _out_of_group(aws, name, ours=ours),
        )
    if fleet := ec2.fleet_of(found):
        return Source(name, lambda: ending or ec2.fleet_refusal(aws, fleet), lambda: ec2.terminate(aws, name))
    if site.settings.machines == EC2:  # the operator's word: somebody else sees to the successor
        return Source(name, lambda: ending, lambda: ec2.terminate(aws, name))
    return (
        f"{name} belongs to no Auto Scaling group, fleet, NodePool or MachineSet, so nobody would launch a successor "
        '(kubernetes.machines = "ec2" says that somebody does)'
    )


def _out_of_group(aws: Aws, name: str, *, ours: bool) -> None:
    """Out of our own standby first, or the group would be one smaller for ever."""
    member = asg.member(aws, name)
    if ours and member is not None and member.lifecycle in asg.AWAY:
        asg.exit_standby(aws, member)
    asg.terminate(aws, name)


# --- is the old one gone? ---------------------------------------------------------------------------------------------


def _watch(site: Site, node: NodeObject, known: Treatment) -> Outcome:
    """The object is still there, as it is for a while after its machine has gone."""
    if instance_id(known.machine) and site.settings.machines != "node-job":
        return _watch_ec2(site, known)
    if not _is_claimed(site, known.machine):
        return Done(f"{known.instance} is gone: nobody claims it any more")
    if site.clock.now() - known.at > ARRIVED_S and not _is_let_go(site, known.machine):
        return Lost(f"{node.metadata.name} is not being given back: the call never arrived")
    return Started(AGAIN_S, f"{node.metadata.name} is being given back")


def _watch_ec2(site: Site, known: Treatment) -> Outcome:
    try:
        found = ec2.find(amazon(site, known.machine), instance_id(known.machine))
    except Exception as error:
        return calls.cannot_look(error)
    if found is None or found.state in ec2.GONE:
        return Done(f"{known.instance} is gone")
    if found.state != "shutting-down" and site.clock.now() - known.at > ARRIVED_S and not _is_leaving(site, known):
        return Lost(f"{found.id} is still {found.state}: the call never arrived")
    return Started(AGAIN_S, f"{found.id} is {found.state}")


def _is_leaving(site: Site, known: Treatment) -> bool:
    """Karpenter and Cluster API empty the node before they let the instance go, and groups may wait for a hook."""
    if _is_let_go(site, known.machine):
        return True
    member = asg.member(amazon(site, known.machine), instance_id(known.machine))
    return member is not None and member.lifecycle.startswith("Terminating")


def _left(site: Site, action: Action, node: NodeObject | None) -> Outcome:
    """The object we sent this to is gone. Its memory went with it, so only the provider can say."""
    name, old = action.place.node, action.before.instance
    if node is not None and instance_of(node) == old:
        return Failed(f"the object {name} was deleted and made again: whether REPLACE was sent is not known")
    if instance_id(old) and site.settings.machines in ("auto", EC2):
        if is_gone(site, old):
            return Done(f"{old} is gone{f'; {name} is {instance_of(node)} now' if node else ''}")
        return Started(AGAIN_S, f"{name} is gone, and {old} is not yet known to be")
    if _is_claimed(site, old):
        return Started(AGAIN_S, f"{name} is gone, and its machine is still being given back")
    return Done(f"{name} ({old or action.before.uid}) is gone")


def _is_let_go(site: Site, machine: str) -> bool:
    return karpenter.is_leaving(site.api, machine) or cluster_api.is_leaving(site.api, machine)


def _is_claimed(site: Site, machine: str) -> bool:
    return karpenter.is_claimed(site.api, machine) or cluster_api.is_claimed(site.api, machine)
