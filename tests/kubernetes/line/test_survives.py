"""What the line survives on a real control plane: its own death, a deposed twin, a dead API server, a wrong clock.

Time-outs are scaled (leases of three seconds); the full-length ones run in `make soak` (SICKBAY_SOAK=1).
"""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sickbay.kube import names
from sickbay.kube.names import keys
from sickbay.kube.objects import Anything, NodeObject
from sickbay.model import Case, Phase, Verb
from testbed.cluster import Cluster
from testbed.fleet import gpu_node
from tests.kubernetes.ec2 import patient
from tests.kubernetes.line.ground import ENDS, Line, a_line
from tests.kubernetes.policies import WORDS, no_update
from tests.kubernetes.stage import add_pod
from tests.moto import Front

P, V = Phase, Verb
PHASES = (P.WAITING, P.CORDONING, P.HOLDING, P.DRAINING, P.COLLECTING, P.QUEUED, P.REPAIRING, P.VERIFYING, P.RETURNING)
WRITTEN = (P.CORDONING, P.DRAINING, P.COLLECTING, P.REPAIRING, P.RETURNING)  # the others end within a pass, or may wait
VERBS = (V.CORDON, V.DRAIN, V.COLLECT, V.REBOOT, V.VERIFY, V.RELEASE)


@pytest.fixture
def line(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Line]:
    with a_line(cluster, namespace, tmp_path) as ready:
        yield ready


def returned_once(line: Line, boots: int) -> None:
    case = line.until_phase(*ENDS, Phase.ESCALATED)
    assert case.phase is Phase.RESOLVED, [f"{e.event} {e.phase}: {e.why}" for e in case.journal]
    assert line.boots() == boots + 1, "one reboot, however often it was asked for"
    assert not line.node().spec.unschedulable
    assert [c.id for c in line.cases()] == [case.id], "and one case"


# --- its own death ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(("decided:COLLECTING", "written:REPAIRING", "asked:REBOOT"), id="a few"),
        pytest.param([f"decided:{phase}" for phase in PHASES], id="decided", marks=pytest.mark.soak),
        pytest.param([f"written:{phase}" for phase in WRITTEN], id="written", marks=pytest.mark.soak),
        pytest.param([f"asked:{verb}" for verb in VERBS], id="asked", marks=pytest.mark.soak),
    ],
)
def test_a_controller_killed_at_every_step_is_followed_by_one_that_goes_on(line: Line, points: Sequence[str]) -> None:
    boots, mark = line.boots(), line.cluster.audit_mark()
    add_pod(line.api, line.namespace, "work", line.sick)  # so that there is something to drain
    line.strike()
    for point in points:
        line.until_dead(line.control(at=[f"KILL:{point}"]))
    line.control()
    returned_once(line, boots)
    assert len(line.sent("reboot", mark)) == 1


@pytest.mark.parametrize("lease_s", [3.0, pytest.param(15.0, marks=pytest.mark.soak)])
def test_a_standby_acts_within_seconds_of_its_leaders_death(line: Line, lease_s: float) -> None:
    boots = line.boots()
    leader = line.control(at=["KILL:written:REPAIRING"], lease_s=lease_s)
    line.until_led()
    line.control(lease_s=lease_s)
    line.until(lambda: "standing by" in line.log(), "another one stands by")
    mark = line.cluster.audit_mark()
    line.strike()
    line.until_dead(leader)
    died = time.time()
    line.until(lambda: line.sent("reboot", mark), "it does what the other did not come to")
    (first,) = line.sent("reboot", mark)
    acted = datetime.fromisoformat(first["requestReceivedTimestamp"]).timestamp()
    assert acted - died < 15.0
    returned_once(line, boots)


# --- two leaders ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "wakes"),
    [
        pytest.param("written:REPAIRING", "soon", id="before its call"),
        pytest.param("decided:REPAIRING", "late", id="before its write", marks=pytest.mark.soak),
        pytest.param("written:REPAIRING", "late", id="before its call, late", marks=pytest.mark.soak),
        pytest.param("asked:REBOOT", "soon", id="before it hears", marks=pytest.mark.soak),
    ],
)
def test_a_leader_that_was_frozen_in_the_middle_comes_back_and_does_nothing(line: Line, point: str, wakes: str) -> None:
    """Two leaders: the old one wakes up in the middle of a pass, with an epoch that counts no more. "Soon" is while the
    new one waits for the machine, "late" when the node is back at work."""
    boots, mark = line.boots(), line.cluster.audit_mark()
    line.strike()
    old = line.control(at=[f"STOP:{point}"])
    line.until_still(old)
    line.control()
    line.until_led(2)
    if wakes == "late":
        line.until_phase(*ENDS)
    else:
        line.until(lambda: line.sent("reboot", mark), "the new one acts")
    old.send_signal(signal.SIGCONT)
    line.until(lambda: "the lead is lost" in line.log(), "it knows")
    returned_once(line, boots)
    assert len(line.sent("reboot", mark)) == 1


