"""Drain: 1,000 GPU pods on 125 nodes, held back by nothing but disruption budgets and the API server.

Run: python -m benchmarks.kubernetes.draining [NODES]. Eight nodes are one job with a budget of its own that allows all
to go, so that each eviction is booked in a budget's status, which the API server does one after the other. A node is
asked about again when the product says so. Bar: >= 50 evictions a second, five runs.
"""

from __future__ import annotations

import math
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from benchmarks.kubernetes.costs import pod
from benchmarks.kubernetes.ground import ground, say, until
from sickbay.controller.sites import RealClock
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, Shape
from sickbay.model import Action, Before, Done, Place, Retry, Started, Verb
from sickbay.platforms.kubernetes.cordon import cordon, release
from sickbay.platforms.kubernetes.drain import drain
from sickbay.platforms.kubernetes.site import Site, site_of
from sickbay.settings import ControllerSettings, KubernetesSettings

PODS, RUNS, RATE = 8, 5, 50.0
GANG = 8  # nodes of one job
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


class BudgetStatus(Shape):
    expected_pods: int = 0
    disruptions_allowed: int = 0


class Budget(Shape):
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)


def fill(api: Api, nodes: Sequence[str], run: int) -> None:
    bodies = [_rank(node, at // GANG, f"r{run}-{node}-{n}") for at, node in enumerate(nodes) for n in range(PODS)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda body: api.create(names.pods("default"), body, Anything), bodies))
    until(lambda: _count(api, "status.phase=Running") >= len(bodies), 300.0)
    until(lambda: _budgeted(api) == len(bodies), 120.0)


def _rank(node: str, job: int, name: str) -> dict[str, Any]:
    body = pod(name, node)
    body["metadata"]["labels"]["job"] = f"job-{job}"
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    body["spec"]["terminationGracePeriodSeconds"] = 1
    return body


def guard(api: Api, nodes: Sequence[str]) -> None:
    """A budget for each job. A whole number: of pods that no controller owns, a share cannot be reckoned."""
    for job in range(math.ceil(len(nodes) / GANG)):
        spec = {"minAvailable": 0, "selector": {"matchLabels": {"job": f"job-{job}"}}}
        api.create(BUDGETS, {"metadata": {"name": f"job-{job}"}, "spec": spec}, Anything)


def _budgeted(api: Api) -> int:
    """Pods that a budget counts and lets go."""
    time.sleep(0.2)
    budgets = [budget.status for budget in api.list(BUDGETS, Budget)]
    return sum(min(status.expected_pods, status.disruptions_allowed) for status in budgets)


def _count(api: Api, which: str = "") -> int:
    time.sleep(0.2)
    return len(api.list(names.pods("default"), Anything, **({"fieldSelector": which} if which else {})))


def empty(site: Site, nodes: Sequence[str], run: int) -> float:
    """Evictions a second, from the first drain asked to the last pod gone."""
    for node in nodes:
        cordon(site, _action(node, run, Verb.CORDON))
    began, doors = time.monotonic(), threading.Semaphore(ControllerSettings().workers)
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(lambda node: _drained(site, _action(node, run, Verb.DRAIN), doors), nodes))
    took = time.monotonic() - began
    for node in nodes:
        release(site, _action(node, run, Verb.RELEASE, cancel="1"))
    return len(nodes) * PODS / took


def _drained(site: Site, action: Action, doors: threading.Semaphore) -> None:
    """As the controller does: only so many are asked at once, and whoever waits keeps no door shut."""
    while True:
        with doors:
            outcome = drain(site, action)
        if isinstance(outcome, Done):
            return
        assert isinstance(outcome, Started | Retry), outcome
        time.sleep(outcome.after_s)


def _action(node: str, run: int, verb: Verb, **args: str) -> Action:
    return Action(f"{node}.{run + 1}/1", verb, Place(node), args, before=Before())


def main(count: int) -> int:
    rates = []
    with ground(count) as (cluster, nodes):
        api = cluster.api()
        guard(api, nodes)
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
