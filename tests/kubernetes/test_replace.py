"""REPLACE: the capacity source is read first; then the machine is given back to whoever made it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.model import Done, Failed, Lost, Retry, Started, Unguarded, Verb
from sickbay.platforms.kubernetes import successors
from sickbay.platforms.kubernetes.machines import asg, cluster_api
from testbed.cluster import Cluster
from tests.kubernetes.ec2 import Ward, why
from tests.moto import Front, ec2_error

NOTHING = "not replaced, nothing was terminated: "


@pytest.fixture
def ward(cluster: Cluster, api: Api, amazon: Front, namespace: str) -> Iterator[Ward]:
    ward = Ward(cluster, api, amazon, namespace)
    yield ward
    ward.close()


def refused(ward: Ward, name: str) -> str:
    """Why it is refused, with proof that nothing was touched."""
    said = ward.ask(ward.sent(name, Verb.REPLACE))
    assert isinstance(said, Failed)
    assert said.why.startswith(NOTHING)
    assert ward.memory(name) is None
    called = {call["Action"] for call in ward.front.calls}
    assert not {action for action in called if action.startswith("Terminate")}
    return said.why.removeprefix(NOTHING)


# --- Auto Scaling groups ----------------------------------------------------------------------------------------------


def test_a_member_of_a_group_is_terminated_and_the_group_launches_another(ward: Ward) -> None:
    group, (instance,) = ward.group()
    name = ward.node(instance)
    action = ward.sent(name, Verb.REPLACE)
    assert isinstance(ward.ask(action), Started)
    done = ward.ask(action, call=False)
    assert isinstance(done, Done)
    assert f"{instance} is gone" in done.detail
    shown = ward.shown(group)
    assert shown["DesiredCapacity"] == 1
    assert [m["InstanceId"] for m in shown["Instances"]] != [instance]
    assert ward.front.count("TerminateInstanceInAutoScalingGroup") == 1


def test_it_is_done_also_when_the_object_went_first(ward: Ward) -> None:
    _, (instance,) = ward.group()
    name = ward.node(instance)
    action = ward.sent(name, Verb.REPLACE)
    ward.ask(action)
    ward.api.delete(names.node(name))
    ward.more["aws_region"] = "us-west-2"  # the object that told the zone is gone
    assert isinstance(ward.ask(action, call=False), Done)


def test_its_successor_is_written_down_for_the_newcomer_gate(ward: Ward) -> None:
    _, (instance,) = ward.group()
    name = ward.node(instance, labels={"sickbay.dev/pool": "training"})
    ward.ask(ward.sent(name, Verb.REPLACE))
    (line,) = successors.due(ward.site)
    assert (line.node, line.instance, line.pool) == (name, instance, "training")
    fresh = ward.node(labels={"sickbay.dev/pool": "training"}, out=False)
    other = ward.node(labels={"sickbay.dev/pool": "inference"}, out=False)
    due = [replace(line, at=time.time())]  # the ward's clock is not the server's
    assert successors.answered_by(ward.site, due, ward.object(name)) is None  # the very machine that leaves
    assert successors.answered_by(ward.site, due, ward.object(other)) is None
    assert successors.answered_by(ward.site, due, ward.object(fresh)) == due[0]
    successors.met(ward.site, line)
    assert successors.due(ward.site) == []


def test_a_successor_that_never_came_is_not_expected_for_ever(ward: Ward) -> None:
    _, (instance,) = ward.group()
    ward.ask(ward.sent(ward.node(instance), Verb.REPLACE))
    ward.clock.passes(successors.FORGET_S + 1)
    assert successors.due(ward.site) == []


@pytest.mark.parametrize("process", ["Launch", "Terminate"])
def test_a_group_with_a_suspended_process_is_left_alone(ward: Ward, process: str) -> None:
    group, (instance,) = ward.group()
    name = ward.node(instance)
    ward.aws.autoscaling.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=[process])
    assert refused(ward, name) == f"its Auto Scaling group {group} has {process} suspended: resume it first"


def test_a_group_whose_last_launch_failed_would_leave_us_one_node_poorer(ward: Ward) -> None:
    """originals 000.10 #12: replacement without a look at the capacity."""
    _, (instance,) = ward.group()
    name = ward.node(instance)
    ward.front.replies["DescribeScalingActivities"] = activities(
        ("Terminating EC2 instance: i-1", "Successful", ""),
        ("Launching a new EC2 instance.", "Failed", "We currently do not have sufficient p5.48xlarge capacity"),
        ("Launching a new EC2 instance: i-2", "Successful", ""),
    )
    assert "sufficient p5.48xlarge capacity" in refused(ward, name)
    ward.front.replies["DescribeScalingActivities"] = activities(
        ("Launching a new EC2 instance: i-3", "Successful", ""),
        ("Launching a new EC2 instance.", "Failed", "We currently do not have sufficient p5.48xlarge capacity"),
    )
    member = asg.member(ward.aws, instance)
    assert member is not None
    assert asg.no_successor(ward.aws, member) == ""


