"""DRAIN of a node whose kubelet is dead: nothing is called gone without proof."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.kube import names
from sickbay.kube.objects import Anything
from sickbay.model import Done, Started, Verb
from sickbay.platforms.kubernetes.cordon import cordon, release
from sickbay.platforms.kubernetes.drain import drain
from sickbay.platforms.kubernetes.marks import OUT_OF_SERVICE
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.views import answers, is_ready
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.drain.asking import drained, under_way
from tests.kubernetes.stage import act, add_pod, pod, read, runs, taint_keys


def falls_silent_at_work(cluster: Cluster, site: Site, namespace: str, node: str) -> None:
    add_pod(site.api, namespace, "rank-0", node)
    runs(site.api, namespace, "rank-0")
    cluster.kill_kubelet(node)


def test_work_on_a_node_that_does_not_answer_is_not_called_gone(
    cluster: Cluster, site: Site, namespace: str, node: str
) -> None:
    falls_silent_at_work(cluster, site, namespace, node)
    outcome = under_way(site, node)
    assert outcome.detail == f"{node} does not answer; its work (1 pod) cannot be confirmed gone"


def test_a_machine_without_power_is_emptied_by_the_out_of_service_taint_which_goes_again(
    cluster: Cluster, site: Site, namespace: str, node: str
) -> None:
    """The real controllers remove the pod although no kubelet confirms it."""
    falls_silent_at_work(cluster, site, namespace, node)
    sure = replace(site, settings=replace(site.settings, out_of_service=True))
    action = act(Verb.DRAIN, node, 2, 1, evict="1")
    first = drain(sure, action, lambda _site, _node: True)
    assert isinstance(first, Started)
    assert first.detail == f"{node} has no power: 1 pod and 0 volumes are being taken off it"
    assert OUT_OF_SERVICE in {t.key for t in read(site.api, node).spec.taints or ()}

    def done() -> bool:
        return isinstance(drain(sure, action, lambda _site, _node: True), Done)

    until(done, "podgc has removed the pod", 60.0, 0.5)
    assert pod(site.api, namespace, "rank-0") is None
    assert OUT_OF_SERVICE not in taint_keys(site.api, node)


def test_a_machine_that_answers_again_is_put_back_into_service_and_drained_as_any_other(
    cluster: Cluster, site: Site, namespace: str, node: str
) -> None:
    falls_silent_at_work(cluster, site, namespace, node)
    sure = replace(site, settings=replace(site.settings, out_of_service=True))
    drain(sure, act(Verb.DRAIN, node, 2, 1, evict="1"), lambda _site, _node: True)
    assert OUT_OF_SERVICE in taint_keys(site.api, node)
    cluster.revive_kubelet(node)
    until(lambda: answers(read(site.api, node)), f"{node} answers")
    drained(sure, node)
    assert OUT_OF_SERVICE not in taint_keys(site.api, node)
    assert is_ready(read(site.api, node))


@pytest.mark.parametrize(("allowed", "down"), [(False, True), (True, False)])
def test_no_machine_is_put_out_of_service_without_policy_and_proof(
    cluster: Cluster, site: Site, namespace: str, node: str, allowed: bool, down: bool
) -> None:
    add_pod(site.api, namespace, "rank-0", node)
    cluster.kill_kubelet(node)
    here = replace(site, settings=replace(site.settings, out_of_service=allowed))
    assert isinstance(drain(here, act(Verb.DRAIN, node, 2, 1, evict="1"), lambda _site, _node: down), Started)
    assert OUT_OF_SERVICE not in taint_keys(site.api, node)


def test_an_out_of_service_taint_of_ours_goes_with_our_mark_and_somebody_elses_stays(
    cluster: Cluster, site: Site, namespace: str, nodes: Nodes
) -> None:
    sure = replace(site, settings=replace(site.settings, out_of_service=True))
    ours, theirs = nodes(2)
    for name in (ours, theirs):
        assert isinstance(cordon(site, act(Verb.CORDON, name)), Done)
        add_pod(site.api, namespace, f"rank-{name}", name)
        cluster.kill_kubelet(name)
    taint = {"key": OUT_OF_SERVICE, "value": "theirs", "effect": "NoExecute"}
    site.api.patch(names.node(theirs), [{"op": "add", "path": "/spec/taints/-", "value": taint}], Anything, "json")
    for name in (ours, theirs):
        drain(sure, act(Verb.DRAIN, name, 2, 1, evict="1"), lambda _site, _node: True)
        assert isinstance(release(site, act(Verb.RELEASE, name, 3, 1, cancel="1")), Done)
    assert OUT_OF_SERVICE not in taint_keys(site.api, ours)
    assert OUT_OF_SERVICE in taint_keys(site.api, theirs)
