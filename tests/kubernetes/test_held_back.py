"""A Job of ours that somebody keeps from starting: who it is, in words, and that it can still be taken back."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.model import Action, Done, Lost, Place, Started, Unguarded, Verb
from sickbay.platforms.kubernetes import node_jobs, verify
from sickbay.platforms.kubernetes.answer import Blind
from sickbay.platforms.kubernetes.cordon import release
from sickbay.platforms.kubernetes.node_jobs import Errand, Running, Taken
from sickbay.platforms.kubernetes.reboot import reboot
from sickbay.platforms.kubernetes.reset import reset_gpu
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.withdrawing import with_jobs
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.stage import StageClock
from tests.kubernetes.ward import a_site, asked, marked, the_jobs, the_node, treating

CHECK = Errand("check", ("check", "--checks", "nvidia-smi", "--answers", "k"), 60.0)


@pytest.fixture
def site(api: Api, namespace: str) -> Site:
    return a_site(api, namespace, machines="node-job")


def held(site: Site, name: str, key: str = "k") -> str:
    """What the Job on this node waits for, once anybody can tell."""

    def why() -> str:
        stands = node_jobs.run(site, key, the_node(site, name), CHECK)
        return stands.detail if isinstance(stands, Running) and stands.held else ""

    return str(until(why, "it is said who holds it back", 30.0, 0.2))


def suspend(site: Site) -> None:
    """As a queue does."""
    for job in the_jobs(site):
        site.api.patch(node_jobs.path_of(site, job.metadata.name), {"spec": {"suspend": True}}, Anything)
    until(lambda: not node_jobs.pods_of(site, the_jobs(site)[0].metadata.name), "its pod is gone", 30.0)


# --- who it is --------------------------------------------------------------------------------------------------------


def test_podsecurity_is_named_with_the_label_that_lets_our_jobs_in(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    path = f"/api/v1/namespaces/{site.settings.namespace}"
    site.api.patch(path, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}, Anything)
    why = held(site, name)
    namespace = site.settings.namespace
    assert why.startswith(
        f"PodSecurity refuses its pod: label namespace {namespace} pod-security.kubernetes.io/enforce=privileged"
    )
    assert "violates PodSecurity" in why


def test_a_quota_is_named_for_a_pod_and_for_the_job_itself(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    path = f"/api/v1/namespaces/{site.settings.namespace}/resourcequotas"
    site.api.create(path, {"metadata": {"name": "tight"}, "spec": {"hard": {"pods": "0"}}}, Anything)
    until(lambda: site.api.get(f"{path}/tight", dict).get("status", {}).get("hard"), "the quota counts", 30.0)
    why = held(site, name)
    assert why.startswith(f"a ResourceQuota of namespace {site.settings.namespace} refuses its pod: raise it")
    site.api.patch(f"{path}/tight", {"spec": {"hard": {"pods": "9", "count/jobs.batch": "0"}}}, Anything)

    tries = count()

    def refused() -> str:
        """Each time another one: until the quota counts, a Job is let in and stays."""
        said = node_jobs.run(site, f"another-{next(tries)}", the_node(site, name), CHECK)
        return said.why if isinstance(said, Blind) else ""

    assert str(until(refused, "the quota on Jobs counts", 30.0)).startswith(
        f"a ResourceQuota of namespace {site.settings.namespace} refuses its Job: raise it"
    )


def test_who_suspends_a_job_of_ours_holds_it_back_and_after_a_while_it_is_taken_back(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    node = the_node(site, name)
    node_jobs.run(site, "k", node, CHECK)
    suspend(site)
    assert held(site, name).startswith("somebody has suspended its Job sickbay-check-")
    late = node_jobs.run(site, "k", node, replace(CHECK, start_s=0))
    assert isinstance(late, Blind)
    assert late.why.startswith("somebody has suspended its Job")
    assert the_jobs(site) == []


def test_the_jobs_of_a_gang_are_named_and_given_up_alike(
    site: Site, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = nodes(2)
    action = Action("train#1.7", Verb.VERIFY, Place(""), {"checks": "nvidia-smi"}, tuple(pair))
    assert isinstance(verify.verify(site, action), Started)
    suspend(site)
    said = until(lambda: (s := verify.verify(site, action)) and "suspended" in str(s) and s, "it is named", 30.0)
    assert isinstance(said, Started)
    assert said.detail.startswith("0 of 2 nodes have answered; somebody has suspended its Job")
    monkeypatch.setattr(verify, "GANG_START_S", 0)
    done = until(lambda: d if isinstance(d := verify.verify(site, action), Done) else None, "given up", 30.0)
    assert {f.status.value for f in done.findings} == {"UNKNOWN"}
    assert the_jobs(site) == []


@pytest.mark.parametrize("verb", [Verb.REBOOT, Verb.RESET_GPU])
def test_until_its_job_has_begun_a_treatment_is_looked_at_every_few_seconds(
    site: Site, nodes: Nodes, verb: Verb
) -> None:
    """A refusal of its pod is known within a second, and was told after 15."""
    (name,) = nodes()
    path = f"/api/v1/namespaces/{site.settings.namespace}"
    site.api.patch(path, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}, Anything)
    treat, action = {Verb.REBOOT: reboot, Verb.RESET_GPU: reset_gpu}[verb], treating(site, name, verb)
    first = treat(site, action)
    assert isinstance(first, Started)
    assert first.after_s <= 3.0
    watched = replace(action, call=False)
    said = until(lambda: s if (s := treat(site, watched)).held else None, "it is named", 5.0)  # type: ignore[union-attr]
    assert isinstance(said, Started)
    assert "PodSecurity refuses its pod" in said.detail
    assert said.after_s <= 3.0


def test_a_reboot_whose_job_is_at_work_is_looked_at_less_often(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    action = treating(site, name, Verb.REBOOT)
    reboot(site, action)
    pod = until(lambda: node_jobs.pods_of(site, the_jobs(site)[0].metadata.name), "its pod is there", 30.0)[0]
    path = names.pod(site.settings.namespace, pod.metadata.name)
    site.api.patch(f"{path}/status", {"status": {"phase": "Running"}}, Anything)
    said = reboot(site, replace(action, call=False))
    assert isinstance(said, Started)
    assert said.after_s == 15.0


# --- taking back ------------------------------------------------------------------------------------------------------


def test_a_job_that_has_begun_is_not_taken_back(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    node_jobs.run(site, "k", the_node(site, name), CHECK)
    job = the_jobs(site)[0].metadata.name
    pod = until(lambda: node_jobs.pods_of(site, job), "its pod is there", 30.0)[0]
    path = names.pod(site.settings.namespace, pod.metadata.name)
    site.api.patch(f"{path}/status", {"status": {"phase": "Running"}}, Anything)
    assert node_jobs.take_back(site, job) is Taken.BEGUN
    assert the_jobs(site)


def test_a_reboot_that_was_held_back_is_withdrawn_when_its_case_is_cancelled(site: Site, nodes: Nodes) -> None:
    """A Job that waited rebooted the machine 80 s after a person's uncordon."""
    (name,) = nodes()
    action = treating(site, name, Verb.REBOOT)
    assert isinstance(reboot(site, action), Started)
    suspend(site)
    site.api.patch(names.node(name), {"spec": {"unschedulable": False}}, Anything)
    back = replace(action, call=False, args={"withdraw": "1"})
    said = asked(lambda: reboot(site, back))
    assert said == Lost(f"the reboot Job on {name} had not started and is deleted")
    assert the_jobs(site) == []
    assert isinstance(reboot(site, back), Lost)


