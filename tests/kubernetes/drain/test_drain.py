"""DRAIN on a real API server: real disruption budgets, real controllers, a kubelet that may be dead."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject, PodObject
from sickbay.model import Before, Done, Failed, Retry, Started, Verb
from sickbay.platforms.kubernetes import evictions
from sickbay.platforms.kubernetes.cordon import cordon
from sickbay.platforms.kubernetes.drain import drain
from sickbay.platforms.kubernetes.site import Site, awaited
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.drain.asking import STUCK, drained, empty, is_there, under_way
from tests.kubernetes.stage import (
    CountedApi,
    KubeStage,
    StageClock,
    a_pod,
    a_site,
    act,
    add_pod,
    owned_by,
    pod,
    runs,
)
from tests.platforms.contract import NODE, PlatformContract, finish
from tests.platforms.contract import act as suite_act


class TestContract:
    """What ports.Platform promises of DRAIN."""

    @pytest.fixture
    def stage(self, cluster: Cluster, api: Api, namespace: str, nodes: Nodes) -> KubeStage:
        return KubeStage(cluster, api, namespace, nodes(2), {Verb.CORDON: cordon, Verb.DRAIN: drain})

    test_without_eviction = PlatformContract.test_drain_without_eviction_waits_for_the_job
    test_silent_node = PlatformContract.test_drain_of_a_node_that_does_not_answer_stays_under_way
    test_not_held = PlatformContract.test_drain_touches_nothing_on_a_node_that_we_do_not_hold

    def test_processes_that_cannot_be_killed_do_not_block_it(self, stage: KubeStage) -> None:
        """As the contract's, but for Node.stuck, which is watched over time and tested with the watch."""
        stage.platform.perform(suite_act(Verb.CORDON))
        stage.hang_driver(NODE)
        outcome = finish(stage, suite_act(Verb.DRAIN, 2, evict="1"))
        assert isinstance(outcome, Done)
        assert outcome.detail == (
            f"empty but for {stage.namespace}/train-1, whose processes do not end (D state): only a boot removes them"
        )


# --- who leaves, and how ----------------------------------------------------------------------------------------------


def test_an_empty_node_is_drained_at_once(site: Site, node: str) -> None:
    assert empty(site, node) == Done(f"{node} is empty")


def test_pods_leave_and_then_the_node_is_empty(site: Site, namespace: str, node: str) -> None:
    for rank in range(3):
        add_pod(site.api, namespace, f"rank-{rank}", node)
    assert "3 pods are ending" in under_way(site, node).detail
    assert drained(site, node).detail == f"{node} is empty"


def test_a_pods_own_grace_period_is_never_shortened(site: Site, namespace: str, node: str) -> None:
    add_pod(site.api, namespace, "saver", node, grace=777, annotations=STUCK)
    runs(site.api, namespace, "saver")
    under_way(site, node)
    found = pod(site.api, namespace, "saver")
    assert found is not None
    assert found.metadata.deletion_grace_period_seconds == 777
    assert "1 pod is ending" in under_way(site, node).detail


def test_an_eviction_is_recorded_as_a_disruption_so_that_jobs_may_forgive_it(
    site: Site, namespace: str, node: str
) -> None:
    add_pod(site.api, namespace, "rank-0", node, annotations=STUCK)
    runs(site.api, namespace, "rank-0")
    under_way(site, node)
    found = pod(site.api, namespace, "rank-0")
    assert found is not None
    reasons = [c.reason for c in found.status.conditions or () if c.type == "DisruptionTarget"]
    assert reasons == ["EvictionByEvictionAPI"]


def a_daemon(api: Api, namespace: str, node: str) -> str:
    """A pod of a real DaemonSet that asks for a GPU, as an exporter may; its name."""
    template = a_pod("x", gpus=1)["spec"] | {"nodeSelector": {"kubernetes.io/hostname": node}}
    labels = {"app": "exporter"}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": template}}
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "exporter"}, "spec": spec}
    api.create(f"/apis/apps/v1/namespaces/{namespace}/daemonsets", body, Anything)

    def placed() -> str:
        made = api.list(names.pods(namespace), PodObject, labelSelector="app=exporter")
        return next((p.metadata.name for p in made if p.spec.node_name == node), "")

    return until(placed, "the daemon has its pod")


def test_daemons_mirror_pods_ended_pods_and_our_own_jobs_are_not_work(site: Site, namespace: str, node: str) -> None:
    """Originals 002.12 #10: Succeeded and Failed pods made a node look busy."""
    daemon = a_daemon(site.api, namespace, node)
    add_pod(site.api, namespace, "mirror", node, annotations={"kubernetes.io/config.mirror": "x"})
    add_pod(site.api, namespace, "ended", node)
    runs(site.api, namespace, "ended")
    site.api.patch(f"{names.pod(namespace, 'ended')}/status", {"status": {"phase": "Succeeded"}}, Anything)
    ours = replace(site, settings=replace(site.settings, namespace=namespace))
    add_pod(site.api, namespace, "verify", node, annotations={site.keys.action: f"{node}.1/4"})
    assert empty(ours, node) == Done(f"{node} is empty")
    for name in (daemon, "mirror", "ended", "verify"):
        assert is_there(site, namespace, name)


