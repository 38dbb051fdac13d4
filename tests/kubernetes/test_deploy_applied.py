"""The chart and the plain manifests in a cluster of their own: applied strictly, upgraded, rolled out, removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sickbay.kube.objects import Anything
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.deploying import objects
from tools.manifests import CHART, PLAIN, helm

STRICT = ("--validate=strict", "-f")
OPTIONS = ("--set", "sweeper.enabled=true", "--set", "quarantine.node=gpu-1")


@pytest.fixture(scope="module")
def plane() -> Iterator[Cluster]:
    """One for this file: what is installed here has the names of a real installation."""
    with Cluster.start() as started:
        yield started


def fetched(plane: Cluster, *args: str) -> Any:
    return json.loads(plane.kubectl("get", *args, "-o", "json"))


def on_it(plane: Cluster, name: str, *args: str) -> str:
    return helm(*args, "--kubeconfig", str(plane.kubeconfig), "--namespace", name)


def put(plane: Cluster, how: str, name: str, *options: str) -> str:
    """helm install or upgrade of this chart, under a name of its own."""
    return on_it(plane, name, how, name, str(CHART), "--set", f"name={name}", *options)


@pytest.fixture(scope="module")
def plain(plane: Cluster) -> str:
    """`kubectl apply -f deploy/kubernetes/`, and what it said."""
    return plane.kubectl("apply", *STRICT, f"{PLAIN}/")


def test_the_plain_manifests_apply_as_documented_and_again_change_nothing(plane: Cluster, plain: str) -> None:
    assert "daemonset.apps/sickbay-agent created" in plain
    assert "namespace/sickbay created" in plain
    before = _state(plane, "app.kubernetes.io/name=sickbay")
    again = plane.kubectl("apply", *STRICT, f"{PLAIN}/")
    assert len(again.splitlines()) == len(plain.splitlines())
    assert "daemonset.apps/sickbay-agent unchanged" in again
    assert _state(plane, "app.kubernetes.io/name=sickbay") == before


def test_what_is_optional_applies_too(plane: Cluster, plain: str) -> None:
    dry = ("apply", "--dry-run=server", *STRICT)
    for path in ("standalone/agent-rbac.yaml", "jobs/sweeper.yaml"):
        assert "created (server dry run)" in plane.kubectl(*dry, str(PLAIN / path))
    quarantine = (PLAIN / "jobs/quarantine.yaml").read_text().replace("TARGET_NODE_NAME", "gpu-1")
    assert "job.batch/gpu-quarantine-gpu-1 created (server dry run)" in plane.kubectl(*dry, "-", stdin=quarantine)


def test_no_expression_of_the_controllers_fences_names_a_field_that_does_not_exist(plane: Cluster, plain: str) -> None:
    until(lambda: _checked(plane), "the API server has read the policies' expressions")


def _checked(plane: Cluster) -> bool:
    """None of the controller's expressions names a field that does not exist."""
    found = fetched(plane, "validatingadmissionpolicies")["items"]
    ours = [one for one in found if one["metadata"]["name"].startswith(("sickbay-controller", "sickbay-nodes"))]
    assert not [one for one in ours if one.get("status", {}).get("typeChecking", {}).get("expressionWarnings")]
    return all("typeChecking" in one.get("status", {}) for one in ours)


@pytest.mark.soak
def test_an_installation_by_helm_is_upgraded_from_itself_without_a_change_and_leaves_its_records(
    plane: Cluster,
) -> None:
    said = put(plane, "install", "ward", "--create-namespace", *OPTIONS)
    assert "It observes only: no node is touched." in said
    assert "helm uninstall leaves the custom resource definitions" in said
    before = _state(plane, "app.kubernetes.io/managed-by=Helm")
    put(plane, "upgrade", "ward", *OPTIONS)
    assert _state(plane, "app.kubernetes.io/managed-by=Helm") == before
    pause = {"metadata": {"name": "kept"}, "record": {"scope": "fleet", "by": "ana", "why": "change freeze"}}
    with plane._one_api() as api:
        body = {"apiVersion": "sickbay.dev/v1alpha1", "kind": "Pause", **pause}
        api.create("/apis/sickbay.dev/v1alpha1/namespaces/ward/pauses", body, Anything)
    on_it(plane, "ward", "uninstall", "ward", "--wait")
    assert fetched(plane, "pauses", "-n", "ward")["items"][0]["record"]["by"] == "ana"
    left = plane.kubectl("get", "clusterroles,clusterrolebindings,validatingadmissionpolicies", "-o", "name")
    assert "/ward-" not in left
    plane.kubectl("delete", "crd", "-l", "app.kubernetes.io/part-of=sickbay")  # as the notes say
    assert "sickbay.dev" not in plane.kubectl("get", "crd", "-o", "name")


def _state(plane: Cluster, label: str) -> dict[str, str]:
    """Of everything that was made: what it says, and how often that has changed."""
    kinds = sorted({one["kind"] for one in objects(*OPTIONS)})
    found: dict[str, str] = {}
    for one in fetched(plane, ",".join(kinds), "-A", "-l", label)["items"]:
        said = {key: value for key, value in one.items() if key not in ("metadata", "status")}
        name = f"{one['kind']}/{one['metadata']['name']}"
        found[name] = json.dumps([said, one["metadata"].get("generation")], sort_keys=True)
    assert len(found) >= 20
    return found


def test_a_rollout_ends_although_nodes_are_dead(plane: Cluster) -> None:
    """NVSentinel #1764: with a small maxUnavailable, a few dead nodes stop the rollout of the agent for good."""
    names = plane.add_nodes(6, labels={"nvidia.com/gpu.present": "rolled"})
    chosen = ("--set-string", r"agent.nodeSelector.nvidia\.com/gpu\.present=rolled")
    put(plane, "install", "rolled", "--create-namespace", *chosen)
    until(lambda: len(_agents(plane, "1")) == 6, "an agent on every node", 60.0, 0.5)
    for node in names[:2]:  # a third: more than 25 % would let pass
        plane.kill_kubelet(node)
    _lose(plane, names[:2])
    until(lambda: _unready(plane) == set(names[:2]), "the agents of dead nodes count as away", 20.0, 0.5)
    put(plane, "upgrade", "rolled", *chosen, "--set-string", "agent.podAnnotations.attempt=2")
    until(lambda: _agents(plane, "2") >= set(names[2:]), "a new agent on every living node", 60.0, 0.5)
    on_it(plane, "rolled", "uninstall", "rolled")


def _pods(plane: Cluster) -> list[Any]:
    with plane._one_api() as api:
        chosen = {"labelSelector": "app.kubernetes.io/component=agent"}
        return api.list("/api/v1/namespaces/rolled/pods", dict[str, Any], **chosen)


def _lose(plane: Cluster, nodes: list[str]) -> None:
    """What the node lifecycle controller says of the pods of a node that is silent for long enough."""
    lost = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
    with plane._one_api() as api:
        for pod in _pods(plane):
            if pod["spec"].get("nodeName") in nodes:
                path = f"/api/v1/namespaces/rolled/pods/{pod['metadata']['name']}/status"
                api.patch(path, {"status": {"conditions": [lost]}}, Anything, how="strategic")


def _ready(pod: Any) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def _agents(plane: Cluster, attempt: str) -> set[str]:
    """Nodes with a ready agent of this rollout."""
    return {pod["spec"].get("nodeName", "") for pod in _pods(plane)
            if _ready(pod) and pod["metadata"].get("annotations", {}).get("attempt", "1") == attempt}  # fmt: skip


def _unready(plane: Cluster) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in _pods(plane) if not _ready(pod)}
