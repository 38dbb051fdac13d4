"""What the line survives on a real control plane: its own death, a deposed twin, a dead API server, a wrong clock.

Time-outs are scaled (leases of three seconds); the full-length ones run in `make soak` (SICKBAY_SOAK=1).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sickbay.kube import names
from sickbay.kube.objects import Anything
from sickbay.model import Phase
from testbed.cluster import Cluster
from testbed.fleet import gpu_node
from tests.kubernetes.line.ground import ENDS, Line, a_line


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


def test_a_controller_killed_at_every_step_is_followed_by_one_that_goes_on(line: Line) -> None:
    boots, leader = line.boots(), line.control()
    line.until_led()
    line.strike()
    seen: set[str] = set()
    while phase := line.next_phase(seen):
        seen.add(phase)
        leader.send_signal(signal.SIGKILL)
        leader.wait(10)
        leader = line.control()
        line.until_led(len(seen) + 1)
    returned_once(line, boots)
    assert len(seen) >= 3, seen


def test_a_leader_that_was_frozen_comes_back_and_does_nothing(line: Line) -> None:
    """Two leaders: the old one wakes up in the middle of a pass, with an epoch that counts no more."""
    boots = line.boots()
    old = line.control()
    line.until_led()
    old.send_signal(signal.SIGSTOP)
    line.control()
    line.until_led(2)
    line.strike()
    line.until_phase(Phase.REPAIRING, Phase.VERIFYING, *ENDS)
    old.send_signal(signal.SIGCONT)
    returned_once(line, boots)


@pytest.mark.soak
def test_a_controller_whose_clock_is_a_day_ahead_does_the_same(line: Line) -> None:
    boots = line.boots()
    line.control(skew_s=86_400.0)
    line.until_led()
    line.strike()
    returned_once(line, boots)


def test_a_node_deleted_in_the_middle_and_made_again_is_taken_up_again(line: Line) -> None:
    """The object is gone, the machine is not: same instance, a new uid (lessons 10)."""
    line.control("CORDON")
    line.until_led()
    line.strike()
    line.until(lambda: line.node().spec.unschedulable, "it is cordoned")
    before = line.node()
    line.api.delete(names.node(line.sick))
    body = gpu_node(
        line.sick, provider_id=before.spec.provider_id, labels={"sim.test/line": line.namespace},
        boot_id=before.status.node_info.boot_id if before.status.node_info else "",
    )  # fmt: skip
    line.api.create(names.NODES, body, Anything)
    assert line.node().metadata.uid != before.metadata.uid
    line.until(lambda: line.node().spec.unschedulable, "the new object is cordoned too")
    assert len(line.cases()) == 1


# A server that hangs up during a handshake: CPython 3.11 raises without closing that socket (ssl.py, _create).
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
def test_an_api_server_that_dies_in_every_phase_costs_time_and_nothing_else(
    own_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = own_cluster()
    cluster.api().create("/api/v1/namespaces", {"metadata": {"name": "sickbay"}}, Anything)
    with a_line(cluster, "sickbay", tmp_path) as line:
        boots = line.boots()
        line.control()
        line.until_led()
        line.strike()
        seen: set[str] = set()
        while phase := line.next_phase(seen):
            seen.add(phase)
            cluster.stop_apiserver(kill=True)
            time.sleep(0.5)  # an outage that somebody notices
            cluster.start_apiserver()
        returned_once(line, boots)
        line.kubelet.errors.clear()
        assert len(seen) >= 3, seen
