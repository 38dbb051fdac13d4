"""What the agent's reports become on the real API server: condition, labels, annotation, Events."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from sickbay.agent.publishers import Told
from sickbay.agent.publishers.lane import Lane
from sickbay.kube import names, results
from sickbay.kube.api import Api
from sickbay.kube.objects import NodeObject
from sickbay.model import Report, Severity
from sickbay.settings import AgentSettings
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.agent.builders import Moments, a_finding
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.publishing import (
    KEYS,
    LOST,
    a_publisher,
    condition,
    label_time,
    said_of,
    say,
    seen,
    taint_keys,
    told,
)


@pytest.fixture
def node(nodes: Nodes) -> str:
    return nodes(1, wait=False)[0]


@pytest.mark.parametrize(
    ("status", "severity", "says", "reason"),
    [
        ("pass", "PASS", "False", "GPUsAreUp"),
        ("warn", "MONITOR", "False", "GPUsAreUp"),
        ("fail", "REBOOT", "True", "GPUsAreDown"),
        ("unknown", "PASS", "Unknown", "GPUsAreNotSeen"),
    ],
)
def test_a_verdict_is_shown_as_condition_and_labels_in_the_originals_words(
    api: Api, node: str, tmp_path: Path, status: str, severity: str, says: str, reason: str
) -> None:
    """originals 002.12 #2: a healthy node had severity SKIP; here it has PASS."""
    item = told(node, status)
    say(a_publisher(api, node, tmp_path), item)
    labels = seen(api, node).metadata.labels or {}
    assert (labels[KEYS.status], labels[KEYS.severity]) == (status, severity)
    assert label_time(labels[KEYS.last_check]) == int(item.report.at)
    found = condition(api, node)
    assert found is not None
    assert (found.status, found.reason) == (says, reason)
    assert item.verdict.reason in found.message


def test_the_message_names_the_worst_finding_and_stays_within_a_kilobyte(api: Api, node: str, tmp_path: Path) -> None:
    item = told(node, "fail")
    say(a_publisher(api, node, tmp_path), item)
    found = condition(api, node)
    assert found is not None
    assert found.message == f"{LOST} (xid.79, severity REBOOT)"
    item.verdict = type(item.verdict)("fail", item.verdict.severity, "ö" * 3_000)
    say(a_publisher(api, node, tmp_path), item)
    found = condition(api, node)
    assert found is not None
    assert len(found.message.encode()) <= 1_024


def test_the_annotation_has_the_originals_fields_and_our_report(api: Api, node: str, tmp_path: Path) -> None:
    item = told(node, "fail", factors={"instance-type": "p5.48xlarge"})
    say(a_publisher(api, node, tmp_path), item)
    text = seen(api, node).metadata.annotation(KEYS.results)
    shown = json.loads(text)
    assert {**shown, "timestamp": "", "checks": [], "report": {}} == {
        "timestamp": "", "hostname": node, "instance_type": "p5.48xlarge", "status": "fail", "severity": "REBOOT",
        "checks": [], "report": {},
    }  # fmt: skip
    assert {"check": "0-nvidia-smi", "status": "PASS", "severity": ""} in shown["checks"]
    assert results.decode(text, node) == item.report


def test_everything_else_on_the_node_stays_as_it_was(api: Api, node: str, tmp_path: Path) -> None:
    others = {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}}
    api.patch(names.node(node), others, NodeObject)
    ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "not yet"}
    api.patch(f"{names.node(node)}/status", {"status": {"conditions": [ready]}}, NodeObject, "strategic")
    say(a_publisher(api, node, tmp_path), told(node, "fail"))
    after = seen(api, node)
    assert (after.metadata.label("team"), after.metadata.annotation("note")) == ("a", "b")
    assert "Ready" in {one.type for one in after.status.conditions or ()}
    assert not after.spec.unschedulable


def test_a_healthy_node_costs_one_patch_a_cycle(cluster: Cluster, api: Api, node: str, tmp_path: Path) -> None:
    clock, mark = Moments(), cluster.audit_mark()
    publisher = a_publisher(api, node, tmp_path, clock=clock)
    for number in range(1, 6):
        say(publisher, told(node, "pass", number))
        clock.pass_(300.0)
    writes = until(
        lambda: found if len(found := _writes(cluster, mark, node)) >= 5 else None, "five cycles are in the audit log"
    )
    assert writes == ["nodes/status patch"] * 5


