"""The testbed's kubelet for simulated machines: it must treat pods and nodes as a real one does."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.names import CONDITION
from sickbay.kube.objects import Anything, NodeObject, PodObject
from sickbay.kube.results import decode
from sickbay.platforms.kubernetes import node_jobs
from sickbay.platforms.kubernetes.node_jobs import Errand
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.ward import a_site, machines, the_node


def test_an_agents_report_is_on_the_node_and_follows_the_machine(
    api: Api, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    (name,), site = nodes(), a_site(api, namespace)
    with machines(api, [name], tmp_path, agents=True) as kubelet:
        until(lambda: the_node(site, name).metadata.label(site.keys.status) == "pass", "its first word")
        with kubelet.lock:
            kubelet.world.strike("gpu_lost_79", kubelet.nodes[name], 3)
        until(lambda: the_node(site, name).metadata.label(site.keys.status) == "fail", "its alarm")
        node = the_node(site, name)
        report = decode(node.metadata.annotation(site.keys.results), name)
        assert report is not None
        assert report.findings[0].code == "xid.79"
        assert report.boot_id == kubelet.sim(name).boot_id
        assert {c.type: c.status for c in node.status.conditions or ()}[CONDITION] == "True"
        until(lambda: (the_node(site, name).status.allocatable or {})["nvidia.com/gpu"] == "7", "a GPU less")


def test_a_boot_changes_the_boot_id_and_cures_what_a_boot_cures(
    api: Api, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    (name,), site = nodes(), a_site(api, namespace)
    with machines(api, [name], tmp_path, agents=True) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("gpu_lost_79", kubelet.nodes[name], 3, cure="reboot")
        boot = kubelet.reboot(name)
        info = the_node(site, name).status.node_info
        assert info is not None
        assert info.boot_id == boot
        assert kubelet.world.truly_healthy(kubelet.nodes[name])


def test_a_boot_that_lasts_keeps_the_node_down_and_its_agent_silent(
    api: Api, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    (name,), site = nodes(), a_site(api, namespace)
    with machines(api, [name], tmp_path, agents=True, lasts={"boot": 2.0}) as kubelet:
        until(lambda: the_node(site, name).metadata.label(site.keys.status) == "pass", "its first word")
        before, spoken, began = kubelet.sim(name).boot_id, len(kubelet.published[name]), time.monotonic()
        boot = threading.Thread(target=kubelet.reboot, args=[name])
        boot.start()
        until(lambda: not _is_ready(the_node(site, name)), "it goes down")
        with kubelet.lock:  # its kernel says something that nobody hears any more
            kubelet.world.strike("gpu_lost_79", kubelet.nodes[name], 3, cure="reboot")
        boot.join()
        assert time.monotonic() - began >= 2.0
        until(lambda: len(kubelet.published[name]) > spoken, "it speaks again")
        report = decode(the_node(site, name).metadata.annotation(site.keys.results), name)
        assert report is not None
        assert report.boot_id != before
        assert len(kubelet.published[name]) == spoken + 1


def _is_ready(node: NodeObject) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions or ())


def test_it_runs_no_command_but_ours(api: Api, namespace: str, nodes: Nodes, tmp_path: Path) -> None:
    (name,), site = nodes(), a_site(api, namespace)
    labels = {site.keys.target_node: name}
    spec = {
        "nodeName": name,
        "restartPolicy": "Never",
        "containers": [{"name": "node", "image": "x", "command": ["rm"]}],
    }
    with machines(api, [name], tmp_path):
        api.create(names.pods(namespace), {"metadata": {"name": "p", "labels": labels}, "spec": spec}, Anything)
        until(lambda: api.get(names.pod(namespace, "p"), PodObject).status.phase == "Failed", "its end")


def test_a_termination_message_is_cut_where_a_kubelet_cuts(
    api: Api, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    (name,), site = nodes(), a_site(api, namespace)
    with machines(api, [name], tmp_path):
        node_jobs.run(
            site, "k", the_node(site, name), Errand("check", ("check", "--checks", "light", "--answers", "k"), 60.0)
        )
        pod = until(
            lambda: next((p for p in api.list(names.pods(namespace), PodObject) if node_jobs.message_of(p)), None), "it"
        )
        assert pod is not None
        assert 0 < len(node_jobs.message_of(pod).encode()) <= 4_096
