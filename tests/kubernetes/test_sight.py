"""The controller's eyes on a real API server: what they show, what they tell, and what they do not miss."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sickbay.errors import Unreachable, UserError
from sickbay.kube import names
from sickbay.kube.api import Api, open_api
from sickbay.kube.names import keys
from sickbay.kube.objects import Anything
from sickbay.model import Change, JobChanged, JobPhase, Node, NodeChanged, NodeDeleted, Verb
from sickbay.platforms.kubernetes import watching
from sickbay.platforms.kubernetes.cordon import cordon, release
from sickbay.platforms.kubernetes.sight import look
from sickbay.platforms.kubernetes.site import Site
from sickbay.platforms.kubernetes.strays import without
from sickbay.platforms.kubernetes.watching import STRAY_S, Eyes
from testbed.cluster import Cluster
from testbed.fleet import gpu_node
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes
from tests.kubernetes.stage import (
    CountedApi,
    StageClock,
    a_site,
    act,
    add_pod,
    lose_gpu,
    owned_by,
    person_cordons,
    runs,
)
from tests.kubernetes.test_rivals import as_stranger

KEYS = keys()
AnApi = TypeVar("AnApi", bound=Api)


class LossyApi(CountedApi):
    """The answer to the first question about a list is lost."""

    def get(self, path: str, kind: type[Any], **params: str) -> Any:
        if params.get("limit") == "1" and path not in self.asked:
            self.asked.append(path)
            raise Unreachable(f"GET {path}", "timed out")
        return super().get(path, kind, **params)


class Scene:
    """A site that looks after this test's nodes only, and eyes on it."""

    def __init__(self, api: Api) -> None:
        word = secrets.token_hex(4)
        self.mine, self.selector = {"test.example/scene": word}, f"test.example/scene={word}"
        self.home = f"home-{word}"  # marks of other tests are another Sickbay's
        self.api, self.clock = api, StageClock()
        self.opened: list[Eyes | Api] = []  # closed after the test, last first

    def mind(self, by: AnApi) -> AnApi:
        self.opened.append(by)
        return by

    def site(self, by: Api | None = None, **settings: Any) -> Site:
        settings = {"namespace": self.home, "gpu_selector": self.selector, **settings}
        return a_site(by or self.api, self.clock, **settings)

    def eyes(self, by: Api | None = None, conditions: tuple[str, ...] = (), **more: Any) -> Eyes:
        made = Eyes(self.site(by, conditions=conditions), **more)
        self.opened.append(made)
        return made


@pytest.fixture
def scene(api: Api) -> Iterator[Scene]:
    made = Scene(api)
    yield made
    for one in reversed(made.opened):
        one.close()


class Told(list[Change]):
    def of(self, name: str) -> list[Node]:
        return [c.node for c in self if isinstance(c, NodeChanged) and c.node.name == name]

    def last(self, name: str) -> Node | None:
        return next(iter(self.of(name)[-1:]), None)

    def deletions(self, name: str) -> list[NodeDeleted]:
        return [c for c in self if isinstance(c, NodeDeleted) and c.name == name]


def told_by(eyes: Eyes) -> Told:
    told = Told()
    eyes.watch(told.append)
    eyes.observe()
    return told


def label(api: Api, node: str, **labels: str | None) -> None:
    api.patch(names.node(node), {"metadata": {"labels": labels}}, Anything)


def set_condition(api: Api, node: str, kind: str, status: str, message: str, at: str) -> None:
    stamps = {"lastTransitionTime": at, "lastHeartbeatTime": at}
    said = {"type": kind, "status": status, "reason": "Because", "message": message, **stamps}
    api.patch(f"{names.node(node)}/status", {"status": {"conditions": [said]}}, Anything, "strategic")


# -- showing


