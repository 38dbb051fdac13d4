"""REBOOT of EC2 instances: moto's EC2 and a real API server at once. Sent once, remembered on the node, done when the
node is back under another boot id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject, NodeSpec
from sickbay.model import Done, Failed, Lost, Retry, Started, Unguarded, Verb
from sickbay.platforms.kubernetes import out_of_service
from sickbay.platforms.kubernetes.drain import drain
from sickbay.platforms.kubernetes.views import answers, is_ready
from testbed import fleet
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.drain.test_budgets import a_budget, allowed
from tests.kubernetes.ec2 import Ward, act, why
from tests.kubernetes.stage import add_pod, runs
from tests.moto import Front, ec2_error


@pytest.fixture
def ward(cluster: Cluster, api: Api, amazon: Front, namespace: str) -> Iterator[Ward]:
    ward = Ward(cluster, api, amazon, namespace)
    yield ward
    ward.close()


def test_a_reboot_is_done_when_the_node_is_back_under_another_boot_id(ward: Ward) -> None:
    """originals 000.10 #5: thirty seconds of waiting are not a reboot."""
    name = ward.node()
    action = ward.sent(name, Verb.REBOOT)
    assert isinstance(ward.ask(action), Started)
    assert isinstance(ward.ask(action, call=False), Started)
    boot = ward.boots(name)
    done = ward.ask(action, call=False)
    assert isinstance(done, Done)
    assert boot in done.detail
    assert ward.front.count("RebootInstances") == 1


def test_it_is_not_done_while_the_node_is_not_ready(ward: Ward) -> None:
    name = ward.node()
    action = ward.sent(name, Verb.REBOOT)
    ward.ask(action)
    ward.cluster.kill_kubelet(name)
    status = {"status": {"nodeInfo": {"bootID": "the-next-boot"}}}
    ward.api.patch(names.node(name) + "/status", status, Anything, how="strategic")
    said = ward.ask(action, call=False)
    assert isinstance(said, Started)
    assert "not Ready yet" in said.detail


def test_a_machine_that_boots_under_our_own_out_of_service_taint_is_back(ward: Ward) -> None:
    """Its drain was given up before the pods were gone, so nobody had taken the taint off."""
    name = ward.node()
    out_of_service.put(ward.site, ward.object(name))
    action = ward.sent(name, Verb.REBOOT)
    ward.ask(action)
    ward.cluster.reboot(name)
    until(lambda: answers(ward.object(name)), f"{name} answers")
    until(lambda: isinstance(ward.ask(action, call=False), Done), "the reboot is done", 10.0, 0.2)
    assert is_ready(ward.object(name))


def test_however_often_it_is_called_it_reboots_once(ward: Ward) -> None:
    """originals 000.10 #3: a second reboot in the middle of the first."""
    name = ward.node()
    action = ward.sent(name, Verb.REBOOT)
    for _ in range(3):
        assert isinstance(ward.ask(action), Started)
    assert ward.front.count("RebootInstances") == 1


def ours(node: NodeObject) -> NodeSpec:
    """But for the taint that Kubernetes itself puts on a cordoned node, a moment later."""
    taints = [taint for taint in node.spec.taints or [] if taint.key != "node.kubernetes.io/unschedulable"]
    return NodeSpec(node.spec.unschedulable, node.spec.provider_id, taints)


def test_a_mere_look_touches_nothing_and_knows_that_the_call_never_came(ward: Ward) -> None:
    name = ward.node()
    action = ward.sent(name, Verb.REBOOT)
    before = ward.object(name)
    said = ward.ask(action, call=False)
    assert isinstance(said, Lost)
    assert "never arrived" in said.why
    assert ward.front.count("RebootInstances") == 0
    after = ward.object(name)
    assert after.metadata.annotations == before.metadata.annotations
    assert ours(after) == ours(before)


def test_what_was_sent_is_remembered_before_it_is_sent(ward: Ward) -> None:
    """A controller that dies while Amazon answers finds on the node what it may have done."""
    name = ward.node()
    action = ward.sent(name, Verb.REBOOT)
    ward.front.mute.add("RebootInstances")  # carried out, never answered
    said = ward.ask(action)
    assert isinstance(said, Started)
    assert "not known" in said.detail
    memory = ward.memory(name)
    assert memory is not None
    assert (memory.key, memory.state, memory.boot_id) == (action.key, "sent", action.before.boot_id)
    assert isinstance(ward.ask(action, call=False), Started)
    assert ward.front.count("RebootInstances") == 1


def test_a_call_that_amazon_refuses_is_failed_at_once_and_stays_failed(ward: Ward) -> None:
    """NVSentinel 9.6 #1808: a failed provider call looks as if it were in progress for ever."""
    name = ward.node()
    action = ward.sent(name, Verb.REBOOT)
    ward.front.replies["RebootInstances"] = ec2_error("UnauthorizedOperation", "You are not authorized", 403)
    said = ward.ask(action)
    assert isinstance(said, Failed)
    assert "UnauthorizedOperation" in said.why
    assert ward.ask(action, call=False) == said
    ward.front.replies.clear()
    other = ward.sent(name, Verb.POWER_CYCLE, step=10)  # the next rung is not kept out by one that came to nothing
    assert isinstance(ward.ask(other), Started)


