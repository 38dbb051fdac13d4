"""The guard at the door of a treatment: everything that must be true, each with its refusal in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.kube.api import Api
from sickbay.kube.conflicts import settle
from sickbay.model import Action, Before, Done, Node, Place, Verb
from sickbay.platforms.kubernetes import treatment
from sickbay.platforms.kubernetes.cordon import cordon
from sickbay.platforms.kubernetes.drain import drain
from sickbay.platforms.kubernetes.guard import refusal, unguarded
from sickbay.platforms.kubernetes.platform import DOORS
from sickbay.platforms.kubernetes.sight import look
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.treatment import Treatment
from testbed.cluster import Cluster
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.stage import KubeStage, StageClock, a_site, act, add_pod, annotate, person_uncordons, read, runs
from tests.platforms.contract import PlatformContract

NODE = Node("n1", uid="u1", instance="i-1", boot_id="boot-a", cordoned=True, mark="n1.3")
REBOOT = Action("n1.3/9", Verb.REBOOT, Place("n1"), before=Before("boot-a", "i-1", "u1"))


# --- what a view tells ------------------------------------------------------------------------------------------------


def test_nothing_is_said_against_a_treatment_of_a_node_that_is_as_the_case_believes() -> None:
    assert refusal(REBOOT, NODE) == ""


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mark": ""}, "our mark on n1 is gone, not n1.3"),
        ({"mark": "n1.4"}, "our mark on n1 is n1.4, not n1.3"),
        ({"cordoned": False}, "n1 is not cordoned"),
        ({"jobs": ("train/job/llama",)}, "n1 is not empty: train/job/llama"),
        ({"boot_id": "boot-b"}, "n1 has booted since: boot-b, not boot-a"),
        ({"boot_id": ""}, "n1 has booted since: , not boot-a"),
        ({"instance": "i-2"}, "n1 is another machine now: i-2, not i-1"),
        ({"uid": "u2"}, "n1 is another object now: it was deleted and made again"),
    ],
)
def test_each_thing_that_is_not_so_is_a_refusal_of_its_own(changed: dict[str, Any], words: str) -> None:
    assert refusal(REBOOT, replace(NODE, **changed)) == words


def test_a_node_that_is_not_there_is_not_treated() -> None:
    assert refusal(REBOOT, None) == "there is no node n1"


def test_work_on_a_node_that_does_not_answer_keeps_no_treatment_away() -> None:
    assert refusal(REBOOT, replace(NODE, ready=False, jobs=("train/job/llama",))) == ""


def test_processes_that_only_a_boot_removes_keep_no_treatment_away() -> None:
    assert refusal(REBOOT, replace(NODE, stuck=("train/job/llama",))) == ""


class TestContract:
    """What ports.Platform promises of every treatment, at the platform's own doors: none of these calls may act."""

    @pytest.fixture
    def stage(self, cluster: Cluster, api: Api, namespace: str, nodes: Nodes) -> KubeStage:
        return KubeStage(cluster, api, namespace, nodes(2), DOORS)

    test_no_mark = PlatformContract.test_no_treatment_without_our_mark
    test_opened = PlatformContract.test_no_treatment_of_a_node_a_person_has_opened
    test_not_empty = PlatformContract.test_no_treatment_of_a_node_with_work_on_it
    test_late_reset = PlatformContract.test_a_reset_that_arrives_after_our_release_is_refused


# --- what only the objects tell ---------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> StageClock:
    return StageClock()


@pytest.fixture
def site(api: Api, clock: StageClock, namespace: str) -> Site:
    return a_site(api, clock, namespace=f"{namespace}-ours")


@pytest.fixture
def node(nodes: Nodes, site: Site) -> str:
    (made,) = nodes(1)
    assert isinstance(cordon(site, act(Verb.CORDON, made)), Done)
    return made


def asked(site: Site, node: str, step: int = 9, verb: Verb = Verb.REBOOT) -> str:
    """As the controller does: what is true now is noted, then the door is asked."""
    seen = look(site, node)
    assert seen is not None
    action = replace(act(verb, node, step), before=Before(seen.boot_id, seen.instance, seen.uid))
    return unguarded(site, action, look(site, node))


