"""API writes per remediated node: from detection to return, and to close the books after it, by the audit log.

Run: python -m benchmarks.kubernetes.writes [NODES]. Nodes with simulated machines and a training Job on each fall ill
one after the other, are rebooted by a Job (one write more than by EC2), examined and returned: at life's pace, because
writes that may wait for another (core/keeping.py) come due when a boot or an examination takes its time. Everything of
ours counts, the agents' news, the Ledger and what is kept of the Jobs too; evictions, Events and heartbeats aside. A
node has returned with the patch that opens it. Bar: at most 16 until then; the rest is told beside it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.kubernetes.ground import NAMESPACE, controller, ground, kind_of, lifted, say, until, written
from sickbay.controller.loop import AT_WORK_S as SAVE_S
from sickbay.core import keeping
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, PodObject
from sickbay.model import Case
from sickbay.sim.world import World
from sickbay.stores.kubernetes import KubernetesStore
from testbed.cluster import Cluster
from testbed.kubelet import SimKubelet

MOST = 16.0
APART_S, WITHIN_S = 2.0, 1_200.0
LASTS = {"collect": 5.0, "boot": 330.0, "check": 60.0}  # seconds
assert LASTS["boot"] > keeping.LATER_S  # what may wait for another write comes due meanwhile, as in life


def train(api: Api, count: int) -> list[str]:
    """A Job each, a whole node large; the nodes on which the scheduler has put them."""
    container = {"name": "train", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    for number in range(count):
        api.create(names.jobs("default"), {"metadata": {"name": f"train-{number}"}, "spec": spec}, Anything)
    until(lambda: len(_busy(api)) == count, 120.0)
    return _busy(api)


def _busy(api: Api) -> list[str]:
    time.sleep(0.5)
    found = api.list(names.pods("default"), PodObject, fieldSelector="status.phase=Running")
    return sorted(pod.spec.node_name for pod in found)


def remediate(cluster: Cluster, folder: Path, nodes: list[str], kubelet: SimKubelet) -> tuple[Counter[str], int, int]:
    """What was written by kind of object from the first finding until each node was back, how much after that, and how
    often the watch time was due meanwhile, which is written whoever is ill."""
    api = cluster.api(name="bench")
    with controller(cluster, folder, lifted(settle_s=10.0), "REBOOT", machines="node-job"):
        kubelet.published.clear()
        mark = cluster.audit_mark()
        for node in nodes:
            with kubelet.lock:
                kubelet.world.strike("gpu_lost_79", kubelet.nodes[node], 3, cure="reboot")
            time.sleep(APART_S)
        until(lambda: _resolved(api) >= len(nodes), WITHIN_S)
    entries = written(cluster, mark)
    back = {node: max(_at(e) for e in entries if e["objectRef"] == _opened(node)) for node in nodes}
    told = Counter(kind_of(entry) for entry in entries if _at(entry) <= _until(entry, back))
    news = [(at, back[node]) for node in nodes for at in kubelet.published.get(node, ())]
    told["agents' news"] = sum(at <= until for at, until in news)
    saves = int((max(back.values()) - min(_at(entry) for entry in entries)) // SAVE_S)
    return told, len(entries) + len(news) - sum(told.values()), saves


def _resolved(api: Api) -> int:
    time.sleep(0.5)
    store = KubernetesStore(api, NAMESPACE)
    try:
        return sum(case.phase == "RESOLVED" for case in store.history(Case))
    finally:
        store.close()


def _at(entry: dict[str, Any]) -> float:
    return datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()


def _opened(node: str) -> dict[str, str]:
    return {"resource": "nodes", "name": node, "apiVersion": "v1"}


def _until(entry: dict[str, Any], back: dict[str, float]) -> float:
    """When the node that it is about had returned; of what is about all of them (the Ledger, a Job): the last one. What
    is kept of GPUs is written when a case is over."""
    name = str(entry["objectRef"].get("name", ""))
    if entry["objectRef"]["resource"] == "gpuparts":
        return 0.0
    about = max((node for node in back if node in name), key=len, default="")
    return back[about] if about else max(back.values())


def main(count: int) -> int:
    with tempfile.TemporaryDirectory() as scratch, ground(count * 3) as (cluster, nodes):
        folder, sick = Path(scratch), train(cluster.api(name="bench"), count)
        world = World(7, len(nodes), silent_failure=0.0, reboot_hangs=0.0, part_returns=0.0, start=time.time() - 7200)
        world.run_for(3_600.0)
        (folder / "machines").mkdir()
        kubelet = SimKubelet(cluster.api(name="sim-kubelet"), world, nodes, folder / "machines", lasts=LASTS, logs=True)
        with kubelet:
            say(f"{count} nodes fall ill")
            told, after, saves = remediate(cluster, folder, sick, kubelet)
    each = (sum(told.values()) - saves) / count
    print(
        f"   {each:.1f} API writes a remediated node until it is back (bar {MOST:g}), of {count} nodes with a Job; "
        f"{after / count:.1f} more to close the books"
    )
    for what, number in told.most_common():
        print(f"     {number / count:4.1f} {what}")
    print(f"   (not counted of the Ledger's: {saves} times the watch time, every {SAVE_S:g} s whoever is ill)")
    return 0 if each <= MOST else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 6))