def test_look_agrees_with_observe_and_only_selected_nodes_are_seen(
    scene: Scene, nodes: Nodes, namespace: str, api: Api
) -> None:
    (here,), (elsewhere,) = nodes(1, labels=scene.mine), nodes(1)
    add_pod(api, namespace, "train-0", here, gpus=8, owner=owned_by("PyTorchJob"))
    eyes = scene.eyes()
    runs(api, namespace, "train-0")
    seen = {node.name: node for node in eyes.observe().nodes}
    assert set(seen) == {here}
    assert elsewhere not in seen
    assert seen[here].jobs == (f"{namespace}/pytorchjob/llama",)
    assert until(lambda: {n.name: n for n in eyes.observe().nodes}[here] == eyes.look(here), "observe agrees with look")
    assert eyes.look("no-such-node") is None
    assert (eyes.instance(here), eyes.instance("no-such-node")) == (seen[here].instance, "")


def test_a_look_needs_no_eyes_and_reads_what_is_there_now(scene: Scene, nodes: Nodes, namespace: str, api: Api) -> None:
    (here,) = nodes(1, labels=scene.mine)
    site = scene.site()
    assert look(site, "no-such-node") is None
    add_pod(api, namespace, "alone", here)
    found = look(site, here)
    assert found is not None
    assert found.jobs == (f"{namespace}/pod/alone",)


# -- telling


def test_every_change_is_told_with_a_growing_version_until_the_watch_is_stopped(
    scene: Scene, nodes: Nodes, api: Api
) -> None:
    (here,) = nodes(1, labels=scene.mine)
    eyes, told = scene.eyes(), Told()
    stop = eyes.watch(told.append)
    eyes.observe()
    person_cordons(api, here)
    until(lambda: (n := told.last(here)) is not None and n.cordoned, "the cordon is told")
    label(api, here, **{KEYS.opt_out: "true"})
    until(lambda: (n := told.last(here)) is not None and n.opted_out, "the label is told")
    versions = [node.version for node in told.of(here)]
    assert versions == sorted(versions)
    stop()
    count = len(told)
    label(api, here, **{KEYS.opt_out: None})
    until(lambda: not {n.name: n for n in eyes.observe().nodes}[here].opted_out, "the eyes go on seeing")
    assert len(told) == count


def test_work_that_comes_or_goes_tells_its_node_again_if_that_shows(
    scene: Scene, nodes: Nodes, namespace: str, api: Api
) -> None:
    (here,) = nodes(1, labels=scene.mine)
    told = told_by(scene.eyes())
    for rank in range(4):
        add_pod(api, namespace, f"train-{rank}", here, owner=owned_by("PyTorchJob"), grace=0)
    job = f"{namespace}/pytorchjob/llama"
    until(lambda: (n := told.last(here)) is not None and n.jobs == (job,), "the gang is told")
    for rank in range(4):
        runs(api, namespace, f"train-{rank}")
    by_work = {(n.version, n.jobs, n.gpus_taken) for n in told.of(here)}
    assert len(by_work) == len(told.of(here)), "the same sight was told twice"
    for rank in range(4):
        api.delete(names.pod(namespace, f"train-{rank}"), {"gracePeriodSeconds": 0})
    until(lambda: (n := told.last(here)) is not None and n.jobs == (), "the empty node is told")


def test_a_job_is_told_and_shown(scene: Scene, nodes: Nodes, namespace: str, api: Api) -> None:
    (here,) = nodes(1, labels=scene.mine)
    eyes = scene.eyes()
    told = told_by(eyes)
    container = {"name": "main", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"restartPolicy": "Never", "nodeName": here, "containers": [container]}
    body = {"metadata": {"name": "llama"}, "spec": {"template": {"spec": spec}}}
    api.create(names.jobs(namespace), body, Anything)
    job = f"{namespace}/job/llama"

    def phases() -> list[JobPhase]:
        return [c.job.phase for c in told if isinstance(c, JobChanged) and c.job.id == job]

    until(lambda: JobPhase.RUNNING in phases(), "the job runs")
    until(lambda: (n := told.last(here)) is not None and n.jobs == (job,), "its node carries it")
    last = told.last(here)
    assert last is not None
    assert last.gpus_taken == 8
    assert job in {j.id for j in eyes.observe().jobs}


