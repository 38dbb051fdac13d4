"""The testbed can be broken on purpose, leaves nothing behind, and says how to get it where it is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sickbay.errors import Unreachable
from sickbay.kube import names
from sickbay.kube.objects import NodeObject
from testbed.binaries import ASSETS, TOOL, component
from testbed.cluster import Cluster
from testbed.plane import Options, possible
from testbed.waiting import until
from tests.kubernetes.conftest import not_tested

ROOT = Path(__file__).parents[2]
PARENT = """
import subprocess, sys, time
from pathlib import Path
from testbed.processes import Processes
children = Processes(Path(sys.argv[1]))
children.start("one", ["sleep", "600"])
children.start("two", ["sleep", "600"])
guest = subprocess.Popen(["sleep", "600"], process_group=children.group)
print(*children.pids().values(), guest.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.soak
def test_an_api_server_comes_back_on_the_same_data_after_kill_9_and_is_silent_while_paused(
    own_cluster: Callable[..., Cluster],
) -> None:
    cluster = own_cluster(scheduler=False, controllers=False, kwok=False)
    (name,) = cluster.add_nodes(1, wait=False)
    api = cluster.api(timeout_s=1.0)
    cluster.stop_apiserver(kill=True)
    with pytest.raises(Unreachable):
        api.get(names.node(name), NodeObject)
    cluster.start_apiserver()
    assert api.get(names.node(name), NodeObject).metadata.name == name
    cluster.pause_apiserver()
    with pytest.raises(Unreachable):
        api.get(names.node(name), NodeObject)
    cluster.resume_apiserver()
    assert until(lambda: api.find(names.node(name), NodeObject), "it answers again") is not None


def test_what_we_started_dies_with_us_even_after_kill_9(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert all(_alive(pid) for pid in children)
        parent.send_signal(signal.SIGKILL)
    until(lambda: not any(_alive(pid) for pid in children), "the children are gone")


def test_a_missing_testbed_fails_on_ci_and_is_skipped_with_a_way_out_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Go here"):
        not_tested("no Go here")
    monkeypatch.setenv("CI", "")
    with pytest.raises(
        pytest.skip.Exception, match=r"NOT TESTED .* no Go here -- install Go .* SICKBAY_TEST_KUBECONFIG"
    ):
        not_tested("no Go here")


def test_without_go_and_without_a_cache_the_tool_says_so(tmp_path: Path) -> None:
    for name in ("bash", "dirname", "cat", "awk", "sha256sum", "cut", "uname"):
        (tmp_path / name).symlink_to(Path("/usr/bin") / name)
    env = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name in ("kubeone", "manifests:kueue"):
        done = subprocess.run([str(TOOL), name], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 3, done
        assert "no Go here" in done.stderr


def test_the_user_s_own_etcd_and_api_server_come_before_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv(ASSETS, str(tmp_path))
    assert component("etcd") == [str(tmp_path / "etcd")]
    assert possible(Options()) == Options()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" and os.getpid() != pid
