"""Jobs in a Kueue queue, with Kueue's real custom resource definitions. What Kueue would do is done by hand."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.kube.objects import Anything
from sickbay.model import Done, JobPhase, Lost, Retry
from sickbay.platforms.kubernetes.gangs.restart import restart_job
from sickbay.platforms.kubernetes.gangs.stop import stop_job
from testbed.cluster import Cluster
from tests.kubernetes.gangs.ground import MANAGED, Ground

PATH = "/apis/kueue.x-k8s.io/v1beta1/namespaces/{}/workloads"
QUEUED = {**MANAGED, "kueue.x-k8s.io/queue-name": "research"}


@pytest.fixture(scope="module")
def definitions(cluster: Cluster) -> None:
    cluster.install_crds("kueue")


@pytest.fixture
def queue(definitions: None, ground: Ground) -> Ground:
    return ground


def admit(ground: Ground, job: str) -> str:
    """The Workload that Kueue makes for a job."""
    whole = ground.object(job)
    meta = whole["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
    pods = [
        {"name": "main", "count": whole["spec"]["parallelism"], "template": {"spec": ground.pod_template()["spec"]}}
    ]
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
        "metadata": {
            "name": "job-llama", "ownerReferences": [owner], "labels": {"kueue.x-k8s.io/job-uid": meta["uid"]},
        },
        "spec": {"queueName": "research", "podSets": pods},
    }  # fmt: skip
    ground.api.create(PATH.format(ground.namespace), body, Anything)
    return f"{PATH.format(ground.namespace)}/job-llama"


def active(ground: Ground, workload: str) -> bool:
    found: dict[str, Any] = ground.api.get(workload, dict[str, Any])
    return bool(found["spec"]["active"])


def test_a_queued_job_is_stopped_and_resumed_by_its_workload_and_its_suspend_is_never_written(
    queue: Ground,
) -> None:
    here = queue.nodes(2)
    job = queue.running(queue.job(labels=QUEUED))
    workload = admit(queue, job.id)
    action = queue.stop(job)
    stop_job(queue.site, action)
    assert not active(queue, workload)
    assert not queue.object(job.id)["spec"].get("suspend")
    assert queue.show(job.id).phase is JobPhase.RUNNING  # until Kueue has acted on it
    queue.patch(job.id, {"spec": {"suspend": True}})  # Kueue
    assert isinstance(queue.do(action), Done)
    down = queue.show(job.id)
    assert (down.phase, down.stopped_by) == (JobPhase.STOPPED, action.key)
    assert isinstance(queue.do(queue.restart(down, *here)), Done)
    assert active(queue, workload)
    assert queue.object(job.id)["spec"]["suspend"] is True
    queue.patch(job.id, {"spec": {"suspend": False}})  # Kueue
    assert queue.running(job.id).attempt == 2


def test_a_stop_that_was_cut_off_between_its_two_writes_is_finished_by_the_next_ask(queue: Ground) -> None:
    queue.nodes(2)
    job = queue.running(queue.job(labels=QUEUED))
    workload = admit(queue, job.id)
    action = queue.stop(job)
    stop_job(queue.site, action)
    queue.api.patch(workload, {"spec": {"active": True}}, Anything)  # as if the second write had never been made
    stop_job(queue.site, action)
    assert not active(queue, workload)


def test_a_restart_that_was_cut_off_before_its_workload_was_activated_is_lost_and_made_again(queue: Ground) -> None:
    here = queue.nodes(2)
    job = queue.running(queue.job(labels=QUEUED))
    workload = admit(queue, job.id)
    stop_job(queue.site, queue.stop(job))
    queue.patch(job.id, {"spec": {"suspend": True}})
    queue.do(queue.stop(job))
    restart_job(queue.site, queue.restart(job, *here))
    queue.api.patch(workload, {"spec": {"active": False}}, Anything)
    assert isinstance(restart_job(queue.site, queue.restart(job, *here, call=False)), Lost)
    assert isinstance(restart_job(queue.site, queue.restart(job, *here)), Done)
    assert active(queue, workload)


def test_a_job_that_kueue_suspends_by_itself_has_not_failed(queue: Ground) -> None:
    queue.nodes(2)
    job = queue.running(queue.job(labels=QUEUED))
    admit(queue, job.id)
    queue.patch(job.id, {"spec": {"suspend": True}})
    down = queue.phase(job.id, JobPhase.SUSPENDED)
    assert down.stopped_by == "Kueue"


def test_a_queued_job_without_a_workload_is_left_alone_until_there_is_one(queue: Ground) -> None:
    queue.nodes(2)
    job = queue.running(queue.job(labels=QUEUED))
    outcome = stop_job(queue.site, queue.stop(job))
    assert isinstance(outcome, Retry)
    assert "no Workload yet" in outcome.why
    assert not queue.object(job.id)["spec"].get("suspend")