def _writes(cluster: Cluster, since: int, name: str) -> list[str]:
    """What a client of ours wrote about this node."""
    asked = [one for one in cluster.audit(since) if one["verb"] in ("patch", "update", "create", "delete")]
    ours = [one for one in asked if one.get("userAgent", "").startswith("sickbay")]
    mine = [(one["objectRef"], one["verb"]) for one in ours if one["objectRef"].get("name", "").startswith(name)]
    return ["/".join(filter(None, (ref["resource"], ref.get("subresource")))) + f" {verb}" for ref, verb in mine]


def test_a_heartbeat_moves_the_heartbeat_and_only_a_change_moves_the_transition(
    api: Api, node: str, tmp_path: Path
) -> None:
    clock = Moments()
    publisher = a_publisher(api, node, tmp_path, clock=clock)
    times = []
    for number, status in enumerate(("pass", "pass", "fail"), 1):
        say(publisher, told(node, status, number, at=1_800_000_000.0 + 300 * number))
        clock.pass_(300.0)
        found = condition(api, node)
        assert found is not None
        times.append((found.last_heartbeat_time[11:19], found.last_transition_time[11:19]))
    assert times == [("08:05:00", "08:05:00"), ("08:10:00", "08:05:00"), ("08:15:00", "08:15:00")]


def test_an_agents_restart_does_not_move_the_transition(api: Api, node: str, tmp_path: Path) -> None:
    say(a_publisher(api, node, tmp_path), told(node, "fail", 1, at=1_800_000_000.0))
    say(a_publisher(api, node, tmp_path), told(node, "fail", 2, at=1_800_000_300.0))
    found = condition(api, node)
    assert found is not None
    assert found.last_transition_time == "2027-01-15T08:00:00Z"


def test_repeats_of_the_same_are_gathered_and_a_new_finding_is_not(api: Api, node: str, tmp_path: Path) -> None:
    """NVSentinel 9.2 #1120: one noisy node flooded its store. A counted repeat waits; what is new does not."""
    clock = Moments()
    publisher = a_publisher(api, node, tmp_path, clock=clock)
    say(publisher, told(node, "warn", 1))
    wait = say(publisher, told(node, "warn", 2))
    assert (publisher.sent, wait) == (1, 10.0)
    say(publisher, told(node, "fail", 3))
    assert publisher.sent == 2
    say(publisher, told(node, "fail", 4))
    clock.pass_(10.0)
    publisher.work()
    assert publisher.sent == 3
    assert _report(api, node).sequence == 4


def test_what_follows_the_first_line_of_a_fault_is_gathered_and_a_worse_verdict_is_not(
    api: Api, node: str, tmp_path: Path
) -> None:
    clock = Moments()
    publisher = a_publisher(api, node, tmp_path, clock=clock)
    say(publisher, told(node, "fail", 1))
    more = (a_finding("xid.79", 1, reason=LOST), a_finding("xid.154", 2), a_finding("smi.gpu-count", 3))
    assert say(publisher, told(node, "fail", 2, findings=more[:2])) == 3.0
    clock.pass_(1.0)
    assert say(publisher, told(node, "fail", 3, findings=more)) == 2.0
    assert publisher.sent == 1
    clock.pass_(2.0)
    publisher.work()
    assert (publisher.sent, len(_report(api, node).findings)) == (2, 3)
    item = told(node, "fail", 4, findings=more)
    say(publisher, Told(item.report, replace(item.verdict, severity=Severity.REPLACE)))
    assert publisher.sent == 3


def test_a_node_that_raves_does_not_flood_the_api_server(api: Api, node: str, tmp_path: Path) -> None:
    clock = Moments()
    publisher = a_publisher(api, node, tmp_path, clock=clock)
    waits = [say(publisher, told(node, ("fail", "pass")[number % 2], number)) for number in range(41)]
    assert publisher.sent == 8
    assert waits[-1] == 1.0
    clock.pass_(1.0)
    publisher.work()
    assert publisher.sent == 9


def test_an_event_is_written_when_the_condition_changes_and_not_for_heartbeats(
    api: Api, node: str, tmp_path: Path
) -> None:
    clock = Moments()
    publisher = a_publisher(api, node, tmp_path, clock=clock)
    for number, status in enumerate(("pass", "pass", "fail", "fail", "pass"), 1):
        say(publisher, told(node, status, number))
        clock.pass_(60.0)
    said = {event.reason: event for event in said_of(api, node)}
    assert set(said) == {"GPUsAreDown", "GPUsAreUp"}
    down = said["GPUsAreDown"]
    assert (down.type, down.count) == ("Warning", 1)
    assert down.message.startswith('Node condition GPUProblem is now: True, reason: GPUsAreDown, message: "' + LOST)


