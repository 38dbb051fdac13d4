"""POWER_CYCLE of EC2 instances: stop, see it without power, start; each ask one step, harmless to lose in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sickbay.kube.api import Api
from sickbay.model import Done, Failed, Lost, Started, Unguarded, Verb
from testbed.cluster import Cluster
from tests.kubernetes.ec2 import Ward, why
from tests.moto import Front, asg_error, ec2_error


@pytest.fixture
def ward(cluster: Cluster, api: Api, amazon: Front, namespace: str) -> Iterator[Ward]:
    ward = Ward(cluster, api, amazon, namespace)
    yield ward
    ward.close()


def test_the_instance_is_stopped_and_started_once_and_the_node_comes_back(ward: Ward) -> None:
    instance = ward.instance()
    name = ward.node(instance)
    action = ward.sent(name, Verb.POWER_CYCLE)
    assert isinstance(ward.ask(action), Started)
    assert ward.state(instance) == "stopped"
    said = ward.ask(action, call=False)
    assert isinstance(said, Started)
    assert "is starting" in said.detail
    assert ward.state(instance) == "running"
    assert isinstance(ward.ask(action, call=False), Started)
    ward.boots(name)
    assert isinstance(ward.ask(action, call=False), Done)
    assert (ward.front.count("StopInstances"), ward.front.count("StartInstances")) == (1, 1)


def test_an_instance_that_our_stop_put_down_is_started_by_whoever_asks_next(ward: Ward) -> None:
    """The controller died right after the stop, and Amazon's answer to it was lost as well."""
    instance = ward.instance()
    action = ward.sent(ward.node(instance), Verb.POWER_CYCLE)
    ward.front.mute.add("StopInstances")
    assert isinstance(ward.ask(action), Started)
    assert isinstance(ward.ask(action, call=False), Started)
    assert ward.state(instance) == "running"


def test_without_a_host_to_start_on_it_is_asked_again_and_said_why(ward: Ward) -> None:
    instance = ward.instance()
    action = ward.sent(ward.node(instance), Verb.POWER_CYCLE)
    ward.ask(action)
    ward.front.replies["StartInstances"] = ec2_error("InsufficientInstanceCapacity", "no p5 left", 500)
    said = ward.ask(action, call=False)
    assert isinstance(said, Started)
    assert "waits for a host" in said.detail
    assert "InsufficientInstanceCapacity" in said.detail
    ward.front.replies.clear()
    assert isinstance(ward.ask(action, call=False), Started)
    assert ward.state(instance) == "running"


def test_a_stop_that_never_came_is_known_to_be_lost_and_may_be_sent_again(ward: Ward) -> None:
    instance = ward.instance()
    action = ward.sent(ward.node(instance), Verb.POWER_CYCLE)
    ward.front.replies["StopInstances"] = ec2_error("InternalError", "an internal error has occurred", 500)
    assert isinstance(ward.ask(action), Started)  # it may have happened
    assert isinstance(ward.ask(action, call=False), Started)
    ward.front.replies.clear()
    ward.clock.passes(121.0)
    said = ward.ask(action, call=False)
    assert isinstance(said, Lost)
    assert "has not stopped running" in said.why
    assert isinstance(ward.ask(action), Started)
    assert ward.state(instance) == "stopped"


def test_a_system_too_sick_to_shut_down_is_cut_off_after_ten_minutes(ward: Ward) -> None:
    action = ward.sent(ward.node(), Verb.POWER_CYCLE)
    ward.ask(action)
    ward.front.edits["DescribeInstances"] = lambda said: said.replace(b"<name>stopped<", b"<name>stopping<")
    assert ward.front.count("StopInstances") == 1
    assert "is stopping" in why(ward.ask(action, call=False))
    ward.clock.passes(601.0)
    assert "its power is cut" in why(ward.ask(action, call=False))
    ward.ask(action, call=False)
    forced = [call.get("Force") for call in ward.front.calls if call["Action"] == "StopInstances"]
    assert forced == ["false", "true"]


