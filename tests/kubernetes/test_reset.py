"""RESET_GPU on a real API server: guarded, sent once, done by a Job, the operator's pods sent away and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sickbay import catalog
from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject
from sickbay.model import Action, Done, Failed, Lost, Place, Retry, Started, Status, Unguarded, Verb
from sickbay.platforms.kubernetes import node_jobs, node_reboot, reset, treatment
from sickbay.platforms.kubernetes.cordon import release
from sickbay.platforms.kubernetes.operands import PAUSED
from sickbay.platforms.kubernetes.reboot import reboot
from sickbay.platforms.kubernetes.reset import reset_gpu
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.verify import verify
from sickbay.platforms.kubernetes.views import boot_of
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.policies import WORDS, no_jobs
from tests.kubernetes.ward import a_site, asked, machines, the_jobs, the_node, treating

OPERATOR = {
    "nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "true",
    "nvidia.com/gpu.deploy.dcgm": "false", "nvidia.com/gpu.deploy.driver": "true",
}  # fmt: skip


@pytest.fixture
def site(api: Api, namespace: str) -> Site:
    return a_site(api, namespace)


def seen(action: Action) -> Action:
    return replace(action, call=False)


def test_a_reset_cures_the_gpu_and_the_node_passes_its_checks_again(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("ecc_dbe_48", kubelet.nodes[name], 2)
            device = kubelet.sim(name).gpus[2].pci
        action = treating(site, name, Verb.RESET_GPU, device)
        assert isinstance(reset_gpu(site, action), Started)
        said = asked(lambda: reset_gpu(site, seen(action)))
        assert isinstance(said, Done)
        assert said.detail == f"reset {device}; all 8 GPUs answer"
        assert ("nvidia-smi", "--gpu-reset", "-i", "2") in kubelet.machines[name].ran
        after = asked(lambda: verify(site, Action(f"{name}.1/6", Verb.VERIFY, Place(name), {"checks": "kernel-log"})))
    assert isinstance(after, Done)
    assert not [one.reason for one in after.findings if one.status is Status.FAILED]


def test_after_a_reset_the_agent_is_told_and_the_old_kernel_lines_count_as_treated(
    site: Site, nodes: Nodes, tmp_path: Path
) -> None:
    """originals 002.12 #13: after a reset the old Xid kept the node failing."""
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        action = treating(site, name, Verb.RESET_GPU)
        reset_gpu(site, action)
        asked(lambda: reset_gpu(site, seen(action)))
        state = kubelet.state_dir(name)
        assert (state / "kernel-mark.json").exists()
        (event,) = (state / "events").glob("*.json")
        assert '"kind":"reset"' in event.read_text()