def test_a_reboot_that_is_held_back_for_minutes_was_not_tried(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    clock = StageClock()
    site = replace(site, clock=clock)
    action = treating(site, name, Verb.REBOOT)
    reboot(site, action)
    suspend(site)
    watched = replace(action, call=False)
    said = until(lambda: s if "suspended" in str(s := reboot(site, watched)) else None, "it is named", 30.0)
    assert isinstance(said, Started)
    clock.passed = node_jobs.START_S + 1
    late = asked(lambda: reboot(site, watched))
    assert isinstance(late, Unguarded)
    assert late.why.startswith(f"the reboot Job on {name} does not start: somebody has suspended its Job")
    assert the_jobs(site) == []


def test_a_reset_that_was_held_back_is_withdrawn_and_the_operators_pods_come_back(site: Site, nodes: Nodes) -> None:
    (name,) = nodes(1, labels={"nvidia.com/gpu.deploy.device-plugin": "true"})
    action = treating(site, name, Verb.RESET_GPU)
    assert isinstance(reset_gpu(site, action), Started)
    suspend(site)
    back = replace(action, call=False, args={"withdraw": "1"})
    said = asked(lambda: reset_gpu(site, back))
    assert said == Lost(f"the reset Job on {name} had not started and is deleted")
    assert (the_node(site, name).metadata.labels or {})["nvidia.com/gpu.deploy.device-plugin"] == "true"


def test_a_cancelled_case_leaves_no_check_behind_that_could_still_begin(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    case = marked(site, name)
    node_jobs.run(site, f"{case}/7", the_node(site, name), CHECK)
    node_jobs.run(site, "somebody-elses.1/7", the_node(site, name), CHECK)
    suspend(site)
    letting_go = Action(f"{case}/8", Verb.RELEASE, Place(name), {"cancel": "1"})
    until(lambda: isinstance(with_jobs(release)(site, letting_go), Done), "it is let go", 30.0)
    assert [job.metadata.annotation(site.keys.action) for job in the_jobs(site)] == ["somebody-elses.1/7"]
