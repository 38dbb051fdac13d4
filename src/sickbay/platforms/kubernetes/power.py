"""POWER_CYCLE: stop the instance, see it without power, start it; done as a reboot is. Each ask advances one step.

platform.py calls `power_cycle`. Where we are is read from EC2 and from the node's memory (treatment.py), so a crash
between any two steps is harmless: an instance that our stop put down is started by the next ask, whoever makes it.
Refused where a stop may lose the host (spot, capacity block, root on instance store), for a node of Karpenter's, and
for a member of an Auto Scaling group that cannot be put into standby: both would take it for dead and terminate it.
"""

from __future__ import annotations

from sickbay.kube.objects import NodeObject
from sickbay.model import Action, Failed, Lost, Outcome, Started
from sickbay.platforms.kubernetes import groups, treatment
from sickbay.platforms.kubernetes.machines import (
    EC2,
    STANDBY,
    amazon,
    asg,
    calls,
    ec2,
    karpenter,
    provider_of,
    redfish,
)
from sickbay.platforms.kubernetes.machines.aws import Aws, Meaning, code_of, instance_id, is_amazons, meaning, words
from sickbay.platforms.kubernetes.reboot import booted, guard
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.treatment import FORCING, SENT, STARTING, Treatment

AGAIN_S = 15.0
CAPACITY_S = 60.0
ARRIVED_S = 120.0  # StopInstances shows within seconds; running all this while means that it never came
STUBBORN_S = 600.0  # a system that has not shut down by then is not going to


def power_cycle(site: Site, action: Action) -> Outcome:
    node = treatment.read(site, action.place.node)
    if node is not None and (switch := redfish.switch_of(node)) is not None:
        return switch.cycle(site, action)
    known = treatment.treatment_on(site, node) if node else None
    if node is not None and known is not None and known.key == action.key:
        said = treatment.ended(known) or _advance(site, node, known)
        if not (isinstance(said, Lost) and action.call):
            return said
    elif not action.call:
        return treatment.forgotten(action, node)
    return _send(site, action, node)


def _send(site: Site, action: Action, node: NodeObject | None) -> Outcome:
    if node is not None and provider_of(site, node) != EC2:
        return Failed(redfish.not_configured(node))
    if node is not None and (refused := _refused(site, node)):
        return refused
    begun = treatment.begin(site, action, guard)
    if not isinstance(begun, tuple):
        return begun
    node, made = begun
    machine = instance_id(made.machine)
    return calls.make(
        site, node.metadata.name, made, lambda: _stop(site, node, amazon(site, made.machine), machine),
        f"StopInstances of {machine}", AGAIN_S,
    )  # fmt: skip


def _refused(site: Site, node: NodeObject) -> Outcome | None:
    """What its keeper and the instance itself say against it, before anything is touched."""
    if karpenter.claims_it(node):  # its interruption controller acts on every stop: a REPLACE that nobody allowed
        return Failed("not power-cycled: Karpenter takes a stopped instance for lost and deletes its NodeClaim")
    machine = instance_id(node.spec.provider_id)
    try:
        found = ec2.find(amazon(site, node.spec.provider_id), machine)
    except Exception as error:
        return calls.cannot_look(error)
    if found is None or found.state in ec2.GONE:
        return Failed(f"{machine} does not exist any more: there is no power to cycle")
    why = ec2.unstoppable(found)
    return Failed(f"not power-cycled: {why}") if why else None


def _stop(site: Site, node: NodeObject, aws: Aws, machine: str) -> None:
    """Out of its group's sight first, noted before it is done (groups.py), and back into it when Amazon refuses the
    stop. One that somebody else has put into standby stays there."""
    member = asg.member(aws, machine)
    if member is None or member.lifecycle != "InService":
        ec2.stop(aws, machine)
        return
    groups.note(site, node, STANDBY)
    asg.enter_standby(aws, member)
    try:
        ec2.stop(aws, machine)
    except Exception as error:
        if meaning(error) is not Meaning.UNCLEAR:
            asg.exit_standby(aws, member)
            groups.unnote(site, node, STANDBY)
        raise


# --- looking, and the next step ---------------------------------------------------------------------------------------


def _advance(site: Site, node: NodeObject, known: Treatment) -> Outcome:
    machine = instance_id(known.machine)
    try:
        aws = amazon(site, known.machine)
        found = ec2.find(aws, machine)
    except Exception as error:
        return calls.cannot_look(error)
    if found is None or found.state in ("terminated", "shutting-down"):
        return Failed(f"{machine} went away while its power was cycled")
    if found.state == "stopped":
        return _start(site, node, known, aws)
    if found.state == "stopping":
        return _hurry(site, node, known, aws)
    return _back(site, node, known, aws, found)


def _start(site: Site, node: NodeObject, known: Treatment, aws: Aws) -> Outcome:
    """It has no power: give it back. Asked again and again until Amazon has a host for it."""
    machine = instance_id(known.machine)
    if known.state != STARTING:
        treatment.move(site, node.metadata.name, known, STARTING)
    try:
        ec2.start(aws, machine)
    except Exception as error:
        if not is_amazons(error):
            raise
        if meaning(error) is Meaning.REFUSED and not code_of(error).startswith("Insufficient"):
            return Failed(f"{machine} is stopped and cannot be started: {words(error)}")
        return Started(CAPACITY_S, f"{machine} is stopped and waits for a host: {words(error)}")
    return Started(AGAIN_S, f"{machine} had no power and is starting")


def _hurry(site: Site, node: NodeObject, known: Treatment, aws: Aws) -> Outcome:
    """A system too sick to shut down is cut off, once, after ten minutes."""
    machine, waited = instance_id(known.machine), site.clock.now() - known.at
    if known.state != SENT or waited < STUBBORN_S:
        return Started(AGAIN_S, f"{machine} is stopping")
    treatment.move(site, node.metadata.name, known, FORCING)
    try:
        ec2.stop(aws, machine, force=True)
    except Exception as error:
        if not is_amazons(error):
            raise
        return Started(AGAIN_S, f"{machine} has been stopping for {waited:.0f} s and cannot be forced: {words(error)}")
    return Started(AGAIN_S, f"{machine} has been stopping for {waited:.0f} s: its power is cut")


def _back(site: Site, node: NodeObject, known: Treatment, aws: Aws, found: ec2.Instance) -> Outcome:
    """Running: not stopped yet, or started again."""
    stopped_once = known.state != SENT or found.launched_at > known.at
    said = booted(site, node, known)
    if not stopped_once and isinstance(said, Started) and site.clock.now() - known.at > ARRIVED_S:
        return Lost(f"{found.id} has not stopped running: the call never arrived")
    if stopped_once and STANDBY in groups.holds_on(site, node) and (waits := _rejoin(site, node, aws, found.id)):
        return waits
    return said


def _rejoin(site: Site, node: NodeObject, aws: Aws, machine: str) -> Outcome | None:
    """Back into its group, which may count it again now that it runs."""
    try:
        member = asg.member(aws, machine)
        if member is not None and member.lifecycle in asg.AWAY:
            asg.exit_standby(aws, member)
    except Exception as error:
        return calls.cannot_look(error)
    groups.unnote(site, node, STANDBY)
    return None