def test_a_pod_that_only_says_it_is_ours_is_drained(site: Site, namespace: str, node: str) -> None:
    add_pod(site.api, namespace, "clever", node, annotations={site.keys.action: f"{node}.1/4"})
    under_way(site, node)
    assert not is_there(site, namespace, "clever")


@pytest.mark.parametrize(("whom", "stays"), [("gpu", True), ("all", False)])
def test_pods_without_gpus_stay_unless_all_are_to_go(
    site: Site, namespace: str, node: str, whom: str, stays: bool
) -> None:
    add_pod(site.api, namespace, "web", node, gpus=0)
    drained(replace(site, settings=replace(site.settings, drain=whom)), node)
    assert is_there(site, namespace, "web") is stays


def test_the_pods_of_a_training_operator_are_evicted_like_any_others(site: Site, namespace: str, node: str) -> None:
    """Originals 003.5 #8: Draino left a PyTorchJob's pods for ever, their owner being none it knew."""
    add_pod(site.api, namespace, "llama-worker-0", node, owner=owned_by(), volumes=EMPTY_DIR)
    drained(site, node)


EMPTY_DIR = [{"name": "scratch", "emptyDir": {}}]


@pytest.mark.parametrize(
    ("setting", "more", "words"),
    [
        ("evict_bare", {}, "has no controller to bring it back, and kubernetes.evict_bare is off"),
        ("evict_empty_dir", {"volumes": EMPTY_DIR}, "would lose its emptyDir, and kubernetes.evict_empty_dir is off"),
    ],
)
def test_a_protected_pod_stays_is_named_with_its_setting_and_does_not_keep_the_others(
    site: Site, namespace: str, node: str, setting: str, more: dict[str, Any], words: str
) -> None:
    add_pod(site.api, namespace, "precious", node, **more)
    add_pod(site.api, namespace, "other", node, owner=owned_by())
    careful = a_site(site.api, None, namespace=site.settings.namespace, **{setting: False})
    assert f"{namespace}/precious {words}" in under_way(careful, node).detail
    assert is_there(site, namespace, "precious")
    assert not is_there(site, namespace, "other")
    drained(site, node)


def test_a_pod_that_comes_in_spite_of_the_cordon_is_asked_to_leave_as_well(
    site: Site, namespace: str, node: str
) -> None:
    drained(site, node)
    add_pod(site.api, namespace, "late", node)
    assert isinstance(empty(site, node), Started)
    drained(site, node)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_another_machine_is_not_drained(site: Site, namespace: str, node: str) -> None:
    add_pod(site.api, namespace, "rank-0", node)
    action = replace(act(Verb.DRAIN, node, 2, 1, evict="1"), before=Before(instance="i-old"))
    outcome = drain(site, action)
    assert isinstance(outcome, Failed)
    assert "another machine" in outcome.why
    assert is_there(site, namespace, "rank-0")


def test_a_node_that_a_person_opened_is_not_drained(cluster: Cluster, site: Site, namespace: str, node: str) -> None:
    add_pod(site.api, namespace, "rank-0", node)
    cluster.kubectl("uncordon", node)
    assert empty(site, node) == Retry(30.0, f"{node} is not closed in the name of {node}.1")
    assert is_there(site, namespace, "rank-0")


def test_a_node_that_is_gone_cannot_be_drained(site: Site) -> None:
    assert empty(site, "no-such-node") == awaited("no-such-node")


def test_waiting_without_eviction_names_whom(site: Site, namespace: str, node: str) -> None:
    for rank in range(5):
        add_pod(site.api, namespace, f"rank-{rank}", node)
    detail = under_way(site, node, evict="0").detail
    assert detail == (
        f"waiting for {namespace}/rank-0, {namespace}/rank-1, {namespace}/rank-2 and 2 more to end by itself: "
        "evictions are not allowed here"
    )
    assert all(is_there(site, namespace, f"rank-{rank}") for rank in range(5))


