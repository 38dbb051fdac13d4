"""VERIFY on a real API server: a Job on the node, its answer, and all the ways in which nobody could look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sickbay.kube.api import Api
from sickbay.model import Action, Done, Failed, Place, Retry, Severity, Started, Status, Verb
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.verify import verify
from sickbay.settings import AgentSettings
from testbed import fleet
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.policies import refusing_jobs
from tests.kubernetes.ward import a_site, asked, machines, marked, the_jobs, the_node


@pytest.fixture
def site(api: Api, namespace: str) -> Site:
    return a_site(api, namespace)


def examining(name: str, checks: str = "nvidia-smi", key: str = "") -> Action:
    return Action(key or f"{name}.1/7", Verb.VERIFY, Place(name), {"checks": checks})


def test_a_well_node_passes_the_whole_light_suite_besides_what_was_asked(
    site: Site, nodes: Nodes, tmp_path: Path
) -> None:
    (name,) = nodes()
    action = examining(name)
    with machines(site.api, [name], tmp_path):
        said = asked(lambda: verify(site, action))
    assert isinstance(said, Done)
    assert {one.check for one in said.findings} >= set(AgentSettings().light_checks)
    assert {one.answers for one in said.findings} == {action.key}
    assert not [one for one in said.findings if one.status is Status.FAILED]
    boot = the_node(site, name).status.node_info
    assert boot is not None
    assert {one.boot_id for one in said.findings} == {boot.boot_id}


def test_a_sick_gpu_is_found_by_the_real_check_on_the_node(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("gpu_lost_79", kubelet.nodes[name], 3)
        said = asked(lambda: verify(site, examining(name)))
    assert isinstance(said, Done)
    worst = said.findings[0]
    assert worst.status is Status.FAILED
    assert worst.severity >= Severity.REBOOT
    assert worst.place.node == name


def test_a_node_that_is_not_there_is_waited_for_and_never_well(site: Site) -> None:
    """Nor is it an answer: its object may be registered again in a moment."""
    said = verify(site, examining("no-such-node", "nvidia-smi,dcgm-l2"))
    assert isinstance(said, Retry)
    assert "there is no node no-such-node" in said.why


@pytest.mark.parametrize("by", ["a quota", "a webhook that is away"])
def test_an_examination_that_is_not_let_in_is_asked_for_again_and_not_taken_for_an_answer(
    site: Site, nodes: Nodes, by: str
) -> None:
    """A healthy node that had been rebooted was a person's case for good, a second after a quota had been full."""
    (name,) = nodes()
    with refusing_jobs(site, by):
        said = until(lambda: s if isinstance(s := verify(site, examining(name)), Failed) else None, "it is refused")
    assert isinstance(said, Failed)
    assert said.lacks
    assert ("a ResourceQuota of namespace" if by == "a quota" else "webhook does not answer") in said.why
    until(lambda: isinstance(verify(site, examining(name)), Started), "it is let in", 30.0)


