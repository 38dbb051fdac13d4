"""From a kernel line to a node back at work, on a real control plane, with a real controller process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sickbay.kube import names
from sickbay.kube.names import keys
from sickbay.kube.objects import Anything
from sickbay.model import Command, Phase, Verb
from sickbay.stores.kubernetes import KubernetesStore
from testbed.cluster import Cluster
from tests.kubernetes.line.ground import ENDS, Line, a_line
from tests.kubernetes.policies import WORDS, no_jobs, no_update

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
    unless = "!has(object.spec.unschedulable) || !object.spec.unschedulable"
    with no_update(line.api, line.sick, unless, {"spec": {"unschedulable": True}}):
        line.control()
        line.until_led()
        line.strike()
        case = line.until_phase(Phase.ESCALATED)
    assert any(WORDS in entry.why for entry in case.journal), case.journal


def test_an_examination_that_a_policy_denies_is_told_and_made_when_it_may_and_nothing_harsher_is_done(
    line: Line,
) -> None:
    """The reset has cured it; that nobody may look whether it has is not a fault of the machine."""
    boots = line.boots()
    with no_jobs(line.api, line.namespace, "check"):
        line.control()
        line.until_led()
        line.strike("ecc_dbe_48", cure="reset")
        line.until(lambda: (case := line.case()) and WORDS in case.refusal, "the case says what does not let it in")
        case = line.until_phase(Phase.VERIFYING)
        assert case.rungs_tried == (Verb.RESET_GPU,)
        assert any(entry.event == "LACKS" and WORDS in entry.why for entry in case.journal), "people were told"
        assert line.node().spec.unschedulable, "it stays out until somebody has looked"
    case = line.until_phase(Phase.RESOLVED, *ENDS)
    assert case.phase is Phase.RESOLVED, case.journal
    assert case.rungs_tried == (Verb.RESET_GPU,)
    assert line.boots() == boots


def test_who_holds_back_our_jobs_is_in_the_ward_list_and_nothing_of_them_outlives_a_persons_uncordon(
    line: Line,
) -> None:
    space = f"/api/v1/namespaces/{line.namespace}"
    line.api.patch(space, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}, Anything)
    boots = line.boots()
    line.control()
    line.until_led()
    line.strike()
    named = f"PodSecurity refuses its pod: label namespace {line.namespace}"
    line.until(lambda: named in line.cluster.kubectl("get", "nodecases", "-n", line.namespace), "it is in the list")
    assert "waits_for=" in line.log()
    assert named in line.log()
    line.cluster.kubectl("uncordon", line.sick)
    line.until_phase(Phase.DISMISSED)
    assert line.api.list(names.jobs(line.namespace), Anything) == []
    assert line.boots() == boots


def test_a_command_for_nobody_is_an_event_that_says_so(line: Line) -> None:
    line.control()
    line.until_led()
    with closing(KubernetesStore(line.api, line.namespace)) as store:
        store.create(Command("c1", "abort", "no-such-node.1", "ann", "typo", 0.0))
    said = "abort no-such-node.1 by ann: no open case, node or job has this name"
    line.until(lambda: said in line.cluster.kubectl("get", "events", "-A"), "it is told")
    assert said in line.log()