def test_labels_are_left_out_when_people_say_so_and_old_ones_do_not_stay(api: Api, node: str, tmp_path: Path) -> None:
    say(a_publisher(api, node, tmp_path), told(node, "pass", 1))
    say(a_publisher(api, node, tmp_path, AgentSettings(label=False)), told(node, "fail", 2))
    after = seen(api, node)
    assert not {KEYS.status, KEYS.severity, KEYS.last_check} & set(after.metadata.labels or {})
    assert '"status":"fail"' in after.metadata.annotation(KEYS.results)


def test_with_another_owner_the_condition_is_left_alone(api: Api, node: str, tmp_path: Path) -> None:
    theirs = {"type": "GPUProblem", "status": "False", "reason": "GPUsAreUp", "message": "gpus are up"}
    api.patch(f"{names.node(node)}/status", {"status": {"conditions": [theirs]}}, NodeObject, "strategic")
    say(a_publisher(api, node, tmp_path, AgentSettings(condition_owner="npd")), told(node, "fail"))
    found = condition(api, node)
    assert found is not None
    assert (found.status, found.message) == ("False", "gpus are up")
    assert seen(api, node).metadata.label(KEYS.status) == "fail"
    assert said_of(api, node) == []


def test_a_stopped_agent_says_so_and_takes_nothing_back(api: Api, node: str, tmp_path: Path, cluster: Cluster) -> None:
    """originals 002.12 #6: stopping the agent removed the taint."""
    publisher = a_publisher(cluster.api(), node, tmp_path, AgentSettings(mode="standalone"))
    say(publisher, told(node, "fail"))
    publisher.close()
    after, found = seen(api, node), condition(api, node)
    assert found is not None
    assert after.metadata.label(KEYS.status) == "agent-stopped"
    assert after.metadata.label(KEYS.severity) == "REBOOT"
    assert found.status == "True"
    assert KEYS.unhealthy in taint_keys(api, node)


def test_a_node_deleted_and_registered_anew_is_spoken_for_again(
    api: Api, node: str, tmp_path: Path, cluster: Cluster
) -> None:
    met: list[str] = []
    publisher = a_publisher(api, node, tmp_path, on_node=lambda found: met.append(found.metadata.uid))
    say(publisher, told(node, "pass", 1))
    api.delete(names.node(node))
    assert say(publisher, told(node, "fail", 2)) is not None  # kept
    api.create(names.NODES, {"metadata": {"name": node}}, NodeObject)
    until(lambda: publisher.work() is None, "the report is taken again", every_s=0.1)
    assert seen(api, node).metadata.label(KEYS.status) == "fail"
    assert len(set(met)) == 2


def test_the_node_is_introduced_with_its_type_and_its_machine(api: Api, node: str, tmp_path: Path) -> None:
    met: list[NodeObject] = []
    a_publisher(api, node, tmp_path, on_node=met.append).work()
    assert met[0].metadata.label("node.kubernetes.io/instance-type") == "p5.48xlarge"
    assert met[0].spec.provider_id.rpartition("/")[2].startswith("i-")


def test_a_lane_sends_the_newest_of_what_has_gathered_and_not_each(
    cluster: Cluster, node: str, tmp_path: Path, api: Api
) -> None:
    publisher = a_publisher(cluster.api(), node, tmp_path)
    lane = Lane(publisher)
    for number in range(1, 60):
        lane.offer(told(node, ("pass", "fail")[number % 2], number))
    lane.start()
    until(lambda: publisher.sent, "it was sent")
    lane.stop(10.0)
    assert publisher.sent == 1
    assert _report(api, node).sequence == 59


def _report(api: Api, node: str) -> Report:
    found = results.decode(seen(api, node).metadata.annotation(KEYS.results), node)
    assert found is not None
    return found


def test_a_finding_is_at_the_api_server_within_milliseconds(cluster: Cluster, node: str, tmp_path: Path) -> None:
    """Offered to its lane -> PATCH answered, against a bare PATCH of the same node in the same seconds."""
    api = cluster.api()
    publisher = a_publisher(api, node, tmp_path)
    lane = Lane(publisher)
    lane.start()
    bare, ours = [], []
    for number in range(1, 8):
        began = time.perf_counter()
        api.patch(names.node(node), {"metadata": {"annotations": {"bare": str(number)}}}, NodeObject)
        bare.append(time.perf_counter() - began)
        before, began = publisher.sent, time.perf_counter()
        lane.offer(told(node, ("pass", "fail")[number % 2], number))
        until(lambda before=before: publisher.sent > before, "it was sent", every_s=0.0005)  # type: ignore[misc]
        ours.append(time.perf_counter() - began)
    lane.stop(5.0)
    print(f"bare {median(bare) * 1e3:.1f} ms, finding to answer {median(ours) * 1e3:.1f} ms")
    assert median(ours) < max(20 * median(bare), 0.5)
