"""COLLECT on a real API server: an archive on the node, or, of a dead one, what the API server knows."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from sickbay.kube.api import Api
from sickbay.model import Action, Done, Failed, Place, Verb
from sickbay.platforms.kubernetes.collect import collect
from sickbay.platforms.kubernetes.site import Site
from testbed.cluster import Cluster
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.ward import a_site, asked, machines, the_jobs


@pytest.fixture
def site(api: Api, namespace: str) -> Site:
    return a_site(api, namespace)


def collecting(name: str) -> Action:
    return Action(f"{name}.1/4", Verb.COLLECT, Place(name))


def test_the_evidence_is_archived_on_the_node_and_the_answer_says_where(
    site: Site, nodes: Nodes, tmp_path: Path
) -> None:
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("gpu_lost_79", kubelet.nodes[name], 3)
        said = asked(lambda: collect(site, collecting(name)))
        assert isinstance(said, Done)
        where, _, path = said.detail.partition(":")
        assert where == name
        with tarfile.open(path) as archive:
            kernel = archive.extractfile(f"{name}.1-4/kernel.log")
            assert kernel is not None
            assert b"Xid" in kernel.read()


def test_of_a_dead_node_what_the_api_server_knows_is_better_than_a_failure(
    site: Site, cluster: Cluster, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = nodes()
    cluster.kill_kubelet(name)
    monkeypatch.setattr("sickbay.platforms.kubernetes.collect.PATIENCE_S", -5.0)
    said = collect(site, collecting(name))
    assert isinstance(said, Done)
    assert said.detail.startswith(f"no archive ({name} is not ready")
    assert "Ready=Unknown" in said.detail
    assert "Kubelet stopped posting node status" in said.detail
    assert not the_jobs(site)


def test_a_job_that_gave_no_archive_does_not_fail_the_case(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        kubelet.mute.add(name)
        said = asked(lambda: collect(site, collecting(name)))
    assert isinstance(said, Done)
    assert "exit code 137" in said.detail


def test_of_a_node_that_is_gone_nothing_is_collected(site: Site) -> None:
    said = collect(site, collecting("no-such-node"))
    assert isinstance(said, Failed)
    assert "there is no node no-such-node" in said.why


def test_a_stalled_jobs_nodes_are_asked_side_by_side(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    members = nodes(2)
    action = Action("train/job/x/3", Verb.COLLECT, Place(""), {"job": "train/job/x"}, tuple(members))
    with machines(site.api, members, tmp_path):
        said = asked(lambda: collect(site, action))
    assert isinstance(said, Done)
    assert said.detail.startswith("2 of 2 nodes: ")
