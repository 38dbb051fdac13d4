"""Whose machine a node is, what its provider says of it, and what our own rights have to be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sickbay.errors import UserError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import JobObject, Meta, NodeObject, NodeSpec
from sickbay.model import Change, Done, Failed, Lost, NodeDeleted, Outcome, Retry, Started, Verb
from sickbay.platforms.kubernetes import groups, machines, node_jobs, node_reboot
from sickbay.platforms.kubernetes.answer import Answer
from sickbay.platforms.kubernetes.cordon import release
from sickbay.platforms.kubernetes.machines import karpenter
from sickbay.platforms.kubernetes.machines.aws import Meaning, instance_id, meaning, open_aws, region_of
from sickbay.platforms.kubernetes.watching import Eyes
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.ec2 import Ward, act, why
from tests.moto import Front, asg_error, ec2_error

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ward(cluster: Cluster, api: Api, amazon: Front, namespace: str) -> Iterator[Ward]:
    ward = Ward(cluster, api, amazon, namespace)
    yield ward
    ward.close()


def on(provider_id: str = "", labels: dict[str, str] | None = None, **notes: str) -> NodeObject:
    return NodeObject(Meta(name="n", labels=labels or {}, annotations=notes), NodeSpec(provider_id=provider_id))


# --- who it is --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "region", "instance"),
    [
        ("aws:///us-west-2a/i-0123456789abcdef0", "us-west-2", "i-0123456789abcdef0"),
        ("aws:///us-gov-west-1b/i-01234567", "us-gov-west-1", "i-01234567"),
        ("aws:///us-west-2-lax-1a/i-01234567", "us-west-2", "i-01234567"),
        ("i-0123456789abcdef0", "", "i-0123456789abcdef0"),
        ("gce://project/us-west1-a/i-01234567", "", ""),
        ("eks-hybrid:///us-west-2/c/mi-0123456789abcdef0", "", ""),
        ("aws:///us-west-2a/fargate-ip-10-0-0-1", "us-west-2", ""),
        ("", "", ""),
    ],
)
def test_a_provider_id_tells_region_and_instance(
    monkeypatch: pytest.MonkeyPatch, provider: str, region: str, instance: str
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    assert instance_id(provider) == instance
    if region or not provider.startswith(("gce", "eks")):
        assert region_of(provider) == region


def test_a_region_that_nobody_tells_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong region knows no such instance, and that would read as "terminated"."""
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(UserError, match="aws_region"):
        open_aws(region_of("i-0123456789abcdef0"))


@pytest.mark.parametrize(
    ("machines_are", "provider", "who"),
    [("auto", "aws:///us-west-2a/i-01234567", "ec2"), ("auto", "", "node-job"), ("auto", "gce://p/z/n", "node-job"),
     ("ec2", "", "none"), ("node-job", "aws:///us-west-2a/i-01234567", "node-job"), ("none", "", "none")],
)  # fmt: skip
def test_who_reboots_a_node_is_a_setting_or_its_provider(
    ward: Ward, machines_are: str, provider: str, who: str
) -> None:
    ward.more["machines"] = machines_are
    assert machines.provider_of(ward.site, on(provider)) == who


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (on("aws:///us-west-2a/i-01234567", {"karpenter.sh/nodepool": "gpu", "karpenter.sh/capacity-type": "reserved"}),
         "karpenter gpu, reserved"),
        (on("", {"eks.amazonaws.com/nodegroup": "p5", "eks.amazonaws.com/capacityType": "CAPACITY_BLOCK"}),
         "nodegroup p5, capacity-block"),
        (on("", None, **{"cluster.x-k8s.io/machine": "m-1"}), "cluster-api m-1"),
        (on("aws:///us-west-2a/i-01234567"), "ec2"),
        (on(), ""),
    ],
)  # fmt: skip
def test_what_its_capacity_is_made_of_is_read_off_the_node(ward: Ward, node: NodeObject, words: str) -> None:
    assert machines.capacity(ward.site, node) == words
    assert ward.front.calls == []


# --- what the provider says -------------------------------------------------------------------------------------------


def test_gone_and_down_are_what_amazon_says(ward: Ward) -> None:
    instance = ward.instance()
    node = on(f"aws:///us-west-2a/{instance}")
    ward.more["aws_region"] = "us-west-2"

    def says() -> tuple[bool, bool]:
        return machines.is_gone(ward.site, instance), machines.is_down(ward.site, node)

    assert says() == (False, False)
    ward.aws.ec2.stop_instances(InstanceIds=[instance])
    assert says() == (False, True)
    ward.aws.ec2.terminate_instances(InstanceIds=[instance])
    assert says() == (True, True)
    assert machines.is_gone(ward.site, "i-00000000000000000")


