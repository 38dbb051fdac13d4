"""CORDON on a real API server: one write, everything remembered, nothing of anybody else touched."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from sickbay.errors import ApiError, Unreachable
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject
from sickbay.model import Action, Before, Done, Failed, Retry, Verb
from sickbay.platforms.kubernetes.cordon import cordon, release
from sickbay.platforms.kubernetes.marks import HOLD_OFF
from sickbay.platforms.kubernetes.site import awaited
from sickbay.platforms.kubernetes.views import instance_of
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.stage import (
    CountedApi,
    DeafApi,
    KubeStage,
    a_site,
    act,
    annotate,
    person_cordons,
    person_uncordons,
    read,
    somebody_taints,
    taint_keys,
)
from tests.platforms.contract import PlatformContract

KARPENTER, AUTOSCALER = HOLD_OFF


@pytest.fixture
def node(nodes: Nodes) -> str:
    """As a kubelet has registered it: with a taint and an annotation of its own."""
    taint = {"key": GPU_TAINT, "value": "true", "effect": "NoSchedule"}
    return nodes(1, taints=[taint], annotations={"example.com/registered": "true"}, wait=False)[0]


GPU_TAINT = "nvidia.com/gpu"
NOT_CLOSED = "!has(object.spec.unschedulable) || !object.spec.unschedulable"


def close(node: str, **before: str) -> Action:
    return replace(act(Verb.CORDON, node), before=Before(**before))  # type: ignore[arg-type]


@pytest.fixture
def counted(api: Api) -> Iterator[CountedApi]:
    with closing(CountedApi(api)) as one:
        yield one


class TestContract:
    """What ports.Platform promises of CORDON."""

    @pytest.fixture
    def stage(self, cluster: Cluster, api: Api, namespace: str, nodes: Nodes) -> KubeStage:
        return KubeStage(cluster, api, namespace, nodes(2), {Verb.CORDON: cordon, Verb.RELEASE: release})

    test_machine = PlatformContract.test_a_cordon_is_for_the_machine_the_case_is_about
    test_other_case = PlatformContract.test_cordon_does_not_take_another_cases_mark
    test_in_service = PlatformContract.test_a_cordon_that_needs_no_place_is_refused_once_the_node_is_in_service_again
    test_opened = PlatformContract.test_a_cordon_of_what_we_had_closed_is_refused_once_a_person_has_opened_it
    test_person = PlatformContract.test_an_uncordon_by_a_person_is_seen_and_leaves_our_mark_readable


def test_a_cordon_is_one_read_and_one_write_that_says_whose_it_is_and_holds_rivals_off(
    counted: CountedApi, node: str
) -> None:
    api, site = counted, a_site(counted)
    assert isinstance(cordon(site, close(node)), Done)
    assert api.asked == [f"GET {names.node(node)}", f"PATCH {names.node(node)}"]
    found = read(api, node)
    assert found.spec.unschedulable
    assert [(t.value, t.effect) for t in found.spec.taints or () if t.key == site.keys.case] == [("1", "NoSchedule")]
    assert found.metadata.annotation(site.keys.case) == f"{node}.1"
    assert {key: found.metadata.annotation(key) for key in HOLD_OFF} == HOLD_OFF
    assert json.loads(found.metadata.annotation(site.keys.before))["unschedulable"] is False


def test_a_second_cordon_reads_and_writes_nothing(api: Api, counted: CountedApi, node: str) -> None:
    cordon(a_site(api), close(node))
    assert isinstance(cordon(a_site(counted), close(node)), Done)
    assert counted.asked == [f"GET {names.node(node)}"]


def test_what_the_watch_knows_makes_it_one_round_trip(api: Api, counted: CountedApi, node: str) -> None:
    known = read(api, node)
    assert isinstance(cordon(a_site(counted), close(node, instance=instance_of(known)), known), Done)
    assert counted.asked == [f"PATCH {names.node(node)}"]


def test_old_knowledge_costs_a_read_and_overwrites_nothing(api: Api, counted: CountedApi, node: str) -> None:
    """NVSentinel 9.4 #1424: a cordon that came between is somebody else's, and is remembered as such."""
    known = read(api, node)
    somebody_taints(api, node, "example.com/maintenance")
    person_cordons(api, node)
    outcome = cordon(a_site(counted), close(node), known)
    assert isinstance(outcome, Done)
    assert "cordoned before us" in outcome.detail
    assert [line.split()[0] for line in counted.asked] == ["PATCH", "GET", "PATCH"]
    assert {"example.com/maintenance", GPU_TAINT} < taint_keys(api, node)
    assert json.loads(read(api, node).metadata.annotation(a_site(api).keys.before))["unschedulable"] is True


