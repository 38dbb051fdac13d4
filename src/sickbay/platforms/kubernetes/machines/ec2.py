"""EC2: what an instance is doing, and the calls that reboot, stop, start and terminate it.

Called by reboot.py, power.py, replace.py and machines/__init__.py. Every function is one call; errors of Amazon's
library come through and are judged by aws.meaning. It must never look at Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sickbay.platforms.kubernetes.machines.aws import Aws, code_of

MOST_ASKED = 100  # ids in one DescribeInstanceStatus
GONE = frozenset({"terminated"})
DOWN = frozenset({"stopped", "terminated"})  # surely without power; "stopping" and "shutting-down" still have some
HOUR_S = 3_600.0
LEAST_LEFT_S = 2 * HOUR_S  # of a capacity block: its instances are taken 30 minutes before its end


@dataclass(frozen=True, slots=True)
class Instance:
    """What DescribeInstances says, as far as we need it."""

    id: str
    state: str
    type: str = ""
    lifecycle: str = ""  # "" on demand, spot, scheduled, capacity-block
    reservation: str = ""  # capacity reservation it runs in
    root: str = "ebs"  # instance-store: it cannot be stopped
    launched_at: float = 0.0  # of the last start
    tags: dict[str, str] = field(default_factory=dict)


def find(aws: Aws, instance: str) -> Instance | None:
    """None when Amazon knows no such instance (any more)."""
    try:
        answer = aws.ec2.describe_instances(InstanceIds=[instance])
    except Exception as error:
        if code_of(error) == "InvalidInstanceID.NotFound":
            return None
        raise
    found = [one for group in answer.get("Reservations", ()) for one in group.get("Instances", ())]
    return _instance(found[0]) if found else None


def _instance(one: dict[str, Any]) -> Instance:
    launched = one.get("LaunchTime")
    return Instance(
        id=one["InstanceId"],
        state=one.get("State", {}).get("Name", "unknown"),
        type=one.get("InstanceType", ""),
        lifecycle=one.get("InstanceLifecycle", ""),
        reservation=one.get("CapacityReservationId", ""),
        root=one.get("RootDeviceType", "ebs"),
        launched_at=launched.timestamp() if isinstance(launched, datetime) else 0.0,
        tags={tag["Key"]: tag["Value"] for tag in one.get("Tags") or ()},
    )


# --- machines that do not answer: what EC2 says of them ---------------------------------------------------------------

_ID = re.compile(r"i-[0-9a-f]{8,32}")
_RETIRES = frozenset({"instance-retirement", "instance-stop"})  # its host is failing
_OVER = ("[completed]", "[canceled]", "[cancelled]")  # how EC2 begins the description of an event that is past


def statuses(aws: Aws, instances: Sequence[str]) -> dict[str, str]:
    """In the words of model.Node.machine, "" where EC2 itself cannot tell. At most MOST_ASKED at once."""
    asked, unknown = list(instances)[:MOST_ASKED], frozenset[str]()
    try:
        said = _statuses(aws, asked)
    except Exception as error:
        if code_of(error) != "InvalidInstanceID.NotFound":
            raise
        unknown = frozenset(_ID.findall(str(error))) & frozenset(asked)
        rest = [one for one in asked if one not in unknown]
        said = _statuses(aws, rest) if unknown and rest else {}
    return {**said, **dict.fromkeys(unknown, "dead")}


def _statuses(aws: Aws, instances: list[str]) -> dict[str, str]:
    answer = aws.ec2.describe_instance_status(InstanceIds=instances, IncludeAllInstances=True)
    return {one["InstanceId"]: _word(one) for one in answer.get("InstanceStatuses", ())}


def _word(one: dict[str, Any]) -> str:
    """Alive is only what runs and passes both of EC2's own checks: an impaired instance runs, too."""
    state = one.get("InstanceState", {}).get("Name", "")
    retires = any(_is_retirement(event) for event in one.get("Events") or ())
    if state in GONE or (state in DOWN and retires):
        return "dead"
    if state in DOWN:
        return "off"
    if retires:
        return "retired"
    checks = {one.get(check, {}).get("Status", "") for check in ("InstanceStatus", "SystemStatus")}
    return "running" if state == "running" and checks == {"ok"} else ""


def _is_retirement(event: dict[str, Any]) -> bool:
    past = str(event.get("Description", "")).lower().startswith(_OVER)
    return event.get("Code") in _RETIRES and not past


# --- the calls --------------------------------------------------------------------------------------------------------


def reboot(aws: Aws, instance: str) -> None:
    """EC2 cuts the power itself when the system has not shut down after a few minutes."""
    aws.ec2.reboot_instances(InstanceIds=[instance])


def stop(aws: Aws, instance: str, *, force: bool = False) -> None:
    aws.ec2.stop_instances(InstanceIds=[instance], Force=force)


def start(aws: Aws, instance: str) -> None:
    aws.ec2.start_instances(InstanceIds=[instance])


def terminate(aws: Aws, instance: str) -> None:
    aws.ec2.terminate_instances(InstanceIds=[instance])


def unstoppable(instance: Instance) -> str:
    """Why this instance must not be stopped, since a start may find no host for it; "" when it may."""
    if instance.root == "instance-store":
        return f"{instance.id} has its root on instance store: EC2 cannot stop it, only terminate it"
    if instance.lifecycle == "spot":
        return f"{instance.id} is a spot instance: once stopped, its capacity may go to somebody else"
    if instance.lifecycle == "capacity-block":
        return f"{instance.id} runs in a capacity block: a stop gives its host away for the rest of the block"
    return ""


def no_successor(aws: Aws, instance: Instance, now: float) -> str:
    """What the capacity it runs in says against giving it up: the reservation's state and its end. "" when nothing."""
    if not instance.reservation:
        if instance.lifecycle == "capacity-block":
            return f"{instance.id} runs in a capacity block that cannot be read, so whether it lasts is not known"
        return ""
    answer = aws.ec2.describe_capacity_reservations(CapacityReservationIds=[instance.reservation])
    found = answer.get("CapacityReservations") or [{}]
    return _ending(instance.reservation, found[0], now)


def _ending(name: str, found: dict[str, Any], now: float) -> str:
    state, end = str(found.get("State", "not there")), found.get("EndDate")
    if state != "active":
        return f"its capacity reservation {name} is {state}: nothing could be launched into it"
    left = end.timestamp() - now if isinstance(end, datetime) else float("inf")
    if left < LEAST_LEFT_S:
        return f"its capacity reservation {name} ends in {max(0.0, left) / 60:.0f} minutes: a successor would not live"
    return ""


def fleet_of(instance: Instance) -> str:
    """The EC2 Fleet that launched it, if one did."""
    return instance.tags.get("aws:ec2:fleet-id", "")


def fleet_refusal(aws: Aws, fleet: str) -> str:
    """Why this fleet would not launch a successor; "" when it would."""
    found = aws.ec2.describe_fleets(FleetIds=[fleet]).get("Fleets") or [{}]
    kind, state = found[0].get("Type", "unknown"), found[0].get("FleetState", "not there")
    if kind != "maintain":
        return f"its EC2 fleet {fleet} is of type {kind}: it does not launch a successor"
    return "" if state == "active" else f"its EC2 fleet {fleet} is {state}"