def test_a_machine_that_went_while_nobody_watched_is_told_to_whoever_asks_after_it(ward: Ward) -> None:
    """Object deleted and instance terminated between two controllers: of the machine only its short id is on record,
    and the region is the one of the nodes that are there."""
    mine, gone, runs = {"test.example/ward": ward.namespace}, ward.instance(), ward.instance()
    ward.node(out=False, labels=mine)
    ward.aws.ec2.terminate_instances(InstanceIds=[gone])
    ward.more |= {"gpu_selector": f"test.example/ward={ward.namespace}"}
    eyes = Eyes(ward.site, is_gone=partial(machines.is_gone, ward.site))
    told: list[Change] = []
    try:
        eyes.watch(told.append)
        eyes.observe()
        for name, machine in (("metal", "a-uid"), ("runs", runs), ("went", gone)):
            eyes.ask_after(name, machine)
        until(lambda: told, "it is told")
    finally:
        eyes.close()
    assert [(c.name, c.gone) for c in told if isinstance(c, NodeDeleted)] == [("went", True)]
    assert len(ward.front.calls) >= 2, "Amazon was asked about the one that runs, too"


def test_what_cannot_be_asked_is_neither_gone_nor_down(ward: Ward, caplog: pytest.LogCaptureFixture) -> None:
    node = on("aws:///us-west-2a/i-0123456789abcdef0")
    ward.front.replies["DescribeInstances"] = ec2_error("UnauthorizedOperation", "no", 403)
    assert not machines.is_gone(ward.site, "i-0123456789abcdef0")
    assert not machines.is_down(ward.site, node)
    assert "UnauthorizedOperation" in caplog.text
    assert not machines.is_down(ward.site, on("metal3://rack/1"))


def test_a_group_is_held_off_and_let_go_again(ward: Ward) -> None:
    group, (instance,) = ward.group()
    node = on(f"aws:///us-west-2a/{instance}")
    was = machines.protect(ward.site, node)
    assert ward.shown(group)["Instances"][0]["ProtectedFromScaleIn"]
    assert machines.protect(ward.site, node) == ""  # it is on: not ours to take off twice
    assert machines.give_up(ward.site, node, (was,))
    assert not ward.shown(group)["Instances"][0]["ProtectedFromScaleIn"]


def test_protection_that_somebody_else_had_switched_on_stays_on(ward: Ward) -> None:
    group, (instance,) = ward.group()
    ward.aws.autoscaling.set_instance_protection(
        AutoScalingGroupName=group, InstanceIds=[instance], ProtectedFromScaleIn=True
    )
    node = on(f"aws:///us-west-2a/{instance}")
    assert machines.protect(ward.site, node) == ""
    assert machines.give_up(ward.site, node, ())
    assert ward.shown(group)["Instances"][0]["ProtectedFromScaleIn"]


def test_a_cordon_does_not_wait_for_amazon_and_a_release_tries_again(ward: Ward) -> None:
    _, (instance,) = ward.group()
    node = on(f"aws:///us-west-2a/{instance}")
    ward.front.replies["SetInstanceProtection"] = asg_error("Throttling", "slow down")
    assert machines.protect(ward.site, node) == ""
    ward.front.replies.clear()
    was = machines.protect(ward.site, node)
    ward.front.replies["SetInstanceProtection"] = asg_error("Throttling", "slow down")
    assert not machines.give_up(ward.site, node, (was,))


class ReadTimeoutError(Exception):
    """Named as botocore's."""

    __module__ = "botocore.exceptions"


def error(code: str, status: int) -> Exception:
    made: Any = Exception(code)
    made.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (error("RequestLimitExceeded", 503), Meaning.THROTTLED),
        (error("Throttling", 400), Meaning.THROTTLED),
        (error("UnauthorizedOperation", 403), Meaning.REFUSED),
        (error("IncorrectInstanceState", 400), Meaning.REFUSED),
        (error("InternalError", 500), Meaning.UNCLEAR),
        (ReadTimeoutError(), Meaning.UNCLEAR),
    ],
)
def test_an_error_says_whether_anything_happened(problem: Exception, says: Meaning) -> None:
    assert meaning(problem) is says


@pytest.mark.parametrize(
    ("text", "number"),
    [("16", 16.0), (8, 8.0), ("1500m", 1.5), ("2Ti", 2.0**41), ("1e3", 1000.0), ("x", None), (None, None)],
)
def test_a_quantity_is_read_as_kubernetes_means_it(text: Any, number: float | None) -> None:
    assert karpenter.quantity(text) == number


# --- bare metal -------------------------------------------------------------------------------------------------------


