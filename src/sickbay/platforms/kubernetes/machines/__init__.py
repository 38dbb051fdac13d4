"""Whose machine a node is: who can reboot it, who would replace it, and what its provider says about it.

The verbs (reboot, power, replace), the sight and the cordon ask here; one file beside this one per provider. Answers
about a machine are never guessed: where the provider cannot be asked, `is_gone` and `is_down` say no.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection

from sickbay.kube.objects import NodeObject
from sickbay.platforms.kubernetes.machines import asg, cluster_api, ec2, karpenter
from sickbay.platforms.kubernetes.machines.aws import Aws, instance_id, open_aws, region_of, words
from sickbay.platforms.kubernetes.site import Site

log = logging.getLogger(__name__)

EC2, NODE_JOB, NONE = "ec2", "node-job", "none"
PROTECTION = "asg-scale-in"  # what `protect` says it did
STANDBY = "asg-standby"  # POWER_CYCLE has taken it out of its group's sight

# Labels that tell what a node's capacity is made of, without asking anybody.
_CAPACITY_TYPES = ("karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType")
_NODEGROUP = "eks.amazonaws.com/nodegroup"


def provider_of(site: Site, node: NodeObject) -> str:
    """ec2, node-job or none: kubernetes.machines, and for "auto" the node's providerID."""
    chosen = site.settings.machines
    is_ec2 = bool(instance_id(node.spec.provider_id))
    if chosen == "auto":
        return EC2 if is_ec2 else NODE_JOB
    if chosen == EC2 and not is_ec2:
        return NONE
    return chosen


def amazon(site: Site, provider_id: str) -> Aws:
    return open_aws(region_of(provider_id, site.settings.aws_region), site.settings.aws_endpoint)


def capacity(site: Site, node: NodeObject) -> str:
    """What its capacity is made of, by the node's own labels: cheap enough for every node of a fleet."""
    kind = next((value for key in _CAPACITY_TYPES if (value := node.metadata.label(key))), "").lower().replace("_", "-")
    if karpenter.claims_it(node):
        source = f"karpenter {node.metadata.label(karpenter.POOL_LABEL)}".strip()
    elif cluster_api.claims_it(node):
        source = f"cluster-api {node.metadata.annotation(cluster_api.MACHINE)}"
    elif group := node.metadata.label(_NODEGROUP):
        source = f"nodegroup {group}"
    else:
        source = EC2 if instance_id(node.spec.provider_id) else ""
    return f"{source}, {kind}" if source and kind else source or kind


def on_demand(site: Site, node: NodeObject) -> bool:
    """Does an autoscaler make others like it when pods wait, and remove it when it is idle? Karpenter's own say so;
    what else does, kubernetes.on_demand_pools says."""
    if karpenter.claims_it(node) or not site.settings.on_demand_pools:
        return karpenter.claims_it(node)
    labels = node.metadata.labels or {}
    pool = next((labels[key] for key in site.settings.pool_labels if labels.get(key)), "default")
    return pool in site.settings.on_demand_pools


# --- what the provider says -------------------------------------------------------------------------------------------


def is_gone(site: Site, instance: str) -> bool:
    """The provider says that this machine no longer exists. False when it cannot be asked: absence is not proof."""
    return _state(site, instance) in ec2.GONE


def is_down(site: Site, node: NodeObject) -> bool:
    """The machine surely has no power: only then may its pods be started elsewhere. EC2 alone can prove it."""
    return _state(site, node.spec.provider_id) in ec2.DOWN


def _state(site: Site, provider_id: str) -> str:
    name = instance_id(provider_id)
    if not name or site.settings.machines in (NODE_JOB, NONE):
        return ""
    try:
        found = ec2.find(amazon(site, provider_id), name)
    except Exception as error:  # not known, and said so: an answer nobody gave must not free a node's work
        log.warning("machine instance=%s cannot be asked about: %s", name, words(error))
        return ""
    return found.state if found else "terminated"


def what_is_said(site: Site, provider_ids: Collection[str]) -> dict[str, str]:
    """provider id -> running, off, dead or retired, "" when nobody says. One call for each region, or two."""
    said = dict.fromkeys(provider_ids, "")
    homes: dict[str, dict[str, str]] = defaultdict(dict)  # region -> instance -> provider id
    for one in provider_ids if may_be_amazons(site) else ():
        if name := instance_id(one):
            homes[region_of(one, site.settings.aws_region)][name] = one
    for region, known in homes.items():
        try:
            found = ec2.statuses(open_aws(region, site.settings.aws_endpoint), list(known))
        except Exception as error:  # nobody says anything: that is no witness, neither for life nor for death
            log.warning("%d machines in %s cannot be asked about: %s", len(known), region or "no region", words(error))
            continue
        said |= {known[name]: word for name, word in found.items() if name in known}
    return said


# --- holding off the group that owns it -------------------------------------------------------------------------------


def protect(site: Site, node: NodeObject) -> str:
    """Keep the node's Auto Scaling group from removing it. Returns PROTECTION if we switched it on, "" otherwise.

    The caller remembers the answer (groups.py) and hands it to `give_up`: what was on before us stays on.
    Best effort: a cordon does not wait for Amazon.
    """
    try:
        member = _member(site, node)
        if member is None or member.protected:
            return ""
        asg.set_protection(amazon(site, node.spec.provider_id), member, True)
        return PROTECTION
    except Exception as error:
        log.warning("scale-in protection of node=%s is not on: %s", node.metadata.name, words(error))
        return ""


def may_be_amazons(site: Site) -> bool:
    return site.settings.machines in ("auto", EC2)


def is_unprotected(site: Site, node: NodeObject) -> bool | None:
    """Is it a member of a group that might remove it? None when Amazon does not say."""
    try:
        member = _member(site, node)
    except Exception as error:
        log.warning("the group of node=%s cannot be asked about: %s", node.metadata.name, words(error))
        return None
    return member is not None and not member.protected


def give_up(site: Site, node: NodeObject, held: Collection[str]) -> bool:
    """Undo what we hold its group off by (PROTECTION, STANDBY). False when it should be tried again. The protection
    first: Amazon changes none of an instance that is on its way back from standby."""
    try:
        member = _member(site, node) if held else None
        if member is None:
            return True
        aws = amazon(site, node.spec.provider_id)
        if PROTECTION in held and member.protected:
            asg.set_protection(aws, member, False)
        if STANDBY in held and member.lifecycle in asg.AWAY:
            asg.exit_standby(aws, member)
        return True
    except Exception as error:
        log.warning("the group of node=%s is still held off: %s", node.metadata.name, words(error))
        return False


def _member(site: Site, node: NodeObject) -> asg.Member | None:
    """None for what no group can own: asked of Amazon only for instances that neither of the others made."""
    if provider_of(site, node) != EC2 or karpenter.claims_it(node) or cluster_api.claims_it(node):
        return None
    return asg.member(amazon(site, node.spec.provider_id), instance_id(node.spec.provider_id))
