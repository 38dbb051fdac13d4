"""Bare pods that belong together by a label."""

from __future__ import annotations

from datetime import UTC, datetime

from sickbay.kube import names
from sickbay.kube.objects import Anything
from sickbay.model import Done, Failed, JobPhase, Lost, Started
from sickbay.platforms.kubernetes.gangs import bare, words
from sickbay.platforms.kubernetes.gangs.restart import restart_job
from sickbay.platforms.kubernetes.gangs.stop import give_way, stop_job
from testbed.waiting import until
from tests.kubernetes.gangs.ground import MANAGED, Ground


def a_gang(ground: Ground, ranks: int = 2, name: str = "llama") -> str:
    for rank in range(ranks):
        template = ground.pod_template()
        labels = {**MANAGED, "sickbay.dev/gang": name, "sickbay.dev/rank": str(rank)}
        body = {"metadata": {"name": f"{name}-{rank}", "labels": labels}, "spec": template["spec"]}
        ground.api.create(names.pods(ground.namespace), body, Anything)
    return f"{ground.namespace}/gang/{name}"


def test_a_bare_gang_is_seen_by_its_label(ground: Ground) -> None:
    ground.nodes(2)
    job = ground.running(a_gang(ground))
    assert (job.ranks, job.managed, job.attempt) == (2, True, 1)


def test_a_drained_bare_gang_is_made_again_elsewhere_from_what_was_kept(ground: Ground) -> None:
    here = ground.nodes(3)
    job = ground.running(a_gang(ground))
    sick = job.rank_nodes[0]
    case = ground.mark(sick)
    assert give_way(ground.site, case, [ground.pod_on(sick)]) == (job.id,)
    ground.until_pods(0)
    down = ground.show(job.id)
    assert (down.phase, down.stopped_by, down.rank_nodes) == (JobPhase.STOPPED, f"drain:{case}", job.rank_nodes)
    assert isinstance(ground.do(ground.stop(down)), Done)
    good = [node for node in here if node != sick]
    assert isinstance(ground.do(ground.restart(down, *good)), Done)
    again = ground.running(job.id)
    assert (again.attempt, set(again.nodes)) == (2, set(good))
    names_ = sorted(pod.metadata.name for pod in ground.pods())
    assert names_ == ["llama-0", "llama-1"]


def test_a_restart_that_made_only_some_pods_is_finished_by_the_next_call(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(a_gang(ground))
    ground.do(ground.stop(job))
    ground.do(ground.restart(job, *here))
    ground.running(job.id)
    one = ground.pods()[0]
    ground.api.delete(ground.pod_path(one), {"gracePeriodSeconds": 0})  # as if it had never been made
    assert isinstance(restart_job(ground.site, ground.restart(job, *here, call=False)), Lost)
    assert isinstance(restart_job(ground.site, ground.restart(job, *here)), Done)
    assert ground.running(job.id).attempt == 2


def test_a_pod_that_took_the_name_of_a_stopped_one_is_not_deleted(ground: Ground) -> None:
    """Deletions name the uid that was kept."""
    ground.nodes(2)
    job = ground.running(a_gang(ground))
    ground.do(ground.stop(job))
    stranger = {"metadata": {"name": "llama-0"}, "spec": ground.pod_template()["spec"]}
    ground.api.create(names.pods(ground.namespace), stranger, Anything)
    ground.do(ground.stop(job))
    assert [pod.metadata.name for pod in ground.pods()] == ["llama-0"]


def test_a_gang_is_made_again_only_when_the_names_of_its_pods_are_free(ground: Ground) -> None:
    """On a node that we hold a pod may stay for ever; nothing can be made beside it, and the operator reads why."""
    ground.nodes(2)
    job = ground.running(a_gang(ground))
    good = job.rank_nodes[1]
    stuck = ground.pod_on(job.rank_nodes[0])
    ground.api.patch(ground.pod_path(stuck), {"metadata": {"finalizers": ["test.example/hangs"]}}, Anything)
    ground.mark(job.rank_nodes[0])
    said = stop_job(ground.site, ground.stop(job))
    assert isinstance(said, Started | Done)
    ground.until_pods(1)
    outcome = restart_job(ground.site, ground.restart(job, good))
    ground.api.patch(ground.pod_path(stuck), {"metadata": {"finalizers": None}}, Anything)
    assert isinstance(outcome, Failed)
    assert f"{stuck.metadata.name} of {job.id} is not removed yet" in outcome.why
    ground.until_pods(0)
    assert isinstance(ground.do(ground.restart(job, good)), Done)


def test_a_gang_whose_pods_nobody_kept_is_not_restarted(ground: Ground) -> None:
    ground.nodes(1)
    job = ground.running(a_gang(ground, 1))
    ground.die(ground.pods()[0])
    outcome = restart_job(ground.site, ground.restart(ground.show(job.id)))
    assert isinstance(outcome, Failed)
    assert "nobody has kept its pods' manifests" in outcome.why


def kept_since(ground: Ground) -> str:
    (kept,) = ground.api.list(f"/api/v1/namespaces/{ground.namespace}/configmaps", Anything, labelSelector=words.GANG)
    return kept.metadata.creation_timestamp


def test_a_gang_that_is_applied_again_after_its_end_is_a_gang_of_its_own(ground: Ground) -> None:
    """What is kept of the one before says nothing about it, and goes when this one is stopped."""
    here = ground.nodes(2)
    first = ground.running(a_gang(ground))
    ground.do(ground.stop(first))
    ground.do(ground.restart(first, *here))
    assert ground.running(first.id).attempt == 2
    for pod in ground.pods():
        ground.api.delete(ground.pod_path(pod), {"gracePeriodSeconds": 0})
    ground.until_pods(0)
    kept = kept_since(ground)
    until(lambda: datetime.now(UTC).isoformat()[:19] > kept[:19], "a clock that tells whole seconds has moved on")
    second = ground.running(a_gang(ground))
    assert (second.attempt, second.managed, second.stopped_by) == (1, True, "")
    sick = second.rank_nodes[0]
    assert give_way(ground.site, ground.mark(sick), [ground.pod_on(sick)]) == (second.id,)
    ground.until_pods(0)
    assert ground.show(second.id).phase is JobPhase.STOPPED
    assert isinstance(ground.do(ground.stop(ground.show(second.id))), Done)
    assert isinstance(ground.do(ground.restart(second, *second.rank_nodes[1:])), Done)
    assert ground.attempt(second.id, 2).attempt == 2


def test_what_was_kept_of_a_gang_goes_with_its_end_and_not_while_it_is_only_stopped(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(a_gang(ground))
    ground.do(ground.stop(job))
    bare.forget(ground.site, job.id)
    assert isinstance(ground.do(ground.restart(job, *here)), Done)
    ground.running(job.id)
    for pod in ground.pods():
        ground.succeed(pod)
    bare.forget(ground.site, job.id)
    kept = ground.api.list(f"/api/v1/namespaces/{ground.namespace}/configmaps", Anything, labelSelector=words.GANG)
    assert not kept


def test_what_is_kept_is_small() -> None:
    spec = {
        "containers": [
            {"name": "train", "image": "train:1", "env": [{"name": f"V{i}", "value": "x" * 50} for i in range(100)]}
        ]
    }
    many = [{"metadata": {"name": f"llama-{rank}"}, "spec": spec} for rank in range(400)]
    packed = bare.pack(many)
    assert len(packed) < bare.MOST_BYTES / 10
    assert bare.unpack(packed) == many