def test_a_group_that_shrinks_would_make_no_successor(ward: Ward) -> None:
    group, (instance,) = ward.group()
    name = ward.node(instance)
    ward.front.edits["DescribeAutoScalingGroups"] = lambda said: said.replace(
        b"<DesiredCapacity>1<", b"<DesiredCapacity>0<"
    )
    assert f"{group} wants no instances" in refused(ward, name)


def activities(*rows: tuple[str, str, str]) -> tuple[int, bytes]:
    """DescribeScalingActivities as Auto Scaling says it, newest first."""
    members = "".join(
        f"<member><ActivityId>a</ActivityId><AutoScalingGroupName>g</AutoScalingGroupName><Cause>c</Cause>"
        f"<StartTime>2026-11-16T00:00:00Z</StartTime><Description>{what}</Description><StatusCode>{code}</StatusCode>"
        f"<StatusMessage>{said}</StatusMessage></member>"
        for what, code, said in rows
    )
    body = f"<DescribeScalingActivitiesResponse><DescribeScalingActivitiesResult><Activities>{members}</Activities>"
    return 200, (body + "</DescribeScalingActivitiesResult></DescribeScalingActivitiesResponse>").encode()


# --- EC2 --------------------------------------------------------------------------------------------------------------


def test_an_instance_that_nobody_would_launch_again_is_not_terminated(ward: Ward) -> None:
    instance = ward.instance()
    name = ward.node(instance)
    assert "nobody would launch a successor" in refused(ward, name)
    assert ward.state(instance) == "running"


def test_unless_the_operator_says_that_somebody_does(ward: Ward) -> None:
    instance = ward.instance()
    name = ward.node(instance)
    ward.more["machines"] = "ec2"
    action = ward.sent(name, Verb.REPLACE)
    assert isinstance(ward.ask(action), Started)
    assert isinstance(ward.ask(action, call=False), Done)
    assert ward.state(instance) == "terminated"


def test_a_capacity_block_that_ends_soon_is_no_place_for_a_successor(ward: Ward) -> None:
    _, (instance,) = ward.group()
    name = ward.node(instance)
    ward.front.reserve("active", at(ward, minutes=50))
    assert "ends in 50 minutes: a successor would not live" in refused(ward, name)
    ward.front.reserve("expired", at(ward, minutes=-5))
    assert "is expired: nothing could be launched into it" in refused(ward, name)
    ward.front.reserve("active", at(ward, minutes=60 * 24))
    assert isinstance(ward.ask(ward.sent(name, Verb.REPLACE)), Started)