def test_a_throttled_call_is_known_not_to_have_arrived_and_is_made_once_more(ward: Ward) -> None:
    name = ward.node()
    action = ward.sent(name, Verb.REBOOT)
    ward.front.replies["RebootInstances"] = ec2_error("RequestLimitExceeded", "Request limit exceeded.", 503)
    said = ward.ask(action)
    assert isinstance(said, Retry)
    assert "RequestLimitExceeded" in said.why
    ward.front.replies.clear()
    assert isinstance(ward.ask(action, call=False), Lost)
    assert isinstance(ward.ask(action), Started)
    memory = ward.memory(name)
    assert memory is not None
    assert memory.state == "sent"


def test_an_amazon_that_cannot_be_reached_leaves_no_doubt(ward: Ward) -> None:
    name = ward.node()
    action = ward.sent(name, Verb.REBOOT)
    ward.more["aws_endpoint"] = "http://127.0.0.1:9"
    assert isinstance(ward.ask(action), Lost)
    assert isinstance(ward.ask(action, call=False), Lost)


@pytest.mark.parametrize("opened", ["by a person", "by us"])
def test_no_reboot_of_a_node_that_is_not_held_for_this_case(ward: Ward, opened: str) -> None:
    name = ward.node(out=opened == "by a person")
    if opened == "by a person":
        ward.cluster.kubectl("uncordon", name)
    said = ward.ask(ward.sent(name, Verb.REBOOT))
    assert isinstance(said, Unguarded)
    assert ward.front.count("RebootInstances") == 0


def test_no_reboot_over_a_pod_without_gpus_until_its_budget_has_let_it_go(ward: Ward) -> None:
    """An ingress or a database on a GPU node is nobody's to kill, whatever is wrong with the GPUs."""
    name = ward.node()
    ward.more["namespace"] = f"{ward.namespace}-ours"
    add_pod(ward.api, ward.namespace, "web", name, gpus=0, labels={"app": "llama"})
    runs(ward.api, ward.namespace, "web")
    a_budget(ward.api, ward.namespace, "web", minAvailable=1)
    until(allowed(ward.api, ward.namespace, "web", 0), "the budget is counted")
    assert "is not empty" in why(ward.ask(ward.sent(name, Verb.REBOOT)))
    assert ward.front.count("RebootInstances") == 0
    action = replace(act(name, Verb.DRAIN, 2), args={"evict": "1", "scope": "all"})
    assert f"waits for pdb {ward.namespace}/web" in why(drain(ward.site, action))
    ward.api.delete(f"/apis/policy/v1/namespaces/{ward.namespace}/poddisruptionbudgets/web")
    until(lambda: isinstance(drain(ward.site, action), Done), "the node is empty", 20.0, 0.2)
    assert isinstance(ward.ask(ward.sent(name, Verb.REBOOT)), Started)
    assert ward.front.count("RebootInstances") == 1


def test_a_call_that_comes_after_a_boot_is_refused(ward: Ward) -> None:
    """originals 000.10 #4: the same event handled again, and the node rebooted for it."""
    name = ward.node()
    late = ward.sent(name, Verb.REBOOT)
    ward.boots(name)
    said = ward.ask(late)
    assert isinstance(said, Unguarded)
    assert "has booted since" in said.why
    assert ward.front.count("RebootInstances") == 0


def test_no_second_treatment_while_one_is_under_way_until_its_time_is_up(ward: Ward) -> None:
    name = ward.node()
    ward.ask(ward.sent(name, Verb.REBOOT, step=9))
    second = ward.sent(name, Verb.POWER_CYCLE, step=10)
    said = ward.ask(second)
    assert isinstance(said, Unguarded)
    assert "under treatment: REBOOT" in said.why
    ward.clock.passes(601.0)  # the case has given the reboot up by then
    assert isinstance(ward.ask(second), Started)


def test_a_node_made_anew_does_not_know_whether_it_was_rebooted_and_says_so(ward: Ward) -> None:
    name = ward.node()
    action = ward.sent(name, Verb.REBOOT)
    machine = ward.object(name).spec.provider_id
    ward.api.delete(names.node(name))
    fleet.add(ward.api, [fleet.gpu_node(name, provider_id=machine)], wait=False)
    said = ward.ask(action, call=False)
    assert isinstance(said, Failed)
    assert "deleted and made again" in said.why


def test_a_node_that_is_not_there_for_a_moment_does_not_make_what_was_sent_a_failure(ward: Ward) -> None:
    """A person deleted the object for its kubelet to register again: the next rung followed, or an urgent notice."""
    action = act("no-such-node", Verb.REBOOT, 9)
    said = ward.ask(action, call=False)
    assert isinstance(said, Retry)
    assert "there is no node no-such-node" in said.why
    assert isinstance(ward.ask(action), Unguarded)


def test_a_cancelled_case_does_not_wait_for_a_node_that_is_not_there(ward: Ward) -> None:
    withdrawn = replace(act("no-such-node", Verb.REBOOT, 9), args={"withdraw": "1"})
    assert isinstance(ward.ask(withdrawn, call=False), Failed)


def test_with_machines_none_nobody_is_rebooted(ward: Ward) -> None:
    ward.more["machines"] = "none"
    said = ward.ask(ward.sent(ward.node(), Verb.REBOOT))
    assert isinstance(said, Failed)
    assert "kubernetes.machines is 'none'" in why(said)


def test_one_reboot_is_one_write_to_the_node(ward: Ward) -> None:
    name = ward.node()
    action, mark = ward.sent(name, Verb.REBOOT), ward.cluster.audit_mark()
    ward.ask(action)
    for _ in range(3):
        ward.ask(action, call=False)
    assert len(ward.cluster.audit(mark, verb="patch", resource="nodes", name=name)) == 1
