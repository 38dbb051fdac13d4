"""What the controller costs: peak memory, a core when nothing happens, and a restart until it sees everything again.

Run: python -m benchmarks.kubernetes.costs [NODES]. Bars at 5,000 nodes of 12 KB with 5,000 GPU pods: <= 200 MB peak,
<= 2 % of a core when nothing happens (agents' heartbeats go on), restart to fully synced <= 5 s.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.kubernetes.ground import bare_patch, controller, ground, say, until
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, PodObject

PEAK_MB, CORE, SYNC_S = 200.0, 0.02, 5.0
IDLE_S, RUNS = 60.0, 5
HEARTBEAT_S = 300.0


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
def heartbeats(api: Api, nodes: list[str]) -> Iterator[None]:
    """As many PATCHes a second as agents would send: one a node and five minutes."""
    stop = threading.Event()

    def beat() -> None:
        for number in range(10**9):
            if stop.wait(HEARTBEAT_S / len(nodes)):
                return
            bare_patch(api, nodes[number % len(nodes)])

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join()


def main(count: int) -> int:
    with tempfile.TemporaryDirectory() as scratch, ground(count) as (cluster, nodes):
        api, folder, syncs = cluster.api(), Path(scratch), list[float]()
        say("placing a GPU pod on each")
        place_pods(api, nodes)
        peaks = []
        for run in range(RUNS):
            with controller(cluster, folder) as running:
                syncs.append(time.monotonic() - running.began)
                peaks.append(running.status("VmHWM"))
                say(f"start {run + 1} of {RUNS}: synced after {syncs[-1]:.1f} s, peak {peaks[-1]:.0f} MB")
                if run == RUNS - 1:
                    with heartbeats(api, nodes):
                        before, began = running.cpu_s(), time.monotonic()
                        time.sleep(IDLE_S)
                        core = (running.cpu_s() - before) / (time.monotonic() - began)
                    peaks.append(running.status("VmHWM"))
    sync, peak = statistics.median(syncs), max(peaks)
    print(
        f"   {count} nodes, {count} GPU pods: peak {peak:.0f} MB (bar {PEAK_MB:g}), {core:.2%} of a core when nothing "
        f"happens (bar {CORE:.0%}), started and synced in {sync:.1f} s (bar {SYNC_S:g})"
    )
    return 0 if peak <= PEAK_MB and core <= CORE and sync <= SYNC_S else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000))
