"""What the controller costs: peak memory, a core when nothing happens, and a restart until it sees everything again.

Run: python -m benchmarks.kubernetes.costs [NODES]. Bars at 5,000 nodes of 12 KB with 5,000 GPU pods: <= 200 MB peak,
<= 2 % of a core when nothing happens (agents' heartbeats go on), restart to fully synced <= 5 s. It is a restart: a
tenth of the nodes have a record from before, and a few an open case. storm.py tells the peak after a storm.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.kubernetes.ground import (
    NAMESPACE,
    closed,
    controller,
    finding,
    ground,
    healthy,
    kind_of,
    publish,
    say,
    until,
    written,
)
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, PodObject
from sickbay.model import Case, NodeRecord
from sickbay.stores.kubernetes import KubernetesStore
from testbed.cluster import Cluster

PEAK_MB, CORE, SYNC_S = 200.0, 0.02, 5.0
IDLE_S, RUNS = 60.0, 5
HEARTBEAT_S = 300.0
KNOWN, ILL = 1 / 10, 8  # of the nodes; nodes with an open case


def pod(name: str, node: str) -> dict[str, Any]:
    gpus = {"resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}}
    return {
        "metadata": {"name": name, "labels": {"app": "train"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "train", **gpus}],
                 "tolerations": [{"operator": "Exists"}]},
    }  # fmt: skip


def place_pods(api: Api, nodes: list[str]) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda node: api.create(names.pods("default"), pod(f"p-{node}", node), PodObject), nodes))
    until(lambda: _running(api) >= len(nodes), 600.0)


def _running(api: Api) -> int:
    time.sleep(1.0)
    return len(api.list(names.pods("default"), Anything, fieldSelector="status.phase=Running"))


@contextmanager
def heartbeats(api: Api, nodes: list[str], fleet: int) -> Iterator[None]:
    """As many PATCHes a second as the fleet's agents would send, and the same ones: one a node and five minutes."""
    stop = threading.Event()

    def beat() -> None:
        for number in range(10**9):
            if stop.wait(HEARTBEAT_S / fleet):
                return
            node = nodes[number % len(nodes)]
            publish(api, [(node, healthy(node, 1 + number))], at_once=1)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join()


def remember(cluster: Cluster, folder: Path, nodes: Sequence[str]) -> tuple[int, int]:
    """Let a controller before ours have known a part of the fleet: (records, open cases) that are left."""
    api = cluster.api()
    store = KubernetesStore(api, NAMESPACE)
    with controller(cluster, folder):
        publish(api, [(node, finding(node, 1)) for node in nodes[:ILL]])
        until(lambda: len(store.list(Case)) == ILL and len(closed(api, nodes)) == ILL, 120.0)
    with ThreadPoolExecutor(16) as pool:  # of nodes that had cases once: what is healthy leaves no record
        list(pool.map(lambda node: store.create(NodeRecord(node, last_n=2, cluster="bench"), 1), nodes[ILL:]))
    left = len(store.list(NodeRecord)), len(store.list(Case))
    store.close()
    return left


def main(count: int) -> int:
    with tempfile.TemporaryDirectory() as scratch, ground(count) as (cluster, nodes):
        api, folder, syncs = cluster.api(name="bench"), Path(scratch), list[float]()
        say("placing a GPU pod on each")
        place_pods(api, nodes)
        few = ILL + round(count * KNOWN)
        records, cases = remember(cluster, folder, nodes[:few])
        peaks = []
        for run in range(RUNS):
            with controller(cluster, folder) as running:
                syncs.append(time.monotonic() - running.began)
                peaks.append(running.status("VmHWM"))
                say(f"start {run + 1} of {RUNS}: synced after {syncs[-1]:.1f} s, peak {peaks[-1]:.0f} MB")
                if run == RUNS - 1:
                    with heartbeats(api, nodes[few:], count):
                        before, began, mark = running.cpu_s(), time.monotonic(), cluster.audit_mark()
                        time.sleep(IDLE_S)
                        core = (running.cpu_s() - before) / (time.monotonic() - began)
                    idle = Counter(kind_of(entry) for entry in written(cluster, mark))
                    peaks.append(running.status("VmHWM"))
    sync, peak = statistics.median(syncs), max(peaks)
    print(
        f"   {count} nodes, {count} GPU pods, {records} records, {cases} open cases: peak {peak:.0f} MB "
        f"(bar {PEAK_MB:g}), {core:.2%} of a core when nothing happens (bar {CORE:.0%}), restarted and synced in "
        f"{sync:.1f} s (bar {SYNC_S:g})\n   written in {IDLE_S:g} s in which nothing happens: "
        + (", ".join(f"{what} {number}" for what, number in idle.most_common()) or "nothing")
    )
    return 0 if peak <= PEAK_MB and core <= CORE and sync <= SYNC_S else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000))
