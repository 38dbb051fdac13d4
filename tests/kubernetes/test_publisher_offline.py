"""The agent's publisher when the API server is away, slow, or says no: the newest is kept, and said once it can be."""

from __future__ import annotations

import base64
import logging
import secrets
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sickbay.agent.publishers.kubernetes import KubernetesPublisher
from sickbay.agent.publishers.lane import Lane
from sickbay.errors import ApiError
from sickbay.kube import names, results
from sickbay.kube.access import Access, from_kubeconfig, from_pod
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject
from sickbay.settings import AgentSettings
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.agent.builders import Moments
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.fences import MANAGED, a_fence, wait_closed
from tests.kubernetes.publishing import KEYS, a_publisher, condition, say, seen, told


@pytest.fixture
def node(nodes: Nodes) -> str:
    return nodes(1, wait=False)[0]


def sequence(api: Api, node: str) -> int:
    found = results.decode(seen(api, node).metadata.annotation(KEYS.results), node)
    return found.sequence if found is not None else 0


def test_after_an_outage_only_the_newest_report_is_sent(cluster: Cluster, api: Api, node: str, tmp_path: Path) -> None:
    """NVSentinel 9.3 #1743: its connector dropped events on a write failure, and a condition stayed for ever."""
    with cluster.proxy() as way:
        slow = Api(from_kubeconfig(way.kubeconfig), timeout_s=0.3)
        publisher = a_publisher(slow, node, tmp_path)
        lane = Lane(publisher)
        lane.start()
        lane.offer(told(node, "pass", 1))
        until(lambda: publisher.sent == 1, "the first is taken")
        way.freeze()
        for number in range(2, 30):
            lane.offer(told(node, ("pass", "fail")[number % 2], number))
        until(lambda: publisher.failed >= 2, "it has tried and tried again")
        assert publisher.figures()["spooled"] == 1.0
        way.cut()
        way.thaw()
        until(lambda: sequence(api, node) == 29, "the newest is there", 20.0)
        until(lambda: publisher.sent == 2, "one of all those was sent")
        found = condition(api, node)
        assert found is not None
        assert found.status == "True"
        lane.stop(5.0)


def test_what_was_given_up_may_arrive_late_so_the_newest_is_said_once_more(
    cluster: Cluster, api: Api, node: str, tmp_path: Path
) -> None:
    with cluster.proxy() as way:
        slow, clock = Api(from_kubeconfig(way.kubeconfig), timeout_s=0.3), Moments()
        publisher = a_publisher(slow, node, tmp_path, clock=clock)
        say(publisher, told(node, "pass", 1))
        way.freeze()
        say(publisher, told(node, "fail", 2))
        way.cut()
        way.thaw()
        clock.pass_(60.0)
        assert say(publisher, told(node, "pass", 3)) == 10.0
        clock.pass_(10.0)
        assert publisher.work() is None
        assert publisher.sent == 3
        slow.close()


def test_waits_grow_with_jitter_and_news_shortens_them(tmp_path: Path) -> None:
    clock = Moments()
    publisher = a_publisher(_nowhere(), "node-1", tmp_path, clock=clock)
    waits = []
    for _ in range(12):
        publisher.publish(told("node-1", "pass", 1))
        clock.pass_(100.0)
        waits.append(publisher.work() or 0.0)
    assert all(0.25 <= first <= 0.5 for first in waits[:1])
    assert all(15.0 <= last <= 30.0 for last in waits[7:])
    assert len(set(waits)) == len(waits)
    publisher.publish(told("node-1", "fail", 2))
    assert (publisher.work() or 0.0) <= 1.0


def _nowhere() -> Api:
    return Api(Access("127.0.0.1", 9, ssl.create_default_context, lambda: ""), timeout_s=0.5)