def at(ward: Ward, minutes: float) -> str:
    return datetime.fromtimestamp(ward.clock.now() + minutes * 60 + 20, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def test_a_reservation_that_cannot_be_read_promises_nothing(ward: Ward) -> None:
    _, (instance,) = ward.group()
    name = ward.node(instance)
    ward.front.reserve("active", "")
    ward.front.replies["DescribeCapacityReservations"] = ec2_error("UnauthorizedOperation", "not authorized", 403)
    assert "cannot be read: UnauthorizedOperation" in refused(ward, name)
    ward.front.replies["DescribeCapacityReservations"] = ec2_error("RequestLimitExceeded", "slow down", 503)
    assert isinstance(ward.ask(ward.sent(name, Verb.REPLACE)), Retry)


def test_termination_protection_is_told_and_nothing_is_in_progress(ward: Ward) -> None:
    """NVSentinel 9.6 #1808."""
    _, (instance,) = ward.group()
    action = ward.sent(ward.node(instance), Verb.REPLACE)
    said_by_amazon = ec2_error("OperationNotPermitted", "disableApiTermination is set")
    ward.front.replies["TerminateInstanceInAutoScalingGroup"] = said_by_amazon
    said = ward.ask(action)
    assert isinstance(said, Failed)
    assert "disableApiTermination" in said.why
    assert ward.ask(action, call=False) == said
    assert ward.state(instance) == "running"


def test_an_instance_that_still_runs_after_two_minutes_never_got_the_call(ward: Ward) -> None:
    _, (instance,) = ward.group()
    action = ward.sent(ward.node(instance), Verb.REPLACE)
    ward.front.replies["TerminateInstanceInAutoScalingGroup"] = ec2_error("InternalFailure", "oops", 500)
    assert isinstance(ward.ask(action), Started)
    ward.front.replies.clear()
    assert isinstance(ward.ask(action, call=False), Started)
    ward.clock.passes(121.0)
    assert isinstance(ward.ask(action, call=False), Lost)
    assert isinstance(ward.ask(action), Started)
    assert ward.state(instance) == "terminated"


def test_the_guard_comes_before_everything(ward: Ward) -> None:
    _, (instance,) = ward.group()
    name = ward.node(instance, out=False)
    assert isinstance(ward.ask(ward.sent(name, Verb.REPLACE)), Unguarded)
    assert ward.state(instance) == "running"


# --- Karpenter --------------------------------------------------------------------------------------------------------

CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"}
NODECLAIMS, NODEPOOLS = "/apis/karpenter.sh/v1/nodeclaims", "/apis/karpenter.sh/v1/nodepools"


@pytest.fixture
def pool(ward: Ward) -> Iterator[str]:
    """A NodePool, of Karpenter's own CRD."""
    ward.cluster.install_crds("karpenter")
    ward.more["machines"] = "node-job"  # the instance is Karpenter's: no question to EC2 in these
    name = f"pool-{secrets.token_hex(4)}"
    template = {"spec": {"nodeClassRef": CLASS, "requirements": []}}
    spec = {"template": template, "limits": {"nvidia.com/gpu": "16"}}
    body = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
    ward.api.create(NODEPOOLS, body, Anything)
    yield name
    for claim in ward.api.list(NODECLAIMS, Anything, labelSelector=f"karpenter.sh/nodepool={name}"):
        path = f"{NODECLAIMS}/{claim.metadata.name}"
        ward.api.patch(path, {"metadata": {"finalizers": None}}, Anything)
        ward.api.delete(path)
    ward.api.delete(f"{NODEPOOLS}/{name}")


def claimed(ward: Ward, pool: str, **status: Any) -> tuple[str, str]:
    """A node and its NodeClaim, which keeps Karpenter's finalizer as a real one does."""
    claim = f"{pool}-{secrets.token_hex(2)}"
    meta = {"name": claim, "labels": {"karpenter.sh/nodepool": pool}, "finalizers": ["karpenter.sh/termination"]}
    spec = {"nodeClassRef": CLASS, "requirements": []}
    body = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": meta, "spec": spec}
    made = ward.api.create(NODECLAIMS, body, Anything)
    owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": claim, "uid": made.metadata.uid}
    name = ward.node(labels={"karpenter.sh/nodepool": pool}, provider_id=f"aws:///us-west-2a/i-{secrets.token_hex(8)}")
    ward.api.patch(names.node(name), {"metadata": {"ownerReferences": [owner]}}, Anything)
    told = {"nodeName": name, "providerID": ward.object(name).spec.provider_id, **status}
    ward.api.patch(f"{NODECLAIMS}/{claim}/status", {"status": told}, Anything)
    return name, claim


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    stamp = "2026-11-16T00:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp}


def test_a_node_of_karpenter_is_replaced_by_deleting_its_node_claim(ward: Ward, pool: str) -> None:
    name, claim = claimed(ward, pool)
    action = ward.sent(name, Verb.REPLACE)
    assert isinstance(ward.ask(action), Started)
    path = f"{NODECLAIMS}/{claim}"
    assert ward.api.get(path, Anything).metadata.deletion_timestamp
    assert isinstance(ward.ask(action, call=False), Started)  # Karpenter has not let go yet
    ward.api.delete(names.node(name))  # it takes the node away first
    assert isinstance(ward.ask(action, call=False), Started)
    ward.api.patch(path, {"metadata": {"finalizers": None}}, Anything)
    assert isinstance(ward.ask(action, call=False), Done)
    assert ward.front.count("TerminateInstances") == 0


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"resources": {"nvidia.com/gpu": "24"}}, "is above its limit of 16 nvidia.com/gpu (24 used)"),
        (
            {"conditions": [condition("Ready", "False", "NodeClassNotReady", "no subnets")]},
            "NodeClassNotReady no subnets",
        ),
    ],
)
def test_a_pool_that_would_make_no_other_keeps_its_node(
    ward: Ward, pool: str, status: dict[str, Any], words: str
) -> None:
    name, claim = claimed(ward, pool)
    ward.api.patch(f"{NODEPOOLS}/{pool}/status", {"status": status}, Anything)
    assert words in refused(ward, name)
    assert not ward.api.get(f"{NODECLAIMS}/{claim}", Anything).metadata.deletion_timestamp


