"""The sweep on a real API server: who is swept, how a node is closed and opened, and that nothing leaks."""

from __future__ import annotations

import gc
import json
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sickbay.agent.publishers.node_taint import OwnTaint
from sickbay.errors import Unreachable
from sickbay.kube import names
from sickbay.kube.access import from_kubeconfig
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject, PodObject
from sickbay.model import Status
from sickbay.platforms.kubernetes.claims import claim_on
from sickbay.platforms.kubernetes.quarantine_result import findings_on
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.sweep import Sweep, Swept, Turn, exit_code
from sickbay.platforms.kubernetes.watching import Eyes
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.stage import DeafApi
from tests.kubernetes.ward import a_site, machines, marked, the_jobs, the_node


@pytest.fixture
def site(api: Api, namespace: str) -> Site:
    return a_site(api, namespace, sweep_at_once=4)


def a_sweep(site: Site, only: list[str], owner: str = "sweeper-1") -> Sweep:
    return Sweep(site, owner, only=frozenset(only), every_s=0.1)


def by_node(swept: list[Swept]) -> dict[str, str]:
    return {one.node: one.status for one in swept}


def work_on(site: Site, name: str, pod: str = "work", **annotations: str) -> None:
    limits = {"nvidia.com/gpu": "1"}
    spec = {"nodeName": name, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}]}  # fmt: skip
    meta = {"name": pod, "annotations": {f"sim.test/{key}": value for key, value in annotations.items()}}
    site.api.create(names.pods(site.settings.namespace), {"metadata": meta, "spec": spec}, Anything)


def is_tainted(site: Site, node: NodeObject) -> bool:
    return any(taint.key == site.keys.maintenance for taint in node.spec.taints or ())