def test_a_controller_whose_clock_is_a_day_ahead_does_the_same(line: Line) -> None:
    boots = line.boots()
    line.control(skew_s=86_400.0)
    line.until_led()
    line.strike()
    returned_once(line, boots)


# --- what others do to the node ---------------------------------------------------------------------------------------


def test_a_node_deleted_in_the_middle_and_made_again_is_taken_up_again(line: Line) -> None:
    """The object is gone, the machine is not: same instance, a new uid (lessons 10)."""
    line.control("CORDON")
    line.until_led()
    line.strike()
    line.until(lambda: line.node().spec.unschedulable, "it is cordoned")
    before = line.node()
    line.api.delete(names.node(line.sick))
    line.api.create(names.NODES, registered_again(line, before), Anything)
    assert line.node().metadata.uid != before.metadata.uid
    line.until(lambda: line.node().spec.unschedulable, "the new object is cordoned too")
    assert len(line.cases()) == 1


def test_a_node_object_that_is_deleted_and_back_in_its_examination_is_nobodys_urgent_notice(line: Line) -> None:
    boots = line.boots()
    leader = line.control(at=["STOP:decided:VERIFYING"])
    line.strike()
    line.until_still(leader)
    before = line.node()
    line.api.delete(names.node(line.sick))
    leader.send_signal(signal.SIGCONT)
    line.until(lambda: "there is no node" in line.log(), "it is missed")
    line.api.create(names.NODES, registered_again(line, before), Anything)
    returned_once(line, boots)
    assert not [e.why for case in line.cases() for e in case.journal if e.phase is P.ESCALATED]


def registered_again(line: Line, before: NodeObject) -> dict[str, Any]:
    info = before.status.node_info
    return gpu_node(
        line.sick, provider_id=before.spec.provider_id, labels={"sim.test/line": line.namespace},
        boot_id=info.boot_id if info else "",
    )  # fmt: skip


def test_an_agent_that_restarts_in_mid_case_opens_no_second_one_and_loses_no_verdict(line: Line) -> None:
    boots = line.boots()
    line.strike()
    points = ("COLLECTING", "REPAIRING", "VERIFYING")
    leader = line.control(at=[f"STOP:decided:{phase}" for phase in points])
    for _ in points:
        line.until_still(leader)
        told = len(line.kubelet.published.get(line.sick, ()))
        line.kubelet.restart_agent(line.sick)
        line.until(lambda told=told: len(line.kubelet.published[line.sick]) > told, "the new agent has told")
        leader.send_signal(signal.SIGCONT)
    returned_once(line, boots)


def test_a_machine_that_goes_while_nobody_leads_ends_its_case(line: Line, amazon: Front) -> None:
    """Amazon knows no such instance: it was terminated, and its object deleted, between two controllers."""
    settings: dict[str, Any] = {"machines": "auto", "aws_endpoint": amazon.url}
    patient(amazon.url).ec2.describe_instances()  # moto's first answer takes it seconds
    line.strike()
    line.until_dead(line.control("CORDON", at=["KILL:asked:CORDON"], **settings))
    line.api.delete(names.node(line.sick))
    line.control("CORDON", **settings)
    case = line.until_phase(*ENDS)
    assert case.phase is Phase.RESOLVED
    assert "no longer exists" in case.journal[-1].why


def test_a_release_that_a_policy_denies_is_a_persons(line: Line) -> None:
    boots = line.boots()
    line.control()
    line.until_led()
    line.strike()
    line.until(lambda: line.node().spec.unschedulable, "it is cordoned")
    unless = "has(object.spec.unschedulable) && object.spec.unschedulable"
    with no_update(line.api, line.sick, unless, {"spec": {"unschedulable": None}}):
        case = line.until_phase(Phase.ESCALATED, *ENDS)
    assert case.phase is Phase.ESCALATED, case.journal[-1]
    assert WORDS in case.journal[-1].why
    assert line.boots() == boots + 1
    assert line.node().spec.unschedulable


def test_a_treatment_that_cannot_be_noted_is_not_made_and_brings_no_harsher_one(line: Line) -> None:
    boots, key = line.boots(), keys().treatment
    unless = f"!has(object.metadata.annotations) || !('{key}' in object.metadata.annotations)"
    with no_update(line.api, line.sick, unless, {"metadata": {"annotations": {key: "{}"}}}):
        line.control()
        line.until_led()
        line.strike()
        case = line.until_phase(Phase.ESCALATED, *ENDS)
    assert case.phase is Phase.ESCALATED, case.journal[-1]
    assert WORDS in case.journal[-1].why
    assert line.boots() == boots
    assert case.rungs_tried == ()