def test_a_pool_at_its_limit_has_room_for_the_one_that_takes_its_place(ward: Ward, pool: str) -> None:
    name, _ = claimed(ward, pool)
    ward.api.patch(f"{NODEPOOLS}/{pool}/status", {"status": {"resources": {"nvidia.com/gpu": "16"}}}, Anything)
    assert isinstance(ward.ask(ward.sent(name, Verb.REPLACE)), Started)


def test_a_pool_that_waits_for_capacity_gives_nothing_up(ward: Ward, pool: str) -> None:
    name, _ = claimed(ward, pool)
    stuck = condition("Launched", "False", "InsufficientCapacity", "no p5.48xlarge in us-west-2a")
    claimed(ward, pool, conditions=[stuck])
    assert "cannot be launched: InsufficientCapacity no p5.48xlarge" in refused(ward, name)


def test_a_claim_or_a_pool_that_is_gone_is_told(ward: Ward, pool: str) -> None:
    name, claim = claimed(ward, pool)
    ward.api.delete(f"{NODEPOOLS}/{pool}")
    assert f"its NodePool {pool} is not there any more" in refused(ward, name)
    ward.api.patch(names.node(name), {"metadata": {"ownerReferences": None}}, Anything)  # or it would go with its claim
    ward.api.patch(f"{NODECLAIMS}/{claim}", {"metadata": {"finalizers": None}}, Anything)
    ward.api.delete(f"{NODECLAIMS}/{claim}")
    assert "has no NodeClaim any more" in refused(ward, name)


# --- Cluster API ------------------------------------------------------------------------------------------------------

CAPI = "/apis/cluster.x-k8s.io/v1beta2"


@pytest.fixture
def machines(ward: Ward) -> str:
    """A Cluster and a MachineSet in the test's namespace, of Cluster API's own CRDs."""
    ward.cluster.install_crds("cluster-api")
    folder, ref = f"{CAPI}/namespaces/{ward.namespace}", {"apiGroup": "x.test", "kind": "X", "name": "x"}
    cluster = {"spec": {"infrastructureRef": ref}}
    make(ward, f"{folder}/clusters", "Cluster", "c", cluster)
    template = {"spec": {"clusterName": "c", "bootstrap": {"dataSecretName": "s"}, "infrastructureRef": ref}}
    labels = {"cluster.x-k8s.io/deployment-name": "d"}
    spec = {"clusterName": "c", "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, **template}}  # fmt: skip
    make(ward, f"{folder}/machinesets", "MachineSet", "d-1", {"spec": spec})
    return folder


def make(ward: Ward, path: str, kind: str, name: str, body: dict[str, Any], **meta: Any) -> str:
    whole = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **meta}, **body}
    return ward.api.create(path, whole, Anything).metadata.uid


