"""Our Jobs on nodes beside the real Kueue, which suspends every Job in the namespaces that it manages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sickbay.kube import names
from sickbay.kube.objects import Anything
from sickbay.model import Lost, Started, Verb
from sickbay.platforms.kubernetes import node_jobs
from sickbay.platforms.kubernetes.node_jobs import Errand, Running
from sickbay.platforms.kubernetes.reboot import reboot
from sickbay.platforms.kubernetes.site import Site
from testbed.cluster import Cluster
from testbed.install import MANAGED
from testbed.waiting import until
from tests.kubernetes.ward import a_site, asked, the_jobs, the_node, treating

CHECK = Errand("check", ("check", "--checks", "nvidia-smi", "--answers", "k"), 60.0)


@pytest.fixture
def place(own_cluster: Callable[..., Cluster]) -> Cluster:
    cluster = own_cluster()
    cluster.install_kueue()
    return cluster


@pytest.fixture
def site(place: Cluster) -> Site:
    api = place.api()
    api.create("/api/v1/namespaces", {"metadata": {"name": "sickbay", "labels": MANAGED}}, Anything)
    return a_site(api, "sickbay", machines="node-job")


def test_a_reboot_that_kueue_holds_back_is_named_and_does_not_happen_after_a_persons_uncordon(
    site: Site, place: Cluster
) -> None:
    (name,) = place.add_nodes()
    action = treating(site, name, Verb.REBOOT)
    first = reboot(site, action)
    assert isinstance(first, Started)
    assert first.held
    assert "has suspended its Job" in first.detail
    watched = replace(action, call=False)
    said = until(lambda: s if "Kueue" in str(s := reboot(site, watched)) else None, "Kueue is named", 30.0, 0.2)
    (job,) = the_jobs(site)
    assert isinstance(said, Started)
    assert said.detail == (
        f"the reboot Job on {name} does not start: Kueue has suspended its Job {job.metadata.name}: keep Kueue off "
        "namespace sickbay (managedJobsNamespaceSelector, see docs/kubernetes.md)"
    )
    site.api.patch(names.node(name), {"spec": {"unschedulable": False}}, Anything)
    back = replace(watched, args={"withdraw": "1"})
    assert asked(lambda: reboot(site, back)) == Lost(f"the reboot Job on {name} had not started and is deleted")
    assert the_jobs(site) == []


@pytest.mark.soak
def test_kueue_is_kept_off_by_the_labels_of_the_namespace(site: Site, place: Cluster) -> None:
    """As docs/kubernetes.md says: nothing on a Job does it."""
    (name,) = place.add_nodes()
    off = {"metadata": {"labels": dict.fromkeys(MANAGED)}}
    site.api.patch(f"/api/v1/namespaces/{site.settings.namespace}", off, Anything)
    node_jobs.run(site, "k", the_node(site, name), CHECK)
    until(lambda: node_jobs.pods_of(site, the_jobs(site)[0].metadata.name), "its pod is made", 30.0)
    stands = node_jobs.run(site, "k", the_node(site, name), CHECK)
    assert isinstance(stands, Running)
    assert not stands.held