def test_bare_metal_is_rebooted_by_a_job_that_carries_the_old_boot_id(ward: Ward) -> None:
    name = ward.node(provider_id="")
    action = ward.sent(name, Verb.REBOOT)
    assert isinstance(ward.ask(action), Started)
    job = node_jobs.find(ward.site, node_reboot.KIND, name, action.key)
    assert job is not None
    assert action.before.boot_id in json.dumps(job.spec)
    assert isinstance(ward.ask(action), Started)
    assert len(ward.api.list(names.jobs(ward.namespace), JobObject)) == 1
    ward.boots(name)
    assert isinstance(ward.ask(action, call=False), Done)


def test_a_reboot_whose_job_was_never_made_is_lost_and_sent_once_more(ward: Ward) -> None:
    """The controller died between the note on the node and the Job."""
    name = ward.node(provider_id="")
    action = ward.sent(name, Verb.REBOOT)
    ward.ask(action)
    job = node_jobs.find(ward.site, node_reboot.KIND, name, action.key)
    assert job is not None
    ward.api.delete(f"{names.jobs(ward.namespace)}/{job.metadata.name}", {"propagationPolicy": "Background"})
    assert isinstance(ward.ask(action, call=False), Lost)
    assert isinstance(ward.ask(action), Started)
    assert node_jobs.find(ward.site, node_reboot.KIND, name, action.key) is not None