def test_a_job_that_never_was_on_a_node_of_ours_is_not_shown_to_anybody_who_takes_over(
    scene: Scene, nodes: Nodes, namespace: str, api: Api
) -> None:
    """A whole namespace may opt in: its small jobs on other nodes are none of our business."""
    (here,), (elsewhere,) = nodes(1, labels=scene.mine), nodes(1)
    for name, node in (("ours", here), ("small", elsewhere)):
        spec = {"restartPolicy": "Never", "nodeName": node, "containers": [{"name": "main", "image": "train"}]}
        meta = {"name": name, "labels": {"sickbay.dev/recover": "managed"}}
        api.create(names.jobs(namespace), {"metadata": meta, "spec": {"template": {"spec": spec}}}, Anything)
    ours, small = f"{namespace}/job/ours", f"{namespace}/job/small"
    first = scene.eyes()
    first.observe()
    until(lambda: {ours, small} <= {job.id for job in first.gangs.all() if job.nodes}, "both run")
    next_leader = scene.eyes()
    told = told_by(next_leader)
    shown = {job.id for job in next_leader.observe().jobs}
    assert ours in shown
    assert small not in shown
    api.delete(f"{names.jobs(namespace)}/ours", {"propagationPolicy": "Background"})
    gone = [JobPhase.GONE]
    until(
        lambda: [c.job.phase for c in told if isinstance(c, JobChanged) and c.job.id == ours][-1:] == gone,
        "one that ran before we looked is told to be gone",
    )


def test_nothing_is_told_before_everything_was_seen(scene: Scene, nodes: Nodes, namespace: str, api: Api) -> None:
    """A node shown before its pods are known would look free, and work would be sent to it."""
    (here,) = nodes(1, labels=scene.mine)
    add_pod(api, namespace, "train-0", here, gpus=8)
    told = told_by(scene.eyes())
    label(api, here, **{KEYS.opt_out: "true"})
    until(lambda: told.of(here), "the change is told")
    assert all(node.jobs for node in told.of(here))


def test_a_pod_that_cannot_be_killed_is_told_when_its_time_is_up_although_nothing_changed(
    scene: Scene, nodes: Nodes, namespace: str, api: Api
) -> None:
    (here,) = nodes(1, labels=scene.mine)
    add_pod(api, namespace, "train-0", here, annotations={"sim.test/stuck": "true"}, grace=5)
    told = told_by(scene.eyes())
    path = names.pod(namespace, "train-0")
    api.patch(path, {"metadata": {"finalizers": ["test.example/hangs"]}}, Anything)
    api.delete(path)
    eyes_saw = f"{namespace}/pod/train-0"

    def told_as_time_goes_by() -> bool:
        """A pod is timed from when the watch saw it leave, which may be after the first of these minutes."""
        scene.clock.passed += 60
        return (n := told.last(here)) is not None and n.stuck == (eyes_saw,)

    until(told_as_time_goes_by, "the stuck pod is told", 30.0)
    api.patch(path, {"metadata": {"finalizers": None}}, Anything)


# -- deletion, re-creation, outages


def test_a_deleted_node_is_gone_only_when_its_provider_says_so(scene: Scene, nodes: Nodes, api: Api) -> None:
    kept, lost = nodes(2, labels=scene.mine)
    asked: list[str] = []

    def is_gone(provider_id: str) -> bool:
        asked.append(provider_id)
        return len(asked) > 2 and provider_id.startswith("aws:///")

    told = told_by(scene.eyes(is_gone=is_gone, ask_gone_s=(0.0, 0.0, 0.0, 0.0)))
    api.delete(names.node(lost))
    until(lambda: any(c.gone for c in told.deletions(lost)), "the end of its machine is told")
    assert [c.gone for c in told.deletions(lost)] == [False, True]
    assert told.deletions(kept) == []
    assert len(set(asked)) == 1


def test_an_object_that_was_deleted_while_its_machine_lives_is_not_gone(scene: Scene, nodes: Nodes, api: Api) -> None:
    (here,) = nodes(1, labels=scene.mine)
    told = told_by(scene.eyes(ask_gone_s=(0.0,)))
    api.delete(names.node(here))
    until(lambda: told.deletions(here), "the deletion is told")
    assert not any(c.gone for c in told.deletions(here))