def kept(ward: Ward, folder: str, owner: str = "MachineSet") -> tuple[str, str]:
    """A node and its Machine, kept by the MachineSet: the real one, or the garbage collector would take the Machine."""
    name = ward.node(provider_id=f"metal3://rack-1/{secrets.token_hex(4)}", out=False)
    machine = f"m-{secrets.token_hex(3)}"
    uid = ward.api.get(f"{folder}/machinesets/d-1", Anything).metadata.uid
    refs = [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": owner, "name": "d-1", "uid": uid, "controller": True}]
    ref = {"apiGroup": "x.test", "kind": "X", "name": "x"}
    spec = {"clusterName": "c", "bootstrap": {"dataSecretName": "s"}, "infrastructureRef": ref,
            "providerID": ward.object(name).spec.provider_id}  # fmt: skip
    make(ward, f"{folder}/machines", "Machine", machine, {"spec": spec}, ownerReferences=refs if owner else [],
         finalizers=["machine.cluster.x-k8s.io"])  # fmt: skip
    notes = {"cluster.x-k8s.io/machine": machine, "cluster.x-k8s.io/cluster-namespace": ward.namespace}
    ward.api.patch(names.node(name), {"metadata": {"annotations": notes}}, Anything)
    ward.close_for_case(name)
    return name, machine


def test_a_machine_of_cluster_api_is_replaced_by_deleting_it(ward: Ward, machines: str) -> None:
    name, machine = kept(ward, machines)
    action, path = ward.sent(name, Verb.REPLACE), f"{machines}/machines/{machine}"
    try:
        assert isinstance(ward.ask(action), Started)
        assert ward.api.get(path, Anything).metadata.deletion_timestamp
        assert isinstance(ward.ask(action, call=False), Started)
    finally:
        let_go(ward, path)
    assert isinstance(ward.ask(action, call=False), Done)


def test_a_machine_that_was_never_deleted_is_known_and_given_back_once_more(
    ward: Ward, machines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller died between the note on the node and the delete."""
    name, machine = kept(ward, machines)
    action, path = ward.sent(name, Verb.REPLACE), f"{machines}/machines/{machine}"
    with monkeypatch.context() as dying:
        dying.setattr(cluster_api, "delete", lambda *_: None)
        ward.ask(action)
    assert isinstance(ward.ask(action, call=False), Started)
    ward.clock.passes(121.0)
    assert isinstance(ward.ask(action, call=False), Lost)
    try:
        assert isinstance(ward.ask(action), Started)
        assert ward.api.get(path, Anything).metadata.deletion_timestamp
        assert isinstance(ward.ask(action, call=False), Started)
    finally:
        let_go(ward, path)


def test_a_machine_that_no_set_would_make_again_is_kept(ward: Ward, machines: str) -> None:
    name, machine = kept(ward, machines, owner="")
    assert "is kept by nobody, not by a MachineSet" in refused(ward, name)
    let_go(ward, f"{machines}/machines/{machine}")


def test_a_paused_cluster_and_an_empty_set_make_no_successor(ward: Ward, machines: str) -> None:
    name, machine = kept(ward, machines)
    ward.api.patch(f"{machines}/clusters/c", {"spec": {"paused": True}}, Anything)
    assert "its Cluster c is paused" in refused(ward, name)
    ward.api.patch(f"{machines}/machinesets/d-1", {"spec": {"replicas": 0}}, Anything)
    assert "its MachineSet d-1 wants no machines" in refused(ward, name)
    let_go(ward, f"{machines}/machines/{machine}")


def test_a_machine_whose_management_cluster_is_elsewhere_is_told(ward: Ward, machines: str) -> None:
    name, machine = kept(ward, machines)
    let_go(ward, f"{machines}/machines/{machine}")
    ward.api.delete(f"{machines}/machines/{machine}")
    assert "is not in this cluster" in refused(ward, name)


def let_go(ward: Ward, path: str) -> None:
    if ward.api.find(path, Anything) is not None:
        ward.api.patch(path, {"metadata": {"finalizers": None}}, Anything)


def test_bare_metal_that_nobody_would_replace_is_told(ward: Ward) -> None:
    name = ward.node(provider_id="")
    assert "nobody is known who would make another machine" in refused(ward, name)
    ward.more["machines"] = "none"
    assert "'none'" in why(ward.ask(ward.sent(name, Verb.REPLACE)))
