"""Another repairer on our nodes is found, on a real API server, before two doctors treat one patient."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from sickbay.errors import ApiError
from sickbay.kube.api import Api, open_api
from sickbay.kube.objects import Anything
from sickbay.platforms.kubernetes.rival_rows import rows
from sickbay.platforms.kubernetes.rivals import Requirement, Rival, Selector, notices, observed_pools, rivals, selects
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.stage import a_site


class Look:
    """rivals() on this test's nodes only; the cluster is shared, so somebody else's workloads may be there."""

    def __init__(self, api: Api) -> None:
        self.api, word = api, secrets.token_hex(4)
        self.mine, self.selector = {"test.example/look": word}, f"test.example/look={word}"

    def __call__(self, by: Api | None = None) -> list[Rival]:
        return rivals(a_site(by or self.api, gpu_selector=self.selector))

    def named(self, name: str) -> list[Rival]:
        return [rival for rival in self() if rival.name == name]


@pytest.fixture
def around(api: Api) -> Look:
    return Look(api)


def workload(name: str, kind: str = "Deployment", *, replicas: int = 1, **container: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": name}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x", **container}]}}
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": pods}
    if kind == "Deployment":
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.fixture
def deploy(api: Api, namespace: str) -> Callable[..., None]:
    def made(name: str, kind: str = "Deployment", **more: Any) -> None:
        plural = f"{kind.lower()}s"
        api.create(f"/apis/apps/v1/namespaces/{namespace}/{plural}", workload(name, kind, **more), Anything)

    return made


def test_every_row_says_where_it_is_from_and_who_repairs_says_what_to_do() -> None:
    assert len(rows()) >= 10
    for row in rows():
        assert row.sources, row.name
        assert bool(row.advice) == row.repairs, row.name


def test_alone_on_our_nodes_nobody_is_found(around: Look, nodes: Nodes) -> None:
    nodes(1, labels=around.mine)
    assert [r for r in around() if r.sure and r.name in ("eks-auto-mode", "gke-auto-repair", "cluster-api")] == []


def test_karpenter_is_a_rival_only_where_its_node_repair_is_switched_on(
    around: Look, nodes: Nodes, deploy: Callable[..., None], namespace: str
) -> None:
    nodes(1, labels={**around.mine, "karpenter.sh/nodepool": "gpu"})
    nodes(1, labels={**around.mine, "sickbay.dev/pool": "by-hand"})
    assert around.named("karpenter-repair") == []
    deploy("karpenter", env=[{"name": "FEATURE_GATES", "value": "ReservedCapacity=true,NodeRepair=true"}])
    (found,) = around.named("karpenter-repair")
    assert (found.pool, found.sure) == ("gpu", True)
    assert found.why == f"{namespace}/karpenter runs with NodeRepair=true"
    assert "NodeRepair=false" in found.advice


def test_nvsentinel_is_a_rival_except_on_nodes_taken_out_of_its_hands(own_cluster: Callable[..., Cluster]) -> None:
    """Its own opt-out label is how the two can share a cluster. It takes all nodes of one: other tests' too."""
    cluster = own_cluster(kwok=False, scheduler=False, controllers=False)
    spared = {"k8saas.nvidia.com/ManagedByNVSentinel": "false"}
    api = cluster.api()
    around = Look(api)
    cluster.add_nodes(1, wait=False, labels={**around.mine, "sickbay.dev/pool": "theirs"})
    cluster.add_nodes(1, wait=False, labels={**around.mine, "sickbay.dev/pool": "ours", **spared})
    api.create("/apis/apps/v1/namespaces/default/deployments", workload("fault-quarantine"), Anything)
    assert [(r.pool, r.sure) for r in around.named("nvsentinel")] == [("theirs", True)]


def test_a_repairer_that_left_its_mark_on_a_node_is_found_without_its_workload(around: Look, nodes: Nodes) -> None:
    (held,) = nodes(1, labels={**around.mine, "sickbay.dev/pool": "p", "dgxc.nvidia.com/nvsentinel-state": "draining"})
    found = around.named("nvsentinel")
    assert [(r.pool, r.sure) for r in found] == [("p", True)]
    assert held in found[0].why


def test_a_repairer_that_was_scaled_to_nothing_is_none(
    around: Look, nodes: Nodes, deploy: Callable[..., None], namespace: str
) -> None:
    nodes(1, labels=around.mine)
    deploy("draino", replicas=0)
    assert [r for r in around.named("draino") if namespace in r.why] == []


def test_eks_auto_mode_always_repairs_and_eks_node_groups_may(
    around: Look, nodes: Nodes, deploy: Callable[..., None]
) -> None:
    nodes(1, labels={**around.mine, "eks.amazonaws.com/compute-type": "auto", "sickbay.dev/pool": "auto"})
    nodes(1, labels={**around.mine, "eks.amazonaws.com/nodegroup": "p5"})
    deploy("eks-node-monitoring-agent", "DaemonSet")
    assert [(r.pool, r.sure) for r in around.named("eks-auto-mode")] == [("auto", True)]
    assert [(r.pool, r.sure) for r in around.named("eks-node-group-repair")] == [("p5", False)]


