"""What tests of the Kubernetes verbs are played on: a site on the real cluster, a clock that moves, pods and people.

`KubeStage` is the contract suite's Stage: a gang of two pods on the first two of four nodes. The suite calls its nodes
node-0000 …; on a cluster that others use at the same time each has a name of its own, and `Door` translates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sickbay.errors import ApiError, Unreachable
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, NodeObject, PodObject
from sickbay.model import Action, Change, Failed, Fleet, Job, JobPhase, Node, Outcome, Place, Verb
from sickbay.platforms.kubernetes.site import Site, site_of
from sickbay.platforms.kubernetes.tenants import job_of
from sickbay.platforms.kubernetes.views import show_node
from sickbay.settings import KubernetesSettings
from testbed.cluster import Cluster
from testbed.waiting import until

GPU = "nvidia.com/gpu"
Verbs = Mapping[Verb, Callable[[Site, Action], Outcome]]


class StageClock:
    """Wall time, plus what a test has let pass."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        return time.time() + self.passed

    def monotonic(self) -> float:
        return time.monotonic() + self.passed


class CountedApi(Api):
    """The real client, and what was asked through it."""

    def __init__(self, api: Api) -> None:
        super().__init__(api.access)
        self.asked: list[str] = []

    def request(self, method: str, path: str, body: object = None, **more: Any) -> bytes:
        self.asked.append(f"{method} {path}")
        return super().request(method, path, body, **more)


class DeafApi(CountedApi):
    """What it writes arrives; the answer never does."""

    def patch(self, path: str, body: object, kind: type[Any], how: str = "merge", **params: str) -> Any:
        super().patch(path, body, kind, how, **params)
        raise Unreachable(f"PATCH {path}", "the connection broke before the answer came")


def a_site(api: Api, clock: StageClock | None = None, **settings: Any) -> Site:
    return site_of(api, KubernetesSettings(**settings), clock or StageClock())


def act(verb: Verb, node: str, step: int = 1, number: int = 1, **args: str) -> Action:
    return Action(f"{node}.{number}/{step}", verb, Place(node), args)


def read(api: Api, node: str) -> NodeObject:
    return api.get(names.node(node), NodeObject)


def annotate(api: Api, node: str, values: Mapping[str, str | None]) -> None:
    api.patch(names.node(node), {"metadata": {"annotations": values}}, Anything, fieldManager="somebody")


def person_cordons(api: Api, node: str) -> None:
    api.patch(names.node(node), {"spec": {"unschedulable": True}}, Anything, "strategic", fieldManager="kubectl-cordon")


def person_uncordons(api: Api, node: str) -> None:
    body = {"spec": {"unschedulable": None}}
    api.patch(names.node(node), body, Anything, "strategic", fieldManager="kubectl-uncordon")


def somebody_taints(api: Api, node: str, key: str, value: str = "x", effect: str = "NoSchedule") -> None:
    """At the end of the list, which must not be empty."""
    taint = {"key": key, "value": value, "effect": effect}
    ops = [{"op": "add", "path": "/spec/taints/-", "value": taint}]
    api.patch(names.node(node), ops, Anything, "json", fieldManager="kubectl-taint")


def taint_keys(api: Api, node: str) -> set[str]:
    """Without what the node lifecycle controller adds by itself."""
    return {t.key for t in read(api, node).spec.taints or () if not t.key.startswith("node.kubernetes.io/un")}


def lose_gpu(api: Api, node: str, left: int = 7) -> None:
    api.patch(f"{names.node(node)}/status", {"status": {"allocatable": {GPU: str(left)}}}, Anything)