def test_idle_nodes_are_swept_side_by_side_and_opened_again(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    """originals 002.12 #10: one after the other, each until its time-out, and the taints stayed."""
    members = nodes(3)
    with machines(site.api, members, tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("row_remap_failed_64", kubelet.nodes[members[1]], 3)
        swept = a_sweep(site, members).run()
    assert by_node(swept) == {members[0]: "pass", members[1]: "fail", members[2]: "pass"}
    assert exit_code(swept) == 1
    for name in members:
        node = the_node(site, name)
        assert not is_tainted(site, node)
        assert claim_on(site, node) is None
        assert node.metadata.annotation(site.keys.last_sweep)


def test_a_node_is_closed_while_it_is_swept(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    (name,) = nodes()
    sweep = a_sweep(site, [name])
    with machines(site.api, [name], tmp_path) as kubelet:
        kubelet.hang.add(name)
        thread = threading.Thread(target=sweep.run)
        thread.start()
        until(lambda: is_tainted(site, the_node(site, name)) and the_jobs(site), "it is closed")
        claim = claim_on(site, the_node(site, name))
        assert claim is not None
        assert claim.owner == "sweeper-1"
        assert claim.until > time.time() + 1_000
        sweep.stop.set()
        thread.join(20.0)
    assert not is_tainted(site, the_node(site, name))


def test_a_stopped_sweep_opens_its_nodes_and_ends_its_jobs(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    """originals 002.12 #10: no trap, so a killed sweeper left its taints."""
    members = nodes(2)
    sweep = a_sweep(site, members)
    with machines(site.api, members, tmp_path) as kubelet:
        kubelet.hang.update(members)
        thread = threading.Thread(target=sweep.run)
        thread.start()
        until(lambda: len(the_jobs(site)) == 2, "both are at it")
        sweep.stop.set()
        thread.join(20.0)
    assert not thread.is_alive()
    assert not any(is_tainted(site, the_node(site, name)) for name in members)
    assert not the_node(site, members[0]).metadata.annotation(site.keys.last_sweep)
    until(lambda: not the_jobs(site), "their Jobs are gone")


def claimed(site: Site, name: str, for_s: float) -> None:
    """As another sweep left it."""
    claim = json.dumps({"owner": "another-sweeper", "until": time.time() + for_s})
    taints = [{"key": site.keys.maintenance, "value": "sweep", "effect": "NoSchedule"}]
    body = {"metadata": {"annotations": {site.keys.sweep: claim}}, "spec": {"taints": taints}}
    site.api.patch(names.node(name), body, Anything)


def test_what_a_dead_sweep_left_is_taken_off_by_the_next(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    dead, alive = nodes(2)
    claimed(site, dead, -5.0)
    claimed(site, alive, 600.0)
    a_sweep(site, [dead, alive]).run()
    assert not is_tainted(site, the_node(site, dead))
    assert is_tainted(site, the_node(site, alive))


def test_a_controller_alone_frees_what_a_dead_sweep_left_and_leaves_a_living_ones_claim(
    api: Api, namespace: str, nodes: Nodes
) -> None:
    site = a_site(api, namespace, gpu_selector=f"test/ns={namespace}")
    dead, dying, alive = nodes(3, labels={"test/ns": namespace})
    claimed(site, dead, -5.0)
    claimed(site, dying, 3.0)
    claimed(site, alive, 600.0)
    eyes = Eyes(site)
    try:
        eyes.observe()
        until(lambda: not is_tainted(site, the_node(site, dead)), "what was past its end is off")
        until(lambda: not is_tainted(site, the_node(site, dying)), "and what came to its end while it was watched")
    finally:
        eyes.close()
    assert claim_on(site, the_node(site, dead)) is None
    assert is_tainted(site, the_node(site, alive))
    assert claim_on(site, the_node(site, alive)) is not None


# A server that hangs up during a handshake: CPython 3.11 raises without closing that socket (ssl.py, _create).
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
def test_an_api_server_that_is_away_in_the_middle_costs_time_and_leaves_no_taint(
    cluster: Cluster, api: Api, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    (name,) = nodes()
    here = a_site(api, namespace)
    with cluster.proxy() as way, machines(api, [name], tmp_path) as kubelet:
        kubelet.hang.add(name)
        through = Api(from_kubeconfig(way.kubeconfig), timeout_s=0.5)
        sweep = a_sweep(a_site(through, namespace), [name])
        swept: list[Swept] = []
        thread = threading.Thread(target=lambda: swept.extend(sweep.run()))
        thread.start()
        until(lambda: is_tainted(here, the_node(here, name)) and the_jobs(here), "it is closed and its Job is there")
        way.freeze()
        sweep.stop.set()  # the Job is to be ended and the node opened, and neither can be asked for
        assert not until_ended(thread, 2.5), "it does not give up"
        assert is_tainted(here, the_node(here, name))
        way.thaw()
        way.cut()
        assert until_ended(thread, 30.0)
        through.close()
        gc.collect()  # such a socket is this test's, not that of whoever runs next
    assert by_node(swept) == {name: "skipped"}
    assert not is_tainted(here, the_node(here, name))
    assert claim_on(here, the_node(here, name)) is None
    until(lambda: not the_jobs(here), "and its Job is gone")


def until_ended(thread: threading.Thread, within_s: float) -> bool:
    thread.join(within_s)
    return not thread.is_alive()


def test_a_server_that_misses_questions_is_asked_again_and_the_node_is_examined(
    site: Site, api: Api, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    (name,) = nodes()

    class Hiccups(Api):
        """Every third question about Jobs or pods gets no answer."""

        asked = 0

        def request(self, method: str, path: str, *more: Any, **named: Any) -> bytes:
            if "/jobs" in path or "/pods" in path:
                self.asked += 1
                if self.asked % 3 == 0:
                    raise Unreachable(f"{method} {path}", "hiccup")
            return super().request(method, path, *more, **named)

    with closing(Hiccups(api.access)) as unsteady, machines(api, [name], tmp_path):
        swept = a_sweep(a_site(unsteady, namespace), [name]).run()
    assert by_node(swept) == {name: "pass"}
    assert not is_tainted(site, the_node(site, name))


def test_a_closing_whose_answer_was_lost_is_undone(site: Site, api: Api, namespace: str, nodes: Nodes) -> None:
    (name,) = nodes()

    class DeafOnce(DeafApi):
        deaf = True

        def patch(self, *asked: Any, **more: Any) -> Any:
            if not self.deaf:
                return Api.patch(self, *asked, **more)
            self.deaf = False
            return super().patch(*asked, **more)

    with closing(DeafOnce(api)) as deaf:
        swept = a_sweep(a_site(deaf, namespace), [name]).run()
    assert by_node(swept) == {name: "unknown"}
    assert not is_tainted(site, the_node(site, name))
    assert claim_on(site, the_node(site, name)) is None


def test_the_longest_unswept_node_comes_first(api: Api, namespace: str, nodes: Nodes, tmp_path: Path) -> None:
    """originals 002.12 #10: always the first N of the list."""
    site = a_site(api, namespace, sweep_max=2)
    members = nodes(3)
    for name, at in zip(members, ("2026-03-01T00:00:00Z", "2026-01-01T00:00:00Z", ""), strict=True):
        if at:
            api.patch(names.node(name), {"metadata": {"annotations": {site.keys.last_sweep: at}}}, Anything)
    with machines(api, members, tmp_path):
        swept = a_sweep(site, members).run()
    assert by_node(swept) == {members[2]: "pass", members[1]: "pass"}


def test_a_node_with_work_is_left_alone_and_ended_pods_are_no_work(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    """originals 002.12 #10: Succeeded and Failed pods counted as busy."""
    busy, idle = nodes(2)
    work_on(site, busy)
    work_on(site, idle, "ended", exit="0")
    where = names.pod(site.settings.namespace, "ended")
    until(lambda: site.api.get(where, PodObject).status.phase == "Succeeded", "it has ended")
    with machines(site.api, [busy, idle], tmp_path):
        swept = a_sweep(site, [busy, idle]).run()
    assert by_node(swept) == {idle: "pass", busy: "skipped"}
    assert next(one.why for one in swept if one.node == busy) == "it has work"


def test_work_that_landed_before_the_taint_is_seen_after_it(site: Site, nodes: Nodes, tmp_path: Path) -> None:
    """originals 002.12 #10: the race between the look and the taint."""
    (name,) = nodes()

    class Late(Sweep):
        def _closed(self, turn: Turn) -> str:
            why = super()._closed(turn)
            work_on(site, name)
            return why

    sweep = Late(site, "sweeper-1", only=frozenset([name]), every_s=0.1)
    with machines(site.api, [name], tmp_path):
        swept = sweep.run()
    assert by_node(swept) == {name: "skipped"}
    assert "work arrived before the taint did" in swept[0].why
    assert not is_tainted(site, the_node(site, name))
    assert not the_jobs(site)


def test_nodes_that_are_somebody_elses_concern_are_left_alone_and_it_says_why(site: Site, nodes: Nodes) -> None:
    cordoned, opted, sick, ours, paused = nodes(5)
    patch = site.api.patch
    patch(names.node(cordoned), {"spec": {"unschedulable": True}}, Anything)
    patch(names.node(opted), {"metadata": {"labels": {site.keys.opt_out: "true"}}}, Anything)
    taints = [{"key": site.keys.unhealthy, "value": "true", "effect": "NoSchedule"}]
    patch(names.node(sick), {"spec": {"taints": taints}}, Anything)
    marked(site, ours)
    sweep = a_sweep(site, [cordoned, opted, sick, ours, paused])
    sweep.hands_off = lambda node, pool: "it is paused" if node == paused else ""
    whys = {one.node: one.why for one in sweep.run()}
    assert whys == {
        cordoned: "it is cordoned", opted: "it is opted out", sick: f"it is tainted {site.keys.unhealthy}",
        ours: "it is cordoned", paused: "it is paused",
    }  # fmt: skip


def test_a_node_that_could_not_be_looked_at_is_neither_passed_nor_swept(
    site: Site, nodes: Nodes, tmp_path: Path
) -> None:
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        kubelet.mute.add(name)
        swept = a_sweep(site, [name]).run()
    assert by_node(swept) == {name: "unknown"}
    assert exit_code(swept) == 0
    node = the_node(site, name)
    assert not node.metadata.annotation(site.keys.last_sweep)
    assert not is_tainted(site, node)


def test_what_a_sweep_finds_is_there_for_the_controller_until_the_next_boot(
    site: Site, nodes: Nodes, tmp_path: Path
) -> None:
    """originals 002.12 #5: the agent's next cycle wiped the verdict."""
    (name,) = nodes()
    with machines(site.api, [name], tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("row_remap_failed_64", kubelet.nodes[name], 3)
        a_sweep(site, [name]).run()
        node = the_node(site, name)
        found = findings_on(site, node)
        assert (found[0].status, found[0].check, found[0].source) == (Status.FAILED, "dcgm-l2", "sweep")
        assert node.metadata.label(site.keys.status) == "fail"
        said = json.loads(node.metadata.annotation(site.keys.quarantine_result))
        assert said["suite"] == "sweep"
        assert said["status"] == "fail"
        kubelet.reboot(name)
        assert findings_on(site, the_node(site, name)) == ()


def test_without_a_controller_a_node_that_fails_stays_closed_and_a_passing_agent_does_not_open_it(
    site: Site, nodes: Nodes, tmp_path: Path
) -> None:
    """originals 002.12 #5: the agent's next cycle lifted the taint of a sweep. Standalone mode."""
    sick, well = nodes(2)
    sweep = a_sweep(site, [sick, well])
    sweep.keeps_out = True
    with machines(site.api, [sick, well], tmp_path) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("row_remap_failed_64", kubelet.nodes[sick], 3)
        assert by_node(sweep.run()) == {sick: "fail", well: "pass"}
    node = the_node(site, sick)
    assert [(t.key, t.value, t.effect) for t in node.spec.taints or ()] == [(site.keys.unhealthy, "true", "NoSchedule")]
    assert not the_node(site, well).spec.taints
    agents = OwnTaint(site.api, sick, site.keys.unhealthy, tmp_path)
    node, why = agents.lift(node)
    assert agents.is_on(node)
    assert f"kubectl taint nodes {sick} {site.keys.unhealthy}-" in why
