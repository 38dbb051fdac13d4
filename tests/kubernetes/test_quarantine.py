"""Quarantine on a real API server: checks 4 and 6 on one node that is out of service, the result annotated."""

from __future__ import annotations

import gc
import json
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sickbay.errors import Unreachable, UserError
from sickbay.kube import names
from sickbay.kube.access import from_kubeconfig
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything
from sickbay.model import Finding, Place, Severity, Status
from sickbay.platforms.kubernetes import node_jobs
from sickbay.platforms.kubernetes.quarantine import quarantine
from sickbay.platforms.kubernetes.quarantine_result import Verdict, annotation, findings_on, verdict
from sickbay.platforms.kubernetes.site import Site
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.test_sweep import work_on
from tests.kubernetes.ward import a_site, machines, the_jobs, the_node


@pytest.fixture
def site(api: Api, namespace: str) -> Site:
    return a_site(api, namespace)


def quick(_: float) -> None:
    """Asked again at once."""
    import time

    time.sleep(0.05)


def cordoned(site: Site, name: str) -> str:
    site.api.patch(names.node(name), {"spec": {"unschedulable": True}}, Anything)
    return name


def test_a_node_that_passes_is_recommended_for_return(
    site: Site, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """originals 002.12 #15: a node that had passed was to be "investigated"."""
    monkeypatch.setattr("sickbay.checks.efa_loopback.SETTLE_S", 0.0)  # simulated servers listen at once
    name = cordoned(site, nodes()[0])
    with machines(site.api, [name], tmp_path):
        said = quarantine(site, name, "ana", sleep=quick)
    assert (said.status, said.recommendation) == ("pass", "return"), said
    assert {one.check for one in said.findings} >= {"dcgm-l4", "efa-loopback"}
    node = the_node(site, name)
    told = json.loads(node.metadata.annotation(site.keys.quarantine_result))
    assert {key: told[key] for key in ("node", "suite", "status", "severity", "recommendation")} == {
        "node": name, "suite": "quarantine", "status": "pass", "severity": "PASS", "recommendation": "return",
    }  # fmt: skip
    assert node.metadata.label(site.keys.mode) == ""


def test_a_node_that_must_be_replaced_is_said_to_be_and_left_to_a_person(
    site: Site, nodes: Nodes, tmp_path: Path
) -> None:
    name = cordoned(site, nodes()[0])
    with machines(site.api, [name], tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("row_remap_failed_64", kubelet.nodes[name], 3)
        said = quarantine(site, name, "ana", checks=("dcgm-l4",), sleep=quick)
    assert (said.status, said.severity, said.recommendation) == ("fail", Severity.REPLACE, "replace")
    node = the_node(site, name)
    assert json.loads(node.metadata.annotation(site.keys.quarantine_result))["severity"] == "ISOLATE"
    assert findings_on(site, node) == ()


def test_where_it_may_act_the_controller_sees_what_was_found(
    api: Api, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    site = a_site(api, namespace, quarantine_act=True)
    name = cordoned(site, nodes()[0])
    with machines(api, [name], tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("row_remap_failed_64", kubelet.nodes[name], 3)
        quarantine(site, name, "ana", checks=("dcgm-l4",), sleep=quick)
    assert findings_on(site, the_node(site, name))[0].severity is Severity.REPLACE


def test_a_node_in_service_is_refused_with_the_commands_to_run_first(site: Site, nodes: Nodes) -> None:
    (name,) = nodes()
    with pytest.raises(UserError, match=f"{name} still takes work") as refused:
        quarantine(site, name, "ana", sleep=quick)
    assert f"kubectl cordon {name}\n  kubectl drain {name}" in str(refused.value)
    assert not the_jobs(site)


def test_a_node_with_work_is_refused_and_the_work_named(site: Site, nodes: Nodes) -> None:
    name = cordoned(site, nodes()[0])
    work_on(site, name, "trainer-0")
    with pytest.raises(UserError, match=r"has work on it: .*/trainer-0"):
        quarantine(site, name, "ana", sleep=quick)


def test_a_node_that_is_not_there_is_a_sentence(site: Site) -> None:
    with pytest.raises(UserError, match="there is no node nobody"):
        quarantine(site, "nobody", "ana", sleep=quick)


def test_two_at_once_are_refused(site: Site, nodes: Nodes) -> None:
    name = cordoned(site, nodes()[0])
    site.api.patch(names.node(name), {"metadata": {"labels": {site.keys.mode: "quarantine"}}}, Anything)
    with pytest.raises(UserError, match="is in quarantine already"):
        quarantine(site, name, "ana", sleep=quick)


def test_whoever_interrupts_it_leaves_no_label_and_no_job(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    name = cordoned(site, nodes()[0])

    def interrupted(_: float) -> None:
        assert the_node(site, name).metadata.label(site.keys.mode) == "quarantine"
        raise SystemExit(143)

    with machines(site.api, [name], tmp_path) as kubelet:
        kubelet.hang.add(name)
        with pytest.raises(SystemExit):
            quarantine(site, name, "ana", sleep=interrupted)
    assert the_node(site, name).metadata.label(site.keys.mode) == ""


# A server that hangs up during a handshake: CPython 3.11 raises without closing that socket (ssl.py, _create).
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
def test_an_api_server_that_is_away_in_the_middle_costs_neither_the_verdict_nor_the_label(
    site: Site, cluster: Cluster, nodes: Nodes, tmp_path: Path
) -> None:
    name = cordoned(site, nodes()[0])
    said: list[Verdict] = []
    with cluster.proxy() as way, machines(site.api, [name], tmp_path) as kubelet:
        through = Api(from_kubeconfig(way.kubeconfig), timeout_s=1.0)

        def examine() -> None:
            said.append(quarantine(replace(site, api=through), name, "ana", checks=("dcgm-l4",), sleep=quick))

        thread = threading.Thread(target=examine)
        with kubelet.lock:  # no check ends before nobody can read it
            thread.start()
            until(lambda: the_jobs(site), "its Job is there")
            way.freeze()
        until(lambda: node_jobs.has_ended(the_jobs(site)[0]), "its Job has ended, and nobody could read it")
        thread.join(2.0)
        assert thread.is_alive(), "it does not give up"
        way.thaw()
        way.cut()
        thread.join(30.0)
        through.close()
        gc.collect()  # such a socket is this test's, not that of whoever runs next
    assert [one.status for one in said] == ["pass"]
    node = the_node(site, name)
    assert json.loads(node.metadata.annotation(site.keys.quarantine_result))["status"] == "pass"
    assert node.metadata.label(site.keys.mode) == ""


class Mortal(Api):
    """One day it does not answer any more."""

    dead = False

    def request(self, method: str, path: str, *more: Any, **named: Any) -> bytes:
        if self.dead:
            raise Unreachable(f"{method} {path}", "nobody there")
        return super().request(method, path, *more, **named)


def test_whoever_asks_again_gets_the_answer_of_the_job_that_a_dead_one_left(
    site: Site, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sickbay.platforms.kubernetes.quarantine.LEAVE_S", 0.0)
    name = cordoned(site, nodes()[0])
    with closing(Mortal(site.api.access)) as mortal, machines(site.api, [name], tmp_path):

        def dies(_: float) -> None:
            mortal.dead = True
            raise SystemExit(137)

        with pytest.raises(SystemExit):
            quarantine(replace(site, api=mortal), name, "ana", checks=("dcgm-l4",), sleep=dies)
        assert the_node(site, name).metadata.label(site.keys.mode) == "quarantine"
        (left,) = the_jobs(site)
        told: list[str] = []
        said = quarantine(site, name, "bea", say=told.append, sleep=quick)
    assert f"{name}: taking up the examination that is there: dcgm-l4" in told
    assert (said.status, {one.check for one in said.findings}) == ("pass", {"dcgm-l4"})
    assert [job.metadata.uid for job in the_jobs(site)] == [left.metadata.uid]
    assert the_node(site, name).metadata.label(site.keys.mode) == ""


def test_a_job_that_somebody_took_away_is_not_begun_again(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    name = cordoned(site, nodes()[0])

    def taken(_: float) -> None:
        for job in the_jobs(site):
            node_jobs.stop(site, "check", name, job.metadata.annotation(site.keys.action))
        until(lambda: not the_jobs(site), "it is gone")

    with machines(site.api, [name], tmp_path) as kubelet:
        kubelet.hang.add(name)
        said = quarantine(site, name, "ana", sleep=taken)
    assert said.status == "unknown"
    assert "its Job was taken away before it had answered" in said.why
    assert not the_jobs(site)


def test_what_could_not_be_looked_at_is_no_pass(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    name = cordoned(site, nodes()[0])
    with machines(site.api, [name], tmp_path) as kubelet:
        kubelet.mute.add(name)
        said = quarantine(site, name, "ana", sleep=quick)
    assert (said.status, said.recommendation) == ("unknown", "investigate")


def a_finding(status: Status, severity: Severity = Severity.NONE, check: str = "dcgm-l4") -> Finding:
    return Finding("b/1", "agent", check, Place("n"), status, "x", "so", severity=severity)


def test_the_worst_decides_and_blindness_beats_a_warning() -> None:
    """originals 002.12 #1: a later, milder answer erased the worse one."""
    failed = a_finding(Status.FAILED, Severity.RESET)
    warned, blind = a_finding(Status.DEGRADED, Severity.MONITOR), a_finding(Status.UNKNOWN, check="efa-loopback")
    assert verdict([failed, warned, blind], ("dcgm-l4",)).status == "fail"
    assert verdict([warned, blind], ("dcgm-l4", "efa-loopback")).status == "unknown"
    assert verdict([warned], ("dcgm-l4",)).status == "warn"
    assert verdict([], ("dcgm-l4",)).status == "unknown"


def test_a_forged_result_neither_clears_anything_nor_answers_an_examination(site: Site, nodes: Nodes) -> None:
    """Whoever holds the sweeper's token can write it: what it says is sick is looked at, and nothing is well for it."""
    node = the_node(site, nodes()[0])
    boot = node.status.node_info.boot_id if node.status.node_info is not None else ""
    well = replace(a_finding(Status.OK, check="dcgm-l2"), boot_id=boot, answers="n.1/9")
    sick = replace(a_finding(Status.FAILED, Severity.REPLACE), boot_id=boot, answers="n.1/9")
    said = Verdict("fail", Severity.REPLACE, "replace", "forged", (well, sick))
    text = annotation(node.metadata.name, "sweep", said, "n.1/9", 1.0, act=True)
    node.metadata.annotations = {site.keys.quarantine_result: text}
    assert [(one.source, one.status, one.answers) for one in findings_on(site, node)] == [("sweep", Status.FAILED, "")]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"act":true}', '{"act":true,"answer":{"key":3}}', "x" * 70_000])
def test_an_annotation_that_somebody_else_wrote_is_read_without_harm(site: Site, nodes: Nodes, text: str) -> None:
    node = the_node(site, nodes()[0])
    node.metadata.annotations = {site.keys.quarantine_result: text}
    assert findings_on(site, node) == ()
