"""JobSet with its real controller and webhooks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from sickbay.errors import ApiError
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.model import Done, Failed, JobPhase
from sickbay.platforms.kubernetes.gangs.restart import restart_job
from sickbay.platforms.kubernetes.gangs.stop import give_way, stop_job
from tests.kubernetes.gangs.ground import MANAGED, Ground

PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"


@pytest.fixture
def jobsets(with_controller: Callable[[str], None], ground: Ground) -> Ground:
    with_controller("jobset")
    return ground


def a_jobset(ground: Ground, name: str = "llama") -> str:
    """Two Jobs: one leader, and a Job of two workers."""

    def part(job: str, ranks: int) -> dict[str, Any]:
        body = {"parallelism": ranks, "completions": ranks, "backoffLimit": 0, "template": ground.pod_template()}
        return {"name": job, "replicas": 1, "template": {"spec": body}}

    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name, "labels": MANAGED},
        "spec": {"replicatedJobs": [part("leader", 1), part("workers", 2)], "failurePolicy": {"maxRestarts": 3}},
    }  # fmt: skip
    ground.api.create(PATH.format(ground.namespace), body, Anything)
    return f"{ground.namespace}/jobset/{name}"


def test_a_jobset_is_one_gang_whose_ranks_go_through_its_jobs_in_order(jobsets: Ground) -> None:
    jobsets.nodes(3)
    job = jobsets.running(a_jobset(jobsets))
    assert (job.ranks, len(set(job.nodes))) == (3, 3)
    leader = next(pod for pod in jobsets.pods() if "leader" in pod.metadata.name)
    assert job.rank_nodes[0] == leader.spec.node_name
    ids = {shown.id for shown in jobsets.gangs().all() if shown.id.startswith(jobsets.namespace)}
    assert ids == {job.id}  # its Jobs are not shown besides


def test_a_drained_jobset_ends_whole_and_restarts_elsewhere_without_spending_its_restarts(jobsets: Ground) -> None:
    here = jobsets.nodes(4)
    job = jobsets.running(a_jobset(jobsets))
    uid = jobsets.object(job.id)["metadata"]["uid"]
    sick = job.rank_nodes[2]
    case = jobsets.mark(sick)
    assert give_way(jobsets.site, case, [jobsets.pod_on(sick)])
    down = jobsets.phase(job.id, JobPhase.STOPPED)
    assert (down.stopped_by, down.rank_nodes) == (f"drain:{case}", job.rank_nodes)
    assert isinstance(jobsets.do(jobsets.stop(down)), Done)
    good = [node for node in here if node != sick]
    assert isinstance(jobsets.do(jobsets.restart(down, *good)), Done)
    again = jobsets.running(job.id)
    assert (again.attempt, set(again.nodes)) == (2, set(good))
    whole = jobsets.object(job.id)
    assert whole["metadata"]["uid"] == uid
    assert not whole["status"].get("restarts")
    assert {(p.metadata.annotations or {})["sickbay.dev/attempt"] for p in jobsets.pods()} == {"2"}


class Meddled(Api):
    """The real client, where somebody writes each Job just before our own first write of it."""

    def __init__(self, api: Api) -> None:
        super().__init__(api.access)
        self.meddled: set[str] = set()

    def replace(self, path: str, body: object, kind: type[Any], **params: str) -> Any:
        if "/jobs/" in path and path not in self.meddled:
            self.meddled.add(path)
            self.patch(path, {"metadata": {"annotations": {"test.example/by": "somebody"}}}, Anything)
        return super().replace(path, body, kind, **params)


def test_a_suspect_is_kept_off_also_where_the_kind_cannot_be_steered(jobsets: Ground) -> None:
    here = jobsets.nodes(4)
    job = jobsets.running(a_jobset(jobsets))
    jobsets.do(jobsets.stop(job))
    good = [node for node in here if node != job.rank_nodes[0]]
    api = Meddled(jobsets.api)
    done = restart_job(replace(jobsets.site, api=api), jobsets.restart(job, *good))
    api.close()
    assert len(api.meddled) == 2
    assert isinstance(done, Done)
    assert f"kept off {job.rank_nodes[0]} by" in done.detail
    assert set(jobsets.running(job.id).nodes) == set(good)


class Forbidden(Api):
    """The real client, without the right to write Jobs."""

    def replace(self, path: str, body: object, kind: type[Any], **params: str) -> Any:
        if "/jobs/" in path:
            raise ApiError(403, "Forbidden", "jobs.batch is forbidden", f"PUT {path}")
        return super().replace(path, body, kind, **params)


def test_a_restart_that_cannot_keep_off_a_suspect_says_so_and_goes_on(jobsets: Ground) -> None:
    here = jobsets.nodes(4)
    job = jobsets.running(a_jobset(jobsets))
    jobsets.do(jobsets.stop(job))
    sick = job.rank_nodes[0]
    with closing(Forbidden(jobsets.api.access)) as api:
        done = restart_job(
            replace(jobsets.site, api=api), jobsets.restart(job, *(node for node in here if node != sick))
        )
    assert isinstance(done, Done)
    assert f"; may still land on {sick} unless it is cordoned: Job llama-" in done.detail
    assert "(jobs.batch is forbidden)" in done.detail
    jobsets.running(job.id)


def test_a_restart_by_its_own_controller_is_an_attempt_and_our_stop_of_the_one_before_is_refused(
    jobsets: Ground,
) -> None:
    jobsets.nodes(3)
    job = jobsets.running(a_jobset(jobsets))
    jobsets.die(jobsets.pod_on(job.rank_nodes[1]))
    again = jobsets.attempt(job.id, 2)
    assert again.attempt == 2
    outcome = stop_job(jobsets.site, jobsets.stop(job))
    assert isinstance(outcome, Failed)
    assert outcome.why == f"moved: {job.id} is at attempt 2"
    jobsets.running(job.id)
    late = restart_job(jobsets.site, jobsets.restart(job, attempt=1))
    assert isinstance(late, Failed)
