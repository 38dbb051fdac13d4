"""What a stolen token of the controller or the sweeper cannot do although RBAC lets it: tried on a real API server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from sickbay.errors import ApiError
from sickbay.kube import names, traffic
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.platforms.kubernetes import successors
from sickbay.platforms.kubernetes.gangs.index import bare_name
from testbed.cluster import Cluster
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.deploying import Installed, installed

Body = dict[str, Any]
POD: Body = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
JOB: Body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": POD}}}
GANG: Body = {"metadata": {"name": "p", "labels": {"sickbay.dev/gang": "g"}}, "spec": {**POD, "nodeName": "nowhere"}}
TAINT = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


@pytest.fixture(scope="module")
def there(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """With kubernetes.out_of_service on: what is refused then is refused always."""
    namespace, api = f"d-{secrets.token_hex(4)}", cluster.api()
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}}, Anything)
    on = ("--set", "settings.kubernetes.out_of_service=true")
    with installed(cluster, namespace, tmp_path_factory.mktemp("deploy"), *on) as ready:
        yield ready
    api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture(scope="module")
def controller(there: Installed) -> Api:
    return there.api("controller")


@pytest.fixture(scope="module")
def sweeper(there: Installed) -> Api:
    return there.api("sweeper")


def said(api: Api, method: str, path: str, body: Any = None, **how: str) -> str:
    """What the API server says against it; "" when it would take it. Nothing is changed."""
    try:
        api.request(method, path, body, params={"dryRun": "All"}, **how)
    except ApiError as error:
        return error.said
    return ""


def tainted(api: Api, node: str, taints: list[Body]) -> str:
    return said(api, "PATCH", names.node(node), {"spec": {"taints": taints}}, content="application/merge-patch+json")


# --- the one taint that ends work -------------------------------------------------------------------------------------


def test_a_node_that_is_ready_is_never_put_out_of_service(controller: Api, sweeper: Api, nodes: Nodes) -> None:
    (node,) = nodes()
    assert "only on a node that is not ready" in tainted(controller, node, [TAINT])
    assert "the sweeper may not put or lift" in tainted(sweeper, node, [TAINT])


def test_a_dead_one_is_by_the_controller_alone(
    cluster: Cluster, api: Api, controller: Api, sweeper: Api, nodes: Nodes
) -> None:
    (node,) = nodes()
    cluster.kill_kubelet(node)
    found = api.get(names.node(node), dict)["spec"].get("taints", [])
    assert tainted(controller, node, [*found, TAINT]) == ""
    assert "the sweeper may not put or lift" in tainted(sweeper, node, [*found, TAINT])


def test_the_controller_always_takes_it_away_and_the_sweeper_never(controller: Api, sweeper: Api, nodes: Nodes) -> None:
    (node,) = nodes(taints=[TAINT])
    assert tainted(controller, node, []) == ""
    assert "the sweeper may not put or lift" in tainted(sweeper, node, [])


# --- work -------------------------------------------------------------------------------------------------------------


def test_jobs_are_made_where_people_work_and_not_in_kubernetes_own_namespaces(controller: Api, namespace: str) -> None:
    assert said(controller, "POST", names.jobs(namespace), JOB) == ""
    assert "steers no work in the namespaces of Kubernetes" in said(controller, "POST", names.jobs("kube-system"), JOB)


def test_nor_are_they_changed_or_deleted_there(controller: Api, api: Api) -> None:
    name = f"j-{secrets.token_hex(4)}"
    path = f"{names.jobs('kube-system')}/{name}"
    api.create(
        names.jobs("kube-system"),
        {**JOB, "metadata": {"name": name}, "spec": {**JOB["spec"], "suspend": True}},
        Anything,
    )
    try:
        for method, body in (("PATCH", {"spec": {"suspend": False}}), ("DELETE", None)):
            how = {"content": "application/merge-patch+json"}
            assert "steers no work" in said(controller, method, path, body, **how)
    finally:
        api.delete(path)


def test_other_kinds_of_jobs_are_not_made_beside_the_agent(
    cluster: Cluster, there: Installed, controller: Api, namespace: str
) -> None:
    cluster.install_crds("jobset")
    body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}, "spec": {}}
    folder = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
    assert said(controller, "POST", folder.format(namespace), body) == ""
    for where, words in ((there.namespace, "Jobs on nodes only"), ("kube-system", "steers no work")):
        assert words in said(controller, "POST", folder.format(where), body)


def test_in_our_own_namespace_the_controller_becomes_nobody_else(there: Installed, controller: Api) -> None:
    assert "make node Jobs only" in said(controller, "POST", names.jobs(there.namespace), JOB)


def test_a_gangs_pod_is_made_where_people_work_alone(there: Installed, controller: Api, namespace: str) -> None:
    assert said(controller, "POST", names.pods(namespace), GANG) == ""
    for where in (there.namespace, "kube-system"):
        assert "makes and changes no pods in its own namespace" in said(controller, "POST", names.pods(where), GANG)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_settings_of_agents_and_jobs_are_not_the_controllers_to_write(there: Installed, controller: Api) -> None:
    folder = f"/api/v1/namespaces/{there.namespace}/configmaps"
    how = {"content": "application/merge-patch+json"}
    words = "not sickbay-config"
    assert words in said(controller, "PATCH", f"{folder}/sickbay-config", {"data": {"sickbay.toml": ""}}, **how)
    assert words in said(controller, "DELETE", f"{folder}/sickbay-config")
    assert "not mine" in said(controller, "POST", folder, {"metadata": {"name": "mine"}})
    for own in (successors.NAME, bare_name("team", "gang")):
        assert said(controller, "POST", folder, {"metadata": {"name": own}}) == ""


# --- and it is seen ---------------------------------------------------------------------------------------------------


def test_what_a_fence_denies_is_counted_as_denied_and_seen_in_the_audit_log(there: Installed, controller: Api) -> None:
    """A denial by a policy is a 422, as a body that is not valid: by its status alone nobody would notice."""
    mark, before = there.cluster.audit_mark(), dict(traffic.requests()).get(("POST", "denied"), 0)
    assert said(controller, "POST", names.jobs("kube-system"), JOB) != ""
    assert dict(traffic.requests())[("POST", "denied")] == before + 1
    assert there.refused(mark, "controller") == [f"create {names.jobs('kube-system')}"]
