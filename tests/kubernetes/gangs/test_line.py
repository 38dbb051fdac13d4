"""The whole line for a job: the real brain, the real platform, a real control plane. A cluster of its own, since a
controller looks after every job it sees."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from sickbay.catalog import load
from sickbay.controller.crew import PoolCrew
from sickbay.controller.loop import Controller
from sickbay.controller.postman import Postman
from sickbay.errors import Unreachable
from sickbay.kube.objects import Anything
from sickbay.model import Blame, JobPhase, Recovery, RecoveryPhase
from sickbay.platforms.kubernetes.gangs.stop import give_way
from sickbay.platforms.kubernetes.platform import KubernetesPlatform
from sickbay.settings import JobPolicy, Settings
from sickbay.stores.memory import MemoryStore
from testbed.cluster import Cluster
from testbed.waiting import until
from tests.builders import a_policy
from tests.kubernetes.gangs.ground import Ground, WallClock
from tests.kubernetes.gangs.test_kueue import QUEUED, active, admit
from tests.kubernetes.stage import CountedApi

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


class AloneLeader:
    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class Brain:
    def __init__(self, ground: Ground, jobs: JobPolicy | None = None) -> None:
        self.store, self.platform = MemoryStore(), KubernetesPlatform(ground.site)
        hurried = JobPolicy(examining_s=2.0)  # nobody runs the checks here: kubelets are kwok's
        settings = Settings(policy=a_policy(), jobs=jobs or hurried)
        self._woken = threading.Event()
        self._post = Postman([], WallClock(), self._woken.set, 1.0)
        self._controller = Controller(
            self.platform, self.store, load(), settings, WallClock(), AloneLeader(), self._post, PoolCrew(4)
        )
        self._controller.woken = self._woken
        assert self._controller.start()

    def until(self, seen: Callable[[], bool], what: str) -> None:
        def turned() -> bool:
            self._woken.wait(min(self._controller.turn(), 0.2))
            self._woken.clear()
            return seen()

        until(turned, what, 60, 0.0)

    def recovery(self) -> Recovery | None:
        return next((stored.value for stored in self.store.list(Recovery)), None)

    def close(self) -> None:
        self._controller.stop()
        self._post.close()
        self.platform.close()


@pytest.fixture
def place(own_cluster: Callable[..., Cluster]) -> Cluster:
    return own_cluster()


@pytest.fixture
def ground(place: Cluster) -> Ground:
    cluster, api = place, place.api()
    api.create("/api/v1/namespaces", {"metadata": {"name": "train"}}, Anything)
    path = "/api/v1/namespaces/train/serviceaccounts/default"
    until(lambda: api.find(path, Anything) is not None, "pods can be made", 20, 0.1)
    return Ground(api, "train", lambda count=1, /, **more: cluster.add_nodes(count, **more))


@pytest.fixture
def brain(ground: Ground) -> Iterator[Callable[[], Brain]]:
    made: list[Brain] = []

    def wake() -> Brain:
        made.append(Brain(ground))
        return made[-1]

    yield wake
    for one in made:
        one.close()


def test_a_job_killed_by_a_sick_gpu_is_blamed_on_it_and_runs_again_without_that_node(
    ground: Ground, brain: Callable[[], Brain]
) -> None:
    """originals 003.5 #8, 000.9: no check for checkpointing, and a restart only as far as the operator gives one."""
    here = ground.nodes(3)
    notes = {"sickbay.dev/checkpoint-saved": "50", "sickbay.dev/step": "60"}
    job = ground.running(ground.job(annotations=notes, backoffLimit=0))
    mind, sick = brain(), job.rank_nodes[1]
    mind.until(lambda: mind.recovery() is not None, "the job is looked after")
    ground.die(ground.pod_on(sick), 1, ECC)
    mind.until(lambda: ground.show(job.id).attempt == 2, "a second attempt is made")
    again = ground.running(job.id)
    assert set(again.nodes) == {node for node in here if node != sick}
    ground.patch(job.id, {"metadata": {"annotations": {"sickbay.dev/step": "51"}}})
    mind.until(lambda: _phase(mind) is RecoveryPhase.RUNNING, "its first step is seen")
    recovery = mind.recovery()
    assert recovery is not None
    assert (recovery.attempt, recovery.blame, recovery.suspects) == (2, Blame.HARDWARE, (sick,))
    assert recovery.because == (ECC,)
    assert recovery.lost_steps == 10


def test_a_gang_that_a_drain_stopped_and_nobody_has_a_record_of_runs_again(
    ground: Ground, brain: Callable[[], Brain]
) -> None:
    ground.nodes(3)
    job = ground.running(ground.job())
    sick = job.rank_nodes[0]
    assert give_way(ground.site, ground.mark(sick), [ground.pod_on(sick)]) == (job.id,)
    mind = brain()
    mind.until(lambda: ground.show(job.id).phase is JobPhase.RUNNING, "it is resumed")
    again = ground.show(job.id)
    assert again.attempt == 2
    assert sick not in again.nodes


class CutApi(CountedApi):
    """Cut off once before a Workload is activated: killed, or Kueue's webhook is down."""

    cuts = 1

    def request(self, method: str, path: str, body: Any = None, **more: Any) -> bytes:
        if method == "PATCH" and "/workloads/" in path and body["spec"]["active"] and self.cuts:
            self.cuts -= 1
            raise Unreachable(f"PATCH {path}", "cut off")
        return super().request(method, path, body, **more)


def test_a_queued_gang_whose_restart_was_cut_in_two_waits_in_its_queue_and_keeps_its_record(
    place: Cluster, ground: Ground, brain: Callable[[], Brain]
) -> None:
    """What Kueue would do is done by hand."""
    place.install_crds("kueue")
    cut = CutApi(ground.api)
    ground.site = replace(ground.site, api=cut)
    ground.nodes(3)
    job = ground.running(ground.job(labels=QUEUED))
    workload, mind = admit(ground, job.id), brain()
    mind.until(lambda: mind.recovery() is not None, "the job is looked after")
    ground.die(ground.pod_on(job.rank_nodes[1]), 1, ECC)
    mind.until(lambda: not active(ground, workload), "its Workload is stopped")
    ground.patch(job.id, {"spec": {"suspend": True}})  # Kueue
    mind.until(lambda: ground.show(job.id).attempt == 2 and active(ground, workload), "its Workload is active again")
    found = mind.recovery()
    assert found is not None
    assert (found.phase, found.attempt) == (RecoveryPhase.RESTARTING, 1)
    ground.patch(job.id, {"spec": {"suspend": False}})  # Kueue
    mind.until(lambda: _phase(mind) is RecoveryPhase.RUNNING, "it runs, and its record with it")
    cut.close()


def _phase(mind: Brain) -> RecoveryPhase | None:
    found = mind.recovery()
    return found.phase if found and found.attempt == 2 else None
