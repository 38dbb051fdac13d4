"""Standalone mode: the agent's own taint beside everybody else's, on the real API server."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from sickbay.errors import ApiError
from sickbay.kube import names, taints
from sickbay.kube.api import Api
from sickbay.kube.objects import NodeObject, Taint
from sickbay.settings import AgentSettings
from testbed.cluster import Cluster
from tests.agent.builders import Moments
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.fences import MANAGED, a_fence, wait_closed
from tests.kubernetes.publishing import KEYS, a_publisher, say, seen, taint_keys, told

STANDALONE = AgentSettings(mode="standalone")
OTHERS = [
    {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
    {"key": "team", "value": "a", "effect": "PreferNoSchedule"},
]


@pytest.fixture
def node(nodes: Nodes) -> str:
    return nodes(1, wait=False, taints=OTHERS)[0]


def test_a_failed_node_is_tainted_and_a_good_one_is_not_any_more(api: Api, node: str, tmp_path: Path) -> None:
    publisher = a_publisher(api, node, tmp_path, STANDALONE)
    before = taint_keys(api, node)
    say(publisher, told(node, "fail", 1))
    taint = next(one for one in seen(api, node).spec.taints or () if one.key == KEYS.unhealthy)
    assert (taint.value, taint.effect) == ("true", "NoSchedule")
    assert set(taint_keys(api, node)) == {*before, KEYS.unhealthy}
    say(publisher, told(node, "pass", 2))
    assert taint_keys(api, node) == before


def test_what_is_only_watched_does_not_taint(api: Api, node: str, tmp_path: Path) -> None:
    """originals 002.12 #7: WARN (MONITOR) tainted the node although it means: keep in service."""
    say(a_publisher(api, node, tmp_path, STANDALONE), told(node, "warn"))
    assert KEYS.unhealthy not in taint_keys(api, node)


def test_a_node_that_cannot_be_looked_at_keeps_its_taint(api: Api, node: str, tmp_path: Path) -> None:
    """originals 002.12 #11: a tool that hangs is no reason to believe that the node is well."""
    publisher = a_publisher(api, node, tmp_path, STANDALONE)
    say(publisher, told(node, "fail", 1))
    say(publisher, told(node, "unknown", 2))
    assert KEYS.unhealthy in taint_keys(api, node)


def test_a_node_that_cannot_be_looked_at_is_not_tainted_for_it(api: Api, node: str, tmp_path: Path) -> None:
    say(a_publisher(api, node, tmp_path, STANDALONE), told(node, "unknown"))
    assert KEYS.unhealthy not in taint_keys(api, node)


def test_the_next_agent_lifts_what_the_last_one_put(api: Api, node: str, tmp_path: Path) -> None:
    say(a_publisher(api, node, tmp_path, STANDALONE), told(node, "fail", 1))
    say(a_publisher(api, node, tmp_path, STANDALONE), told(node, "pass", 2))
    assert KEYS.unhealthy not in taint_keys(api, node)


