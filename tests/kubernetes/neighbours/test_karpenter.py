"""A managed job beside the real Karpenter, which makes nodes only for pods that wait and removes those without any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sickbay.kube import names
from sickbay.kube.objects import Anything, NodeObject
from sickbay.model import Case, JobPhase, RecoveryPhase
from sickbay.platforms.kubernetes.gangs.stop import give_way
from sickbay.settings import JobPolicy
from testbed.cluster import Cluster
from testbed.plane import KUBELET
from testbed.waiting import until
from tests.kubernetes.gangs.ground import FLEET, Ground
from tests.kubernetes.gangs.test_line import Brain

POOLS = "/apis/karpenter.sh/v1/nodepools"
NEWCOMER = "gpu-healthcheck.aws-samples.io/newcomer"


@pytest.fixture
def ground(own_cluster: Callable[..., Cluster]) -> Ground:
    cluster = own_cluster()
    cluster.install_karpenter()
    api = cluster.api()
    api.create("/api/v1/namespaces", {"metadata": {"name": "train"}}, Anything)
    path = "/api/v1/namespaces/train/serviceaccounts/default"
    until(lambda: api.find(path, Anything) is not None, "pods can be made", 20, 0.1)
    return Ground(api, "train", lambda count=1, /, **more: cluster.add_nodes(count, **more), gate=True)


@pytest.fixture
def mind(ground: Ground) -> Iterator[Brain]:
    brain = Brain(ground)
    yield brain
    brain.close()


def a_pool(ground: Ground, limits: dict[str, str] | None = None, **spec: Any) -> None:
    """Of nodes for kwok, which Karpenter removes after five seconds without work."""
    kind = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    made = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": kind["kind"], "metadata": {"name": kind["name"]}}
    ground.api.create("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", {**made, "spec": {}}, Anything)
    labels = {FLEET: ground.namespace, KUBELET: "alive", "nvidia.com/gpu.present": "true"}
    wanted = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p5.48xlarge"]}]
    template = {"metadata": {"labels": labels}, "spec": {"nodeClassRef": kind, "requirements": wanted, **spec}}
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5s", "budgets": [{"nodes": "100%"}]}
    head = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "gpus"}}
    pool = {**head, "spec": {"template": template, "disruption": disruption, "limits": limits or {}}}
    ground.api.create(POOLS, pool, Anything)


def the_nodes(ground: Ground) -> dict[str, NodeObject]:
    return {node.metadata.name: node for node in ground.api.list(names.NODES, NodeObject)}


def test_a_job_with_a_sick_node_and_karpenter_do_not_wait_for_each_other(ground: Ground, mind: Brain) -> None:
    a_pool(ground)
    notes = {"sickbay.dev/checkpoint-saved": "50", "sickbay.dev/step": "60"}
    job = ground.phase(ground.job(annotations=notes), JobPhase.RUNNING, within_s=60.0)
    mind.until(lambda: (r := mind.recovery()) is not None and r.on_demand, "the job is looked after")
    before, sick = set(the_nodes(ground)), job.rank_nodes[0]
    assert give_way(ground.site, ground.mark(sick), [ground.pod_on(sick)]) == (job.id,)
    mind.until(lambda: ground.show(job.id).phase is JobPhase.RUNNING, "it runs again")
    again = ground.show(job.id)
    assert again.attempt == 2
    assert sick not in again.nodes
    made = set(the_nodes(ground)) - before
    assert len(made) <= 2, "no more than are missing: one, and one that Karpenter had removed meanwhile"
    assert made & set(again.nodes)
    assert not any(taint.key == NEWCOMER for name in made for taint in the_nodes(ground)[name].spec.taints or ())
    ground.patch(job.id, {"metadata": {"annotations": {"sickbay.dev/step": "51"}}})
    mind.until(lambda: (r := mind.recovery()) is not None and r.phase is RecoveryPhase.RUNNING, "its first step")
    recovery = mind.recovery()
    assert recovery is not None
    assert (recovery.arrivals, recovery.expects) == (0, 0)


@pytest.mark.soak
def test_a_job_whose_nodes_do_not_come_stops_asking_and_its_owner_is_told(ground: Ground) -> None:
    """The pool is at its limit: nothing can be made in place of the sick node."""
    a_pool(ground, limits={"nvidia.com/gpu": "16"})
    job = ground.phase(ground.job(), JobPhase.RUNNING, within_s=60.0)
    mind = Brain(ground, JobPolicy(examining_s=2.0, arrival_s=3.0, arrivals=2))
    try:
        mind.until(lambda: mind.recovery() is not None, "the job is looked after")
        sick = job.rank_nodes[0]
        assert give_way(ground.site, ground.mark(sick), [ground.pod_on(sick)]) == (job.id,)
        mind.until(lambda: (r := mind.recovery()) is not None and r.arrivals == 2, "two were asked for in vain")
        mind.until(lambda: ground.show(job.id).phase is JobPhase.STOPPED, "it is stopped")
        mind.until(lambda: "gets no good nodes" in str(mind.recovery()), "its owner is told")
        recovery = mind.recovery()
        assert recovery is not None
        assert recovery.phase is RecoveryPhase.WAITING_FOR_CAPACITY
        assert recovery.refusal.startswith("needs 2 good nodes")
    finally:
        mind.close()


def examined(mind: Brain) -> list[str]:
    """Nodes that carry the mark of their newcomer's case, on record."""
    return [stored.value.node for stored in mind.store.list(Case) if stored.value.cordon_version]


@pytest.mark.soak
def test_while_an_arrival_is_examined_behind_its_gate_karpenter_makes_no_other(ground: Ground, mind: Brain) -> None:
    """A cordon is none of the taints that its NodePool expects, and would count the node as useless."""
    a_pool(ground, startupTaints=[{"key": NEWCOMER, "effect": "NoSchedule"}])
    ground.job(ranks=1)
    mind.until(lambda: len(examined(mind)) == 1, "it is examined")
    (first,) = the_nodes(ground)
    assert the_nodes(ground)[first].metadata.annotation(ground.site.keys.case) == f"{first}.1"
    ground.job("mixtral", ranks=1)  # when Karpenter has made a node for it, it has looked at the first one again
    mind.until(lambda: len(the_nodes(ground)) > 1, "another job gets a node of its own")
    mind.until(lambda: len(examined(mind)) == 2, "which is examined too")
    assert len(the_nodes(ground)) == 2