def test_a_dead_kubelet_is_waited_for_a_while_and_then_unknown(
    site: Site, cluster: Cluster, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVSentinel 9.5 #1427: a node that cannot be looked at must not come back."""
    (name,) = nodes()
    cluster.kill_kubelet(name)
    first = verify(site, examining(name))
    assert isinstance(first, Started)
    assert "it may come back" in first.detail
    monkeypatch.setattr("sickbay.platforms.kubernetes.verify.PATIENCE_S", -5.0)
    said = verify(site, examining(name))
    assert isinstance(said, Done)
    assert {one.status for one in said.findings} == {Status.UNKNOWN}
    assert "is not ready" in said.findings[0].reason
    assert not the_jobs(site)


def test_a_pod_that_was_killed_before_it_answered_is_unknown(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        kubelet.mute.add(name)
        said = asked(lambda: verify(site, examining(name, "nvidia-smi,kernel-log")))
    assert isinstance(said, Done)
    assert {one.check: one.status for one in said.findings} == {
        "nvidia-smi": Status.UNKNOWN, "kernel-log": Status.UNKNOWN,
    }  # fmt: skip
    assert "exit code 137" in said.findings[0].reason


def test_a_pod_that_never_starts_is_no_answer(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()  # no kubelet takes its pod
    for _ in range(2):
        said = verify(site, examining(name))
        assert isinstance(said, Started)
    assert len(the_jobs(site)) == 1


def test_however_often_it_is_asked_the_checks_run_once(
    site: Site, cluster: Cluster, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    (name,) = nodes()
    mark = cluster.audit_mark()
    with machines(site.api, [name], tmp_path):
        first = asked(lambda: verify(site, examining(name)))
        again = verify(site, examining(name))
    assert first == again
    assert len(cluster.audit(mark, verb="create", resource="jobs", namespace=namespace)) == 1


def test_a_deep_check_runs_only_on_a_node_that_carries_our_mark(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    """originals 002.12 #8: a level-2 diagnostic on a node in service disrupts training."""
    ours, theirs = nodes(2)
    marked(site, ours)
    with machines(site.api, [ours, theirs], tmp_path):
        taken = asked(lambda: verify(site, examining(ours, "dcgm-l2")))
        left = asked(lambda: verify(site, examining(theirs, "dcgm-l2")))
    assert isinstance(taken, Done)
    assert isinstance(left, Done)
    assert _of(taken, "dcgm-l2") == {Status.OK}
    assert _of(left, "dcgm-l2") == {Status.UNKNOWN}
    assert "the controller has not reserved this node" in next(f.reason for f in left.findings if f.check == "dcgm-l2")


def test_the_reservation_ends_with_the_work(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    marked(site, name)
    with machines(site.api, [name], tmp_path) as kubelet:
        asked(lambda: verify(site, examining(name, "dcgm-l2")))
        assert not (kubelet.state_dir(name) / "reserved.json").exists()


def test_what_it_finds_counts_as_later_than_what_the_agent_found(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    """Ids go on from the agent's counter: a latched verdict is cleared only by an observation after it."""
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        (kubelet.state_dir(name) / "verdicts.json").write_text('{"numbers": 812, "schema": 1}')
        said = asked(lambda: verify(site, examining(name)))
    assert isinstance(said, Done)
    assert min(int(one.id.rpartition("/")[2]) for one in said.findings) > 812


def test_an_examination_of_another_boot_says_nothing_about_this_one(
    site: Site, cluster: Cluster, nodes: Nodes, tmp_path: Path
) -> None:
    (name,) = nodes()
    with machines(site.api, [name], tmp_path):
        asked(lambda: verify(site, examining(name)))
    cluster.reboot(name)
    fleet.wait_ready(site.api, name)
    said = verify(site, examining(name))
    assert isinstance(said, Done)
    assert {one.status for one in said.findings} == {Status.UNKNOWN}
    assert "has booted since it was examined" in said.findings[0].reason


def test_a_gang_is_examined_side_by_side_and_its_dead_node_is_unknown(
    site: Site, cluster: Cluster, nodes: Nodes, tmp_path: Path
) -> None:
    members = nodes(5)
    cluster.kill_kubelet(members[4])
    action = Action("train/job/llama/9", Verb.VERIFY, Place(""), {"checks": "nvidia-smi"}, tuple(members))
    with machines(site.api, members[:4], tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("gpu_lost_79", kubelet.nodes[members[2]], 1)
        said = asked(lambda: verify(site, action))
    assert isinstance(said, Done)
    by_node = {one.place.node: one.status for one in reversed(said.findings)}
    assert by_node == {
        members[0]: Status.OK, members[1]: Status.OK, members[2]: Status.FAILED, members[3]: Status.OK,
        members[4]: Status.UNKNOWN,
    }, [(one.place.node, one.check, one.reason) for one in said.findings]  # fmt: skip
    assert {one.answers for one in said.findings} == {action.key}


class BusyBetween(Api):
    """The real client; much happens after its first list."""

    def __init__(self, api: Api, happens: Callable[[], None]) -> None:
        super().__init__(api.access)
        self._happens: Callable[[], None] | None = happens

    def list(self, path: str, item: type[Any], **params: str) -> list[Any]:
        found = super().list(path, item, **params)
        happens, self._happens = self._happens, None
        if happens:
            happens()
        return found


def test_an_answer_that_comes_while_the_gang_is_being_read_is_not_lost(
    site: Site, nodes: Nodes, tmp_path: Path
) -> None:
    (name,) = nodes()
    action = Action("train/job/llama/9", Verb.VERIFY, Place(""), {"checks": "nvidia-smi"}, (name,))
    assert isinstance(verify(site, action), Started)

    def it_answers() -> None:
        with machines(site.api, [name], tmp_path):
            until(lambda: any(one.type == "Complete" for one in the_jobs(site)[0].status.conditions or ()), "it ends")

    busy = BusyBetween(site.api, it_answers)
    said = verify(replace(site, api=busy), action)
    busy.close()
    assert isinstance(said, Done)
    assert {one.status for one in said.findings} == {Status.OK}, said


def _of(said: Done, check: str) -> set[Status]:
    return {one.status for one in said.findings if one.check == check}