def test_a_taint_that_a_sweep_or_a_person_put_is_not_lifted_by_a_passing_cycle(
    api: Api, node: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """originals 002.12 #5: the agent's five-minute loop overrode what sweeper and quarantine had found."""
    taints.put_taint(api, seen(api, node), Taint(KEYS.unhealthy, "NoSchedule", "true"))
    with caplog.at_level(logging.ERROR):
        say(a_publisher(api, node, tmp_path, STANDALONE), told(node, "pass"))
    assert KEYS.unhealthy in taint_keys(api, node)
    assert f"it stays. To lift it: kubectl taint nodes {node} {KEYS.unhealthy}-" in caplog.text


@pytest.mark.parametrize("settings", [AgentSettings(mode="managed"), AgentSettings(mode="standalone", taint=False)])
def test_without_leave_the_agent_puts_no_taint_and_lifts_none(
    api: Api, node: str, tmp_path: Path, settings: AgentSettings, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = a_publisher(api, node, tmp_path, settings)
    say(publisher, told(node, "fail", 1))
    assert KEYS.unhealthy not in taint_keys(api, node)
    taints.put_taint(api, seen(api, node), Taint(KEYS.unhealthy, "NoSchedule", "true"))
    with caplog.at_level(logging.ERROR):
        say(publisher, told(node, "pass", 2))
    assert KEYS.unhealthy in taint_keys(api, node)
    assert "is well and carries the taint" in caplog.text


def test_a_taint_that_somebody_took_off_a_sick_node_comes_back_with_the_next_cycle(
    api: Api, node: str, tmp_path: Path
) -> None:
    clock = Moments()
    publisher = a_publisher(api, node, tmp_path, STANDALONE, clock=clock)
    say(publisher, told(node, "fail", 1))
    taints.lift_taint(api, seen(api, node), KEYS.unhealthy)
    clock.pass_(300.0)
    say(publisher, told(node, "fail", 2))
    assert KEYS.unhealthy in taint_keys(api, node)


def test_without_the_right_to_taint_everything_else_is_said_all_the_same(
    cluster: Cluster, api: Api, node: str, namespace: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Standalone mode with the managed mode's rights: an install that forgot one file."""
    fence = a_fence(cluster, namespace, MANAGED)
    fence.apply()
    try:
        agent = fence.api(fence.token(api, fence.pod_on(api, node)), tmp_path / "config")
        wait_closed(agent, f"{names.node(node)}/status")
        publisher = a_publisher(agent, node, tmp_path, STANDALONE)
        with caplog.at_level(logging.ERROR):
            assert say(publisher, told(node, "fail")) is None
    finally:
        fence.remove()
    assert "apply deploy/kubernetes/standalone/agent-rbac.yaml as well" in caplog.text
    assert (publisher.sent, publisher.events, publisher.refused) == (1, 1, 1)
    assert KEYS.unhealthy not in taint_keys(api, node)


def test_the_settings_of_the_moment_count(api: Api, node: str, tmp_path: Path) -> None:
    """originals 002.12 #15: an edited ConfigMap changed nothing until the pod was made anew."""
    used = AgentSettings(mode="standalone", taint=False)
    clock = Moments()
    publisher = a_publisher(api, node, tmp_path, clock=clock)
    publisher._settings = lambda: used
    say(publisher, told(node, "fail", 1))
    clock.pass_(60.0)
    assert KEYS.unhealthy not in taint_keys(api, node)
    used = STANDALONE
    say(publisher, told(node, "fail", 2, findings=()))
    assert KEYS.unhealthy in taint_keys(api, node)


def test_taints_of_a_rival_that_writes_all_the_time_survive(api: Api, node: str, cluster: Cluster) -> None:
    """Taints are one list. A rival puts and lifts its own while we put and lift ours: nobody's is lost."""
    rival, stop, trouble = cluster.api(), threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            try:
                taints.put_taint(rival, seen(rival, node), Taint("rival", "NoSchedule", "1"))
                if "rival" not in taint_keys(rival, node):
                    trouble.append("the rival's taint was lost")
                taints.lift_taint(rival, seen(rival, node), "rival")
            except ApiError as error:
                trouble.append(str(error))

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(25):
            tainted = taints.put_taint(api, seen(api, node), Taint(KEYS.unhealthy, "NoSchedule", "true"))
            assert KEYS.unhealthy in taint_keys(api, node)
            taints.lift_taint(api, tainted, KEYS.unhealthy)
            now = taint_keys(api, node)
            assert KEYS.unhealthy not in now
            assert {"nvidia.com/gpu", "team"} <= set(now)
    finally:
        stop.set()
        writing.join(10)
    assert trouble == []


def test_the_first_taint_of_a_node_does_not_overwrite_one_that_came_in_between(api: Api, nodes: Nodes) -> None:
    (bare,) = nodes(1, wait=False)
    until_empty = {"spec": {"taints": None}}
    stale = api.patch(names.node(bare), until_empty, NodeObject)
    api.patch(names.node(bare), {"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}}, NodeObject)
    taints.put_taint(api, stale, Taint("ours", "NoSchedule", "true"))
    assert {"theirs", "ours"} <= set(taint_keys(api, bare))
