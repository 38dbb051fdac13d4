"""The agent as it runs on a node: a process, a kernel line, and what the real API server shows of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sickbay.kube import results
from sickbay.kube.api import Api
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.agent.running import Running
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.fences import MANAGED, Fence, a_fence, wait_closed
from tests.kubernetes.publishing import KEYS, condition, seen

XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
MOST_MB = 45.0


@pytest.fixture
def fence(cluster: Cluster, namespace: str) -> Iterator[Fence]:
    made = a_fence(cluster, namespace, MANAGED)
    made.apply()
    yield made
    made.remove()


@pytest.fixture
def node(nodes: Nodes) -> str:
    return nodes(1, wait=False)[0]


@pytest.fixture
def agent(api: Api, fence: Fence, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """With the rights it is deployed with, as the pod that runs on this node."""
    token = fence.token(api, fence.pod_on(api, node))
    config = fence.kubeconfig(token, tmp_path / "kubeconfig")
    wait_closed(fence.api(token, tmp_path / "probe"), f"/api/v1/nodes/{node}/status")
    monkeypatch.setenv("SICKBAY_KUBERNETES__KUBECONFIG", str(config))
    monkeypatch.setenv("NODE_NAME", node)
    running = Running(tmp_path, sim=False, publishers=["kubernetes"], instance_type="")
    running.start()
    yield running
    running.close()


def test_a_kernel_line_becomes_a_condition_and_outlives_the_agent(agent: Running, api: Api, node: str) -> None:
    """originals 002.12 #3 and #6: the type comes from the node's label where metadata is out of reach, and stopping the
    agent heals nobody."""
    agent.until(lambda: _last(api, node).get("instance_type") == "p5.48xlarge")
    before = condition(api, node)
    assert before is not None
    assert (before.status, before.reason) == ("Unknown", "GPUsAreNotSeen")  # there is no nvidia-smi here
    assert (report := results.decode(_text(api, node), node)) is not None
    assert report.instance.startswith("i-")
    began = time.monotonic()
    agent.kernel(XID_79)
    until(lambda: (now := condition(api, node)) is not None and now.status == "True", "GPUProblem is True", 20, 0.002)
    took_ms, used_mb = (time.monotonic() - began) * 1e3, _resident_mb(agent)
    print(f"kernel line to condition {took_ms:.0f} ms; resident {used_mb:.1f} MB")
    found = condition(api, node)
    assert found is not None
    assert "0000:3b:00" in found.message
    assert "xid.79" in found.message
    assert used_mb <= MOST_MB
    assert agent.end() == 0
    after, left = seen(api, node), condition(api, node)
    assert left is not None
    assert (left.status, after.metadata.label(KEYS.status)) == ("True", "agent-stopped")


def _text(api: Api, node: str) -> str:
    return seen(api, node).metadata.annotation(KEYS.results)


def _last(api: Api, node: str) -> dict[str, object]:
    return dict(json.loads(_text(api, node) or "{}"))


def _resident_mb(agent: Running) -> float:
    assert agent.process is not None
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024
