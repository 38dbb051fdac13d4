"""For tests of what happens on nodes: a real API server, simulated machines, and a Site in a namespace of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, JobObject, NodeObject
from sickbay.model import Action, Before, Outcome, Place, Started, Verb
from sickbay.platforms.kubernetes.cordon import cordon
from sickbay.platforms.kubernetes.site import Site, site_of
from sickbay.platforms.kubernetes.views import boot_of, instance_of
from sickbay.settings import KubernetesSettings
from sickbay.sim.world import World
from testbed.kubelet import SimKubelet
from testbed.waiting import until

ACCOUNT = "sickbay-node-job"


class RealClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def a_site(api: Api, namespace: str, **more: object) -> Site:
    """With the service account that our Jobs run as."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if api.find(f"{path}/{ACCOUNT}", Anything) is None:
        api.create(path, {"metadata": {"name": ACCOUNT}}, Anything)
    return site_of(api, KubernetesSettings(namespace=namespace, **more), RealClock())  # type: ignore[arg-type]


@contextmanager
def machines(api: Api, nodes: list[str], folder: Path, **more: object) -> Iterator[SimKubelet]:
    """Simulated machines behind these nodes, with agents that say nothing unless asked to."""
    world = World(seed=7, nodes=len(nodes), silent_failure=0.0, reboot_hangs=0.0, start=time.time() - 7_200)
    world.run_for(3_600.0)
    with SimKubelet(api, world, nodes, folder, agents=bool(more.pop("agents", False)), **more) as kubelet:  # type: ignore[arg-type]
        yield kubelet
        assert not kubelet.errors


def the_node(site: Site, name: str) -> NodeObject:
    return site.api.get(names.node(name), NodeObject)


def the_jobs(site: Site) -> list[JobObject]:
    return site.api.list(names.jobs(site.settings.namespace), JobObject)


def marked(site: Site, name: str, case: str = "") -> str:
    """The node closed in the name of a case; returns the case."""
    case = case or f"{name}.1"
    cordon(site, Action(f"{case}/1", Verb.CORDON, Place(name)))
    return case


def treating(site: Site, name: str, verb: Verb, device: str = "", step: int = 5) -> Action:
    """A treatment of a marked node, as the controller would send it."""
    node = the_node(site, name)
    before = Before(boot_of(node), instance_of(node), node.metadata.uid)
    return Action(f"{marked(site, name)}/{step}", verb, Place(name, device), before=before, sends=1)


def asked(ask: Callable[[], Outcome], within_s: float = 20.0) -> Outcome:
    """Asked again and again, as the controller does, until the answer is final."""

    said: list[Outcome] = []

    def once() -> bool:
        said.append(ask())
        return not isinstance(said[-1], Started)

    until(once, "a final answer", within_s, 0.1)
    return said[-1]
