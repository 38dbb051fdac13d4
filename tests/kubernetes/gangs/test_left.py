"""Ranks of an earlier attempt that are still there: whom a stop waits for, and beside whom no restart is made."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sickbay.kube import names
from sickbay.kube.objects import Anything, Condition, Meta, NodeObject, NodeStatus, PodObject
from sickbay.model import Done, Failed, Job, Started
from sickbay.platforms.kubernetes.gangs.left import is_stuck
from sickbay.platforms.kubernetes.gangs.restart import restart_job
from sickbay.platforms.kubernetes.tenants import STUCK_S
from testbed import fleet
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.gangs.ground import Ground, WallClock

STUCK = {"metadata": {"annotations": {"sim.test/stuck": "true"}}}  # no signal ends it
SHUT_DOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


class Later(WallClock):
    def __init__(self, after_s: float) -> None:
        self.after_s = after_s

    def now(self) -> float:
        return super().now() + self.after_s


def later(ground: Ground, after_s: float) -> Ground:
    ground.site = replace(ground.site, clock=Later(after_s))
    return ground


def with_a_rank_that_does_not_end(ground: Ground) -> tuple[Job, str, list[str]]:
    """A gang of two on three nodes: the job, the node of that rank, the others."""
    here = ground.nodes(3)
    job = ground.running(ground.job())
    sick = job.nodes[0]
    ground.api.patch(ground.pod_path(ground.pod_on(sick)), STUCK, Anything)
    return job, sick, [node for node in here if node != sick]


@pytest.mark.parametrize("marked", [True, False])
def test_a_rank_on_a_node_that_does_not_answer_holds_the_job_back_whatever_mark_is_on_it(
    ground: Ground, marked: bool
) -> None:
    """The restart went ahead beside a marked node with a dead kubelet, where the old attempt may have been writing."""
    job, sick, good = with_a_rank_that_does_not_end(ground)
    if marked:
        ground.mark(sick)
    fleet.kill_kubelet(ground.api, sick)
    stopped = ground.do(ground.stop(job))
    assert isinstance(stopped, Done)  # the others have ended, and waiting ends nothing there
    assert f"not confirmed on {sick}" in stopped.detail
    ask = ground.restart(job, *good)
    refused = restart_job(ground.site, ask)
    assert isinstance(refused, Failed)
    assert f"may still run on {sick}, where no kubelet answers" in refused.why
    assert f"sickbay job restart {job.id}" in refused.why
    elsewhere = replace(ask, args={**ask.args, "behind": good[0]})
    assert isinstance(restart_job(ground.site, elsewhere), Failed)


@pytest.mark.parametrize("by", ["the owner", "the provider", "the cloud controller"])
def test_ranks_may_be_left_where_they_are_by_whoever_knows_that_they_write_nothing(ground: Ground, by: str) -> None:
    job, sick, good = with_a_rank_that_does_not_end(ground)
    fleet.kill_kubelet(ground.api, sick)
    assert isinstance(ground.do(ground.stop(job)), Done)
    ask = ground.restart(job, *good)
    behind = {"the owner": "all", "the provider": f"another,{sick}", "the cloud controller": ""}[by]
    if by == "the cloud controller":
        taint = [{"op": "add", "path": "/spec/taints/-", "value": SHUT_DOWN}]
        ground.api.patch(names.node(sick), taint, Anything, how="json")
    assert isinstance(restart_job(ground.site, replace(ask, args={**ask.args, "behind": behind})), Done)
    assert set(ground.running(job.id).nodes) == set(good)


def test_a_node_that_is_back_holds_the_job_back_until_its_kubelet_has_ended_the_old_ranks(ground: Ground) -> None:
    """Ready comes first, and the ranks' grace after it: also what may be left where nobody answers is waited for."""
    job, sick, good = with_a_rank_that_does_not_end(ground)
    ground.mark(sick)
    fleet.kill_kubelet(ground.api, sick)
    assert isinstance(ground.do(ground.stop(job)), Done)
    fleet.revive_kubelet(ground.api, sick)
    ask = ground.restart(job, *good)
    for behind in ("", "all", sick):
        refused = restart_job(ground.site, replace(ask, args={**ask.args, "behind": behind}))
        assert isinstance(refused, Failed)
        assert f"still lives on {sick}" in refused.why
    assert isinstance(ground.do_once(ground.stop(job)), Started)
    old = next(pod for pod in ground.pods() if pod.spec.node_name == sick)
    ground.api.patch(ground.pod_path(old), {"metadata": {"annotations": {"sim.test/stuck": None}}}, Anything)
    ground.until_pods(0)
    assert isinstance(restart_job(ground.site, ask), Done)


def test_a_rank_that_no_signal_ends_on_a_node_that_answers_does_not_hold_a_job_for_ever(ground: Ground) -> None:
    """D state: the node is closed by our mark, and only a boot ends it."""
    job, sick, good = with_a_rank_that_does_not_end(ground)
    assert isinstance(ground.do_once(ground.stop(job)), Started)
    later(ground, STUCK_S + 60.0)
    assert isinstance(ground.do_once(ground.stop(job)), Started), "nothing keeps other work from that node"
    ground.mark(sick)
    assert isinstance(ground.do(ground.stop(job)), Done)
    later(ground, 0.0)
    assert isinstance(ground.do_once(ground.stop(job)), Started), "within its grace it may end yet"
    later(ground, STUCK_S + 60.0)
    assert isinstance(restart_job(ground.site, ground.restart(job, *good)), Done)
    assert set(ground.running(job.id).nodes) == set(good)


def test_a_gang_on_many_nodes_is_held_back_by_one_that_has_lost_its_label(ground: Ground, nodes: Nodes) -> None:
    """The list of ours does not show it: it was taken for a node that is not there."""
    ground.site = replace(ground.site, settings=replace(ground.site.settings, gpu_selector="test.dev/none=1"))
    ground.nodes(18)
    job = ground.running(ground.job(ranks=17))
    here = {pod.spec.node_name for pod in ground.pods()}
    for pod in ground.pods():
        ground.api.patch(ground.pod_path(pod), STUCK, Anything)
    said = ground.do_once(ground.stop(job))
    assert isinstance(said, Started)
    assert f"{len(here)} of {len(here)} pods" in said.detail


AT = 1_790_000_000.0


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("left_at", "ready_at", "stuck"),
    [
        (AT - STUCK_S - 1.0, 0.0, True),
        (AT - STUCK_S + 1.0, 0.0, False),
        (AT - 7200.0, AT - 10.0, False),  # given up two hours ago; its kubelet has heard of it ten seconds ago
        (AT - 7200.0, AT - STUCK_S - 31.0, True),
        (AT - 7200.0, AT + 7200.0, True),  # its clock is wrong: no job waits for that
    ],
)
def test_of_a_node_that_is_back_the_grace_of_its_ranks_begins_when_it_is_ready(
    ground: Ground, left_at: float, ready_at: float, stuck: bool
) -> None:
    site = replace(ground.site, clock=Later(0.0))
    now = site.server_now()
    pod = PodObject(metadata=Meta(deletion_timestamp=stamp(left_at - AT + now), deletion_grace_period_seconds=30))
    ready = Condition("Ready", "True", last_transition_time=stamp(ready_at - AT + now) if ready_at else "")
    assert is_stuck(site, pod, NodeObject(status=NodeStatus(conditions=[ready]))) == stuck
