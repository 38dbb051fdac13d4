"""The rank that the others wait for, found before a gang that stands still is stopped; none, where it is not clear."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sickbay.model import Done
from sickbay.platforms.kubernetes.gangs.silent import LOST, behind
from testbed.cluster import Cluster
from testbed.log_server import LogServer
from tests.kubernetes.gangs.ground import Ground

BY_LOG = {"sickbay.dev/progress": r"log:step=(\d+)"}


@pytest.fixture(scope="module")
def kubelet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServer]:
    server = LogServer(tmp_path_factory.mktemp("kubelet"))
    yield server
    server.close()


@pytest.mark.parametrize(
    ("steps", "silent"),
    [
        ([140, 140, 139, 140], [2]),
        ([140, 140, 140, 140], []),
        ([140, 139], []),  # which of two?
        ([140, 139, 138, 140], []),
        ([140, -1, -1, -1], []),  # only rank 0 tells
        ([140, LOST, 140, 140], [1]),
        ([], []),
    ],
)
def test_only_a_rank_that_is_clearly_behind_is_silent(steps: list[int], silent: list[int]) -> None:
    assert behind(dict(enumerate(steps))) == silent


def test_the_rank_that_is_behind_all_others_is_written_down_when_a_hung_gang_is_stopped(
    ground: Ground, kubelet: LogServer
) -> None:
    for node in ground.nodes(3):
        kubelet.serve(ground.api, node)
    job = ground.running(ground.job(ranks=3, annotations=BY_LOG))
    for rank, step in enumerate((140, 139, 140)):
        kubelet.logs[ground.pod_on(job.rank_nodes[rank]).metadata.name] = f"step={step}\n"
    assert isinstance(ground.do(ground.stop(job, last_step="140")), Done)
    down = ground.show(job.id)
    assert (down.silent, down.rank_nodes) == ((1,), job.rank_nodes)


def test_a_rank_on_a_node_that_is_not_ready_is_the_silent_one(
    ground: Ground, kubelet: LogServer, cluster: Cluster
) -> None:
    for node in ground.nodes(2):
        kubelet.serve(ground.api, node)
    job = ground.running(ground.job(ranks=2, annotations=BY_LOG))
    kubelet.logs[ground.pod_on(job.rank_nodes[0]).metadata.name] = "step=140\n"
    kubelet.broken.add(ground.pod_on(job.rank_nodes[1]).metadata.name)
    cluster.kill_kubelet(job.rank_nodes[1])
    assert ground.do_once(ground.stop(job, last_step="140"))
    assert ground.show(job.id).silent == (1,)


def test_ranks_that_write_their_steps_on_their_own_pods_are_compared_as_well(ground: Ground) -> None:
    ground.nodes(3)
    job = ground.running(ground.job(ranks=3))
    for rank, step in enumerate(("140", "140", "120")):
        ground.api.patch(
            ground.pod_path(ground.pod_on(job.rank_nodes[rank])),
            {"metadata": {"annotations": {"sickbay.dev/step": step}}},
            dict,
        )
    assert isinstance(ground.do(ground.stop(ground.show(job.id))), Done)
    assert ground.show(job.id).silent == (2,)