def test_a_job_that_says_why_it_did_not_reboot_is_heard(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    name = ward.node(provider_id="")
    action = ward.sent(name, Verb.REBOOT)
    ward.ask(action)
    monkeypatch.setattr(node_reboot, "standing", lambda *_: Answer(action.key, error="this boot is another one"))
    said = ward.ask(action, call=False)
    assert isinstance(said, Failed)
    assert "this boot is another one" in said.why
    memory = ward.memory(name)
    assert memory is not None
    assert memory.state == "failed"


# --- our rights -------------------------------------------------------------------------------------------------------


LISTS = {"list_objects_v2": "s3:ListBucket"}  # the one call that is not named as its right


def test_the_policy_allows_exactly_the_calls_that_we_make() -> None:
    policy = json.loads((ROOT / "deploy/aws/iam-policy.json").read_text())
    allowed: set[str] = set()
    for statement in policy["Statement"]:
        actions = statement["Action"]
        allowed |= {actions} if isinstance(actions, str) else set(actions)
    called = {"sns:Publish"}
    for file in (ROOT / "src/sickbay/platforms/kubernetes/machines").glob("*.py"):
        for service, method in re.findall(r"aws\.(ec2|autoscaling)\.([a-z_]+)\(", file.read_text()):
            called.add(f"{service}:{''.join(word.capitalize() for word in method.split('_'))}")
    asked = re.findall(r'_asked\("([a-z0-9_]+)"', (ROOT / "src/sickbay/evidence/s3.py").read_text())
    called |= {LISTS.get(name, f"s3:{''.join(word.capitalize() for word in name.split('_'))}") for name in asked}
    assert allowed == called


def test_what_disrupts_is_bound_to_nodes_of_this_cluster() -> None:
    policy = json.loads((ROOT / "deploy/aws/iam-policy.json").read_text())
    for statement in policy["Statement"]:
        disrupts = [action for action in statement["Action"] if not re.search(r"Describe|Publish|^s3:", action)]
        if disrupts and isinstance(statement["Action"], list):
            assert "aws:ResourceTag/kubernetes.io/cluster/CLUSTER_NAME" in statement["Condition"]["StringEquals"]


# --- a group held off while the node is ours --------------------------------------------------------------------------


def drained(ward: Ward, name: str) -> None:
    door = groups.held(lambda *_: Done())
    assert isinstance(door(ward.site, act(name, Verb.DRAIN, 2)), Done)


def released(ward: Ward, name: str, step: int = 5) -> Outcome:
    return groups.let_go(release)(ward.site, act(name, Verb.RELEASE, step))


def is_protected(ward: Ward, group: str) -> bool:
    return bool(ward.shown(group)["Instances"][0]["ProtectedFromScaleIn"])


def test_a_group_is_held_off_from_the_drain_to_the_release(ward: Ward) -> None:
    group, (instance,) = ward.group()
    name = ward.node(instance)
    drained(ward, name)
    drained(ward, name)
    assert is_protected(ward, group)
    assert ward.front.count("SetInstanceProtection") == 1
    assert isinstance(released(ward, name), Done)
    assert not is_protected(ward, group)
    assert not ward.object(name).metadata.annotation(ward.site.keys.protection)


def test_what_somebody_else_protected_stays_protected_after_us(ward: Ward) -> None:
    group, (instance,) = ward.group()
    more = {"AutoScalingGroupName": group, "InstanceIds": [instance], "ProtectedFromScaleIn": True}
    ward.aws.autoscaling.set_instance_protection(**more)
    name = ward.node(instance)
    drained(ward, name)
    assert isinstance(released(ward, name), Done)
    assert is_protected(ward, group)


def test_a_group_stays_held_off_while_the_release_is_refused(ward: Ward) -> None:
    group, (instance,) = ward.group()
    name = ward.node(instance)
    drained(ward, name)
    refused = groups.let_go(lambda *_: Retry(30.0, "not ready"))
    assert isinstance(refused(ward.site, act(name, Verb.RELEASE, 5)), Retry)
    assert is_protected(ward, group)


def not_back(ward: Ward, size: int) -> tuple[str, str, str]:
    """A power cycle that found no host to start on again: group, instance and node."""
    group, instances = ward.group(size)
    name = ward.node(instances[0])
    action = ward.sent(name, Verb.POWER_CYCLE, step=9)
    ward.ask(action)
    ward.front.replies["StartInstances"] = ec2_error("InsufficientInstanceCapacity", "no p5 left", 500)
    assert "waits for a host" in why(ward.ask(action, call=False))
    ward.clock.passes(2_400.0)
    return group, instances[0], name


def states(ward: Ward, group: str) -> dict[str, str]:
    return {one["InstanceId"]: one["LifecycleState"] for one in ward.shown(group)["Instances"]}


@pytest.mark.parametrize("size", [1, 2])
def test_a_machine_whose_power_did_not_come_back_is_replaced_and_its_group_is_whole(ward: Ward, size: int) -> None:
    group, instance, name = not_back(ward, size)
    assert ward.shown(group)["DesiredCapacity"] == size - 1
    replaced = ward.sent(name, Verb.REPLACE, step=12)
    assert isinstance(ward.ask(replaced), Started)
    assert ward.shown(group)["DesiredCapacity"] == size
    assert instance not in states(ward, group)
    assert isinstance(ward.ask(replaced, call=False), Done)


def test_a_cancelled_case_leaves_nobody_in_standby(ward: Ward) -> None:
    group, instance, name = not_back(ward, 2)
    cancel = replace(act(name, Verb.RELEASE, 12), args={"cancel": "1"})
    assert isinstance(groups.let_go(release)(ward.site, cancel), Done)
    assert states(ward, group)[instance] == "InService"
    assert ward.shown(group)["DesiredCapacity"] == 2
    assert not ward.object(name).metadata.annotation(ward.site.keys.protection)


def test_what_somebody_else_put_into_standby_stays_there_and_is_not_replaced(ward: Ward) -> None:
    group, (instance, _) = ward.group(2)
    name = ward.node(instance)
    ward.aws.autoscaling.enter_standby(
        AutoScalingGroupName=group, InstanceIds=[instance], ShouldDecrementDesiredCapacity=True
    )
    said = ward.ask(ward.sent(name, Verb.REPLACE))
    assert isinstance(said, Failed)
    assert "somebody has put it into standby" in said.why
    assert isinstance(released(ward, name), Done)
    assert states(ward, group)[instance] == "Standby"


@pytest.mark.soak
def test_a_protection_that_cannot_be_taken_off_yet_is_not_forgotten(ward: Ward) -> None:
    group, (instance,) = ward.group()
    name = ward.node(instance)
    drained(ward, name)
    ward.front.replies["SetInstanceProtection"] = asg_error("Throttling", "slow down")
    said = released(ward, name)
    assert isinstance(said, Retry)
    assert "cannot be taken off yet" in said.why
    ward.front.replies.clear()
    assert isinstance(released(ward, name), Done)
    assert not is_protected(ward, group)


def test_a_drain_does_not_fail_because_amazon_is_away(ward: Ward) -> None:
    _, (instance,) = ward.group()
    name = ward.node(instance)
    ward.front.replies["DescribeAutoScalingInstances"] = asg_error("InternalFailure", "oops", 500)
    drained(ward, name)
    assert not ward.object(name).metadata.annotation(ward.site.keys.protection)
    drained(ward, ward.node(ward.group()[1][0]))
    assert ward.front.count("DescribeAutoScalingInstances") == 1  # nor does the next one wait for it


@pytest.fixture(autouse=True)
def nobody_was_asked() -> None:
    groups._askings.clear()


def test_nobody_elses_node_is_protected(ward: Ward) -> None:
    group, (instance,) = ward.group()
    drained(ward, ward.node(instance, out=False))
    assert not is_protected(ward, group)
