"""Auto Scaling groups: whose member an instance is, whether a successor can be expected, and how to hold the group off.

Called by replace.py and power.py, and by cordon.py through machines.protect. A group that finds a member stopped takes
it for dead and terminates it, so a power cycle puts the member into standby first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sickbay.platforms.kubernetes.machines.aws import Aws

MOST_ACTIVITIES = 20
STANDBY = "Standby"
AWAY = ("Standby", "EnteringStandby")  # the group's size does not count them


@dataclass(frozen=True, slots=True)
class Member:
    group: str
    instance: str
    lifecycle: str  # InService, Standby, Terminating:Wait ...
    protected: bool


def member(aws: Aws, instance: str) -> Member | None:
    answer = aws.autoscaling.describe_auto_scaling_instances(InstanceIds=[instance])
    for one in answer.get("AutoScalingInstances", ()):
        if one.get("InstanceId") == instance:
            return Member(
                one["AutoScalingGroupName"], instance, one.get("LifecycleState", ""),
                bool(one.get("ProtectedFromScaleIn")),
            )  # fmt: skip
    return None


def no_successor(aws: Aws, member: Member, *, ours: bool = False) -> str:
    """Why this group would launch nobody in its place; "" when it would. `ours`: if it is in standby, we put it there
    and take it out before it goes, which gives the group its size back."""
    away = member.lifecycle in AWAY
    if away and not ours:
        return f"somebody has put it into standby: its Auto Scaling group {member.group} would launch nobody for it"
    found = aws.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[member.group])
    groups = found.get("AutoScalingGroups") or ()
    if not groups:
        return f"its Auto Scaling group {member.group} is not there any more"
    return _unwilling(groups[0], back=int(away)) or _unable(aws, member.group)


def _unwilling(group: dict[str, Any], back: int) -> str:
    """`back`: how many come back from standby first."""
    name = group["AutoScalingGroupName"]
    if group.get("Status"):
        return f"its Auto Scaling group {name} is being deleted ({group['Status']})"
    suspended = {one.get("ProcessName") for one in group.get("SuspendedProcesses") or ()}
    if stopped := sorted(suspended & {"Launch", "Terminate"}):
        return f"its Auto Scaling group {name} has {' and '.join(stopped)} suspended: resume it first"
    desired, most = int(group.get("DesiredCapacity", 0)) + back, int(group.get("MaxSize", 0))
    if min(desired, most) < 1:
        return f"its Auto Scaling group {name} wants no instances (desired {desired}, at most {most})"
    states = [str(one.get("LifecycleState")) for one in group.get("Instances") or ()]
    living = sum(not state.startswith("Termin") and state not in AWAY for state in states) + back
    if living > desired:
        return f"its Auto Scaling group {name} has {living} instances and wants {desired}: it would replace none"
    return ""


def _unable(aws: Aws, name: str) -> str:
    """The group's last try to launch failed: the next one would too, and we would be one node poorer."""
    answer = aws.autoscaling.describe_scaling_activities(AutoScalingGroupName=name, MaxRecords=MOST_ACTIVITIES)
    for one in answer.get("Activities", ()):  # newest first
        if not str(one.get("Description", "")).startswith("Launching"):
            continue
        if one.get("StatusCode") == "Failed":
            return f"the last launch in {name} failed: {one.get('StatusMessage', 'no reason given')}"[:300]
        if one.get("StatusCode") == "Successful":
            return ""
    return ""


def terminate(aws: Aws, instance: str) -> None:
    """The group keeps its size and launches a successor."""
    aws.autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=False)


def set_protection(aws: Aws, member: Member, on: bool) -> None:
    aws.autoscaling.set_instance_protection(
        AutoScalingGroupName=member.group, InstanceIds=[member.instance], ProtectedFromScaleIn=on
    )


def enter_standby(aws: Aws, member: Member) -> None:
    """Out of the group's sight; its size shrinks by one, so nothing is launched meanwhile."""
    aws.autoscaling.enter_standby(
        AutoScalingGroupName=member.group, InstanceIds=[member.instance], ShouldDecrementDesiredCapacity=True
    )


def exit_standby(aws: Aws, member: Member) -> None:
    aws.autoscaling.exit_standby(AutoScalingGroupName=member.group, InstanceIds=[member.instance])