def test_a_right_that_we_lack_is_said_at_once(cluster: Cluster, site: Site, namespace: str, node: str) -> None:
    """RBAC without pods/eviction: said with what gives it back, and as something that is worth asking again."""
    add_pod(site.api, namespace, "rank-0", node)
    account = f"system:serviceaccount:{namespace}:default"
    rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}]
    group, name = "/apis/rbac.authorization.k8s.io/v1", f"reader-{namespace}"
    site.api.create(f"{group}/clusterroles", {"metadata": {"name": name}, "rules": rules}, Anything)
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    body = {"metadata": {"name": name}, "subjects": [subject], "roleRef": role}
    site.api.create(f"{group}/clusterrolebindings", body, Anything)

    class Impersonated(CountedApi):
        def _headers(self, content: str) -> dict[str, str]:
            return {**super()._headers(content), "Impersonate-User": account}

    weak = Impersonated(site.api)
    try:
        until(lambda: _may_read(weak, node), "the right to read is known")
        outcome = empty(replace(site, api=weak), node)
    finally:
        weak.close()
        site.api.delete(f"{group}/clusterrolebindings/{name}")
        site.api.delete(f"{group}/clusterroles/{name}")
    assert isinstance(outcome, Failed)
    assert f"{namespace}/rank-0 cannot be evicted by us" in outcome.why
    assert 'cannot create resource "pods/eviction"' in outcome.why
    assert "kubectl apply -f deploy/kubernetes/" in outcome.why
    assert outcome.lacks


def _may_read(api: Api, node: str) -> bool:
    try:
        api.get(names.node(node), NodeObject)
        api.list(names.PODS, PodObject, fieldSelector=f"spec.nodeName={node}")
    except ApiError:
        return False
    return True


# --- gangs ------------------------------------------------------------------------------------------------------------


def test_a_gang_that_is_stopped_whole_is_not_evicted_besides(site: Site, namespace: str, node: str) -> None:
    add_pod(site.api, namespace, "llama-worker-0", node, owner=owned_by())
    add_pod(site.api, namespace, "other", node)
    asked: list[tuple[str, list[str]]] = []

    def give_way(_: Site, case: str, pods: Sequence[PodObject]) -> tuple[str, ...]:
        asked.append((case, [p.metadata.name for p in pods]))
        return (f"{namespace}/gangjob/llama",) if pods[0].metadata.owner_references else ()

    outcome = drain(site, act(Verb.DRAIN, node, 2, 1, evict="1"), give_way=give_way)
    assert isinstance(outcome, Started)
    assert f"ends with its gang {namespace}/gangjob/llama, which is being stopped" in outcome.detail
    assert sorted(asked) == [(f"{node}.1", ["llama-worker-0"]), (f"{node}.1", ["other"])]
    assert is_there(site, namespace, "llama-worker-0")
    assert not is_there(site, namespace, "other")


# --- how fast, how long -----------------------------------------------------------------------------------------------


def test_a_long_goodbye_is_looked_at_ever_more_seldom(api: Api, namespace: str, nodes: Nodes) -> None:
    clock = StageClock()
    site = a_site(api, clock, namespace=f"{namespace}-ours")
    (node,) = nodes(1)
    cordon(site, act(Verb.CORDON, node))
    add_pod(api, namespace, "saver", node, grace=600, annotations=STUCK)
    runs(api, namespace, "saver")
    empty(site, node)
    waits = []
    for passed in (0.0, 20.0, 400.0):
        clock.passed = passed
        waits.append(under_way(site, node).after_s)
    assert waits[0] < 3.0
    assert waits[0] < waits[1] < waits[2] <= 15.0


def test_an_api_server_that_hangs_does_not_keep_the_door_shut(site: Site, namespace: str, node: str) -> None:
    """Each answer takes longer than the door has: it says so, and goes on next time."""
    for rank in range(2):
        add_pod(site.api, namespace, f"rank-{rank}", node)
    pods = evictions.pods_on(site, node)
    release_it = threading.Event()

    class Slow(CountedApi):
        def create(self, path: str, body: object, kind: type[Any], **params: str) -> Any:
            release_it.wait(5.0)
            return super().create(path, body, kind, **params)

    slow = Slow(site.api)
    began = time.monotonic()
    asked = evictions.ask_all(replace(site, api=slow), pods, 0.2)
    took = time.monotonic() - began
    release_it.set()
    until(lambda: len(slow.asked) == 2, "the late ones arrive, and do no harm")
    until(lambda: len(slow._idle) > 0, "they are over")
    slow.close()
    assert took < 2.0
    assert {one.why for one in asked} == {"has not been asked yet: the API server is slow"}


@pytest.mark.soak
def test_two_hundred_pods_on_ten_nodes_leave_side_by_side(
    site: Site, namespace: str, nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate is printed; `make bench-kubernetes` has the bar."""
    ten = nodes(10)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: cordon(site, act(Verb.CORDON, n)), ten))
        list(pool.map(lambda i: add_pod(site.api, namespace, f"p-{i}", ten[i % 10]), range(200)))
        began = time.monotonic()
        outcomes = list(pool.map(lambda n: empty(site, n), ten))
        took = time.monotonic() - began
        list(pool.map(lambda n: drained(site, n, 30.0), ten))
        all_gone = time.monotonic() - began
    with capsys.disabled():
        print(f"\n200 evictions on 10 nodes: {200 / took:.0f}/s asked, all gone after {all_gone:.1f} s")
    assert all(isinstance(outcome, Started) for outcome in outcomes)
