"""COLLECT on a real API server: an archive in our own store, or, of a dead node, what the API server knows.

The Job's log is read by the real API server from the part of a kubelet that serves logs (LogServer).
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sickbay.evidence.folder import FolderEvidence
from sickbay.evidence.keeping import MB, Limits, name_of
from sickbay.kube.api import Api
from sickbay.model import Action, Done, Failed, Place, Retry, Verb
from sickbay.platforms.kubernetes import parcel
from sickbay.platforms.kubernetes.collect import collect
from sickbay.platforms.kubernetes.site import Site
from sickbay.stores.kubernetes import KubernetesStore
from testbed.cluster import Cluster
from testbed.log_server import LogServer
from tests.builders import a_case
from tests.cli.builders import run_command
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.shelf import install_crds
from tests.kubernetes.ward import a_site, asked, machines, the_jobs


@pytest.fixture
def site(api: Api, namespace: str, tmp_path: Path) -> Site:
    return replace(a_site(api, namespace), evidence=FolderEvidence(tmp_path / "kept"), archive_bytes=MB)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServer]:
    server = LogServer(tmp_path_factory.mktemp("kubelet"))
    yield server
    server.close()


def collecting(name: str) -> Action:
    return Action(f"{name}.1/4", Verb.COLLECT, Place(name))


def test_the_evidence_has_left_the_node_before_anything_can_be_done_to_it(
    site: Site, nodes: Nodes, logs: LogServer, tmp_path: Path
) -> None:
    """It stayed on the node, which REPLACE destroys: `sickbay evidence` could never attach it."""
    (name,) = nodes()
    logs.serve(site.api, name)
    with machines(site.api, [name], tmp_path) as kubelet:
        logs.logs = kubelet.logs
        with kubelet.lock:
            kubelet.world.strike("gpu_lost_79", kubelet.nodes[name], 3)
        said = asked(lambda: collect(site, collecting(name)))
    assert isinstance(said, Done)
    assert said.archive is not None
    assert said.archive.name == name_of(f"{name}.1/4")
    assert site.evidence is not None
    with tarfile.open(fileobj=io.BytesIO(site.evidence.get(said.archive))) as archive:
        kernel = archive.extractfile(f"{name}.1-4/kernel.log")
        assert kernel is not None
        assert b"Xid" in kernel.read()


@pytest.fixture
def answered(site: Site, nodes: Nodes, logs: LogServer, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """(A node that has collected, the pod that did.)"""
    (name,) = nodes()
    logs.serve(site.api, name)
    with machines(site.api, [name], tmp_path) as kubelet:
        logs.logs = kubelet.logs
        asked(lambda: collect(replace(site, evidence=FolderEvidence(tmp_path / "first")), collecting(name)))
        (pod,) = kubelet.logs
        yield name, pod


def test_a_ticket_is_made_of_a_case_in_the_cluster_and_its_archive(
    cluster: Cluster, api: Api, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the case's name alone: which archive, says its record on the API server; where archives are, the settings."""
    install_crds(cluster)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as out:
        out.addfile(tarfile.TarInfo("kernel.log"))
    kept = FolderEvidence(tmp_path / "volume").put(name_of("gpu-17.3/4"), packed.getvalue())
    KubernetesStore(api, namespace, "default").create(a_case(id="gpu-17.3", node="gpu-17", archive=kept), epoch=1)
    config = tmp_path / "sickbay.toml"
    config.write_text(
        f'store = "kubernetes"\n[kubernetes]\nkubeconfig = "{cluster.kubeconfig}"\nnamespace = "{namespace}"\n'
        f'[evidence]\nfolder = "{tmp_path / "volume"}"\n'
    )
    target = tmp_path / "ticket.tar.gz"
    done = run_command(capsys, "evidence", "gpu-17.3", "-o", str(target), "--config", str(config))
    assert "1 collected files" in done.out, done
    with tarfile.open(target) as ticket:
        assert sorted(ticket.getnames()) == ["collected/kernel.log", "ticket.txt", "timeline.txt"]


def test_an_archive_that_was_changed_on_its_way_is_not_kept(
    site: Site, logs: LogServer, answered: tuple[str, str]
) -> None:
    name, pod = answered
    forged = io.StringIO()
    parcel.printed(b"another archive", forged)
    logs.logs[pod] = forged.getvalue()
    said = collect(site, collecting(name))
    assert isinstance(said, Failed)
    assert "did not arrive whole: its digest is another one" in said.why


def test_a_log_without_end_is_read_no_further_than_the_archive_can_be(
    site: Site, logs: LogServer, answered: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, pod = answered
    monkeypatch.setattr(parcel, "SLACK", 1_000)
    logs.logs[pod] = "x" * (8 << 20) + logs.logs[pod]
    said = collect(site, collecting(name))
    assert isinstance(said, Failed)
    assert "limitBytes=" in logs.asked[-1]


def test_a_log_that_its_kubelet_does_not_hand_out_does_not_hold_up_the_case(
    site: Site, logs: LogServer, answered: tuple[str, str]
) -> None:
    name, pod = answered
    logs.broken.add(pod)
    said = collect(site, collecting(name))
    assert isinstance(said, Failed)
    assert f"the log of {pod} cannot be read" in said.why
    logs.broken.discard(pod)
    assert isinstance(collect(site, collecting(name)), Done)


def test_a_log_that_does_not_come_in_time_is_asked_for_again(
    site: Site, answered: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parcel, "READ_S", -1.0)
    assert isinstance(collect(site, collecting(answered[0])), Retry)


def test_a_full_store_does_not_hold_up_the_case(site: Site, answered: tuple[str, str], tmp_path: Path) -> None:
    full = FolderEvidence(tmp_path / "full", Limits(MB, 10, 1e9))
    said = collect(replace(site, evidence=full), collecting(answered[0]))
    assert isinstance(said, Failed)
    assert "is not kept: the evidence store is full" in said.why
    assert full.trouble


def test_more_than_is_taken_is_not_even_fetched(site: Site, logs: LogServer, answered: tuple[str, str]) -> None:
    before = len(logs.asked)
    said = collect(replace(site, archive_bytes=10), collecting(answered[0]))
    assert isinstance(said, Failed)
    assert "and 10 are taken" in said.why
    assert len(logs.asked) == before


def test_without_a_store_it_stays_on_the_node_and_that_is_said(site: Site, answered: tuple[str, str]) -> None:
    said = collect(replace(site, evidence=None), collecting(answered[0]))
    assert isinstance(said, Done)
    assert said.archive is None
    assert f"a copy stays on {answered[0]} until that is replaced" in said.detail


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
        said = asked(lambda: collect(replace(site, evidence=None), action))
    assert isinstance(said, Done)
    assert said.detail.startswith("2 of 2 nodes: ")
    assert all(f"{name}: /" in said.detail for name in members)


def test_their_stacks_have_left_them_before_one_of_them_is_replaced(
    site: Site, nodes: Nodes, logs: LogServer, tmp_path: Path
) -> None:
    members = nodes(2)
    action = Action("train/job/y/3", Verb.COLLECT, Place(""), {"job": "train/job/y"}, tuple(members))
    for name in members:
        logs.serve(site.api, name)
    with machines(site.api, members, tmp_path) as kubelet:
        logs.logs = kubelet.logs
        said = asked(lambda: collect(site, action))
    assert isinstance(said, Done)
    for name in members:
        called = name_of(f"train/job/y/3/{name}")
        assert f"{name}: {called}" in said.detail
        assert (tmp_path / "kept" / called).stat().st_size > 0
