"""Kubeflow TrainJob with the real trainer, its webhooks, its torch runtime, and JobSet below it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sickbay.kube.objects import Anything
from sickbay.model import Done, JobPhase
from sickbay.platforms.kubernetes.gangs.stop import give_way
from tests.kubernetes.gangs.ground import FLEET, GPU, MANAGED, Ground

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"


@pytest.fixture
def trainer(with_controller: Callable[[str], None], ground: Ground) -> Ground:
    with_controller("trainer")
    return ground


def a_trainjob(ground: Ground, nodes: int = 2) -> str:
    pinned = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {FLEET: ground.namespace}}}
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "llama", "labels": MANAGED},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"}, "podTemplateOverrides": [pinned],
            "trainer": {"image": "train:1", "numNodes": nodes, "resourcesPerNode": {"limits": {GPU: "8"}}},
        },
    }  # fmt: skip
    ground.api.create(PATH.format(ground.namespace), body, Anything)
    return f"{ground.namespace}/trainjob/llama"


def test_a_drained_trainjob_ends_whole_and_goes_on_elsewhere_as_the_same_object(trainer: Ground) -> None:
    here = trainer.nodes(3)
    job = trainer.running(a_trainjob(trainer))
    assert (job.ranks, len(job.nodes)) == (2, 2)
    ids = {shown.id for shown in trainer.gangs().all() if shown.id.startswith(trainer.namespace)}
    assert ids == {job.id}  # neither its JobSet nor that one's Jobs besides
    uid, sick = trainer.object(job.id)["metadata"]["uid"], job.rank_nodes[1]
    case = trainer.mark(sick)
    assert give_way(trainer.site, case, [trainer.pod_on(sick)])
    down = trainer.phase(job.id, JobPhase.STOPPED)
    assert down.stopped_by == f"drain:{case}"
    assert isinstance(trainer.do(trainer.stop(down)), Done)
    good = [node for node in here if node != sick]
    done = trainer.do(trainer.restart(down, *good))
    assert isinstance(done, Done), done
    again = trainer.running(job.id)
    assert (again.attempt, set(again.nodes)) == (2, set(good))
    assert trainer.object(job.id)["metadata"]["uid"] == uid
    assert {(p.metadata.annotations or {}).get("sickbay.dev/attempt") for p in trainer.pods()} == {"2"}
