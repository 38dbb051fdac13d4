"""RELEASE on a real API server: what is ours goes, what was there comes back, what others did since stays."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from sickbay.errors import Unreachable
from sickbay.kube.api import Api
from sickbay.model import Action, Before, Done, Outcome, Retry, Verb
from sickbay.platforms.kubernetes.cordon import cordon, release
from sickbay.platforms.kubernetes.marks import HOLD_OFF
from sickbay.platforms.kubernetes.site import Site
from testbed.cluster import Cluster
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.stage import (
    CountedApi,
    DeafApi,
    KubeStage,
    a_site,
    act,
    annotate,
    lose_gpu,
    person_cordons,
    person_uncordons,
    read,
    somebody_taints,
    taint_keys,
)
from tests.platforms.contract import PlatformContract

KARPENTER, AUTOSCALER = HOLD_OFF
GPU_TAINT = "nvidia.com/gpu"


@pytest.fixture
def node(nodes: Nodes) -> str:
    return nodes(1, taints=[{"key": GPU_TAINT, "value": "true", "effect": "NoSchedule"}])[0]


@pytest.fixture
def site(api: Api) -> Site:
    return a_site(api)


def close(site: Site, node: str) -> None:
    assert isinstance(cordon(site, act(Verb.CORDON, node)), Done)


def open_(site: Site, node: str, **args: str) -> Outcome:
    return release(site, _release(node, **args))


def _release(node: str, **args: str) -> Action:
    return act(Verb.RELEASE, node, 2, 1, **args)


def ours(site: Site, node: str) -> dict[str, str]:
    """Everything of ours that is on the node."""
    found = read(site.api, node)
    prefix = site.settings.prefix
    left = {k: v for k, v in (found.metadata.annotations or {}).items() if k.startswith(prefix) or k in HOLD_OFF}
    return left | {t.key: t.value for t in found.spec.taints or () if t.key.startswith(prefix)}


class TestContract:
    """What ports.Platform promises of RELEASE."""

    @pytest.fixture
    def stage(self, cluster: Cluster, api: Api, namespace: str, nodes: Nodes) -> KubeStage:
        return KubeStage(cluster, api, namespace, nodes(2), {Verb.CORDON: cordon, Verb.RELEASE: release})

    test_only_our_own = PlatformContract.test_release_removes_only_our_own_mark
    test_missing_gpu = PlatformContract.test_release_is_refused_while_a_gpu_is_missing_but_cancelling_is_not


@pytest.mark.parametrize("cancel", ["0", "1"])
def test_the_node_is_afterwards_as_it_was_before(site: Site, node: str, cancel: str) -> None:
    before = read(site.api, node)
    close(site, node)
    outcome = open_(site, node, cancel=cancel)
    after = read(site.api, node)
    assert outcome == Done(f"our mark is off {node}")
    assert not after.spec.unschedulable
    assert taint_keys(site.api, node) == {t.key for t in before.spec.taints or ()}
    assert ours(site, node) == {}


def test_a_release_is_one_read_and_one_write_and_the_second_only_reads(site: Site, node: str) -> None:
    close(site, node)
    with closing(CountedApi(site.api)) as counted:
        open_(replace(site, api=counted), node)
        open_(replace(site, api=counted), node)
    assert [line.split()[0] for line in counted.asked] == ["GET", "PATCH", "GET"]


def test_a_release_whose_answer_was_lost_is_found_done(site: Site, node: str) -> None:
    close(site, node)
    with closing(DeafApi(site.api)) as deaf, pytest.raises(Unreachable):
        open_(replace(site, api=deaf), node)
    assert open_(site, node) == Done(f"our mark is off {node}")
    assert not read(site.api, node).spec.unschedulable


def test_a_cordon_that_was_there_before_us_stays_and_is_told(site: Site, node: str) -> None:
    """NVSentinel 9.4 #1424: respect others' cordons."""
    person_cordons(site.api, node)
    close(site, node)
    outcome = open_(site, node)
    assert outcome == Done(f"our mark is off {node}; it stays cordoned by kubectl-cordon, as it was before us")
    assert read(site.api, node).spec.unschedulable
    assert ours(site, node) == {}


def test_a_node_that_a_person_opened_and_closed_again_stays_closed(cluster: Cluster, site: Site, node: str) -> None:
    """NVSentinel 9.4: the second cordon is his, although our mark is still on the node. By kubectl itself."""
    close(site, node)
    cluster.kubectl("uncordon", node)
    cluster.kubectl("cordon", node)
    outcome = open_(site, node, cancel="1")
    assert isinstance(outcome, Done)
    assert "it stays cordoned by kubectl" in outcome.detail
    assert read(site.api, node).spec.unschedulable
    assert ours(site, node) == {}


def test_a_persons_cordon_that_was_over_before_ours_keeps_nothing_closed(
    cluster: Cluster, site: Site, node: str
) -> None:
    """NVSentinel 9.4 #458, #363: nodes stuck cordoned. By kubectl itself."""
    cluster.kubectl("cordon", node)
    cluster.kubectl("uncordon", node)
    close(site, node)
    assert open_(site, node) == Done(f"our mark is off {node}")
    assert not read(site.api, node).spec.unschedulable


def test_a_node_that_a_person_opened_is_left_open_and_without_our_taint(site: Site, node: str) -> None:
    close(site, node)
    person_uncordons(site.api, node)
    assert isinstance(open_(site, node, cancel="1"), Done)
    assert not read(site.api, node).spec.unschedulable
    assert taint_keys(site.api, node) == {GPU_TAINT}


