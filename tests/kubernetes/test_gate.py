"""The newcomer gate on a real API server: closed once, for those who need it, and never over work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, PodObject
from sickbay.model import Action, Before, Done, Place, Verb
from sickbay.platforms.kubernetes import gate, successors
from sickbay.platforms.kubernetes.cordon import cordon, release
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.watching import Eyes
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.ward import a_site, the_node


@pytest.fixture
def site(api: Api, namespace: str) -> Site:
    return a_site(api, namespace, gate=True)


def test_a_new_gpu_node_gets_no_work_before_it_was_examined(
    site: Site, cluster: Cluster, nodes: Nodes, namespace: str
) -> None:
    (name,) = nodes()
    assert gate.mind(site, the_node(site, name)) == "kubernetes.gate is on"
    assert gate.is_gated(site, the_node(site, name))
    spec = {"nodeSelector": {"kubernetes.io/hostname": name}, "containers": [{"name": "c", "image": "x"}]}
    site.api.create(names.pods(namespace), {"metadata": {"name": "early"}, "spec": spec}, Anything)

    def refused() -> bool:
        pod = site.api.get(names.pod(namespace, "early"), PodObject)
        return any(c.type == "PodScheduled" and "untolerated taint" in c.message for c in pod.status.conditions or ())

    until(refused, "the scheduler says why it waits")


def test_the_gate_is_off_unless_it_is_asked_for(api: Api, namespace: str, nodes: Nodes) -> None:
    (name,) = nodes()
    site = a_site(api, namespace)
    assert gate.mind(site, the_node(site, name)) == ""
    assert not gate.is_gated(site, the_node(site, name))


def test_the_successor_of_a_replaced_machine_always_passes_the_gate(api: Api, namespace: str, nodes: Nodes) -> None:
    pool = {"sickbay.dev/pool": f"pool-{namespace}"}
    old, new, third = nodes(3, labels=pool)
    site = a_site(api, namespace)
    successors.expect(site, Action(f"{old}.1/9", Verb.REPLACE, Place(old)), the_node(site, old))
    assert "takes the place of" in gate.mind(site, the_node(site, new))
    assert gate.is_gated(site, the_node(site, new))
    assert gate.mind(site, the_node(site, third)) == ""  # one was replaced, so one is due


def test_a_gate_is_closed_once_in_a_nodes_life(site: Site, nodes: Nodes) -> None:
    """RELEASE opens it; a controller that starts anew must not close it again."""
    (name,) = nodes()
    gate.mind(site, the_node(site, name))
    case, node = f"{name}.1", the_node(site, name)
    before = Before(instance=node.spec.provider_id.rpartition("/")[2])
    cordon(site, Action(f"{case}/1", Verb.CORDON, Place(name), before=before))
    assert isinstance(release(site, Action(f"{case}/9", Verb.RELEASE, Place(name))), Done)
    assert not gate.is_gated(site, the_node(site, name))
    assert gate.mind(site, the_node(site, name)) == ""
    assert not gate.close_gate(site, name)


def test_nodes_with_work_opted_out_or_old_are_not_gated(site: Site, nodes: Nodes) -> None:
    busy, opted, plain = nodes(3)
    assert gate.needs_gate(site, the_node(site, busy), busy=True) == ""
    site.api.patch(names.node(opted), {"metadata": {"labels": {site.keys.opt_out: "true"}}}, Anything)
    assert gate.needs_gate(site, the_node(site, opted)) == ""
    old = the_node(site, plain)
    old.metadata.creation_timestamp = "2026-01-01T00:00:00Z"
    assert gate.needs_gate(site, old) == ""
    assert gate.needs_gate(site, the_node(site, plain))


def test_a_node_without_gpus_is_none_of_ours(site: Site, nodes: Nodes) -> None:
    (name,) = nodes(1, gpus=0)
    assert gate.mind(site, the_node(site, name)) == ""


def test_a_kubelet_that_registers_with_the_taint_is_left_as_it_is(site: Site, nodes: Nodes) -> None:
    (name,) = nodes(1, taints=[{"key": site.keys.newcomer, "value": "kubelet", "effect": "NoSchedule"}])
    assert gate.mind(site, the_node(site, name)) == ""
    node = the_node(site, name)
    assert [taint.value for taint in node.spec.taints or () if taint.key == site.keys.newcomer] == ["kubelet"]
    assert not node.metadata.annotation(site.keys.newcomer)


def test_the_watch_closes_the_gate_of_a_node_that_joins(site: Site, nodes: Nodes) -> None:
    eyes = Eyes(replace(site, settings=replace(site.settings, gpu_selector=f"test/ns={site.settings.namespace}")))
    try:
        eyes.observe()
        (name,) = nodes(1, labels={"test/ns": site.settings.namespace})
        until(lambda: gate.is_gated(site, the_node(site, name)), "its gate is closed")
        until(lambda: any(node.gate for node in eyes.observe().nodes), "and seen")
    finally:
        eyes.close()


def test_a_gate_that_could_not_be_closed_is_tried_again(
    site: Site, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = nodes()
    refusals = [ApiError(503, "ServiceUnavailable", "later"), ApiError(500, "InternalError", "etcd")]
    close = gate.close_gate

    def unsteady(site: Site, node: str) -> bool:
        if refusals:
            raise refusals.pop()
        return close(site, node)

    monkeypatch.setattr(gate, "AGAIN_S", 0.1)
    monkeypatch.setattr(gate, "close_gate", unsteady)
    keeper = gate.Gatekeeper(site)
    keeper.meet(the_node(site, name))
    until(lambda: keeper.closed == 1, "it is closed in the end")
    keeper.stop()
    assert gate.is_gated(site, the_node(site, name))