def sent(site: Site, node: str, key: str, state: str = treatment.SENT) -> None:
    """A treatment that another call has sent to this machine."""
    seen = look(site, node)
    assert seen is not None
    known = Treatment(key, "REBOOT", site.clock.now(), seen.boot_id, seen.instance, state, uid=seen.uid)
    settle(lambda: treatment.remember(site, read(site.api, node), known))


def test_a_node_that_is_ours_and_empty_may_be_treated(site: Site, node: str) -> None:
    assert asked(site, node) == ""


def test_a_second_treatment_waits_while_one_is_under_way_and_the_first_may_ask_again(site: Site, node: str) -> None:
    """NVSentinel 9.6 #1543, originals 000.10 #3: no second reboot while the first is at work."""
    sent(site, node, f"{node}.1/9")
    assert f"{node} is under treatment: REBOOT of {node}.1/9" in asked(site, node, 10, Verb.POWER_CYCLE)
    assert asked(site, node, 9) == ""


def test_a_treatment_that_the_provider_refused_keeps_no_other_away(site: Site, node: str) -> None:
    sent(site, node, f"{node}.1/9", treatment.FAILED)
    assert asked(site, node, 10, Verb.POWER_CYCLE) == ""


def test_a_treatment_whose_time_is_over_keeps_no_other_away(site: Site, clock: StageClock, node: str) -> None:
    sent(site, node, f"{node}.1/9")
    clock.passed += 3_600.0
    assert asked(site, node, 10, Verb.POWER_CYCLE) == ""


def test_a_damaged_memory_of_treatments_is_none(site: Site, node: str) -> None:
    annotate(site.api, node, {site.keys.treatment: "{" * 1_000})
    assert asked(site, node) == ""


def test_a_node_that_a_person_opened_in_the_meantime_is_not_treated(site: Site, node: str) -> None:
    person_uncordons(site.api, node)
    assert asked(site, node) == f"{node} is not cordoned"


def test_work_that_landed_in_the_meantime_keeps_the_treatment_away(site: Site, namespace: str, node: str) -> None:
    add_pod(site.api, namespace, "late", node)
    assert asked(site, node) == f"{node} is not empty: {namespace}/pod/late"


def test_pods_without_gpus_keep_away_what_would_end_them_and_not_a_reset(site: Site, namespace: str, node: str) -> None:
    add_pod(site.api, namespace, "web", node, gpus=0)
    for verb in (Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE):
        assert asked(site, node, verb=verb) == f"{node} is not empty: {namespace}/pod/web"
    assert asked(site, node, verb=Verb.RESET_GPU) == ""


def test_what_the_drain_calls_empty_the_guard_calls_empty(
    site: Site, clock: StageClock, namespace: str, node: str
) -> None:
    """A pod in D state: a drained node that could never be treated would be stuck for ever (NVSentinel 9.4)."""
    add_pod(site.api, namespace, "hung", node, annotations={"sim.test/stuck": "true"})
    runs(site.api, namespace, "hung")
    drain(site, act(Verb.DRAIN, node, 2, evict="1"))
    assert "is not empty" in asked(site, node)
    clock.passed += 300.0
    assert isinstance(drain(site, act(Verb.DRAIN, node, 2, evict="1")), Done)
    assert asked(site, node) == ""


def test_a_node_that_is_down_may_be_treated_although_it_never_drained(
    cluster: Cluster, site: Site, namespace: str, node: str
) -> None:
    add_pod(site.api, namespace, "rank-0", node)
    cluster.kill_kubelet(node)
    assert asked(site, node) == ""


def test_a_call_that_comes_after_a_boot_is_refused(cluster: Cluster, site: Site, node: str) -> None:
    seen = look(site, node)
    assert seen is not None
    late = replace(act(Verb.REBOOT, node, 9), before=Before(seen.boot_id, seen.instance, seen.uid))
    cluster.reboot(node)
    assert unguarded(site, late, look(site, node)).startswith(f"{node} has booted since: ")


def test_an_object_that_was_made_anew_while_we_looked_is_not_treated(site: Site, node: str) -> None:
    seen = look(site, node)
    assert seen is not None
    stale = replace(seen, uid="an-earlier-object")
    assert unguarded(site, act(Verb.REBOOT, node, 9), stale) == f"{node} was deleted or made anew while we looked"
