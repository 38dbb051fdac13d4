"""The Job that carries us to a node: what it may, what it is named, and that its answer is bounded and believed
only when it answers our question."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, Condition, JobObject, Meta, PodObject
from sickbay.model import Finding, Place, Severity, Status
from sickbay.platforms.kubernetes import answer, node_jobs
from sickbay.platforms.kubernetes.answer import Answer, Blind, Told
from sickbay.platforms.kubernetes.node_jobs import Errand, Running
from sickbay.platforms.kubernetes.site import Site
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.ward import a_site, the_jobs, the_node

CHECK = Errand("check", ("check", "--checks", "nvidia-smi", "--answers", "k"), 60.0)


@pytest.fixture
def site(api: Api, namespace: str) -> Site:
    return a_site(api, namespace, image="sickbay/agent@sha256:0123")


def test_the_job_is_pinned_to_its_node_and_has_no_rights(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    node_jobs.run(site, "k", the_node(site, name), CHECK)
    (job,) = the_jobs(site)
    pod = job.spec["template"]["spec"]
    assert pod["nodeName"] == name
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["serviceAccountName"] == "sickbay-node-job"
    assert pod["automountServiceAccountToken"] is False
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["containers"][0]["image"] == "sickbay/agent@sha256:0123"
    assert pod["containers"][0]["command"][:2] == ["sickbay", "node"]
    assert job.spec["backoffLimit"] == 0
    assert job.spec["ttlSecondsAfterFinished"] == 3600
    assert job.spec["activeDeadlineSeconds"] == 240
    assert job.metadata.label(site.keys.target_node) == name
    assert job.metadata.annotation(site.keys.action) == "k"


def test_the_nodes_type_travels_with_the_job(site: Site, nodes: Nodes) -> None:
    """originals 002.12 #3: with the metadata service blocked the profile was lost, and 5 of 8 GPUs passed."""
    (name,) = nodes()
    node_jobs.run(site, "k", the_node(site, name), CHECK)
    env = the_jobs(site)[0].spec["template"]["spec"]["containers"][0]["env"]
    assert {"name": "SICKBAY_AGENT__INSTANCE_TYPE", "value": "p5.48xlarge"} in env


def test_the_same_key_is_the_same_job_and_a_lost_race_is_no_error(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    node = the_node(site, name)
    for _ in range(2):
        assert isinstance(node_jobs.start(site, "k", node, CHECK), Running)
    assert isinstance(node_jobs.run(site, "k", node, CHECK), Running)
    node_jobs.run(site, "another", node, CHECK)
    assert len(the_jobs(site)) == 2


def test_its_pod_really_lands_on_a_cordoned_and_tainted_node(site: Site, nodes: Nodes) -> None:
    (name,) = nodes(1, taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}])
    site.api.patch(names.node(name), {"spec": {"unschedulable": True}}, Anything)
    node_jobs.run(site, "k", the_node(site, name), CHECK)
    from testbed.waiting import until

    pods = until(lambda: site.api.list(names.pods(site.settings.namespace), PodObject), "its pod")
    assert pods[0].spec.node_name == name


@pytest.mark.parametrize("node", ["ip-10-0-0-1.us-west-2.compute.internal", "Gpu_Node.X", "n" * 253])
def test_names_are_valid_whatever_the_node_is_called(node: str) -> None:
    name = node_jobs.name_of("collect", node, "a/very/long/key/1")
    assert len(name) <= 63
    assert name == name.lower()
    assert all(c.isalnum() or c == "-" for c in name)
    assert name != node_jobs.name_of("collect", node, "a/very/long/key/2")
    assert len(node_jobs.label_value(node)) <= 63


def test_a_job_that_was_stopped_by_its_deadline_is_blind(site: Site) -> None:
    said = node_jobs.judged("k", _job("Failed", "DeadlineExceeded"), [], 0.0)
    assert said == Blind("it did not end in time and was stopped")


def test_a_job_that_completed_without_an_answer_is_blind_and_no_pass(site: Site) -> None:
    """No check passes because it could not look."""
    said = node_jobs.judged("k", _job("Complete"), [_pod('{"key":"k","found":[')], 0.0)
    assert isinstance(said, Blind)


def test_the_answer_to_another_question_is_not_ours(site: Site) -> None:
    said = node_jobs.judged("k", _job("Complete"), [_pod('{"key":"other","ok":["nvidia-smi"]}')], 0.0)
    assert isinstance(said, Blind)


def test_an_image_that_cannot_be_pulled_is_said_so_after_a_while(site: Site) -> None:
    pod = _pod("")
    status = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    pod.status = _as(PodObject, {"status": {"phase": "Pending", "containerStatuses": [status]}}).status
    pod.metadata.creation_timestamp = "2026-01-01T00:00:00Z"
    assert isinstance(node_jobs.judged("k", _job(""), [pod], 1_767_225_610.0), Running)
    said = node_jobs.judged("k", _job(""), [pod], 1_767_225_600.0 + 600)
    assert said == Blind("its pod cannot start: ImagePullBackOff: no such image")


# --- the answer -------------------------------------------------------------------------------------------------------


def a_finding(check: str, status: Status = Status.FAILED, **more: object) -> Finding:
    blank = Finding("b/7", "agent", check, Place("n", "0000:53:00"), status, "xid.79", "GPU has fallen off the bus",
                    ("NVRM: Xid 79",), Severity.REBOOT, "b", 5.0, part="1653", count=3)  # fmt: skip
    return replace(blank, **more)  # type: ignore[arg-type]


def test_a_finding_comes_back_as_it_was() -> None:
    packed = answer.decode(answer.encode(answer.pack("k", "b", 5.0, 6, [a_finding("nvidia-smi")])).decode(), "k")
    assert packed is not None
    assert answer.unpack(packed, "n") == [replace(a_finding("nvidia-smi"), answers="k")]


def test_an_answer_never_exceeds_what_a_kubelet_keeps_and_the_worst_stays() -> None:
    found = [a_finding(f"c{i}", Status.UNKNOWN, severity=Severity.NONE, reason="ü" * 400, evidence=("x" * 400,) * 4)
             for i in range(300)]  # fmt: skip
    found.append(a_finding("worst"))
    data = answer.encode(answer.pack("k", "b", 5.0, 6, found))
    assert len(data) <= 4_096
    kept = answer.decode(data.decode(), "k")
    assert kept is not None
    assert kept.found[0].check == "worst"
    assert kept.cut == 301 - len(kept.found)


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"key":3}', '{"key":"k","found":{}}', "\x00", "[" * 50_000])
def test_garbage_is_no_answer_and_no_exception(text: str) -> None:
    assert answer.decode(text, "k") is None


def test_a_status_that_nobody_knows_is_unknown() -> None:
    told = Answer("k", "b", found=[Told("nvidia-smi", "FINE", severity="NONE")])
    assert answer.unpack(told, "n")[0].status is Status.UNKNOWN


def _job(condition: str, reason: str = "") -> JobObject:
    job = JobObject(metadata=Meta(name="j"))
    if condition:
        job.status.conditions = [Condition(condition, "True", reason)]
    return job


def _pod(message: str) -> PodObject:
    state = {"terminated": {"exitCode": 0, "message": message}}
    status = {"phase": "Succeeded", "containerStatuses": [{"name": "node", "state": state}]}
    return _as(PodObject, {"metadata": {"name": "p"}, "status": status})


def _as(kind: type[PodObject], tree: dict[str, object]) -> PodObject:
    import msgspec

    return msgspec.json.decode(json.dumps(tree), type=kind)
