"""Drain: 1,000 GPU pods on 125 nodes, held back by nothing but disruption budgets and the API server.

Run: python -m benchmarks.kubernetes.draining [NODES]. Bar: >= 50 evictions a second, five runs.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.kubernetes.costs import pod
from benchmarks.kubernetes.ground import ground, say, until
from sickbay.controller.sites import RealClock
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.model import Action, Before, Done, Place, Verb
from sickbay.platforms.kubernetes.cordon import cordon, release
from sickbay.platforms.kubernetes.drain import drain
from sickbay.platforms.kubernetes.site import Site, site_of
from sickbay.settings import ControllerSettings, KubernetesSettings

PODS, RUNS, RATE = 8, 5, 50.0


def fill(api: Api, nodes: Sequence[str], run: int) -> None:
    bodies = [pod(f"r{run}-{node}-{number}", node) for node in nodes for number in range(PODS)]
    for body in bodies:
        body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}  # type: ignore[index]
        body["spec"]["terminationGracePeriodSeconds"] = 1  # type: ignore[index]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda body: api.create(names.pods("default"), body, Anything), bodies))
    until(lambda: _count(api, "status.phase=Running") >= len(bodies), 300.0)


def _count(api: Api, which: str = "") -> int:
    time.sleep(0.2)
    return len(api.list(names.pods("default"), Anything, **({"fieldSelector": which} if which else {})))


def empty(site: Site, nodes: Sequence[str], run: int) -> float:
    """Evictions a second, from the first drain asked to the last pod gone."""
    for node in nodes:
        cordon(site, _action(node, run, Verb.CORDON))
    began = time.monotonic()
    with ThreadPoolExecutor(ControllerSettings().workers) as pool:
        list(pool.map(lambda node: _drained(site, _action(node, run, Verb.DRAIN)), nodes))
    took = time.monotonic() - began
    for node in nodes:
        release(site, _action(node, run, Verb.RELEASE, cancel="1"))
    return len(nodes) * PODS / took


def _drained(site: Site, action: Action) -> None:
    while not isinstance(outcome := drain(site, action), Done):
        time.sleep(min(0.2, getattr(outcome, "after_s", 0.2)))


def _action(node: str, run: int, verb: Verb, **args: str) -> Action:
    return Action(f"{node}.{run + 1}/1", verb, Place(node), args, before=Before())


def main(count: int) -> int:
    rates = []
    with ground(count) as (cluster, nodes):
        api = cluster.api()
        budget = {
            "metadata": {"name": "half"},
            "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "x"}}},
        }
        api.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget, Anything)
        site = site_of(cluster.api(), KubernetesSettings(), RealClock())
        for run in range(RUNS):
            fill(api, nodes, run)
            rates.append(empty(site, nodes, run))
            say(f"drain {run + 1} of {RUNS}: {rates[-1]:.0f} evictions/s")
            until(lambda: not _count(api), 120.0)
    rate = statistics.median(rates)
    print(f"   drain: {PODS * count} GPU pods on {count} nodes: {rate:.0f} evictions/s (bar {RATE:g})")
    return 0 if rate >= RATE else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 125))
