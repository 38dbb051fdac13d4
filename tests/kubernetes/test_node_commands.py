"""`sickbay node`, `sickbay sweep` and `sickbay quarantine` as processes: what they leave behind, however they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.model import Status
from sickbay.platforms.kubernetes import answer
from sickbay.platforms.kubernetes.sight import look
from sickbay.platforms.kubernetes.site import Site
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.test_sweep import is_tainted
from tests.kubernetes.ward import a_site, machines, the_jobs, the_node

SMI = """#!/bin/sh
case "$*" in -q) exec sleep 60 ;; *) exit 0 ;; esac
"""


@pytest.fixture
def site(api: Api, namespace: str) -> Site:
    return a_site(api, namespace)


@contextmanager
def started(site: Site, cluster: Cluster, *args: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process; ended with the test, whatever becomes of it."""
    given = {
        **os.environ, "SICKBAY_KUBERNETES__KUBECONFIG": str(cluster.kubeconfig),
        "SICKBAY_KUBERNETES__NAMESPACE": site.settings.namespace, **env,
    }  # fmt: skip
    argv = [sys.executable, "-m", "sickbay", *args]
    with subprocess.Popen(argv, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_sweep_by_the_command_line_counts_the_failed_ones_in_its_exit_code(
    site: Site, cluster: Cluster, nodes: Nodes, tmp_path: Path
) -> None:
    well, sick = nodes(2)
    with machines(site.api, [well, sick], tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("row_remap_failed_64", kubelet.nodes[sick], 1)
        with started(site, cluster, "sweep", well, sick) as process:
            _, said = process.communicate(timeout=90)
    assert process.returncode == 1, said
    assert f"{well}: pass" in said
    assert "1 pass, 0 warn, 1 fail, 0 unknown" in said
    shown = look(site, sick)
    assert shown is not None
    assert [one.code for one in shown.findings] == ["dcgm.DCGM_FR_ROW_REMAP_FAILURE"]  # the controller sees it


def test_a_sweep_that_is_told_to_end_leaves_no_taint_and_no_job(
    site: Site, cluster: Cluster, nodes: Nodes, tmp_path: Path
) -> None:
    """originals 002.12 #10: a sweeper that was killed left its nodes closed."""
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        kubelet.hang.add(name)
        with started(site, cluster, "sweep", name) as process:
            until(lambda: is_tainted(site, the_node(site, name)) and the_jobs(site), "it is at work", 60.0, 0.2)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "told to stop" in said
    assert not is_tainted(site, the_node(site, name))
    until(lambda: not the_jobs(site), "its Job is gone")


def test_quarantine_of_a_node_in_service_is_a_sentence_and_no_traceback(
    site: Site, cluster: Cluster, nodes: Nodes
) -> None:
    (name,) = nodes()
    with started(site, cluster, "quarantine", name) as process:
        _, said = process.communicate(timeout=90)
    assert process.returncode == 2
    assert said.startswith(f"sickbay: {name} still takes work")
    assert "Traceback" not in said


def test_quarantine_says_what_to_do_next(site: Site, cluster: Cluster, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    site.api.patch(names.node(name), {"spec": {"unschedulable": True}}, Anything)
    with machines(site.api, [name], tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("row_remap_failed_64", kubelet.nodes[name], 1)
        with started(site, cluster, "quarantine", name, "--checks", "1") as process:
            out, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert out.splitlines()[0].startswith(f"{name}: fail (ISOLATE): ")
    assert "Replace it" in out


def test_a_node_check_that_is_told_to_end_still_answers_and_the_rest_is_unknown(tmp_path: Path) -> None:
    """The kubelet's SIGTERM at a Job's deadline: no answer would say nothing, half an answer must not say "well"."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(SMI)
    tool.chmod(0o755)
    log = tmp_path / "termination-log"
    env = {
        **os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SICKBAY_AGENT__STATE_DIR": str(tmp_path / "state"),
        "SICKBAY_AGENT__NODE_NAME": "here", "SICKBAY_AGENT__INSTANCE_TYPE": "p5.48xlarge",
    }  # fmt: skip
    argv = [sys.executable, "-m", "sickbay", "node", "check", "--checks", "disk-space,nvidia-smi,kernel-log"]
    process = subprocess.Popen([*argv, "--answers", "k/1", "--log", str(log)], env=env, stderr=subprocess.PIPE)
    until(lambda: _runs(process.pid, "sleep"), "it hangs in nvidia-smi", 30.0)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    told = answer.decode(log.read_text(), "k/1")
    assert told is not None
    found = {one.check: one.status for one in answer.unpack(told, "here")}
    assert found["nvidia-smi"] is found["kernel-log"] is Status.UNKNOWN
    assert json.loads(log.read_text())["key"] == "k/1"


def _runs(parent: int, word: str) -> bool:
    """Has this process a child that runs it?"""
    done = subprocess.run(["ps", "--ppid", str(parent), "-o", "args="], capture_output=True, text=True, check=False)
    return word in done.stdout