def test_however_often_it_is_called_the_gpu_is_reset_once(
    site: Site, cluster: Cluster, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    (name,) = nodes()
    mark = cluster.audit_mark()
    with machines(site.api, [name], tmp_path) as kubelet:
        action = treating(site, name, Verb.RESET_GPU)
        asked(lambda: reset_gpu(site, action))
        assert isinstance(reset_gpu(site, action), Done)
        resets = [one for one in kubelet.machines[name].ran if "--gpu-reset" in one]
    assert len(resets) == 1
    assert len(cluster.audit(mark, verb="create", resource="jobs", namespace=namespace)) == 1


def test_a_reset_that_is_over_is_remembered_when_its_job_is_gone(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    with machines(site.api, [name], tmp_path):
        action = treating(site, name, Verb.RESET_GPU)
        done = asked(lambda: reset_gpu(site, action))
    for job in the_jobs(site):
        path = f"{names.jobs(site.settings.namespace)}/{job.metadata.name}"
        site.api.delete(path, {"propagationPolicy": "Background"})
    assert reset_gpu(site, seen(action)) == done


def test_nothing_overtakes_a_reset_that_is_still_at_work() -> None:
    """Neither the case's next rung nor the door's patience comes before the Job's own end."""
    longest = reset.LIMIT_S + node_jobs.START_S
    assert treatment.HOLDS_S[Verb.RESET_GPU] >= longest
    rungs = [rung for ladder in catalog.load().ladders.values() for rung in ladder if rung.verb is Verb.RESET_GPU]
    assert rungs
    assert all(rung.timeout_s >= treatment.HOLDS_S[Verb.RESET_GPU] for rung in rungs)


def test_a_mere_look_knows_that_the_call_never_came(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    action = treating(site, name, Verb.RESET_GPU)
    assert isinstance(reset_gpu(site, seen(action)), Lost)
    assert not the_jobs(site)


def test_a_controller_that_died_before_the_job_was_made_finds_it_lost(site: Site, nodes: Nodes) -> None:
    """Between the note on the node and the Job nothing has happened to any GPU."""
    (name,) = nodes(1, labels=OPERATOR)
    action = treating(site, name, Verb.RESET_GPU)
    treatment.begin(site, action, lambda s, a: "")
    site.api.patch(names.node(name), {"metadata": {"labels": dict.fromkeys(OPERATOR, PAUSED)}}, Anything)
    assert isinstance(reset_gpu(site, seen(action)), Lost)
    assert the_node(site, name).metadata.label("nvidia.com/gpu.deploy.device-plugin") == "true"


def test_a_reset_whose_job_is_denied_was_not_tried_and_the_operators_pods_come_back(site: Site, nodes: Nodes) -> None:
    (name,) = nodes(1, labels=OPERATOR)
    action = treating(site, name, Verb.RESET_GPU)
    with no_jobs(site.api, site.settings.namespace, "reset"):
        said = reset_gpu(site, action)
        assert isinstance(said, Lost), said
        assert WORDS in said.why
        assert the_node(site, name).metadata.label("nvidia.com/gpu.deploy.device-plugin") == "true"
        assert isinstance(reset_gpu(site, seen(action)), Lost), "it may be sent once more"
    until(lambda: isinstance(reset_gpu(site, action), Started), "it is, once the policy is gone")


def test_a_reboot_whose_job_is_denied_was_not_tried(site: Site, nodes: Nodes) -> None:
    (name,) = nodes(1, provider_id="")
    action = treating(site, name, Verb.REBOOT)
    with no_jobs(site.api, site.settings.namespace, "reboot"):
        said = reboot(site, action)
    assert isinstance(said, Lost), said
    assert WORDS in said.why
    assert isinstance(reboot(site, seen(action)), Lost)


def test_a_treatment_that_lacks_the_right_to_be_remembered_was_never_sent(
    site: Site, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three refusals in two seconds were all, and the case was a person's for good though the role was mended."""
    (name,) = nodes(1, provider_id="")
    action = treating(site, name, Verb.REBOOT)
    said = f'nodes "{name}" is forbidden: User "x" cannot patch resource "nodes" in API group "" at the cluster scope'

    def forbidden(*_: object) -> NodeObject:
        raise ApiError(403, "Forbidden", said, f"PATCH {names.node(name)}")

    with monkeypatch.context() as without:
        without.setattr(treatment, "remember", forbidden)
        answer = reboot(site, action)
    assert isinstance(answer, Lost), answer
    assert said in answer.why
    assert "kubectl apply -f deploy/kubernetes/" in answer.why
    assert isinstance(reboot(site, action), Started), "it is sent when the right is back"


def test_a_node_with_work_on_it_is_not_reset(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    action = treating(site, name, Verb.RESET_GPU)
    limits = {"nvidia.com/gpu": "8"}
    spec = {"nodeName": name, "containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}],
            "tolerations": [{"operator": "Exists"}]}  # fmt: skip
    where = names.pods(site.settings.namespace)
    site.api.create(where, {"metadata": {"name": "late"}, "spec": spec}, Anything)
    said = reset_gpu(site, action)
    assert isinstance(said, Unguarded)
    assert "is not empty" in said.why
    assert not the_jobs(site)


def test_a_gpu_in_use_fails_the_reset_and_names_who_uses_it(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.sim(name).stuck.append("an-old-job")
        action = treating(site, name, Verb.RESET_GPU)
        said = asked(lambda: reset_gpu(site, action))
        assert kubelet.machines[name].services >= {"nvidia-persistenced.service"}
    assert isinstance(said, Failed)
    assert "in use by 8 processes: pid 4100 (python3)" in said.why


def test_the_gpu_operators_pods_are_sent_away_and_come_back(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes(1, labels=OPERATOR)
    action = treating(site, name, Verb.RESET_GPU)
    reset_gpu(site, action)
    during = the_node(site, name).metadata.labels or {}
    assert {key: during[key] for key in OPERATOR} == {
        "nvidia.com/gpu.deploy.device-plugin": PAUSED, "nvidia.com/gpu.deploy.dcgm-exporter": PAUSED,
        "nvidia.com/gpu.deploy.dcgm": "false",  # somebody has switched it off, and it stays so
        "nvidia.com/gpu.deploy.driver": "true",  # without a driver there is nothing to reset
    }  # fmt: skip
    with machines(site.api, [name], tmp_path):
        asked(lambda: reset_gpu(site, seen(action)))
    after = the_node(site, name).metadata.labels or {}
    assert {key: after[key] for key in OPERATOR} == OPERATOR


def test_they_come_back_also_when_the_reset_failed(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes(1, labels=OPERATOR)
    with machines(site.api, [name], tmp_path) as kubelet:
        kubelet.mute.add(name)
        action = treating(site, name, Verb.RESET_GPU)
        said = asked(lambda: reset_gpu(site, action))
    assert isinstance(said, Failed)
    assert (the_node(site, name).metadata.labels or {})["nvidia.com/gpu.deploy.device-plugin"] == "true"


# --- reboot by a Job --------------------------------------------------------------------------------------------------


def test_a_reboot_job_boots_the_machine_it_was_meant_for(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        action = treating(site, name, Verb.REBOOT)
        node_reboot.send(site, action, action.before.boot_id)
        until(lambda: boot_of(the_node(site, name)) != action.before.boot_id, "a new boot id")
        assert kubelet.machines[name].ran == [("systemctl", "reboot")]
        assert getattr(node_reboot.standing(site, action), "error", "") == ""


def test_a_reboot_job_that_comes_late_does_nothing(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        action = treating(site, name, Verb.REBOOT)
        node_reboot.send(site, action, "an-older-boot")
        why = until(lambda: getattr(node_reboot.standing(site, action), "error", ""), "its answer")
        assert "it has booted since" in why
        assert kubelet.machines[name].ran == []


def test_whatever_became_of_a_reset_a_node_returns_only_with_the_operators_pods(site: Site, nodes: Nodes) -> None:
    """A reset that nobody asked about again (its rung timed out) must not leave a node without its device plugin."""
    (name,) = nodes(1, labels=OPERATOR)
    action = treating(site, name, Verb.RESET_GPU)
    reset_gpu(site, action)
    returning = Action(f"{name}.1/9", Verb.RELEASE, Place(name))
    said = release(site, returning)
    assert isinstance(said, Retry)
    assert "told to come back" in said.why
    assert (the_node(site, name).metadata.labels or {})["nvidia.com/gpu.deploy.device-plugin"] == "true"
    assert isinstance(release(site, returning), Done)
