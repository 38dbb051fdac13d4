"""How a Kubernetes node is shown. Objects are decoded as a server sends them; test_sight has the server itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sickbay.kube.access import Access
from sickbay.kube.api import Api, decode
from sickbay.kube.names import keys
from sickbay.kube.objects import NodeObject, NodeSystem, PodObject
from sickbay.kube.results import encode
from sickbay.model import Finding, Node, Place, Report, Severity, Status
from sickbay.platforms.kubernetes.marks import Found, write_found
from sickbay.platforms.kubernetes.memory import Memory
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.tenants import STUCK_S, is_work
from sickbay.platforms.kubernetes.views import is_machine, show_node
from sickbay.settings import KubernetesSettings
from testbed.fleet import gpu_node
from tests.kubernetes.stage import StageClock, a_pod, owned_by

KEYS = keys()
CLOCK = StageClock()


def site(**settings: Any) -> Site:
    api = Api(Access("127.0.0.1", 1, None, str))  # type: ignore[arg-type]  # nobody is asked
    return Site(api, KubernetesSettings(**settings), CLOCK)


def node_of(name: str = "gpu-1", **more: Any) -> NodeObject:
    """A Ready node as its kubelet registers it; `more` of gpu_node, and spec, status, conditions."""
    spec, status, conditions = more.pop("spec", {}), more.pop("status", {}), more.pop("conditions", [])
    uid = more.pop("uid", f"uid-of-{name}")
    body = gpu_node(name, **more)
    body["metadata"] |= {"uid": uid, "resourceVersion": "100"}
    body["spec"] |= spec
    body["status"] |= status
    body["status"]["conditions"] = conditions or [{"type": "Ready", "status": "True"}]
    return decode(NodeObject, json.dumps(body).encode())


def pod_of(name: str, *, phase: str = "Running", leaving: bool = False, **more: Any) -> PodObject:
    body = a_pod(name, "gpu-1", **more)
    body["metadata"] |= {"namespace": more.get("namespace", "train"), "uid": f"uid-{name}"}
    if leaving:
        body["metadata"] |= {"deletionTimestamp": "2026-11-16T03:40:00Z", "deletionGracePeriodSeconds": 30}
    body["spec"] |= more.get("spec", {})
    body["status"] = {"phase": phase}
    return decode(PodObject, json.dumps(body).encode())


def shown(node: NodeObject, *pods: PodObject, memory: Memory | None = None, **settings: Any) -> Node:
    return show_node(site(**settings), node, pods, memory)


# -- what labels and nodeInfo tell


def test_a_node_of_eks_is_shown_with_its_machine_pool_rack_and_versions() -> None:
    found = shown(
        node_of(
            labels={
                "eks.amazonaws.com/nodegroup": "p5-training", "eks.amazonaws.com/nodegroup-image": "ami-0abc",
                "topology.k8s.aws/network-node-layer-3": "nn-3", "nvidia.com/cuda.driver-version.full": "580.95.05",
                "nvidia.com/gpu.clique": "clique-7", "eks.amazonaws.com/capacityType": "CAPACITY_BLOCK",
            },
            provider_id="aws:///us-west-2a/i-0123456789abcdef0", boot_id="boot-1",
        )
    )  # fmt: skip
    assert (found.instance, found.pool, found.rack, found.domain) == (
        "i-0123456789abcdef0", "p5-training", "nn-3", "clique-7",
    )  # fmt: skip
    assert dict(found.factors) == {
        "driver": "580.95.05", "image": "ami-0abc", "instance-type": "p5.48xlarge", "zone": "us-west-2a",
        "rack": "nn-3", "kernel": "6.8.0-1021-aws",
    }  # fmt: skip
    assert (found.gpus_expected, found.gpus_allocatable, found.boot_id, found.version) == (8, 8, "boot-1", 100)
    assert "capacity-block" in found.capacity


@pytest.mark.parametrize("own", [{"system_uuid": "4c4c4544"}, {"machine_id": "4c4c4544"}])
def test_a_machine_without_a_provider_stays_the_same_when_its_object_is_made_again(own: dict[str, str]) -> None:
    before, after = node_of(provider_id=""), node_of(provider_id="")
    after.metadata.uid = "uid-made-again"
    for node in (before, after):
        node.status.node_info = NodeSystem(boot_id="boot-1", **own)
    assert shown(before).instance == shown(after).instance == "4c4c4544"
    assert is_machine(before, before.metadata.uid), "an older record names it by its object"


def test_a_machine_that_says_nothing_of_itself_is_told_apart_by_its_object() -> None:
    node = node_of(provider_id="")
    node.status.node_info = NodeSystem(boot_id="boot-1")
    assert shown(node).instance == "uid-of-gpu-1"


def test_the_driver_is_also_read_from_the_labels_of_older_feature_discovery() -> None:
    old = {
        f"nvidia.com/cuda.driver.{part}": value for part, value in zip(("major", "minor", "rev"), "123", strict=True)
    }
    assert shown(node_of(labels=old)).factors["driver"] == "1.2.3"


def test_nodes_that_agree_share_one_mapping_of_factors() -> None:
    assert shown(node_of("a")).factors is shown(node_of("b")).factors


def test_a_node_that_has_lost_a_gpu_for_good_still_owes_what_its_type_has() -> None:
    """originals 002.12 #3: five of eight GPUs must not pass for all there are."""
    found = shown(node_of(gpus=5, instance_type="p5.48xlarge"))
    assert (found.gpus_expected, found.gpus_allocatable) == (8, 5)