def a_pod(name: str, node: str = "", *, gpus: int = 1, **more: Any) -> dict[str, Any]:
    """`more`: labels, annotations, owner, volumes, grace. With `node` it is there without asking a scheduler."""
    limits = {"limits": {GPU: str(gpus)}} if gpus else {}
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "image": "train", "resources": limits}],
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": more.get("grace", 30),
        "volumes": more.get("volumes", []),
    }
    if node:
        spec["nodeName"] = node
    owner = more.get("owner")
    meta = {
        "name": name,
        "labels": more.get("labels", {}),
        "annotations": more.get("annotations", {}),
        "ownerReferences": [owner] if owner else [],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def owned_by(kind: str = "GangJob", name: str = "llama") -> dict[str, Any]:
    """A controller of a kind that the cluster does not know: the garbage collector leaves its pods alone."""
    return {
        "apiVersion": "gangs.example.com/v1", "kind": kind, "name": name, "controller": True,
        "uid": "11111111-2222-4333-8444-555555555555",
    }  # fmt: skip


def add_pod(api: Api, namespace: str, name: str, node: str, **more: Any) -> PodObject:
    return api.create(names.pods(namespace), a_pod(name, node, **more), PodObject)


def pod(api: Api, namespace: str, name: str) -> PodObject | None:
    return api.find(names.pod(namespace, name), PodObject)


def runs(api: Api, namespace: str, name: str) -> None:
    def running() -> bool:
        found = pod(api, namespace, name)
        return found is not None and found.status.phase == "Running"

    until(running, f"pod {name} runs")


class Door:
    """ports.Platform for the verbs it is given, by the suite's names for the nodes."""

    def __init__(self, site: Site, verbs: Verbs, nodes: Mapping[str, str]) -> None:
        self.site, self._verbs, self._real = site, verbs, nodes
        self._names = {real: name for name, real in nodes.items()}
        self.verbs = frozenset(verbs)

    def look(self, node: str) -> Node | None:
        real = self._real.get(node, node)
        found = self.site.api.find(names.node(real), NodeObject)
        if found is None:
            return None
        pods = self.site.api.list(names.PODS, PodObject, fieldSelector=f"spec.nodeName={real}")
        shown = show_node(self.site, found, pods)
        return replace(shown, name=node, mark=shown.mark.replace(real, node))

    def perform(self, action: Action) -> Outcome:
        node, real = action.place.node, self._real.get(action.place.node, action.place.node)
        mine = replace(action, key=action.key.replace(node, real), place=replace(action.place, node=real))
        try:
            return self._verbs[action.verb](self.site, mine)
        except ApiError as error:
            return Failed(str(error))

    def observe(self) -> Fleet:
        raise NotImplementedError("sight has its own tests")

    def ask_after(self, node: str, instance: str) -> None:
        raise NotImplementedError("sight has its own tests")

    def watch(self, sink: Callable[[Change], None]) -> Callable[[], None]:
        raise NotImplementedError("sight has its own tests")


class KubeStage:
    def __init__(self, cluster: Cluster, api: Api, namespace: str, made: list[str], verbs: Verbs) -> None:
        self.cluster, self.api, self.namespace, self.clock = cluster, api, namespace, StageClock()
        self.nodes = {f"node-{number:04d}": name for number, name in enumerate(made)}
        self.site = a_site(api, self.clock)
        self.platform = Door(self.site, verbs, self.nodes)
        self._boots = dict.fromkeys(self.nodes, 0)
        for rank in range(2):
            add_pod(api, namespace, f"train-{rank}", made[rank], gpus=8, labels={"job": "train"})
        for rank in range(2):
            runs(api, namespace, f"train-{rank}")

    def wait(self, seconds: float) -> None:
        """The clock is moved; the cluster gets a moment to do what it does."""
        self.clock.passed += seconds
        time.sleep(min(seconds, 0.15))

    def job(self) -> Job:
        pods = self.api.list(names.pods(self.namespace), PodObject, labelSelector="job=train")
        live = len(pods) == 2 and not any(p.metadata.deletion_timestamp for p in pods)
        phase = JobPhase.RUNNING if live else JobPhase.FAILED
        where = tuple(self._name(p.spec.node_name) for p in pods)
        return Job(job_of(pods[0]) if pods else "", where, phase, attempt=1)

    def boots(self, node: str) -> int:
        return self._boots[node]

    def reboot(self, node: str) -> None:
        self.cluster.reboot(self.nodes[node])
        self._boots[node] += 1

    def lose_gpu(self, node: str) -> None:
        lose_gpu(self.api, self.nodes[node])

    def hang_driver(self, node: str) -> None:
        """Its pods do not end, whatever signal they get."""
        for one in self._pods_on(node):
            path = names.pod(one.metadata.namespace, one.metadata.name)
            self.api.patch(path, {"metadata": {"annotations": {"sim.test/stuck": "true"}}}, Anything)

    def cut_power(self, node: str) -> None:
        self.cluster.kill_kubelet(self.nodes[node])

    def person_uncordons(self, node: str) -> None:
        person_uncordons(self.api, self.nodes[node])

    def person_cordons(self, node: str) -> None:
        person_cordons(self.api, self.nodes[node])

    def _pods_on(self, node: str) -> list[PodObject]:
        return self.api.list(names.PODS, PodObject, fieldSelector=f"spec.nodeName={self.nodes[node]}")

    def _name(self, real: str) -> str:
        return next((name for name, node in self.nodes.items() if node == real), real)