def test_the_same_name_with_a_new_uid_is_another_node(scene: Scene, nodes: Nodes, api: Api) -> None:
    (here,) = nodes(1, labels={**scene.mine, KEYS.last_check: "2026-11-16T034000Z"})
    told = told_by(scene.eyes())
    before = next(n for n in scene.eyes().observe().nodes if n.name == here)
    api.delete(names.node(here))
    api.create(names.NODES, gpu_node(here, labels=scene.mine), Anything)
    after = until(lambda: next((n for n in told.of(here) if n.uid != before.uid), None), "the new one is told")
    assert after is not None
    assert after.instance != before.instance
    assert told.deletions(here)[0].version <= after.version
    assert after.last_check == 0.0, "what the old one's agent said is not the new one's"


def test_a_node_of_ours_that_lost_the_label_of_its_last_gpu_is_looked_after_until_it_is_released(
    scene: Scene, nodes: Nodes, api: Api
) -> None:
    """GPU feature discovery takes nvidia.com/gpu.present away with the last GPU: the sickest nodes would vanish."""
    ours, theirs = nodes(2, labels=scene.mine)
    eyes, site = scene.eyes(), scene.site()
    told = told_by(eyes)
    cordon(site, act(Verb.CORDON, ours))
    until(lambda: eyes.mark_of(ours), "our mark is seen")
    unlabel: dict[str, str | None] = dict.fromkeys(scene.mine)
    for name in (ours, theirs):
        label(api, name, **unlabel)
    until(lambda: told.deletions(theirs), "a node without our mark is let go")
    lose_gpu(api, ours, left=0)
    until(lambda: told_again(told, ours, scene).gpus_allocatable == 0, "the marked one is still followed")
    assert ours in {node.name for node in eyes.observe().nodes}
    release(site, act(Verb.RELEASE, ours, cancel="1"))
    until(lambda: let_go(told, ours, scene), "once released it is let go")


def test_a_marked_node_that_lost_its_label_before_we_looked_is_found_and_looked_after(
    scene: Scene, nodes: Nodes, api: Api
) -> None:
    """Only the process that had seen the label go followed it: after a failover its case had no node, and after a fresh
    install its cordon stayed for ever without a word."""
    ours, theirs, well = nodes(3, labels=scene.mine)
    site = scene.site()
    cordon(site, act(Verb.CORDON, ours))
    cordon(scene.site(namespace="another-sickbay"), act(Verb.CORDON, theirs))
    unlabel: dict[str, str | None] = dict.fromkeys(scene.mine)
    for name in (ours, theirs, well):
        label(api, name, **unlabel)
    told = told_by(eyes := scene.eyes())
    assert {node.name: node.mark for node in eyes.observe().nodes} == {ours: f"{ours}.1"}
    lose_gpu(api, ours, left=0)
    until(lambda: told.of(ours) and told_again(told, ours, scene).gpus_allocatable == 0, "it is followed", 20, 0.2)
    release(site, act(Verb.RELEASE, ours, cancel="1"))
    until(lambda: let_go(told, ours, scene), "once released it is let go")


def test_a_node_that_has_its_label_again_is_seen_as_any_other(scene: Scene, nodes: Nodes, api: Api) -> None:
    (ours,) = nodes(1, labels=scene.mine)
    cordon(scene.site(), act(Verb.CORDON, ours))
    label(api, ours, **dict.fromkeys(scene.mine))
    told = told_by(eyes := scene.eyes())
    label(api, ours, **scene.mine)
    until(lambda: told.of(ours), "the watch shows it")
    assert [node.mark for node in eyes.observe().nodes] == [f"{ours}.1"]
    assert told.deletions(ours) == []


@pytest.mark.parametrize(
    ("selector", "asked"),
    [
        ("nvidia.com/gpu.present=true", "!nvidia.com/gpu.present"),
        ("nvidia.com/gpu.present==true", "!nvidia.com/gpu.present"),
        ("nvidia.com/gpu.present", "!nvidia.com/gpu.present"),
        ("a=b,c=d", ""),
        ("a in (b, c)", ""),
        ("!a", ""),
        ("a!=b", ""),
    ],
)
def test_nodes_that_lost_the_label_are_asked_for_by_what_they_lack(selector: str, asked: str) -> None:
    assert without(selector).get("labelSelector", "") == asked


def told_again(told: Told, name: str, scene: Scene) -> Node:
    scene.clock.passed += STRAY_S
    node = told.last(name)
    assert node is not None
    return node