def test_knowledge_that_forbids_is_checked_before_it_is_believed(api: Api, node: str) -> None:
    known = read(api, node)
    known.metadata.annotations = {a_site(api).keys.case: f"{node}.7"}  # the watch is behind: that case is over
    assert isinstance(cordon(a_site(api), close(node), known), Done)


def test_taints_and_labels_of_rivals_survive_although_they_write_at_the_same_time(api: Api, node: str) -> None:
    site, stop = a_site(api), threading.Event()
    rival = threading.Thread(target=_label_for_ever, args=(api, node, stop))
    rival.start()
    try:
        until(lambda: int(read(api, node).metadata.label("example.com/count", "0")) > 3, "the rival writes")
        for number in range(1, 6):
            assert isinstance(cordon(site, act(Verb.CORDON, node, number=number)), Done)
            somebody_taints(api, node, f"example.com/t{number}")
            assert isinstance(release(site, act(Verb.RELEASE, node, 2, number, cancel="1")), Done)
    finally:
        stop.set()
        rival.join()
    assert taint_keys(api, node) >= {GPU_TAINT, *(f"example.com/t{number}" for number in range(1, 6))}


def _label_for_ever(api: Api, node: str, stop: threading.Event) -> None:
    count = 0
    while not stop.is_set():
        count += 1
        api.patch(names.node(node), {"metadata": {"labels": {"example.com/count": str(count)}}}, Anything)


def test_a_node_of_another_machine_is_refused_in_words(api: Api, node: str) -> None:
    outcome = cordon(a_site(api), close(node, instance="i-of-an-earlier-one"))
    assert outcome == Failed(f"{node} is another machine now: {instance_of(read(api, node))}, not i-of-an-earlier-one")
    assert not read(api, node).spec.unschedulable


def test_another_cases_mark_is_not_taken_and_the_way_out_is_told(api: Api, node: str) -> None:
    site = a_site(api)
    cordon(site, close(node))
    outcome = cordon(site, act(Verb.CORDON, node, number=2))
    assert isinstance(outcome, Failed)
    assert f"carries the mark of {node}.1" in outcome.why
    assert f"kubectl annotate node {node} {site.keys.case}-" in outcome.why


def test_a_node_that_is_gone_is_a_failure(api: Api) -> None:
    assert cordon(a_site(api), close("no-such-node")) == awaited("no-such-node")


def test_a_node_that_goes_between_knowing_and_writing_is_a_failure(api: Api, nodes: Nodes) -> None:
    (node,) = nodes(1, wait=False)
    known = read(api, node)
    api.delete(names.node(node))
    assert cordon(a_site(api), close(node), known) == awaited(node)


def test_the_same_name_with_a_new_uid_is_another_node(api: Api, node: str) -> None:
    """Knowledge of the old object is not written onto the new one."""
    known = read(api, node)
    known.metadata.uid = "00000000-0000-4000-8000-000000000000"
    assert isinstance(cordon(a_site(api), close(node, instance="i-old"), known), Failed)
    assert not read(api, node).spec.unschedulable


def test_what_rivals_had_said_is_remembered(api: Api, node: str) -> None:
    annotate(api, node, {KARPENTER: "false"})
    site = a_site(api)
    cordon(site, close(node))
    before = json.loads(read(api, node).metadata.annotation(site.keys.before))
    assert before["annotations"] == {KARPENTER: "false", AUTOSCALER: None}


def test_a_second_cordon_after_a_persons_uncordon_remembers_an_open_node(api: Api, node: str) -> None:
    site = a_site(api)
    person_cordons(api, node)
    cordon(site, close(node))
    person_uncordons(api, node)
    assert isinstance(cordon(site, close(node)), Done)
    found = read(api, node)
    assert found.spec.unschedulable
    assert json.loads(found.metadata.annotation(site.keys.before))["unschedulable"] is False


def test_a_mark_that_somebody_took_half_of_is_made_whole_without_forgetting(api: Api, node: str) -> None:
    """Our own cordon is not taken for somebody else's: the node would stay closed for ever (NVSentinel 9.4 #458)."""
    site = a_site(api)
    cordon(site, close(node))
    annotate(api, node, {site.keys.case: None})
    assert isinstance(cordon(site, close(node)), Done)
    found = read(api, node)
    assert found.metadata.annotation(site.keys.case) == f"{node}.1"
    assert json.loads(found.metadata.annotation(site.keys.before))["unschedulable"] is False


