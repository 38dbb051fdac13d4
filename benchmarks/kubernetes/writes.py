"""API writes per remediated node, from detection to return: counted by the API server's audit log.

Run: python -m benchmarks.kubernetes.writes [NODES]. Nodes with simulated machines fall ill one after the other, are
rebooted by a Job (one write more than by EC2), examined and returned. Everything of ours counts, the agents' news and
the Ledger too; evictions, Events and heartbeats aside. Bar: at most 16.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.kubernetes.ground import NAMESPACE, ROOT, ground, lifted, say, until
from sickbay.kube.api import Api
from sickbay.model import Case
from sickbay.sim.world import World
from sickbay.stores.kubernetes import KubernetesStore
from testbed.cluster import Cluster
from testbed.kubelet import SimKubelet

MOST = 16.0
WRITES = ("create", "update", "patch", "delete")
APART_S = 2.0


def config(cluster: Cluster, folder: Path) -> Path:
    path = folder / "controller.toml"
    path.write_text(
        f'cluster = "bench"\nplatform = "kubernetes"\nstore = "kubernetes"\ndata_dir = "{folder}"\n'
        f'[policy]\nmax_verb = "REBOOT"\n{lifted(settle_s=10.0)}\n[controller]\ncommon_cause_nodes = 1000000\n'
        f'[kubernetes]\nkubeconfig = "{cluster.kubeconfig}"\nmachines = "node-job"\n'
    )
    return path


def remediate(cluster: Cluster, folder: Path, nodes: list[str], kubelet: SimKubelet) -> Counter[str]:
    """What was written, by kind of object, from the first finding until every node is back."""
    api = cluster.api(name="bench")
    with (folder / "controller.log").open("wb") as log:
        argv = [sys.executable, "-m", "testbed.hurried", str(config(cluster, folder))]
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=ROOT)
    try:
        until(lambda: "leading" in (folder / "controller.log").read_text(errors="replace"), 60.0)
        kubelet.published.clear()
        mark = cluster.audit_mark()
        for node in nodes:
            with kubelet.lock:
                kubelet.world.strike("gpu_lost_79", kubelet.nodes[node], 3, cure="reboot")
            time.sleep(APART_S)
        until(lambda: _resolved(api) >= len(nodes), 300.0, folder / "controller.log")
    finally:
        process.terminate()
        process.wait(30)
    told = Counter(_what(entry) for entry in cluster.audit(mark) if _counts(entry))
    told["agents' news"] = sum(kubelet.published[node] for node in nodes)
    return told


def _resolved(api: Api) -> int:
    time.sleep(0.5)
    store = KubernetesStore(api, NAMESPACE)
    try:
        return sum(case.phase == "RESOLVED" for case in store.history(Case))
    finally:
        store.close()


def _counts(entry: dict[str, object]) -> bool:
    about = json.loads(json.dumps(entry.get("objectRef") or {}))
    ours = str(entry.get("userAgent", "")) == "sickbay" and entry["verb"] in WRITES
    return ours and about.get("resource") not in ("events", "leases") and about.get("subresource") != "eviction"


def _what(entry: dict[str, object]) -> str:
    about = json.loads(json.dumps(entry.get("objectRef") or {}))
    return f"{entry['verb']} {about.get('resource')}"


def main(count: int) -> int:
    with tempfile.TemporaryDirectory() as scratch, ground(count * 3) as (cluster, nodes):
        folder = Path(scratch)
        world = World(
            7, len(nodes), silent_failure=0.0, reboot_hangs=0.0, part_returns=0.0, start=time.time() - 7200, cycle_s=5.0
        )
        world.run_for(3_600.0)
        (folder / "machines").mkdir()
        with SimKubelet(cluster.api(name="sim-kubelet"), world, nodes, folder / "machines") as kubelet:
            say(f"{count} nodes fall ill")
            told = remediate(cluster, folder, nodes[:count], kubelet)
    each = sum(told.values()) / count
    print(f"   {each:.1f} API writes a remediated node (bar {MOST:g}), of {count} nodes: "
          + ", ".join(f"{what} {number / count:.1f}" for what, number in told.most_common()))  # fmt: skip
    return 0 if each <= MOST else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 6))