def let_go(told: Told, name: str, scene: Scene) -> bool:
    scene.clock.passed += STRAY_S
    return bool(told.deletions(name))


def test_what_happened_while_we_were_cut_off_is_told_afterwards(
    scene: Scene, nodes: Nodes, cluster: Cluster, api: Api
) -> None:
    """Deletions too: nobody will ever send that event again."""
    kept, lost = nodes(2, labels=scene.mine)
    with cluster.proxy() as proxy:
        told = told_by(scene.eyes(scene.mind(open_api(str(proxy.kubeconfig)))))
        proxy.freeze()
        proxy.cut()
        api.delete(names.node(lost))
        person_cordons(api, kept)
        proxy.thaw()
        until(lambda: told.deletions(lost), "the deletion is told")
        until(lambda: (n := told.last(kept)) is not None and n.cordoned, "the cordon is told")


@pytest.mark.soak
def test_an_api_server_that_was_restarted_is_followed_again(own_cluster: Callable[..., Cluster], scene: Scene) -> None:
    plane = own_cluster(kwok=False, scheduler=False, controllers=False)
    api = plane.api()
    for name in ("gpu-a", "gpu-b"):
        api.create(names.NODES, gpu_node(name, labels=scene.mine), Anything)
    eyes = scene.eyes(plane.api())
    told = told_by(eyes)
    plane.stop_apiserver(kill=True)
    assert {n.name for n in eyes.observe().nodes} == {"gpu-a", "gpu-b"}, "what is known stays known"
    plane.start_apiserver()
    api.delete(names.node("gpu-a"))
    person_cordons(api, "gpu-b")
    until(lambda: told.deletions("gpu-a"), "the deletion is told", 20.0)
    until(lambda: (n := told.last("gpu-b")) is not None and n.cordoned, "the cordon is told")


def test_a_controller_without_its_rights_says_at_once_which_ones_are_missing(
    scene: Scene, cluster: Cluster, tmp_path: Path
) -> None:
    with as_stranger(cluster, tmp_path) as stranger:
        eyes = scene.eyes(stranger)
        with pytest.raises(UserError, match=r"does not let us list /api/v1/.* Give Sickbay's service account"):
            eyes.observe()
        eyes.close()


def test_a_question_whose_answer_got_lost_is_asked_again(
    scene: Scene, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "PROBE_S", 0.2)
    with as_stranger(cluster, tmp_path) as stranger:
        eyes = scene.eyes(scene.mind(LossyApi(stranger)))
        with pytest.raises(UserError, match="does not let us list"):
            eyes.observe()
        eyes.close()


# -- for the verbs


def test_what_the_watch_knows_is_enough_to_cordon_in_one_round_trip(scene: Scene, nodes: Nodes, api: Api) -> None:
    (here,) = nodes(1, labels=scene.mine, pad=4_000)
    eyes = scene.eyes()
    eyes.observe()
    known = eyes.known(here)
    assert known is not None
    assert "sim.test/padding" not in (known.metadata.annotations or {}), "only what is needed is kept"
    counted = scene.mind(CountedApi(api))
    action = act(Verb.CORDON, here)
    cordon(scene.site(counted), action, known)
    assert counted.asked == [f"PATCH {names.node(here)}"]
    until(lambda: eyes.mark_of(here) == f"{here}.1", "the mark is seen")


def test_a_condition_that_must_stand_for_a_while_is_told_when_its_time_is_up(
    scene: Scene, nodes: Nodes, api: Api
) -> None:
    (here,) = nodes(1, labels=scene.mine)
    told = told_by(scene.eyes(conditions=("KernelDeadlock=True,10m",)))
    set_condition(api, here, "KernelDeadlock", "True", "task docker blocked", "2020-01-01T00:00:00Z")
    until(lambda: told.of(here), "the condition is seen")
    assert all(not n.findings for n in told.of(here)), "its own timestamp is years old: that is their clock"
    scene.clock.passed += 601
    node = until(lambda: next((n for n in told.of(here) if n.findings), None), "it is told", 5.0)
    assert node is not None
    assert [(f.code, f.source) for f in node.findings] == [("condition.KernelDeadlock", "condition")]
