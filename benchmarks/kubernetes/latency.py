"""Fault to cordoned: a kernel line at a real agent process until the node is unschedulable at the API server.

Run: python -m benchmarks.kubernetes.latency [NODES ...]. Five interleaved runs: bare PATCHes, then agents on fresh
nodes, one line each. Bars: p50 <= 6 bare p50, p99 <= 1 s; at the larger fleet p50 <= 1.5 times the smaller one's.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from benchmarks.kubernetes.ground import bare_patch, controller, ground, say, until, until_quiet
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.names import keys
from sickbay.kube.objects import NodeObject
from sickbay.kube.watch import Put, Reflector
from testbed.cluster import Cluster
from tests.agent.running import Running as Agent

RUNS, AGENTS, BARE = 5, 8, 60
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
TIMES, P99_S, GROWTH = 6.0, 1.0, 1.5


SPLITS: list[list[float]] = []  # of each line, for the person who wants to know where the time goes


class Eye:
    """When each node was first seen closed."""

    def __init__(self, api: Api) -> None:
        self.closed: dict[str, float] = {}
        self.news = threading.Event()
        self._watch = Reflector(api, names.NODES, NodeObject, self._hear)
        self._watch.start()
        self._watch.synced.wait(120)

    def _hear(self, told: object) -> None:
        if isinstance(told, Put) and told.object.spec.unschedulable:
            self.closed.setdefault(told.object.metadata.name, time.monotonic())
            self.news.set()

    def when(self, node: str, within_s: float = 30.0) -> float:
        end = time.monotonic() + within_s
        while node not in self.closed:
            if not self.news.wait(max(0.0, end - time.monotonic())):
                raise TimeoutError(f"{node} was never cordoned")
            self.news.clear()
        return self.closed[node]

    def stop(self) -> None:
        self._watch.stop()


def strike(cluster: Cluster, folder: Path, nodes: Sequence[str], eye: Eye) -> list[float]:
    """Agents first, all of them; then one line each, one after the other."""
    api, agents = cluster.api(), []
    before = {node: _word(api, node) for node in nodes}
    for node in nodes:
        home = folder / node
        home.mkdir()
        given = {"publishers": ["kubernetes"], "node_name": node, "light_checks": ["clock"]}
        agent = Agent(home, sim=False, group=cluster.group, **given)
        with (home / "sickbay.toml").open("a") as file:
            file.write(f'[kubernetes]\nkubeconfig = "{cluster.kubeconfig}"\n')
        agent.start()
        agents.append(agent)
    took = []
    try:
        for node in nodes:
            until(lambda node=node: _word(api, node) != before[node], 60.0)  # type: ignore[misc]
        for agent, node in zip(agents, nodes, strict=True):
            mark, began = cluster.audit_mark(), time.monotonic()
            agent.kernel(XID)
            took.append(eye.when(node) - began)
            SPLITS.append(split(cluster, mark, node))
    finally:
        for agent in agents:
            agent.close()
    return took


def _word(api: Api, node: str) -> str:
    """What its agent said last."""
    time.sleep(0.1)
    return api.get(names.node(node), NodeObject).metadata.annotation(keys().results)


def split(cluster: Cluster, since: int, node: str) -> list[float]:
    """Where the time went, by the API server's own log: from the finding's arrival to the end of the cordon, in ms."""
    when: dict[str, float] = {}
    for entry in cluster.audit(since):
        about = entry.get("objectRef") or {}
        what = f"{entry['verb']} {about.get('resource')} {about.get('subresource', '')}".strip()
        if node in about.get("name", "") or about.get("resource") == "ledgers":
            when.setdefault(what, _at(entry["requestReceivedTimestamp"]))
            when.setdefault(f"{what} done", _at(entry["stageTimestamp"]))
    steps = ("patch nodes status", "update ledgers", "create nodecases", "patch nodes")
    first = when.get("patch nodes status", 0.0)
    return [(when.get(step, first) - first) * 1000 for step in steps] + [
        (when.get("patch nodes done", first) - first) * 1000
    ]


def _at(stamp: str) -> float:
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def measure(count: int) -> tuple[float, float, float]:
    """(bare p50, p50, p99), seconds."""
    bare: list[float] = []
    took: list[float] = []
    with tempfile.TemporaryDirectory() as scratch, ground(count) as (cluster, nodes):
        folder, api = Path(scratch), cluster.api()
        eye = Eye(api)
        with controller(cluster, folder):
            until_quiet(cluster)
            for run in range(RUNS):
                bare += [bare_patch(api, node) for node in nodes[-BARE:]]
                took += strike(cluster, folder, nodes[run * AGENTS : (run + 1) * AGENTS], eye)
                say(f"{count} nodes, run {run + 1} of {RUNS}: p50 {statistics.median(took) * 1000:.1f} ms")
        eye.stop()
    return statistics.median(bare), statistics.median(took), max(took)


def main(counts: Sequence[int]) -> int:
    good, first = True, 0.0
    for count in counts:
        bare, p50, p99 = measure(count)
        first = first or p50
        ratio, growth = p50 / bare, p50 / first
        print(
            f"   {count:>6} nodes: bare PATCH p50 {bare * 1000:.1f} ms; line to cordoned p50 {p50 * 1000:.1f} ms = "
            f"{ratio:.1f} x (bar {TIMES:g}), slowest of {RUNS * AGENTS} {p99 * 1000:.0f} ms (bar {P99_S:g} s), "
            f"growth {growth:.2f} x (bar {GROWTH:g})"
        )
        parts = [statistics.median(column) for column in zip(*SPLITS, strict=True)]
        SPLITS.clear()
        print("          ms after the finding reached the API server: seat {1:.0f}, case {2:.0f}, "
              "cordon {3:.0f} to {4:.0f}".format(*parts))  # fmt: skip
        good = good and ratio <= TIMES and p99 <= P99_S and growth <= GROWTH
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]] or [1_000, 5_000]))
