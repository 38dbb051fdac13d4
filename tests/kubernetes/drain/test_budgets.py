"""DRAIN and disruption budgets, counted by the real disruption controller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, PodObject
from sickbay.model import Verb
from sickbay.platforms.kubernetes.cordon import cordon
from sickbay.platforms.kubernetes.site import Site
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.drain.asking import STUCK, drained, is_there, under_way
from tests.kubernetes.stage import a_pod, act, add_pod, pod, runs


def a_budget(api: Api, namespace: str, name: str, **spec: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "llama"}}, **spec}}
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    api.create(path, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **body}, Anything)


def members(api: Api, namespace: str) -> list[PodObject]:
    return api.list(names.pods(namespace), PodObject, labelSelector="app=llama")


def allowed(api: Api, namespace: str, name: str, count: int) -> Callable[[], bool]:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"

    def is_so() -> bool:
        status = api.get(path, dict[str, Any]).get("status", {})
        return bool(status.get("expectedPods", 0) > 0 and status.get("disruptionsAllowed") == count)

    return is_so


def test_a_budget_is_kept_and_named_until_it_allows_more(site: Site, namespace: str, node: str, nodes: Nodes) -> None:
    """Two replicas, one must stay: the second is asked only when a third runs elsewhere."""
    (other,) = nodes(1)
    for name in ("llama-a", "llama-b"):
        add_pod(site.api, namespace, name, node, labels={"app": "llama"}, annotations=STUCK)
        runs(site.api, namespace, name)
    a_budget(site.api, namespace, "llama", minAvailable=1)
    until(allowed(site.api, namespace, "llama", 1), "the budget is counted")
    outcome = under_way(site, node)
    assert "1 pod is ending" in outcome.detail
    assert f"waits for pdb {namespace}/llama (" in outcome.detail
    assert sum(is_there(site, namespace, name) for name in ("llama-a", "llama-b")) == 1
    add_pod(site.api, namespace, "llama-c", other, labels={"app": "llama"})
    runs(site.api, namespace, "llama-c")

    def both_are_asked() -> bool:
        under_way(site, node)
        return not any(is_there(site, namespace, name) for name in ("llama-a", "llama-b"))

    until(both_are_asked, "the budget allows the second", 20.0, 0.3)
    assert is_there(site, namespace, "llama-c")


def test_a_full_budget_says_how_many_it_needs_and_is_asked_again_in_its_own_time(
    site: Site, namespace: str, node: str
) -> None:
    add_pod(site.api, namespace, "llama-a", node, labels={"app": "llama"})
    runs(site.api, namespace, "llama-a")
    a_budget(site.api, namespace, "llama", minAvailable=1)
    until(allowed(site.api, namespace, "llama", 0), "the budget is counted")
    outcome = under_way(site, node)
    assert f"{namespace}/llama-a waits for pdb {namespace}/llama (needs 1 healthy pods and has 1 " in outcome.detail
    assert 1.0 <= outcome.after_s <= 60.0
    assert is_there(site, namespace, "llama-a")


def test_two_budgets_on_one_pod_are_told_as_what_they_are(site: Site, namespace: str, node: str) -> None:
    add_pod(site.api, namespace, "llama-a", node, labels={"app": "llama"})
    runs(site.api, namespace, "llama-a")
    for name in ("one", "two"):
        a_budget(site.api, namespace, name, maxUnavailable=1)
    assert "is covered by two disruption budgets" in under_way(site, node).detail


def test_force_deletes_what_a_budget_protects_only_at_the_end_and_keeps_its_grace_period(
    site: Site, namespace: str, node: str
) -> None:
    add_pod(site.api, namespace, "llama-a", node, labels={"app": "llama"}, annotations=STUCK, grace=99)
    runs(site.api, namespace, "llama-a")
    a_budget(site.api, namespace, "llama", minAvailable=1)
    until(allowed(site.api, namespace, "llama", 0), "the budget is counted")
    forceful = replace(site, settings=replace(site.settings, force=True))
    for outcome in (
        under_way(site, node, left_s="5"),
        under_way(forceful, node),
        under_way(forceful, node, left_s="900"),
    ):
        assert "waits for pdb" in outcome.detail
    assert is_there(site, namespace, "llama-a")
    assert "1 pod is ending" in under_way(forceful, node, left_s="5").detail
    found = pod(site.api, namespace, "llama-a")
    assert found is not None
    assert found.metadata.deletion_grace_period_seconds == 99


def test_a_replica_set_is_moved_whole_under_its_budget(site: Site, namespace: str, nodes: Nodes) -> None:
    """The real controllers all the way: ReplicaSet, scheduler, disruption controller."""
    first, second = nodes(2, labels={"sim.test/group": namespace})
    template = a_pod("x", gpus=1, labels={"app": "llama"})
    template["spec"] |= {"nodeSelector": {"sim.test/group": namespace}, "tolerations": []}
    spec = {"replicas": 4, "selector": {"matchLabels": {"app": "llama"}},
            "template": {"metadata": {"labels": {"app": "llama"}}, "spec": template["spec"]}}  # fmt: skip
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "llama"}, "spec": spec}
    site.api.create(f"/apis/apps/v1/namespaces/{namespace}/replicasets", body, Anything)
    a_budget(site.api, namespace, "llama", minAvailable=3)

    def running() -> list[PodObject]:
        return [p for p in members(site.api, namespace) if p.status.phase == "Running"]

    until(lambda: len(running()) == 4, "all replicas run")
    until(allowed(site.api, namespace, "llama", 1), "the budget is counted")
    cordon(site, act(Verb.CORDON, first))
    fewest, stop = [4], threading.Event()
    watcher = threading.Thread(target=_count, args=(running, fewest, stop))
    watcher.start()
    drained(site, first, 30.0)
    stop.set()
    watcher.join()
    assert fewest[0] >= 3
    assert {p.spec.node_name for p in running()} <= {second}


def _count(running: Callable[[], Sequence[PodObject]], fewest: list[int], stop: threading.Event) -> None:
    while not stop.wait(0.05):
        ready = [p for p in running() if not p.metadata.deletion_timestamp]
        fewest[0] = min(fewest[0], len(ready))