def test_a_write_whose_answer_was_lost_is_found_and_not_made_again(api: Api, counted: CountedApi, node: str) -> None:
    """A crash after the write looks the same: what the node was like before us is still known."""
    with closing(DeafApi(api)) as deaf, pytest.raises(Unreachable):
        cordon(a_site(deaf), close(node))
    assert isinstance(cordon(a_site(counted), close(node)), Done)
    assert counted.asked == [f"GET {names.node(node)}"]
    assert json.loads(read(api, node).metadata.annotation(a_site(api).keys.before))["unschedulable"] is False


class MeddledApi(CountedApi):
    """Before each write of ours somebody turns the cordon."""

    def patch(self, path: str, body: object, kind: type[Any], how: str = "merge", **params: str) -> Any:
        closed = self.get(path, NodeObject).spec.unschedulable
        super().patch(path, {"spec": {"unschedulable": None if closed else True}}, kind)
        return super().patch(path, body, kind, how, **params)


def test_fields_that_others_keep_changing_are_met_with_patience(api: Api, node: str) -> None:
    with closing(MeddledApi(api)) as meddled:
        outcome = cordon(a_site(meddled), close(node))
    assert isinstance(outcome, Retry)
    assert "others keep changing the marks" in outcome.why
    assert not read(api, node).metadata.annotation(a_site(api).keys.case)


@pytest.fixture
def policy(api: Api, node: str) -> Iterator[str]:
    """Somebody's admission policy that lets nobody cordon this node."""
    group, name = "/apis/admissionregistration.k8s.io/v1", f"hands-off-{node}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    words = "this node is sacred, ask the platform team"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{**rule, "resourceNames": [node]}]},
        "validations": [
            {"expression": "!has(object.spec.unschedulable) || !object.spec.unschedulable", "message": words}
        ],
    }
    api.create(f"{group}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec}, Anything)
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    api.create(f"{group}/validatingadmissionpolicybindings", binding, Anything)
    until(lambda: _is_denied(api, node), "the policy is in force", 20.0)
    yield words
    api.delete(f"{group}/validatingadmissionpolicybindings/{name}")
    api.delete(f"{group}/validatingadmissionpolicies/{name}")


def _is_denied(api: Api, node: str) -> bool:
    try:
        api.patch(names.node(node), {"spec": {"unschedulable": True}}, NodeObject, dryRun="All")
    except ApiError:
        return True
    return False


def test_a_policy_that_denies_our_write_is_quoted_and_not_fought(counted: CountedApi, node: str, policy: str) -> None:
    outcome = cordon(a_site(counted), close(node))
    assert isinstance(outcome, Failed)
    assert outcome.why.startswith(f"the API server refuses our write to {node}: ")
    assert policy in outcome.why
    assert [line.split()[0] for line in counted.asked] == ["GET", "PATCH"]


# --- a mark that has no record any more ------------------------------------------------------------------------------


def test_a_mark_that_has_no_record_is_taken_over_with_what_it_remembered(api: Api, node: str) -> None:
    site = a_site(api)
    annotate(api, node, {AUTOSCALER: "false"})
    assert isinstance(cordon(site, act(Verb.CORDON, node, number=1)), Done)
    assert isinstance(cordon(site, act(Verb.CORDON, node, number=2)), Failed)
    assert isinstance(cordon(site, act(Verb.CORDON, node, number=2, adopts=f"{node}.1")), Done)
    assert read(api, node).metadata.annotation(site.keys.case) == f"{node}.2"
    assert isinstance(release(site, act(Verb.RELEASE, node, 2, number=2, cancel="1")), Done)
    left = read(api, node)
    assert (left.spec.unschedulable, left.metadata.annotation(AUTOSCALER)) == (False, "false")
    assert site.keys.case not in taint_keys(api, node)


def test_a_mark_that_has_no_record_is_taken_off_as_our_own_is(api: Api, node: str) -> None:
    site = a_site(api)
    assert isinstance(cordon(site, act(Verb.CORDON, node, number=1)), Done)
    assert isinstance(release(site, act(Verb.RELEASE, node, 2, number=2, cancel="1")), Done)
    assert read(api, node).spec.unschedulable, "another case's mark stays"
    assert isinstance(release(site, act(Verb.RELEASE, node, 2, number=2, cancel="1", adopts=f"{node}.1")), Done)
    assert not read(api, node).spec.unschedulable
    assert site.keys.case not in taint_keys(api, node)
    assert not any(key in (read(api, node).metadata.annotations or {}) for key in (site.keys.case, KARPENTER))
