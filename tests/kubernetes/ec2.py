"""Nodes whose machines are instances of moto: made together, cordoned by the real door, asked as a case asks."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject
from sickbay.model import Action, Before, Done, Outcome, Place, Retry, Started, Verb
from sickbay.platforms.kubernetes.cordon import cordon
from sickbay.platforms.kubernetes.machines.aws import Aws
from sickbay.platforms.kubernetes.power import power_cycle
from sickbay.platforms.kubernetes.reboot import reboot
from sickbay.platforms.kubernetes.replace import replace as give_back
from sickbay.platforms.kubernetes.sight import look
from sickbay.platforms.kubernetes.site import Site, site_of
from sickbay.platforms.kubernetes.treatment import Treatment, treatment_on
from sickbay.settings import KubernetesSettings
from testbed import fleet
from testbed.cluster import Cluster
from tests.controller.door import HandClock
from tests.moto import REGION, Front

IMAGE = "ami-12c6146b"  # one that moto knows
TYPE = "p5.48xlarge"
ZONE = f"{REGION}a"
DOORS = {Verb.REBOOT: reboot, Verb.POWER_CYCLE: power_cycle, Verb.REPLACE: give_back}


@dataclass
class Ward:
    """A few nodes on a real API server, their machines in moto, and the doors between."""

    cluster: Cluster
    api: Api
    front: Front
    namespace: str
    clock: HandClock = field(default_factory=HandClock)
    more: dict[str, Any] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)

    @property
    def site(self) -> Site:
        settings = KubernetesSettings(namespace=self.namespace, aws_endpoint=self.front.url)
        return site_of(self.api, replace(settings, **self.more), self.clock)

    @property
    def aws(self) -> Aws:
        return patient(self.front.url)

    # -- machines

    def instance(self, **more: Any) -> str:
        made = self.aws.ec2.run_instances(ImageId=IMAGE, InstanceType=TYPE, MinCount=1, MaxCount=1, **more)
        return str(made["Instances"][0]["InstanceId"])

    def group(self, size: int = 1, least: int = 0) -> tuple[str, list[str]]:
        """An Auto Scaling group and its instances."""
        name, scaling = f"g-{secrets.token_hex(4)}", self.aws.autoscaling
        scaling.create_launch_configuration(LaunchConfigurationName=name, ImageId=IMAGE, InstanceType=TYPE)
        scaling.create_auto_scaling_group(
            AutoScalingGroupName=name, LaunchConfigurationName=name, MinSize=least, MaxSize=size + 2,
            DesiredCapacity=size, AvailabilityZones=[ZONE],
        )  # fmt: skip
        return name, [one["InstanceId"] for one in self.shown(name)["Instances"]]

    def shown(self, group: str) -> dict[str, Any]:
        found = self.aws.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        return dict(found["AutoScalingGroups"][0])

    def state(self, instance: str) -> str:
        found = self.aws.ec2.describe_instances(InstanceIds=[instance])
        return str(found["Reservations"][0]["Instances"][0]["State"]["Name"])

    # -- nodes

    def node(self, instance: str = "", *, provider_id: str | None = None, out: bool = True, **more: Any) -> str:
        """A node on this instance (a new one by default), closed in the name of its first case."""
        if provider_id is None:
            provider_id = f"aws:///{ZONE}/{instance or self.instance()}"
        (name,) = self.cluster.add_nodes(1, provider_id=provider_id, **more)
        self.made.append(name)
        if out:
            self.close_for_case(name)
        return name

    def close_for_case(self, name: str) -> None:
        assert isinstance(cordon(self.site, act(name, Verb.CORDON, 1)), Done)

    def object(self, name: str) -> NodeObject:
        return self.api.get(names.node(name), NodeObject)

    def memory(self, name: str) -> Treatment | None:
        return treatment_on(self.site, self.object(name))

    def boots(self, name: str) -> str:
        """What a machine does when it is rebooted; returns the new boot id."""
        boot = self.cluster.reboot(name)
        fleet.wait_ready(self.api, name)
        return boot

    def forget(self, name: str) -> None:
        """As if the controller had died before it wrote anything."""
        self.api.patch(names.node(name), {"metadata": {"annotations": {self.site.keys.treatment: None}}}, Anything)

    # -- asking

    def sent(self, name: str, verb: Verb, step: int = 9) -> Action:
        """The action as the controller commits it before the call."""
        node = look(self.site, name)
        assert node is not None
        return replace(act(name, verb, step), before=Before(node.boot_id, node.instance, node.uid), sends=1)

    def ask(self, action: Action, *, call: bool = True) -> Outcome:
        return DOORS[action.verb](self.site, replace(action, call=call))

    def close(self) -> None:
        self.cluster.remove_nodes(self.made)


@cache
def patient(url: str) -> Aws:
    """For arranging things: moto's first instance takes it seconds on a busy machine."""
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    config = Config(read_timeout=120, retries={"total_max_attempts": 1})
    made = [boto3.client(name, region_name=REGION, endpoint_url=url, config=config) for name in ("ec2", "autoscaling")]
    return Aws(REGION, *made)


def act(node: str, verb: Verb, step: int) -> Action:
    return Action(f"{node}.1/{step}", verb, Place(node))


def why(outcome: Outcome) -> str:
    """Its words, whatever it is."""
    return outcome.detail if isinstance(outcome, Done | Started) else outcome.why


def ended(outcomes: Sequence[Outcome]) -> bool:
    return not isinstance(outcomes[-1], Started | Retry)