def test_quarantine_and_maintenance_of_others_stay(site: Site, node: str) -> None:
    somebody_taints(site.api, node, "example.com/quarantine")
    close(site, node)
    somebody_taints(site.api, node, site.keys.maintenance, "sweep")
    open_(site, node)
    assert taint_keys(site.api, node) == {GPU_TAINT, "example.com/quarantine", site.keys.maintenance}


def test_what_a_rival_had_said_comes_back(site: Site, node: str) -> None:
    annotate(site.api, node, {KARPENTER: "false", AUTOSCALER: "true"})
    close(site, node)
    open_(site, node)
    assert ours(site, node) == {KARPENTER: "false", AUTOSCALER: "true"}


def test_what_a_rival_has_said_since_stays(site: Site, node: str) -> None:
    close(site, node)
    annotate(site.api, node, {KARPENTER: "30m"})
    open_(site, node)
    assert ours(site, node) == {KARPENTER: "30m"}


def test_a_node_that_is_not_ready_is_asked_for_again(cluster: Cluster, site: Site, node: str) -> None:
    """Originals 000.10 #5: no uncordon after a fixed wait."""
    close(site, node)
    cluster.kill_kubelet(node)
    outcome = open_(site, node)
    assert isinstance(outcome, Retry)
    assert outcome.why == f"{node} is not ready"
    assert read(site.api, node).spec.unschedulable


def test_a_node_that_lacks_a_gpu_does_not_go_back_to_work(site: Site, node: str) -> None:
    close(site, node)
    lose_gpu(site.api, node)
    assert open_(site, node) == Retry(30.0, f"only 7 of 8 GPUs of {node} are allocatable yet")
    assert read(site.api, node).metadata.annotation(site.keys.case) == f"{node}.1"


def test_the_gate_opens_with_a_release_and_not_with_a_cancel(site: Site, node: str) -> None:
    somebody_taints(site.api, node, site.keys.newcomer)
    open_(site, node, cancel="1")
    assert site.keys.newcomer in taint_keys(site.api, node)
    open_(site, node)
    assert site.keys.newcomer not in taint_keys(site.api, node)


def test_what_was_last_sent_to_the_machine_is_forgotten_with_the_mark(site: Site, node: str) -> None:
    close(site, node)
    annotate(site.api, node, {site.keys.treatment: '{"key": "x"}'})
    open_(site, node)
    assert ours(site, node) == {}


def test_another_cases_mark_is_left_alone(site: Site, node: str) -> None:
    close(site, node)
    outcome = release(site, act(Verb.RELEASE, node, 2, number=2))
    assert outcome == Done(f"{node} carries no mark of {node}.2, but of {node}.1")
    assert read(site.api, node).spec.unschedulable


def test_nothing_of_ours_there_is_done_and_nothing_is_written(site: Site, node: str) -> None:
    person_cordons(site.api, node)
    with closing(CountedApi(site.api)) as counted:
        assert isinstance(open_(replace(site, api=counted), node), Done)
    assert [line.split()[0] for line in counted.asked] == ["GET"]
    assert read(site.api, node).spec.unschedulable


def test_a_node_that_is_gone_needs_no_release(site: Site) -> None:
    assert open_(site, "no-such-node") == Done("no-such-node is not there any more")


def test_another_machine_behind_its_gate_is_not_opened_by_the_old_ones_case(site: Site, node: str) -> None:
    somebody_taints(site.api, node, site.keys.newcomer)
    action = replace(_release(node), before=Before(instance="i-old"))
    outcome = release(site, action)
    assert isinstance(outcome, Done)
    assert "another machine" in outcome.detail
    assert site.keys.newcomer in taint_keys(site.api, node)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"unschedulable": "no"}', "x" * 10_000])
def test_a_node_whose_past_cannot_be_read_stays_closed_and_a_person_is_told_how_to_open_it(
    site: Site, node: str, damage: str
) -> None:
    close(site, node)
    annotate(site.api, node, {site.keys.before: damage})
    outcome = open_(site, node)
    assert isinstance(outcome, Done)
    assert f"kubectl uncordon {node}" in outcome.detail
    found = read(site.api, node)
    assert found.spec.unschedulable
    assert not found.metadata.annotation(site.keys.case)


def test_a_past_that_somebody_forged_gives_him_no_other_annotation(site: Site, node: str) -> None:
    close(site, node)
    forged = '{"unschedulable": false, "annotations": {"example.com/owner": "me", "karpenter.sh/do-not-disrupt": null}}'
    annotate(site.api, node, {site.keys.before: forged})
    open_(site, node)
    assert not read(site.api, node).metadata.annotation("example.com/owner")


class Meddled(CountedApi):
    """Between our read and our write somebody removes the taint before ours, so that ours moves up."""

    def patch(self, path: str, body: object, kind: type[Any], how: str = "merge", **params: str) -> Any:
        if not self.asked or not any(line.startswith("PATCH") for line in self.asked):
            super().patch(path, [{"op": "remove", "path": "/spec/taints/0"}], kind, "json")
        return super().patch(path, body, kind, how, **params)


def test_no_taint_but_ours_is_removed_although_the_list_moves_under_us(site: Site, node: str) -> None:
    close(site, node)
    somebody_taints(site.api, node, "example.com/late")
    with closing(Meddled(site.api)) as meddled:
        assert isinstance(open_(replace(site, api=meddled), node), Done)
    assert taint_keys(site.api, node) == {"example.com/late"}
