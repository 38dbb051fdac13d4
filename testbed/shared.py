"""One cluster for all the processes of one test run: the first who asks starts it, it ends when the run ends.

Called by tests/kubernetes/conftest.py (and whoever has tests in several processes). The cluster belongs to a process
of its own that watches the run's first process, so that a run that is killed leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from testbed.binaries import built, component
from testbed.cluster import FACTS, READY_S, Cluster
from testbed.waiting import until

ROOT = Path(__file__).parents[1]


def shared_cluster(folder: Path, owner: int) -> Cluster:
    """The cluster of this run. `folder`: the same for all who share; `owner`: the process whose end is its end."""
    component("etcd"), component("kube-apiserver"), built("kwok")  # Missing is raised here, where it is heard
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / FACTS).exists():
            _start(folder, owner)
    return Cluster.attach(folder)


def _start(folder: Path, owner: int) -> None:
    failed = folder.with_suffix(".failed")
    argv = [sys.executable, "-m", "testbed", "--folder", str(folder), "--owner", str(owner)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    subprocess.run(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=True)
    until(lambda: (folder / FACTS).exists() or failed.exists(), "the shared cluster is up", 2 * READY_S)
    if failed.exists():
        raise RuntimeError(f"the shared cluster did not start: {failed.read_text()[-3000:]}")
