"""Kubeflow PyTorchJob with the real training operator and its webhook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sickbay.kube.objects import Anything
from sickbay.model import Done, JobPhase
from sickbay.platforms.kubernetes.gangs.stop import give_way
from tests.kubernetes.gangs.ground import MANAGED, Ground

PATH = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"


@pytest.fixture
def kubeflow(with_controller: Callable[[str], None], ground: Ground) -> Ground:
    with_controller("training-operator")
    return ground


def a_pytorchjob(ground: Ground, workers: int = 1, **spec: Any) -> str:
    template = ground.pod_template()
    template["spec"].pop("restartPolicy")
    template["spec"]["containers"][0]["name"] = "pytorch"
    replicas = {"Worker": {"replicas": workers, "restartPolicy": "Never", "template": template}}
    if not spec.get("elasticPolicy"):
        replicas["Master"] = {"replicas": 1, "restartPolicy": "Never", "template": template}
    body = {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "llama", "labels": MANAGED},
        "spec": {"runPolicy": {"backoffLimit": 3}, "pytorchReplicaSpecs": replicas, **spec},
    }  # fmt: skip
    ground.api.create(PATH.format(ground.namespace), body, Anything)
    return f"{ground.namespace}/pytorchjob/llama"


def test_a_drained_pytorchjob_ends_whole_and_goes_on_elsewhere_as_the_same_object(kubeflow: Ground) -> None:
    """originals 003.5 #8: by default these pods, whose owner is unreplicated, were never evicted."""
    here = kubeflow.nodes(3)
    job = kubeflow.running(a_pytorchjob(kubeflow))
    assert (job.ranks, len(job.nodes)) == (2, 2)
    master = next(pod for pod in kubeflow.pods() if "master" in pod.metadata.name)
    assert job.rank_nodes[0] == master.spec.node_name
    uid, sick = kubeflow.object(job.id)["metadata"]["uid"], job.rank_nodes[1]
    case = kubeflow.mark(sick)
    assert give_way(kubeflow.site, case, [kubeflow.pod_on(sick)]) == (job.id,)
    down = kubeflow.phase(job.id, JobPhase.STOPPED)
    assert isinstance(kubeflow.do(kubeflow.stop(down)), Done)
    good = [node for node in here if node != sick]
    assert isinstance(kubeflow.do(kubeflow.restart(down, *good)), Done)
    again = kubeflow.running(job.id)
    assert (again.attempt, set(again.nodes)) == (2, set(good))
    assert kubeflow.object(job.id)["metadata"]["uid"] == uid
    assert {(p.metadata.annotations or {})["sickbay.dev/attempt"] for p in kubeflow.pods()} == {"2"}


def test_an_elastic_gang_that_is_made_smaller_has_not_failed(kubeflow: Ground) -> None:
    kubeflow.nodes(2)
    elastic = {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "c10d"}
    job = kubeflow.running(a_pytorchjob(kubeflow, 2, elasticPolicy=elastic))
    assert len(job.nodes) == 2
    kubeflow.patch(job.id, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}})
    kubeflow.until_pods(1)
    smaller = kubeflow.show(job.id)
    assert (smaller.phase, len(smaller.nodes), smaller.exits) == (JobPhase.RUNNING, 1, ())
