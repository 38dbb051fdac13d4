"""From a kernel line to a node back at work, on a real control plane, with a real controller process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sickbay.kube import names
from sickbay.kube.names import keys
from sickbay.kube.objects import Anything
from sickbay.model import Phase
from testbed.cluster import Cluster
from tests.kubernetes.line.ground import ENDS, Line, a_line

KEYS = keys()
WRITES = ("create", "update", "patch", "delete")
ABOUT_NODES = ("nodes", "nodecases", "noderecords", "jobs")


@pytest.fixture
def line(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Line]:
    with a_line(cluster, namespace, tmp_path) as ready:
        yield ready


def test_a_lost_gpu_is_taken_out_rebooted_examined_and_returned(line: Line) -> None:
    boots, mark = line.boots(), line.cluster.audit_mark()
    line.control()
    line.until_led()
    line.strike()
    case = line.until_phase(*ENDS)
    assert case.phase is Phase.RESOLVED, case.journal[-1]
    assert line.boots() == boots + 1
    node = line.node()
    assert not node.spec.unschedulable
    assert not [taint for taint in node.spec.taints or () if taint.key.startswith(KEYS.case.partition("/")[0])]
    assert not node.metadata.annotation(KEYS.case)
    assert "karpenter.sh/do-not-disrupt" not in (node.metadata.annotations or {})
    about = _writes_about(line, mark)
    assert len(about) <= 16, "\n".join(about)


def _writes_about(line: Line, mark: int) -> list[str]:
    """Of the controller, about this node, from detection to return: the node, its records, its Jobs. The Ledger is
    shared by all nodes and counted in benchmarks/kubernetes/writes.py; Events and evictions aside."""
    told = []
    for entry in line.cluster.audit(mark):
        about = entry.get("objectRef") or {}
        ours = entry.get("userAgent", "").startswith("sickbay") and entry["verb"] in WRITES
        if ours and line.sick in about.get("name", "") and about.get("resource") in ABOUT_NODES:
            told.append(f"{entry['verb']} {about['resource']}")
    return told


def test_a_fresh_install_only_observes(line: Line) -> None:
    mark = line.cluster.audit_mark()
    line.control("OBSERVE")
    line.until_led()
    line.strike()
    case = line.until_phase(Phase.WAITING)
    line.until(lambda: "only watches" in line.cases()[-1].refusal, "it says why it waits")
    assert not line.node().spec.unschedulable
    assert line.boots() == line.kubelet.sim(line.nodes[0]).boots
    patched = line.cluster.audit(mark, verb="patch", resource="nodes", name=line.sick)
    assert [e for e in patched if not e["objectRef"].get("subresource")] == []
    assert case.node == line.sick


def test_a_persons_uncordon_ends_the_case_and_is_left_alone(line: Line) -> None:
    """NVSentinel 9.4: nodes stuck cordoned or uncordoned wrongly."""
    line.control("CORDON")
    line.until_led()
    line.strike()
    line.until(lambda: line.node().spec.unschedulable, "it is cordoned")
    line.until(lambda: "154" in line.node().metadata.annotation(KEYS.results), "the agent has told the whole family")
    line.cluster.kubectl("uncordon", line.sick)  # later in the node's own stream than 154, which is a fault of its own
    case = line.until_phase(Phase.DISMISSED)
    assert any("uncordon" in entry.why for entry in case.journal), case.journal
    node = line.node()
    assert not node.spec.unschedulable
    assert not node.metadata.annotation(KEYS.case)


def test_a_policy_that_denies_our_patch_is_told_in_its_own_words(line: Line) -> None:
    deny = {
        "metadata": {"name": f"deny-{line.namespace}"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
                                                    "resources": ["nodes"], "resourceNames": [line.sick]}]},
            "validations": [{"expression": "!has(object.spec.unschedulable) || !object.spec.unschedulable",
                             "message": "change freeze CHG-42"}],
        },
    }  # fmt: skip
    bind = {
        "metadata": {"name": f"deny-{line.namespace}"},
        "spec": {"policyName": f"deny-{line.namespace}", "validationActions": ["Deny"]},
    }
    base = "/apis/admissionregistration.k8s.io/v1"
    line.api.create(f"{base}/validatingadmissionpolicies", deny, Anything)
    line.api.create(f"{base}/validatingadmissionpolicybindings", bind, Anything)
    try:
        line.until(lambda: _is_denied(line), "the policy is in force")
        line.control()
        line.until_led()
        line.strike()
        case = line.until_phase(Phase.ESCALATED)
        assert any("CHG-42" in entry.why for entry in case.journal), case.journal
    finally:
        line.api.delete(f"{base}/validatingadmissionpolicybindings/deny-{line.namespace}")
        line.api.delete(f"{base}/validatingadmissionpolicies/deny-{line.namespace}")


def _is_denied(line: Line) -> bool:
    from sickbay.errors import ApiError

    try:
        line.api.patch(names.node(line.sick), {"spec": {"unschedulable": True}}, Anything, dryRun="All")
    except ApiError as error:
        return "CHG-42" in error.said
    return False
