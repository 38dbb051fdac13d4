"""The newcomer gate on a real API server: closed once, for those who need it, and never over work."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject, PodObject
from sickbay.model import Action, Before, Done, Place, Verb
from sickbay.platforms.kubernetes import gate, successors
from sickbay.platforms.kubernetes.cordon import cordon, release
from sickbay.platforms.kubernetes.platform import KubernetesPlatform
from sickbay.platforms.kubernetes.sight import look
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.watching import Eyes
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.stage import StageClock, add_pod
from tests.kubernetes.ward import a_site, the_node


@pytest.fixture
def site(api: Api, namespace: str) -> Site:
    return a_site(api, namespace, gate=True)


def minded(site: Site, name: str) -> str:
    """Why its gate was closed, with what is due now."""
    return gate.mind(site, the_node(site, name), successors.due(site))


def replaced(site: Site, name: str) -> None:
    successors.expect(site, Action(f"{name}.1/9", Verb.REPLACE, Place(name)), the_node(site, name))


def aged(site: Site, name: str, by_s: float) -> NodeObject:
    """The node as if it had joined so much earlier."""
    node = the_node(site, name)
    joined = datetime.fromisoformat(node.metadata.creation_timestamp.replace("Z", "+00:00")) - timedelta(seconds=by_s)
    node.metadata.creation_timestamp = joined.strftime("%Y-%m-%dT%H:%M:%SZ")
    return node


def test_a_new_gpu_node_gets_no_work_before_it_was_examined(
    site: Site, cluster: Cluster, nodes: Nodes, namespace: str
) -> None:
    (name,) = nodes()
    assert minded(site, name) == "kubernetes.gate is on"
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
    assert minded(site, name) == ""
    assert not gate.is_gated(site, the_node(site, name))


def test_the_successor_of_a_replaced_machine_always_passes_the_gate(api: Api, namespace: str, nodes: Nodes) -> None:
    pool = {"sickbay.dev/pool": f"pool-{namespace}"}
    old, new, third = nodes(3, labels=pool)
    site = a_site(api, namespace)
    replaced(site, old)
    assert "takes the place of" in minded(site, new)
    assert gate.is_gated(site, the_node(site, new))
    assert minded(site, third) == ""  # one was replaced, so one is due


def test_a_gate_is_closed_once_in_a_nodes_life(site: Site, nodes: Nodes) -> None:
    """RELEASE opens it; a controller that starts anew must not close it again."""
    (name,) = nodes()
    minded(site, name)
    case, node = f"{name}.1", the_node(site, name)
    before = Before(instance=node.spec.provider_id.rpartition("/")[2])
    cordon(site, Action(f"{case}/1", Verb.CORDON, Place(name), before=before))
    assert isinstance(release(site, Action(f"{case}/9", Verb.RELEASE, Place(name))), Done)
    assert not gate.is_gated(site, the_node(site, name))
    assert minded(site, name) == ""
    assert not gate.close_gate(site, name)


def test_nodes_opted_out_or_old_are_not_gated(site: Site, nodes: Nodes) -> None:
    opted, plain = nodes(2)
    site.api.patch(names.node(opted), {"metadata": {"labels": {site.keys.opt_out: "true"}}}, Anything)
    assert gate.needs_gate(site, the_node(site, opted), None) == ""
    assert gate.needs_gate(site, aged(site, plain, gate.NEW_S + 60), None) == ""
    assert gate.needs_gate(site, the_node(site, plain), None)


def test_a_gate_is_never_closed_over_work_that_the_watch_has_not_shown_yet(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    add_pod(site.api, site.settings.namespace, "early", name)
    assert minded(site, name) == ""
    assert not gate.is_gated(site, the_node(site, name))


def test_a_node_that_joined_before_the_replacement_is_not_its_successor(api: Api, namespace: str, nodes: Nodes) -> None:
    """After a restart every young node is seen for the first time: the real one must not slip in behind another."""
    old, earlier, later = nodes(3, labels={"sickbay.dev/pool": f"pool-{namespace}"})
    site = a_site(api, namespace)
    replaced(site, old)
    lines = successors.due(site)
    assert gate.mind(site, aged(site, earlier, successors.SKEW_S + 60), lines) == ""
    assert "takes the place of" in gate.mind(site, the_node(site, later), lines)
    assert successors.due(site) == lines == []


def test_a_successor_is_gated_however_late_it_came_and_however_late_it_is_seen(
    api: Api, namespace: str, nodes: Nodes
) -> None:
    old, new = nodes(2, labels={"sickbay.dev/pool": f"pool-{namespace}"})
    clock = StageClock()
    site = replace(a_site(api, namespace), clock=clock)
    replaced(site, old)
    clock.passed = 3 * 86_400.0  # it joined, and nobody looked for three days
    assert "takes the place of" in minded(site, new)


def test_a_node_without_gpus_is_none_of_ours(site: Site, nodes: Nodes) -> None:
    (name,) = nodes(1, gpus=0)
    assert minded(site, name) == ""


def test_a_kubelets_own_gate_is_left_as_it_is_and_noted_so_that_it_is_not_closed_again(
    api: Api, namespace: str, nodes: Nodes
) -> None:
    pool = {"sickbay.dev/pool": f"pool-{namespace}"}
    site = a_site(api, namespace, gate=True)
    (old,) = nodes(labels=pool)
    taint = {"key": site.keys.newcomer, "value": "kubelet", "effect": "NoSchedule"}
    (name,) = nodes(1, labels=pool, taints=[taint])
    replaced(site, old)
    assert minded(site, name) == "its kubelet came with it"
    node = the_node(site, name)
    assert [taint.value for taint in node.spec.taints or () if taint.key == site.keys.newcomer] == ["kubelet"]
    assert successors.due(site) == []  # it was the one that was due
    site.api.patch(names.node(name), {"spec": {"taints": None}}, Anything)  # it is released
    assert minded(site, name) == ""


def test_no_gate_is_closed_where_nobody_may_open_it_and_that_is_said_once(
    site: Site, nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    watched, other = nodes(labels={"sickbay.dev/pool": "watched"}), nodes(labels={"sickbay.dev/pool": "ours"})
    keeper = gate.Gatekeeper(site, lambda pool: pool == "ours")
    for name in (*watched, *watched, *other):
        keeper.meet(the_node(site, name))
    until(lambda: gate.is_gated(site, the_node(site, other[0])), "the other pool has its gate")
    keeper.stop()
    assert not gate.is_gated(site, the_node(site, watched[0]))
    assert caplog.text.count("new nodes of pool watched are not kept from work") == 1


def test_the_watch_closes_the_gate_of_a_node_that_joins(site: Site, nodes: Nodes) -> None:
    eyes = Eyes(replace(site, settings=replace(site.settings, gpu_selector=f"test/ns={site.settings.namespace}")))
    try:
        eyes.observe()
        (name,) = nodes(1, labels={"test/ns": site.settings.namespace})
        until(lambda: gate.is_gated(site, the_node(site, name)), "its gate is closed")
        until(lambda: any(node.gate for node in eyes.observe().nodes), "and seen")
    finally:
        eyes.close()


def test_a_pool_that_another_repairer_looks_after_has_no_gate(site: Site, nodes: Nodes) -> None:
    ns = site.settings.namespace
    platform = KubernetesPlatform(replace(site, settings=replace(site.settings, gpu_selector=f"test/ns={ns}")))
    platform.rival_pools = frozenset({"theirs"})
    try:
        platform.observe()
        (theirs,) = nodes(labels={"test/ns": ns, "sickbay.dev/pool": "theirs"})
        (ours,) = nodes(labels={"test/ns": ns, "sickbay.dev/pool": "ours"})
        until(lambda: gate.is_gated(site, the_node(site, ours)), "ours has its gate")
    finally:
        platform.close()
    assert not gate.is_gated(site, the_node(site, theirs))


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


def a_node_pool(api: Api, name: str, **spec: object) -> None:
    node_class = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    template = {"spec": {"nodeClassRef": node_class, "requirements": [], **spec}}
    body = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}}
    api.create("/apis/karpenter.sh/v1/nodepools", {**body, "spec": {"template": template}}, Anything)


def test_a_node_of_karpenters_is_gated_only_where_its_pool_declares_the_taint(
    site: Site, cluster: Cluster, nodes: Nodes, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Karpenter would make another node for each one that it cannot use, and another for that."""
    cluster.install_crds("karpenter")
    plain, told = f"plain-{namespace}", f"told-{namespace}"
    a_node_pool(site.api, plain)
    a_node_pool(site.api, told, startupTaints=[{"key": site.keys.newcomer, "effect": "NoSchedule"}])
    (open_one,) = nodes(1, labels={"karpenter.sh/nodepool": plain})
    (shut_one,) = nodes(1, labels={"karpenter.sh/nodepool": told})
    assert minded(site, open_one) == ""
    assert "does not declare" in caplog.text
    assert not gate.is_gated(site, the_node(site, open_one))
    assert minded(site, shut_one) == "kubernetes.gate is on"
    assert gate.is_gated(site, the_node(site, shut_one))


def test_behind_karpenters_gate_a_case_marks_the_node_without_a_cordon_and_release_opens_it(
    site: Site, nodes: Nodes
) -> None:
    """Six nodes were made within a minute for a job that needed one: each was cordoned while it was examined."""
    gated = [{"key": site.keys.newcomer, "effect": "NoSchedule"}]
    (name,) = nodes(1, labels={"karpenter.sh/nodepool": "gpus"}, taints=gated)
    assert isinstance(cordon(site, Action(f"{name}.1/1", Verb.CORDON, Place(name))), Done)
    assert not the_node(site, name).spec.unschedulable
    assert [taint.key for taint in the_node(site, name).spec.taints or ()] == [site.keys.newcomer]
    seen = look(site, name)
    assert seen is not None
    assert (seen.mark, seen.cordoned, seen.others) == (f"{name}.1", True, ())
    assert isinstance(release(site, Action(f"{name}.1/5", Verb.RELEASE, Place(name))), Done)
    assert not the_node(site, name).spec.taints
    assert not the_node(site, name).metadata.annotation(site.keys.case)
