"""What a stolen token of the controller or the sweeper cannot do although RBAC lets it: tried on a real API server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from sickbay.errors import ApiError
from sickbay.kube import names, traffic
from sickbay.kube.api import Api
from sickbay.kube.names import Keys, keys
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
KEYS = keys()
MERGE = {"content": "application/merge-patch+json"}
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


# --- who writes which key of a node ----------------------------------------------------------------------------------

# (key, where it stands) -> what each author may do with it: put it, lift it. Whoever adds a key decides here.
PUT, LIFT = "put", "lift"
BOTH = frozenset({PUT, LIFT})
AUTHORS: dict[tuple[str, str], dict[str, frozenset[str]]] = {
    ("status", "label"): {"sweeper": frozenset({PUT})},
    ("severity", "label"): {"sweeper": frozenset({PUT})},
    ("last_check", "label"): {},
    ("mode", "label"): {"sweeper": BOTH},
    ("opt_out", "label"): {},
    ("results", "annotation"): {},
    ("quarantine_result", "annotation"): {"sweeper": BOTH, "controller": frozenset({LIFT})},
    ("case", "annotation"): {"controller": BOTH},
    ("before", "annotation"): {"controller": BOTH},
    ("newcomer", "annotation"): {"controller": BOTH},
    ("sweep", "annotation"): {"sweeper": BOTH, "controller": frozenset({LIFT})},
    ("last_sweep", "annotation"): {"sweeper": BOTH},
    ("treatment", "annotation"): {"controller": BOTH},
    ("protection", "annotation"): {"controller": BOTH},
    ("unhealthy", "taint"): {},
    ("maintenance", "taint"): {"sweeper": BOTH, "controller": frozenset({LIFT})},
    ("case", "taint"): {"controller": BOTH},
    ("newcomer", "taint"): {"controller": BOTH},
}
ON_JOBS = {"target_node", "action"}


def test_each_of_our_keys_has_its_authors() -> None:
    assert {key for key, _ in AUTHORS} | ON_JOBS == {field.name for field in fields(Keys)}


@pytest.fixture(scope="module")
def marked(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """(A bare node, one that carries every key.)"""
    (bare,) = cluster.add_nodes(1, wait=False)
    there: dict[str, Any] = {"label": {}, "annotation": {}, "taint": {}}
    for key, where in AUTHORS:
        there[where][getattr(KEYS, key)] = "x"
    taints = [{"key": key, "value": "x", "effect": "NoSchedule"} for key in there["taint"]]
    (full,) = cluster.add_nodes(1, wait=False, labels=there["label"], annotations=there["annotation"], taints=taints)
    yield bare, full
    cluster.remove_nodes([bare, full])


def put(api: Api, node: str, key: str, where: str) -> str:
    values = {"status": "fail", "mode": "quarantine"}
    return changed(api, node, key, where, values.get(key, "y"))


def changed(api: Api, node: str, key: str, where: str, value: str | None) -> str:
    """What is said against this key with this value; None: taken off."""
    whole = getattr(KEYS, key)
    if where != "taint":
        return said(api, "PATCH", names.node(node), {"metadata": {f"{where}s": {whole: value}}}, **MERGE)
    there = api.get(names.node(node), dict)["spec"].get("taints", [])
    kept = [one for one in there if one["key"] != whole]
    return tainted(
        api, node, kept if value is None else [*kept, {"key": whole, "value": value, "effect": "NoSchedule"}]
    )


@pytest.mark.parametrize(("key", "where"), AUTHORS)
def test_a_key_is_written_by_its_own_authors_and_nobody_else(
    controller: Api, sweeper: Api, marked: tuple[str, str], key: str, where: str
) -> None:
    bare, full = marked
    for name, api in (("controller", controller), ("sweeper", sweeper)):
        may = AUTHORS[key, where].get(name, frozenset())
        for did, words in ((PUT, put(api, bare, key, where)), (LIFT, changed(api, full, key, where, None))):
            assert (words == "") == (did in may), (name, did, words)
            assert not words or getattr(KEYS, key) in words


def test_a_stolen_token_of_the_sweeper_does_not_speak_for_a_nodes_agent(sweeper: Api, marked: tuple[str, str]) -> None:
    """It wrote a report of a lost GPU on a healthy node, and the node was rebooted for it."""
    words = put(sweeper, marked[0], "results", "annotation")
    assert "the sweeper may write only the annotations sweep, last-sweep and quarantine-result" in words


def test_the_sweeper_calls_no_node_well_and_tells_no_long_stories(sweeper: Api, marked: tuple[str, str]) -> None:
    assert "pass is the agent's to say" in changed(sweeper, marked[0], "status", "label", "pass")
    assert "at most 16 KB" in changed(sweeper, marked[0], "quarantine_result", "annotation", "x" * 16_385)


def test_what_holds_autoscalers_off_is_the_controllers_alone(
    controller: Api, sweeper: Api, marked: tuple[str, str]
) -> None:
    body = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
    assert said(controller, "PATCH", names.node(marked[0]), body, **MERGE) == ""
    assert "not karpenter.sh/do-not-disrupt" in said(sweeper, "PATCH", names.node(marked[0]), body, **MERGE)


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


def test_the_sweeper_ends_no_job_that_the_controller_has_sent(there: Installed, sweeper: Api, api: Api) -> None:
    folder = names.jobs(there.namespace)
    for key, words in (("n.1/7", "may end only its own examinations, not job-"), ("sweep/s/n", "")):
        name = f"job-{secrets.token_hex(4)}"
        body = {
            **JOB,
            "metadata": {"name": name, "annotations": {KEYS.action: key}},
            "spec": {**JOB["spec"], "suspend": True},
        }
        api.create(folder, body, Anything)
        refused = said(sweeper, "DELETE", f"{folder}/{name}")
        assert (refused == "") == (words == "")
        assert words in refused
        api.delete(f"{folder}/{name}", {"propagationPolicy": "Background"})


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