def test_of_an_unknown_type_as_many_gpus_are_expected_as_any_instrument_has_counted() -> None:
    assert shown(node_of(gpus=3, instance_type="own", labels={"nvidia.com/gpu.count": "4"})).gpus_expected == 4


def test_gpus_cut_into_mig_slices_are_not_missed() -> None:
    sizes = {"nvidia.com/gpu": "6", "nvidia.com/mig-1g.10gb": "14"}
    found = shown(node_of(status={"capacity": sizes, "allocatable": sizes}))
    assert (found.gpus_expected, found.gpus_allocatable) == (6, 6)


def test_a_node_whose_owner_said_hands_off_is_opted_out() -> None:
    assert shown(node_of(labels={KEYS.opt_out: "true"})).opted_out
    assert not shown(node_of(labels={KEYS.opt_out: "false"})).opted_out


# -- readiness, gate, and who holds it


@pytest.mark.parametrize("status", ["False", "Unknown", ""])
def test_a_node_is_ready_only_when_its_kubelet_says_so(status: str) -> None:
    conditions = [{"type": "Ready", "status": status}] if status else [{"type": "DiskPressure", "status": "False"}]
    assert not shown(node_of(conditions=conditions)).ready


def test_a_node_that_was_declared_out_of_service_is_not_ready_whatever_its_last_word_was() -> None:
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    assert not shown(node_of(taints=[taint])).ready


def test_a_newcomer_is_at_the_gate_and_held_by_nobody() -> None:
    found = shown(node_of(taints=[{"key": KEYS.newcomer, "effect": "NoSchedule"}]))
    assert (found.gate, found.others, found.cordoned) == (True, (), False)


@pytest.mark.parametrize(
    "key",
    ["nvidia.com/gpu", "dedicated", "node-role.kubernetes.io/control-plane", "node.kubernetes.io/disk-pressure",
     "gpu-workload", "karpenter.sh/unregistered"],
)  # fmt: skip
def test_a_taint_that_only_steers_work_holds_nobody(key: str) -> None:
    found = shown(node_of(taints=[{"key": key, "value": "true", "effect": "NoSchedule"}]))
    assert (found.cordoned, found.others) == (False, ())


@pytest.mark.parametrize(
    ("key", "who"),
    [
        ("karpenter.sh/disrupted", "Karpenter node repair"),
        ("ToBeDeletedByClusterAutoscaler", "Cluster Autoscaler"),
        ("aws-node-termination-handler/scheduled-maintenance", "AWS Node Termination Handler"),
        ("medik8s.io/remediation", "Node Health Check operator (medik8s)"),
        ("example.com/maintenance", "taint example.com/maintenance"),
        (KEYS.unhealthy, f"taint {KEYS.unhealthy}"),
    ],
)
def test_a_node_that_others_have_closed_by_a_taint_is_held_by_them(key: str, who: str) -> None:
    """NVSentinel 9.4 #1424: others' holds are seen and counted."""
    found = shown(node_of(taints=[{"key": key, "value": "x", "effect": "NoSchedule"}]))
    assert (found.cordoned, found.others) == (True, (who,))