@pytest.mark.parametrize(
    ("lifecycle", "words"), [("spot", "may go to somebody else"), ("capacity-block", "gives its host away")]
)
def test_a_machine_whose_host_a_stop_may_lose_is_left_running(ward: Ward, lifecycle: str, words: str) -> None:
    instance = ward.instance()
    name = ward.node(instance)
    ward.front.reserve("active", "", lifecycle)
    said = ward.ask(ward.sent(name, Verb.POWER_CYCLE))
    assert isinstance(said, Failed)
    assert words in said.why
    assert ward.state(instance) == "running"
    assert ward.memory(name) is None


def test_a_node_of_karpenters_is_left_running_or_karpenter_would_replace_it(ward: Ward) -> None:
    instance = ward.instance()
    name = ward.node(instance, labels={"karpenter.sh/nodepool": "p5"})
    said = ward.ask(ward.sent(name, Verb.POWER_CYCLE))
    assert isinstance(said, Failed)
    assert "deletes its NodeClaim" in said.why
    assert ward.front.count("StopInstances") == 0
    assert ward.memory(name) is None


def test_a_member_of_a_group_goes_into_standby_or_the_group_would_terminate_it(ward: Ward) -> None:
    group, (instance,) = ward.group()
    name = ward.node(instance)
    action = ward.sent(name, Verb.POWER_CYCLE)
    ward.ask(action)
    (member,) = ward.shown(group)["Instances"]
    assert (member["InstanceId"], member["LifecycleState"]) == (instance, "Standby")
    ward.ask(action, call=False)
    ward.boots(name)
    assert isinstance(ward.ask(action, call=False), Done)
    shown = ward.shown(group)
    assert [(m["InstanceId"], m["LifecycleState"]) for m in shown["Instances"]] == [(instance, "InService")]
    assert shown["DesiredCapacity"] == 1


def test_a_group_that_takes_nobody_into_standby_keeps_its_instance(ward: Ward) -> None:
    _, (instance,) = ward.group()
    action = ward.sent(ward.node(instance), Verb.POWER_CYCLE)
    ward.front.replies["EnterStandby"] = asg_error("ValidationError", "would fall below the group's minimum size")
    said = ward.ask(action)
    assert isinstance(said, Failed)
    assert "minimum size" in said.why
    assert ward.state(instance) == "running"
    assert ward.ask(action, call=False) == said


@pytest.mark.soak
def test_a_stop_that_amazon_refuses_leaves_nobody_in_standby(ward: Ward) -> None:
    group, (instance,) = ward.group()
    action = ward.sent(ward.node(instance), Verb.POWER_CYCLE)
    ward.front.replies["StopInstances"] = ec2_error("OperationNotPermitted", "disableApiStop is set")
    said = ward.ask(action)
    assert isinstance(said, Failed)
    assert "disableApiStop" in said.why
    assert [m["LifecycleState"] for m in ward.shown(group)["Instances"]] == ["InService"]


def test_an_instance_that_goes_away_meanwhile_is_told(ward: Ward) -> None:
    instance = ward.instance()
    action = ward.sent(ward.node(instance), Verb.POWER_CYCLE)
    assert isinstance(ward.ask(action), Started)
    ward.aws.ec2.terminate_instances(InstanceIds=[instance])
    said = ward.ask(action, call=False)
    assert isinstance(said, Failed)
    assert "went away" in said.why


def test_bare_metal_without_a_power_switch_is_refused_in_words(ward: Ward) -> None:
    name = ward.node(provider_id="")
    said = ward.ask(ward.sent(name, Verb.POWER_CYCLE))
    assert isinstance(said, Failed)
    assert "no power switch (Redfish, IPMI) is configured" in said.why


def test_the_guard_holds_before_anything_is_stopped(ward: Ward) -> None:
    instance = ward.instance()
    name = ward.node(instance, out=False)
    assert isinstance(ward.ask(ward.sent(name, Verb.POWER_CYCLE)), Unguarded)
    assert ward.state(instance) == "running"