@pytest.fixture
def health_checks(api: Api) -> Iterator[str]:
    """The NodeHealthCheck definition, as far as we read it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "nodehealthchecks", "singular": "nodehealthcheck", "kind": "NodeHealthCheck"}
    name = "nodehealthchecks.remediation.medik8s.io"
    spec = {"group": "remediation.medik8s.io", "scope": "Cluster", "names": names, "versions": [version]}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    note = {"api-approved.kubernetes.io": "unapproved, a test"}
    api.create(definitions, {"metadata": {"name": name, "annotations": note}, "spec": spec}, Anything)
    yield "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks"
    api.delete(f"{definitions}/{name}")


def test_a_node_health_check_is_a_rival_on_the_nodes_it_selects(
    around: Look, nodes: Nodes, api: Api, health_checks: str
) -> None:
    nodes(1, labels={**around.mine, "sickbay.dev/pool": "watched", "team": "a"})
    nodes(1, labels={**around.mine, "sickbay.dev/pool": "free", "team": "b"})
    kind = {"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck"}
    spec = {"selector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}}
    body = {**kind, "metadata": {"name": f"check-{secrets.token_hex(3)}"}, "spec": spec}

    def created() -> bool:
        try:
            return bool(api.create(health_checks, body, Anything))
        except ApiError as error:
            if not error.not_found:
                raise
            return False

    until(created, "the definition is served")
    found = until(lambda: around.named("node-healthcheck-operator"), "the check is seen")
    assert [(r.pool, r.sure) for r in found] == [("watched", True)]


def test_what_we_may_not_read_is_told_and_never_taken_for_nobody(
    cluster: Cluster, api: Api, around: Look, tmp_path: Path
) -> None:
    name = f"may-{secrets.token_hex(3)}"
    role = {"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]}
    api.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role, Anything)
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    binding = {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]}
    api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding, Anything)
    try:
        with as_stranger(cluster, tmp_path) as stranger:
            found = until(lambda: seen_by(around, stranger), "its rights are in force")
    finally:
        api.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}")
        api.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}")
    assert len(found) >= 2  # one more for each kind of health check that other tests have installed
    assert all(not rival.sure and "cannot be seen" in rival.why for rival in found)
    assert "deployments" in found[0].why


def seen_by(around: Look, stranger: Api) -> list[Rival]:
    try:
        return [rival for rival in around(stranger) if rival.name == "unknown"]
    except ApiError as error:
        if not error.refused:
            raise
        return []  # a new right takes a moment


@contextmanager
def as_stranger(cluster: Cluster, folder: Path) -> Iterator[Api]:
    """As the service account default/default and nobody else."""
    admin = yaml.safe_load(cluster.kubeconfig.read_text("utf-8"))
    token = cluster.kubectl("create", "token", "default", "-n", "default").strip()
    context = [{"name": "x", "context": {"cluster": admin["clusters"][0]["name"], "user": "x"}}]
    users = [{"name": "x", "user": {"token": token}}]
    path = folder / "stranger.kubeconfig"
    config = {"clusters": admin["clusters"], "users": users, "contexts": context, "current-context": "x"}
    path.write_text(json.dumps(config))
    with closing(open_api(str(path))) as api:
        yield api


@pytest.mark.parametrize(
    ("one", "fits"),
    [
        (Requirement("team", "In", ["a", "b"]), True),
        (Requirement("team", "NotIn", ["a"]), False),
        (Requirement("team", "Exists"), True),
        (Requirement("team", "DoesNotExist"), False),
        (Requirement("none", "DoesNotExist"), True),
        (Requirement("team", "Matches", ["new in 2030"]), True),
    ],
)
def test_selectors_are_read_as_kubernetes_reads_them(one: Requirement, fits: bool) -> None:
    assert selects(Selector(match_expressions=[one]), {"team": "a"}) is fits


def test_a_selector_by_labels_needs_all_of_them() -> None:
    assert selects(Selector(match_labels={"a": "1"}), {"a": "1", "b": "2"})
    assert not selects(Selector(match_labels={"a": "1", "c": "3"}), {"a": "1"})


def test_people_are_told_once_per_rival_what_to_do_and_what_sickbay_does_meanwhile() -> None:
    there = [Rival("draino", pool, "kube-system/draino runs", True, "Draino", "remove Draino") for pool in ("b", "a")]
    maybe = Rival("gke-auto-repair", "c", "nodes carry x", False, "GKE node auto-repair", "look at autoRepair")
    first, second = notices([*there, maybe], at=5.0)
    assert first.title == "Draino repairs nodes in pool a, b: Sickbay only watches there"
    assert first.body.endswith("How we know: kube-system/draino runs. To change it: remove Draino.")
    assert second.title == "GKE node auto-repair may repair nodes in pool c"
    assert observed_pools([*there, maybe]) == {"a", "b"}
    assert first.key != notices(there[:1], at=5.0)[0].key