def test_a_taint_that_only_prefers_other_nodes_closes_nothing() -> None:
    assert not shown(node_of(taints=[{"key": "x/maintenance", "effect": "PreferNoSchedule"}])).cordoned


def ours(*, before: bool = False, cordoned: bool = True, **more: str) -> NodeObject:
    """As cordon.py leaves a node behind."""
    notes = {KEYS.case: "gpu-1.3", KEYS.before: write_found(Found(before)), **more}
    taints = [{"key": KEYS.case, "value": "3", "effect": "NoSchedule"}]
    return node_of(annotations=notes, taints=taints, spec={"unschedulable": cordoned, "taints": taints})


def test_our_own_cordon_is_nobody_elses() -> None:
    found = shown(ours())
    assert (found.cordoned, found.mark, found.others) == (True, "gpu-1.3", ())


def test_a_cordon_that_was_there_before_ours_is_somebodys() -> None:
    assert shown(ours(before=True)).others == ("somebody's cordon",)
    assert shown(node_of(spec={"unschedulable": True})).others == ("somebody's cordon",)


def test_a_cordon_of_a_rival_is_told_by_his_name() -> None:
    held = node_of(spec={"unschedulable": True}, annotations={"draino.planet.com/conditions": "[]"})
    assert shown(held).others == ("Draino",)


def test_a_person_who_uncordons_a_node_of_ours_is_understood_although_our_taint_stays() -> None:
    found = shown(ours(cordoned=False))
    assert (found.cordoned, found.mark) == (False, "gpu-1.3")


# -- work


def test_work_is_what_uses_gpus_on_somebodys_behalf() -> None:
    """originals 002.12 #10: pods that have ended kept a node busy."""
    here = site()
    daemon, mirror = owned_by("DaemonSet"), {"kubernetes.io/config.mirror": "x"}
    work = {
        "trains": pod_of("a"),
        "asks for a slice": pod_of("b", spec={"containers": [_asks("nvidia.com/mig-1g.10gb")]}),
        "asks for a share": pod_of("c", spec={"containers": [_asks("nvidia.com/gpu.shared")]}),
        "claims a device": pod_of("d", gpus=0, spec={"resourceClaims": [{"name": "gpu"}]}),
        "starts with one": pod_of("e", gpus=0, spec={"initContainers": [_asks("nvidia.com/gpu")]}),
    }
    idle = {
        "has ended": pod_of("f", phase="Succeeded"),
        "has failed": pod_of("g", phase="Failed"),
        "uses none": pod_of("h", gpus=0),
        "is a daemon": pod_of("i", owner=daemon),
        "is the kubelet's own": pod_of("j", annotations=mirror),
        "is ours": pod_of("k", namespace="sickbay", annotations={KEYS.action: "gpu-1.3/4"}),
    }
    assert {why for why, pod in {**work, **idle}.items() if is_work(here, pod)} == set(work)


def _asks(resource: str) -> dict[str, Any]:
    return {"name": "main", "image": "train", "resources": {"limits": {resource: "1"}}}


def test_a_node_is_shown_with_the_jobs_that_live_on_it_each_once() -> None:
    gang = owned_by("PyTorchJob")
    pods = [pod_of("llama-0", owner=gang), pod_of("llama-1", owner=gang), pod_of("alone")]
    assert shown(node_of(), *pods).jobs == ("train/pod/alone", "train/pytorchjob/llama")


def test_a_pod_long_past_its_grace_period_on_a_node_that_answers_is_stuck_and_no_longer_work() -> None:
    clock = StageClock()
    memory, pods = Memory(clock), [pod_of("a", leaving=True), pod_of("b")]
    assert shown(node_of(), *pods, memory=memory).jobs == ("train/pod/a", "train/pod/b")
    clock.passed += 30 + STUCK_S + 1
    found = shown(node_of(), *pods, memory=memory)
    assert (found.jobs, found.stuck) == (("train/pod/b",), ("train/pod/a",))


def test_nobody_can_tell_whether_a_pod_is_stuck_on_a_node_that_does_not_answer() -> None:
    clock = StageClock()
    memory, gone = Memory(clock), node_of(conditions=[{"type": "Ready", "status": "Unknown"}])
    shown(gone, pod_of("a", leaving=True), memory=memory)
    clock.passed += 3_600
    found = shown(gone, pod_of("a", leaving=True), memory=memory)
    assert (found.jobs, found.stuck) == (("train/pod/a",), ())


