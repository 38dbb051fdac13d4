"""What the holder of an agent's token can do with it, tried on the real API server: its own node's words, no more."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sickbay.errors import ApiError
from sickbay.kube import events, names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject
from sickbay.settings import AgentSettings
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.fences import DEPLOY, Fence, a_fence, claims, wait_closed
from tests.kubernetes.publishing import KEYS, a_publisher, condition, said_of, say, seen, taint_keys, told

CASE = {"key": KEYS.case, "value": "3", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Thief:
    """Somebody with the token of the agent on `mine`."""

    fence: Fence
    api: Api
    mine: str
    other: str


@pytest.fixture(scope="module")
def thief(cluster: Cluster, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Thief]:
    folder, namespace = tmp_path_factory.mktemp("thief"), f"t-{secrets.token_hex(4)}"
    many = {f"feature.node.kubernetes.io/cpu-{number}": "true" for number in range(150)}
    marks: dict[str, Any] = {
        "annotations": {KEYS.case: "gpu.3", KEYS.before: "{}"}, "labels": {"team": "a", **many}, "taints": [CASE],
    }  # fmt: skip
    mine, other = cluster.add_nodes(2, wait=False, pad=12_000, **marks)
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}}, Anything)
    fence = a_fence(cluster, namespace)
    try:
        fence.apply()
        stolen = fence.api(fence.token(api, fence.pod_on(api, mine)), folder / "stolen")
        wait_closed(stolen, f"{names.node(mine)}/status")
        yield Thief(fence, stolen, mine, other)
    finally:
        fence.remove()
        cluster.remove_nodes([mine, other])
        api.delete(f"/api/v1/namespaces/{namespace}")


def refusal(thief: Thief, body: Any, how: str = "strategic", where: str = "/status", node: str = "") -> ApiError:
    with pytest.raises(ApiError) as denied:
        thief.api.patch(f"{names.node(node or thief.mine)}{where}", body, NodeObject, how)
    return denied.value


def meta(**changed: Any) -> dict[str, Any]:
    return {"metadata": changed}


def a_condition(type: str, status: str = "True") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": type, "status": status, "reason": "Stolen", "message": "believe me"}]}}


GOOD = {**a_condition("GPUProblem"), **meta(labels={KEYS.status: "fail"})}

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a label of others": (meta(labels={"team": "b"}), "only the labels status, severity and last-check"),
    "a label of others taken off": (meta(labels={"team": None}), "not team"),
    "opting out": (meta(labels={KEYS.opt_out: "true"}), f"not {KEYS.opt_out}"),
    "quarantine mode": (meta(labels={KEYS.mode: "quarantine"}), f"not {KEYS.mode}"),
    "our case": (meta(annotations={KEYS.case: "gpu.4"}), f"only the annotation {KEYS.results}, not {KEYS.case}"),
    "our case taken off": (meta(annotations={KEYS.case: None}), f"not {KEYS.case}"),
    "what was before": (meta(annotations={KEYS.before: '{"unschedulable":true}'}), f"not {KEYS.before}"),
    "a treatment": (meta(annotations={KEYS.treatment: "{}"}), f"not {KEYS.treatment}"),
    "a quarantine's result": (meta(annotations={KEYS.quarantine_result: "{}"}), f"not {KEYS.quarantine_result}"),
    "a rival's marker": (meta(annotations={"karpenter.sh/do-not-disrupt": "true"}), "not karpenter.sh/do-not-disrupt"),
    "too long a story": (meta(annotations={KEYS.results: "x" * 16_385}), "at most 16 KB"),
    "readiness": (a_condition("Ready"), "only the condition GPUProblem"),
    "no GPUs any more": ({"status": {"allocatable": {"nvidia.com/gpu": "0"}}}, "capacity, addresses, system facts"),
    "more GPUs": ({"status": {"capacity": {"nvidia.com/gpu": "64"}}}, "capacity, addresses, system facts"),
    "another boot": ({"status": {"nodeInfo": {"bootID": "another"}}}, "capacity, addresses, system facts"),
    "another address": ({"status": {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]}}, "addresses"),
    "a finalizer": (meta(finalizers=["example.com/mine"]), "owners or finalizers"),
    "an owner": (meta(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]), "owners"),
}

WRONG_SPEC: dict[str, tuple[Any, str, str]] = {
    "cordon": ({"spec": {"unschedulable": True}}, "merge", "may not cordon or uncordon"),
    "all taints replaced": ({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}}, "merge", "others must stay"),
    "our case's taint lifted": ({"spec": {"taints": None}}, "merge", "all others must stay"),
    "one taint of others": (
        [{"op": "add", "path": "/spec/taints/-", "value": {"key": "x", "effect": "NoSchedule"}}], "json",
        f"only the taint {KEYS.unhealthy}",
    ),
    "an eviction in disguise": (
        [{"op": "add", "path": "/spec/taints/-", "value": {"key": KEYS.unhealthy, "value": "true",
                                                           "effect": "NoExecute"}}], "json",
        "may only be =true:NoSchedule",
    ),
    "pod addresses": ({"spec": {"podCIDR": "10.7.0.0/24", "podCIDRs": ["10.7.0.0/24"]}}, "merge", "a node's spec"),
    "a label by the other door": (meta(labels={"team": "b"}), "merge", "not team"),
}  # fmt: skip


def test_the_api_server_knows_every_field_that_the_policy_compares(thief: Thief, api: Api) -> None:
    """It checks each expression against the schema of a Node: a misspelt field would be a warning, and a hole in the
    fence. (Its checker has no type for maps of quantities: those two are tried for real, below.)"""
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{thief.fence.account}"
    checked = until(lambda: json.loads(api.request("GET", path)).get("status"), "the policy was type-checked", 30.0)
    said = "".join(one["warning"] for one in checked["typeChecking"].get("expressionWarnings", []))
    known = {"undefined field 'capacity'", "undefined field 'allocatable'"}
    assert set(re.findall(r"ERROR: \S+ (.*)", said)) <= known


def test_the_policy_compares_every_field_that_the_api_server_knows(api: Api) -> None:
    """A newer Kubernetes may give nodes another field: then this fails, and the policy gets a line."""
    schemas = json.loads(api.request("GET", "/openapi/v3/api/v1"))["components"]["schemas"]
    text = (DEPLOY / "agent-policy.yaml").read_text()
    for part in ("spec", "status"):
        fields = schemas[f"io.k8s.api.core.v1.Node{part.title()}"]["properties"]
        assert [name for name in fields if not re.search(rf"oldObject\.{part}\.\??{name}\b", text)] == []


@pytest.mark.parametrize("what", WRONG)
def test_a_stolen_token_cannot_write(thief: Thief, what: str) -> None:
    body, says = WRONG[what]
    denied = refusal(thief, body)
    assert denied.status == 422
    assert says in denied.said


@pytest.mark.parametrize("what", WRONG_SPEC)
def test_a_stolen_token_cannot_change_the_spec(thief: Thief, what: str) -> None:
    body, how, says = WRONG_SPEC[what]
    denied = refusal(thief, body, how, "")
    assert denied.status == 422
    assert says in denied.said


@pytest.mark.parametrize("where", ["", "/status"])
def test_a_stolen_token_cannot_speak_for_another_node(thief: Thief, where: str) -> None:
    said = refusal(thief, GOOD, node=thief.other, where=where).said
    assert f"the agent on node {thief.mine} may write only that node, not {thief.other}" in said


def test_a_token_without_a_node_in_it_can_write_nothing(thief: Thief, api: Api, tmp_path: Path) -> None:
    loose = thief.fence.token(api, None)
    assert "node" not in claims(loose)["kubernetes.io"]
    with pytest.raises(ApiError, match="names no node"):
        thief.fence.api(loose, tmp_path / "loose").patch(
            f"{names.node(thief.mine)}/status", GOOD, NodeObject, "strategic"
        )


def test_a_stolen_token_reads_its_role_and_no_more(thief: Thief) -> None:
    for method, path in (
        ("GET", "/api/v1/nodes"), ("GET", "/api/v1/pods"), ("GET", "/api/v1/secrets"),
        ("DELETE", names.node(thief.mine)), ("DELETE", names.node(thief.other)),
        ("GET", f"/api/v1/namespaces/{thief.fence.namespace}/secrets"),
        ("POST", f"/api/v1/namespaces/{thief.fence.namespace}/serviceaccounts/{thief.fence.account}/token"),
        ("PUT", f"{names.node(thief.mine)}/status"),
    ):  # fmt: skip
        with pytest.raises(ApiError) as denied:
            thief.api.request(method, path, {} if method in ("POST", "PUT") else None)
        assert denied.value.status == 403, (method, path)


def test_its_events_are_about_its_own_node_and_signed(thief: Thief) -> None:
    about = events.about_node(thief.other)
    with pytest.raises(ApiError, match=f"the agent on node {thief.mine} may write Events only about that node"):
        events.event(thief.api, "default", about, "Warning", "GPUsAreDown", "believe me", "sickbay-agent")
    with pytest.raises(ApiError, match="must say that they are its own"):
        events.event(thief.api, "default", events.about_node(thief.mine), "Normal", "NodeReady", "I am well", "kubelet")


def test_it_does_not_rewrite_the_event_of_another_nodes_agent(thief: Thief, api: Api) -> None:
    events.event(api, "default", events.about_node(thief.other), "Warning", "GPULost", "GPU 3 is lost", "sickbay-agent")
    (told,) = said_of(api, thief.other)
    path = f"/api/v1/namespaces/default/events/{told.metadata.name}"
    mine = {"kind": "Node", "name": thief.mine, "uid": thief.mine}
    with pytest.raises(ApiError, match="agents of other nodes among them"):
        thief.api.patch(path, {"involvedObject": mine, "message": "I am well"}, Anything, dryRun="All")


def test_what_the_agent_has_to_write_it_may_write(thief: Thief, api: Api, tmp_path: Path) -> None:
    publisher = a_publisher(thief.api, thief.mine, tmp_path, AgentSettings(mode="standalone"))
    assert say(publisher, told(thief.mine, "fail", 1)) is None
    found = condition(api, thief.mine)
    assert found is not None
    assert (found.status, taint_keys(api, thief.mine)) == ("True", [KEYS.case, KEYS.unhealthy])
    assert say(publisher, told(thief.mine, "pass", 2)) is None
    assert taint_keys(api, thief.mine) == [KEYS.case]
    assert [event.reason for event in said_of(api, thief.mine)] != []
    assert (publisher.sent, publisher.failed) == (2, 0)


def test_in_managed_mode_the_agent_cannot_even_taint(cluster: Cluster) -> None:
    """The right to patch nodes is in a file of its own, for standalone mode."""
    text = (DEPLOY / "agent-rbac.yaml").read_text()
    assert "resources: [nodes]\n    verbs: [get]" in text
    assert "update" not in text
    assert "list" not in text


def test_nothing_was_changed_by_all_these_tries(thief: Thief, api: Api) -> None:
    for name in (thief.mine, thief.other):
        node = seen(api, name)
        assert (node.metadata.label("team"), node.metadata.annotation(KEYS.case)) == ("a", "gpu.3")
        assert not node.spec.unschedulable
        assert KEYS.case in {taint.key for taint in node.spec.taints or ()}
        assert (node.status.allocatable or {})["nvidia.com/gpu"] == "8"
        assert "believe me" not in json.dumps([one.message for one in node.status.conditions or ()])