# --- the API server ---------------------------------------------------------------------------------------------------


# A server that hangs up during a handshake: CPython 3.11 raises without closing that socket (ssl.py, _create).
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("phases", "outage_s"),
    [
        pytest.param(("COLLECTING", "REPAIRING", "VERIFYING"), 0.5, id="a few"),
        pytest.param(PHASES, 0.5, id="every", marks=pytest.mark.soak),
        pytest.param(("REPAIRING",), 60.0, id="a minute", marks=pytest.mark.soak),
    ],
)
def test_an_api_server_that_dies_in_every_phase_costs_time_and_nothing_else(
    own_cluster: Callable[..., Cluster], tmp_path: Path, phases: Sequence[str], outage_s: float
) -> None:
    cluster = own_cluster()
    cluster.api().create("/api/v1/namespaces", {"metadata": {"name": "sickbay"}}, Anything)
    with a_line(cluster, "sickbay", tmp_path) as line:
        boots = line.boots()
        leader = line.control(at=[f"STOP:decided:{phase}" for phase in phases])
        line.until_led()
        line.strike()
        for _ in phases:
            line.until_still(leader)
            cluster.stop_apiserver(kill=True)
            leader.send_signal(signal.SIGCONT)
            time.sleep(outage_s)  # an outage that somebody notices
            cluster.start_apiserver()
        returned_once(line, boots)
        line.kubelet.errors.clear()
    gc.collect()  # such a socket is this test's, not that of whoever runs next


def test_a_watch_whose_version_was_forgotten_in_mid_case_lists_again_and_misses_nothing(
    own_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """410: the controller slept, the server has restarted and remembers only what came afterwards."""
    cluster = own_cluster()
    cluster.api().create("/api/v1/namespaces", {"metadata": {"name": "sickbay"}}, Anything)
    with a_line(cluster, "sickbay", tmp_path) as line:
        boots = line.boots()
        leader = line.control(at=["STOP:decided:VERIFYING"])
        line.until_led()
        line.strike()
        line.until_still(leader)
        for number in range(3):
            label = {"metadata": {"labels": {"sim.test/turn": str(number)}}}
            for name in line.nodes:
                line.api.patch(names.node(name), label, Anything)
        cluster.stop_apiserver()
        cluster.start_apiserver()
        line.api.delete(names.node(line.nodes[0]))
        leader.send_signal(signal.SIGCONT)
        line.until(lambda: "/nodecases: listing again: too old" in line.log(), "what it knew is too old")
        returned_once(line, boots)
        line.kubelet.errors.clear()


# --- records that somebody deletes ------------------------------------------------------------------------------------


def is_free(line: Line) -> bool:
    node, ours = line.node(), keys()
    marked = any(taint.key == ours.case for taint in node.spec.taints or ())
    return not node.spec.unschedulable and not marked and not node.metadata.annotation(ours.case)


def at_rest(line: Line) -> Case:
    """Closed, with work on it that may not be evicted."""
    add_pod(line.api, line.namespace, "work", line.sick)
    line.control("CORDON")
    line.strike()
    return line.until_phase(Phase.HOLDING)


def test_deleting_the_nodecase_in_mid_case_takes_our_marks_off_and_says_so(line: Line) -> None:
    case = at_rest(line)
    line.api.request("DELETE", names.custom(line.namespace, "nodecases", names.object_name(case.id)))
    line.until(lambda: is_free(line), "our marks are off")
    ended = line.until_phase(Phase.DISMISSED)
    assert ended.adopts == case.id
    assert "deleted the record" in line.log()


@pytest.mark.soak
def test_a_fresh_install_finds_the_marks_of_the_last_one(line: Line) -> None:
    at_rest(line)
    line.running[-1].kill()
    for kind in ("nodecases", "noderecords", "ledgers"):
        line.api.request("DELETE", names.custom(line.namespace, kind))
    line.api.request("DELETE", f"/api/v1/namespaces/{line.namespace}/pods/work?gracePeriodSeconds=0")
    line.control("REBOOT")
    line.until(lambda: is_free(line), "our marks are off")


def test_a_mark_that_somebody_writes_over_in_mid_case_is_told_and_the_node_is_treated_and_returned(line: Line) -> None:
    boots = line.boots()
    leader = line.control(at=["STOP:decided:COLLECTING"])
    line.strike()
    line.until_still(leader)
    mark = {"metadata": {"annotations": {keys().case: f"{line.nodes[0]}.1"}}}
    line.api.patch(names.node(line.sick), mark, Anything, fieldManager="somebody")
    leader.send_signal(signal.SIGCONT)
    returned_once(line, boots)
    assert is_free(line)
    assert f"somebody has put the mark of {line.nodes[0]}.1 in the place of ours" in line.log()