def test_a_kubelet_that_is_back_has_its_whole_grace_to_end_what_was_given_up() -> None:
    """Two hours later it was called stuck as soon as its node was Ready again: nobody waited for its end."""
    clock = StageClock()
    memory, gone = Memory(clock), node_of(conditions=[{"type": "Ready", "status": "Unknown"}])
    shown(gone, pod_of("a", leaving=True), memory=memory)
    clock.passed += 7_200
    back = shown(node_of(), pod_of("a", leaving=True), memory=memory)
    assert (back.jobs, back.stuck) == (("train/pod/a",), ())
    clock.passed += 30 + STUCK_S + 1
    assert shown(node_of(), pod_of("a", leaving=True), memory=memory).stuck == ("train/pod/a",)


def test_how_long_a_pod_has_been_leaving_is_what_we_watched_not_what_another_clock_says() -> None:
    """Its deletionTimestamp may be years old, or in the future: no two machines' clocks are compared."""
    assert shown(node_of(), pod_of("a", leaving=True)).stuck == ()


# -- what the agent says


def said(**more: Any) -> str:
    lost = Finding(
        id="boot-1/7", source="agent", check="nvidia-smi", place=Place("gpu-1", "0000:3b:00"), status=Status.FAILED,
        code="smi.gpu-lost", reason="GPU 3 is lost", severity=Severity.REBOOT, boot_id="boot-1",
    )  # fmt: skip
    facts = {"node": "gpu-1", "boot_id": "boot-1", "sequence": 7, "at": 1.0, "findings": (lost,)}
    report = Report(**{**facts, "factors": {"vbios": "96.00"}, **more})
    return encode(report, "fail", Severity.REBOOT)


def speaking(text: str, *, beat: str = "2026-11-16T034000Z", **more: Any) -> NodeObject:
    return node_of(annotations={KEYS.results: text}, labels={KEYS.last_check: beat}, boot_id="boot-1", **more)


def test_what_the_agent_wrote_on_its_node_is_shown_as_its_findings_and_joined_to_what_labels_tell() -> None:
    found = shown(speaking(said()))
    assert [f.code for f in found.findings] == ["smi.gpu-lost"]
    assert (found.factors["vbios"], found.factors["zone"]) == ("96.00", "us-west-2a")


def test_findings_of_an_earlier_boot_are_not_believed() -> None:
    assert shown(speaking(said(boot_id="boot-0"))).findings == ()


def test_findings_of_another_machine_are_not_believed() -> None:
    assert shown(speaking(said(instance="i-another"), provider_id="aws:///us-west-2a/i-mine")).findings == ()
    assert shown(speaking(said(instance="i-mine"), provider_id="aws:///us-west-2a/i-mine")).findings


@pytest.mark.parametrize("text", ['{"report":', '{"report": 7}', '{"report": {"node": "another"}}'])
def test_a_report_that_cannot_be_read_is_told_as_not_knowing_and_never_as_healthy(text: str) -> None:
    (finding,) = shown(speaking(text)).findings
    assert (finding.status, finding.code) == (Status.UNKNOWN, "monitor.unreadable-report")
    assert "we do not know how this node is" in finding.reason


def test_the_original_suites_own_annotation_is_left_alone() -> None:
    assert shown(speaking('{"timestamp":"x","status":"pass","checks":[]}')).findings == ()


def test_a_heartbeat_is_timed_by_our_own_clock_when_its_label_changes() -> None:
    """Clock skew: the agent's clock may be hours off, in either direction."""
    clock = StageClock()
    memory = Memory(clock)
    first = shown(speaking(said(), beat="1999-01-01T000000Z"), memory=memory).last_check
    clock.passed += 60
    assert shown(speaking(said(), beat="1999-01-01T000000Z"), memory=memory).last_check == first
    assert shown(speaking(said(), beat="1999-01-01T000500Z"), memory=memory).last_check >= first + 60
    assert abs(first - clock.now()) < 90


def test_a_node_without_an_agent_has_no_heartbeat() -> None:
    assert shown(node_of()).last_check == 0.0


def test_the_same_name_as_another_object_begins_a_new_heartbeat() -> None:
    clock = StageClock()
    memory = Memory(clock)
    first = shown(speaking(said()), memory=memory).last_check
    clock.passed += 60
    assert shown(speaking(said(), uid="another"), memory=memory).last_check >= first + 60