class Busy(Api):
    """The real one, which first gives the answers that a test wants: no API server says 429 on demand."""

    def __init__(self, access: Access, *answers: ApiError) -> None:
        super().__init__(access)
        self.answers = list(answers)

    def request(self, method: str, *rest: Any, **more: Any) -> bytes:
        if method == "PATCH" and self.answers:
            raise self.answers.pop(0)
        return super().request(method, *rest, **more)


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_a_busy_api_server_is_asked_again_and_not_before_it_said(
    cluster: Cluster, api: Api, node: str, tmp_path: Path, status: int
) -> None:
    clock = Moments()
    busy = Busy(from_kubeconfig(cluster.kubeconfig), ApiError(status, "Busy", "not now", retry_after=7.0))
    publisher = a_publisher(busy, node, tmp_path, clock=clock)
    wait = say(publisher, told(node, "fail"))
    assert wait is not None
    assert wait >= 7.0
    clock.pass_(wait)
    publisher.work()
    assert (publisher.sent, publisher.failed) == (1, 1)
    assert seen(api, node).metadata.label(KEYS.status) == "fail"
    busy.close()


def test_a_refusal_is_said_loudly_with_what_to_do_and_not_each_time(
    cluster: Cluster, api: Api, node: str, tmp_path: Path, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No rights at all: as when the agent's RBAC was never applied."""
    fence = a_fence(cluster, namespace, ())
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": fence.account}}, Anything)
    clock, holder = Moments(), fence.api(fence.token(api, None), tmp_path / "config")
    publisher = a_publisher(holder, node, tmp_path, clock=clock)
    with caplog.at_level(logging.ERROR):
        for number in range(5):
            say(publisher, told(node, "fail", number))
            clock.pass_(40.0)
    said = [one.getMessage() for one in caplog.records if "does not let this agent speak" in one.getMessage()]
    assert len(said) == 2  # once for reading, once for writing
    assert f"node {node}" in said[0]
    assert "Apply deploy/kubernetes/agent-rbac.yaml" in said[0]
    assert publisher.figures()["refused"] == 5.0
    assert publisher.figures()["spooled"] == 1.0
    holder.close()


def test_in_a_pod_the_token_beside_it_is_used_and_the_one_that_replaces_it(
    cluster: Cluster, api: Api, node: str, tmp_path: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kubelet lays it out: ca.crt, namespace, and a token that is replaced before it expires."""
    fence = a_fence(cluster, namespace, MANAGED)
    fence.apply()
    try:
        good = fence.token(api, fence.pod_on(api, node))
        agent = Api(_in_pod(cluster, tmp_path, monkeypatch))
        publisher = a_publisher(agent, node, tmp_path, clock=(clock := Moments()))
        say(publisher, told(node, "fail"))
        assert publisher.figures()["refused"] == 1.0
        (tmp_path / "token").write_text(good)
        wait_closed(agent, f"{names.node(node)}/status")
        clock.pass_(30.0)
        publisher.work()
        assert seen(api, node).metadata.label(KEYS.status) == "fail"
        agent.close()
    finally:
        fence.remove()


def _in_pod(cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Access:
    outside = from_kubeconfig(cluster.kubeconfig)
    admin = yaml.safe_load(cluster.kubeconfig.read_text("utf-8"))
    ca = base64.b64decode(admin["clusters"][0]["cluster"]["certificate-authority-data"])
    (folder / "ca.crt").write_bytes(ca)
    (folder / "namespace").write_text("sickbay")
    (folder / "token").write_text("not-a-token-any-more")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", outside.host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(outside.port))
    monkeypatch.setattr("sickbay.kube.access.REREAD_S", 0.0)
    return from_pod(folder)


def test_an_agent_in_a_pod_loads_no_client_library() -> None:
    """Memory on every node: standard library and msgspec. yaml is for people's kubeconfigs."""
    code = "import sys, sickbay.agent.publishers.kubernetes, sickbay.agent.process; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "sickbay.kube.api" in loaded
    assert not loaded & {"yaml", "kubernetes", "requests", "httpx", "aiohttp", "boto3", "typer", "starlette", "urllib3"}


def test_a_name_that_no_node_has_is_said_and_asked_for_again(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"no-{secrets.token_hex(4)}"
    publisher = KubernetesPublisher(a_publisher(api, name, tmp_path)._where, AgentSettings)
    with caplog.at_level(logging.ERROR):
        assert say(publisher, told(name, "fail")) is not None
    assert f"there is no node '{name}' on the API server: is agent.node_name (NODE_NAME) right?" in caplog.text
    api.create(names.NODES, {"metadata": {"name": name}}, NodeObject)
    try:
        until(lambda: publisher.work() is None, "it is taken once the node is there", every_s=0.1)
        assert seen(api, name).metadata.label(KEYS.status) == "fail"
    finally:
        api.delete(names.node(name))
