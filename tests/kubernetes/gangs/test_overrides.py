"""A TrainJob's pods are told of their attempt under every version of Kubeflow Trainer, or nobody says that they are.

The API server of these tests only stores and drops what its version does not know, as the real one does; the whole way
with the real trainer is test_trainjob.py.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from sickbay.kube.objects import Container, Meta, Owner, PodObject, PodSpec, PodStatus
from sickbay.model import Action, Done, JobPhase, Place, Verb
from sickbay.platforms.kubernetes.gangs import index, kinds, overrides, ranks, restart, words
from sickbay.platforms.kubernetes.gangs.kinds import GangObject
from sickbay.platforms.kubernetes.gangs.read import Found
from sickbay.platforms.kubernetes.gangs.show import Gang
from sickbay.platforms.kubernetes.site import Site, site_of
from sickbay.settings import KubernetesSettings
from tests.kubernetes.gangs.ground import MANAGED, WallClock

TRAINJOB = kinds.BY_WORD["trainjob"]


class Pruning:
    """An API server whose TrainJob does not have these fields."""

    def __init__(self, *unknown: str) -> None:
        self.unknown, self.stored = unknown, dict[str, Any]()

    def replace(self, path: str, body: dict[str, Any], kind: Any) -> dict[str, Any]:
        self.stored = copy.deepcopy(body)
        for name in self.unknown:
            self.stored["spec"].pop(name, None)
        return copy.deepcopy(self.stored)


def a_site(api: Pruning) -> Site:
    return site_of(api, KubernetesSettings(), WallClock())  # type: ignore[arg-type]


def stopped(jobs: list[dict[str, Any]] | None = None) -> Found:
    whole = {
        "metadata": {"name": "llama", "namespace": "train", "labels": MANAGED, "annotations": {}},
        "spec": {"suspend": True, "trainer": {"numNodes": 1}},
    }
    spec = msgspec.convert({"spec": {"replicatedJobs": jobs or []}}, GangObject)
    return Found(Gang(TRAINJOB, index.with_jobs(msgspec.convert(whole, GangObject), spec), [], words.MANAGED), whole)


def resumed(api: Pruning, found: Found) -> GangObject:
    action = Action("train/trainjob/llama#1.9", Verb.RESTART_JOB, Place(""), {"from_step": "100"}, ("n1",))
    assert isinstance(restart._resume(a_site(api), found, action, restart.notes_of(found, action, 2)), Done)
    return msgspec.convert(api.stored, GangObject)


def a_pod(replicated: str = "node", **annotations: str) -> PodObject:
    owner = Owner(api_version="batch/v1", kind="Job", name="llama-node-0", controller=True)
    labels = {kinds.JOBSET_NAME: "llama", kinds.JOBSET_REPLICATED: replicated, kinds.JOB_INDEX: "0"}
    meta = Meta(name="llama-node-0-0", namespace="train", uid="u", labels=labels, annotations=annotations,
                owner_references=[owner], creation_timestamp="2026-01-01T00:00:00Z")  # fmt: skip
    return PodObject(meta, PodSpec(node_name="n1", containers=[Container(name="node")]), PodStatus(phase="Running"))


def shown(obj: GangObject, pod: PodObject) -> JobPhase:
    gangs = index.Gangs(a_site(Pruning()), lambda node: "")
    owner = Owner(kind="TrainJob", name="llama", controller=True)
    gangs.put("trainjob", obj)
    gangs.put("jobset", GangObject(metadata=Meta(name="llama", namespace="train", owner_references=[owner])))
    gangs.put_pod(pod)
    return gangs.show("train/trainjob/llama").phase


@pytest.mark.parametrize("unknown", ["runtimePatches", "podTemplateOverrides"])
def test_the_pods_of_a_restarted_trainjob_carry_their_attempt_with_an_old_and_a_new_trainer(unknown: str) -> None:
    api = Pruning(unknown)
    obj = resumed(api, stopped())
    assert obj.metadata.annotation(words.IN_PODS) == "true"
    assert overrides.carry(api.stored, "2")
    assert not overrides.carry(api.stored, "3")
    told = {words.ATTEMPT: "2", words.FROM_STEP: "100"}
    assert shown(obj, a_pod(**told)) is JobPhase.RUNNING
    assert shown(obj, a_pod()) is JobPhase.PENDING  # of an attempt before


def test_a_patch_has_the_form_that_kubeflow_trainer_2_2_reads_and_leaves_those_of_others() -> None:
    api, found = Pruning("podTemplateOverrides"), stopped()
    kueue = {"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {}}
    found.whole["spec"]["runtimePatches"] = [kueue]
    resumed(api, found)
    told = {"metadata": {"annotations": {words.ATTEMPT: "2", words.FROM_STEP: "100"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": told}}}]
    ours = {
        "manager": "sickbay.dev/controller",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    assert api.stored["spec"]["runtimePatches"] == [kueue, ours]
    assert [patch["manager"] for patch in _again(api)["spec"]["runtimePatches"]] == [kueue["manager"], ours["manager"]]


def _again(api: Pruning) -> dict[str, Any]:
    whole = copy.deepcopy(api.stored)
    overrides.templates(whole, "node")
    return whole


def test_a_trainjob_whose_pods_cannot_be_told_is_shown_running_all_the_same() -> None:
    """A trainer that knows neither form: the API server drops both, and says nothing."""
    obj = resumed(Pruning("runtimePatches", "podTemplateOverrides"), stopped())
    assert (obj.metadata.annotation(words.ATTEMPT), obj.metadata.annotation(words.IN_PODS)) == ("2", "")
    assert shown(obj, a_pod()) is JobPhase.RUNNING


def test_the_replicated_job_that_trains_is_known_by_its_label_where_none_is_called_node() -> None:
    jobs = [
        {"name": "fetch", "template": {"metadata": {"labels": {kinds.ANCESTOR: "dataset-initializer"}}}},
        {
            "name": "worker",
            "template": {"metadata": {"labels": {kinds.ANCESTOR: "trainer"}, "creationTimestamp": None}},
        },
    ]
    found = stopped(jobs)
    spec = found.gang.object.spec
    assert [ranks.rank_of(TRAINJOB, spec, a_pod(name)) for name in ("worker", "fetch", "node")] == [0, -1, -1]
    api = Pruning("podTemplateOverrides")
    resumed(api, found)
    patched = api.stored["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert [job["name"] for job in patched] == ["worker"]
    mpi: list[dict[str, Any]] = [
        {"name": "launcher", "template": {"metadata": {"labels": {kinds.ANCESTOR: "trainer"}}}},
        {"name": "node"},
    ]
    assert kinds.trainer_job(stopped(mpi).gang.object.spec) == "node"
