"""The real node-problem-detector sets GPUProblem on the real API server through `sickbay npd-check`, and the agent
beside it does not fight with it (originals, 003)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sickbay.kube.access import from_kubeconfig
from sickbay.kube.api import Api
from sickbay.kube.objects import Condition
from sickbay.settings import AgentSettings
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.agent.builders import Moments
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.publishing import KEYS, a_publisher, condition, said_of, say, seen, told
from tests.npd.conftest import npd_binary
from tests.npd.detector import running
from tests.npd.verdicts import FELL_OFF, verdict, write

__all__ = ["npd_binary"]
PATIENCE_S = 60.0


@pytest.fixture
def node(nodes: Nodes) -> str:
    return nodes(1, wait=False)[0]


@pytest.fixture
def server(cluster: Cluster) -> str:
    access = from_kubeconfig(cluster.kubeconfig)
    return f"https://{access.host}:{access.port}?inClusterConfig=false&auth={cluster.kubeconfig}"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def becomes(api: Api, node: str, status: str, message: str) -> Condition:
    def there() -> Condition | None:
        found = condition(api, node)
        return found if found is not None and (found.status, found.message) == (status, message) else None

    return until(there, f"GPUProblem is {status}: {message}", PATIENCE_S, 0.1)


def test_the_detector_sets_the_condition_and_the_agent_leaves_it_alone(
    api: Api, node: str, server: str, state: Path, tmp_path: Path, npd_binary: str
) -> None:
    """condition_owner = "npd": labels and annotation are the agent's, the condition is the detector's, nobody flaps."""
    write(state, verdict("pass"))
    clock = Moments()
    agent = a_publisher(api, node, tmp_path, AgentSettings(condition_owner="npd"), clock=clock)
    with running(npd_binary, tmp_path, state, node=node, server=server):
        becomes(api, node, "False", "gpus are up")
        write(state, verdict("fail", FELL_OFF))
        turned = becomes(api, node, "True", FELL_OFF).last_transition_time
        for number in range(1, 6):
            say(agent, told(node, "fail", number))
            clock.pass_(300.0)
            now = becomes(api, node, "True", FELL_OFF)
            assert (now.reason, now.last_transition_time) == ("GPUsAreDown", turned)
        assert seen(api, node).metadata.label(KEYS.status) == "fail"
        assert said_of(api, node) == []  # the detector wrote the Event
        write(state, verdict("pass"))
        becomes(api, node, "False", "gpus are up")


def test_beside_an_agent_that_owns_the_condition_the_two_never_differ_in_true_or_false(
    api: Api, node: str, server: str, state: Path, tmp_path: Path, npd_binary: str
) -> None:
    """A monitor that somebody forgot to remove: both read the same verdict, so the node does not flap."""
    write(state, verdict("fail", FELL_OFF))
    clock, statuses = Moments(), set()
    agent = a_publisher(api, node, tmp_path, clock=clock)
    with running(npd_binary, tmp_path, state, node=node, server=server):
        becomes(api, node, "True", FELL_OFF)
        for number in range(1, 6):
            say(agent, told(node, "fail", number))
            clock.pass_(300.0)
            found = condition(api, node)
            statuses.add(found.status if found is not None else "")
    assert statuses == {"True"}
