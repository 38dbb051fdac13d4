"""Other projects' controllers run for real in the testbed: a JobSet, a PyTorchJob and a TrainJob make pods that run."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.errors import ApiError
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, PodObject
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes

KINDS = {
    "cluster-api": "/apis/cluster.x-k8s.io/v1beta1/machines",
    "karpenter": "/apis/karpenter.sh/v1/nodeclaims",
    "kueue": "/apis/kueue.x-k8s.io/v1beta1/workloads",
}


def test_a_jobset_makes_jobs_and_pods_that_run(cluster: Cluster, api: Api, nodes: Nodes, namespace: str) -> None:
    cluster.install_controller("jobset")
    nodes(1, labels={"sim.test/for": namespace})
    template = {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": pod_spec(namespace)}}}
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": template}]}
    create(api, "jobset.x-k8s.io/v1alpha2", "JobSet", namespace, spec)
    until(lambda: running(api, namespace) == 4, "four pods run", 30.0)


@pytest.mark.soak
def test_a_pytorchjob_makes_pods_that_run(cluster: Cluster, api: Api, nodes: Nodes, namespace: str) -> None:
    cluster.install_controller("training-operator")
    nodes(1, labels={"sim.test/for": namespace})
    template = {"spec": pod_spec(namespace, name="pytorch")}
    roles = {"Master": {"replicas": 1, "template": template}, "Worker": {"replicas": 2, "template": template}}
    create(api, "kubeflow.org/v1", "PyTorchJob", namespace, {"pytorchReplicaSpecs": roles})
    until(lambda: running(api, namespace) == 3, "master and workers run", 30.0)


@pytest.mark.soak
def test_a_trainjob_makes_pods_that_run(cluster: Cluster, api: Api, nodes: Nodes, namespace: str) -> None:
    cluster.install_controller("trainer")
    nodes(1, labels={"sim.test/for": namespace})
    spec = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"numNodes": 2, "image": "example.com/train"},
        "podTemplateOverrides": [
            {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"sim.test/for": namespace}}}
        ],
    }
    create(api, "trainer.kubeflow.org/v1alpha1", "TrainJob", namespace, spec)
    until(lambda: running(api, namespace) == 2, "two pods run", 30.0)


def test_their_webhooks_are_in_force(cluster: Cluster, api: Api, namespace: str) -> None:
    cluster.install_controller("jobset")
    spec = {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["there-is-none"]}}
    with pytest.raises(ApiError, match="admission webhook"):
        create(api, "jobset.x-k8s.io/v1alpha2", "JobSet", namespace, spec)


@pytest.mark.parametrize("name", KINDS)
def test_definitions_of_others_can_be_installed(cluster: Cluster, api: Api, name: str) -> None:
    cluster.install_crds(name)
    assert api.list(KINDS[name], Anything) is not None


def create(api: Api, version: str, kind: str, namespace: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "llama"}, "spec": spec}
    api.create(f"/apis/{version}/namespaces/{namespace}/{kind.lower()}s", body, Anything)


def pod_spec(namespace: str, name: str = "train") -> dict[str, Any]:
    container = {"name": name, "image": "example.com/train", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"nodeSelector": {"sim.test/for": namespace}, "restartPolicy": "Never", "containers": [container]}


def running(api: Api, namespace: str) -> int:
    pods = api.list(f"/api/v1/namespaces/{namespace}/pods", PodObject)
    return sum(pod.status.phase == "Running" for pod in pods)
