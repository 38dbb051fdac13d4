"""A small training ground: fresh nodes, a namespace, jobs of each kind on them, and what can happen to their pods."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.objects import Anything, PodObject
from sickbay.kube.watch import Gone, Put, Reflector, Synced
from sickbay.model import Action, Job, JobPhase, Outcome, Place, Retry, Started, Verb
from sickbay.platforms.kubernetes import cordon
from sickbay.platforms.kubernetes.gangs import index, kinds
from sickbay.platforms.kubernetes.gangs.kinds import GangObject
from sickbay.platforms.kubernetes.gangs.restart import restart_job
from sickbay.platforms.kubernetes.gangs.stop import stop_job
from sickbay.platforms.kubernetes.platform import answered
from sickbay.platforms.kubernetes.site import Site, site_of
from sickbay.settings import KubernetesSettings
from testbed.waiting import until
from tests.kubernetes.conftest import Nodes

GPU, FLEET = "nvidia.com/gpu", "test.dev/fleet"
MANAGED = {"sickbay.dev/recover": "managed"}
ITEM = dict[str, Any]
IGNORE_DISRUPTION = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}  # the user's backoffLimit is not spent, and no back-off delays the new pod


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class Ground:
    def __init__(self, api: Api, namespace: str, nodes: Nodes, **settings: Any) -> None:
        self.api, self.namespace, self._nodes = api, namespace, nodes
        self.site: Site = site_of(api, KubernetesSettings(namespace=namespace, **settings), WallClock())

    def nodes(self, count: int) -> list[str]:
        return self._nodes(count, labels={FLEET: self.namespace})

    # -- jobs

    def pod_template(self, gpus: int = 8, **spec: Any) -> ITEM:
        container = {"name": "train", "image": "train:1", "resources": {"limits": {GPU: str(gpus)}}}
        body = {
            "restartPolicy": "Never", "nodeSelector": {FLEET: self.namespace}, "containers": [container],
            "terminationGracePeriodSeconds": 1, **spec,
        }  # fmt: skip
        return {"metadata": {"labels": {"app": "train"}}, "spec": body}

    def job(
        self, name: str = "llama", ranks: int = 2, *, labels: Mapping[str, str] = MANAGED, pod: ITEM | None = None,
        annotations: Mapping[str, str] | None = None, owners: list[ITEM] | None = None, **spec: Any,
    ) -> str:  # fmt: skip
        body: ITEM = {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "labels": dict(labels), "annotations": dict(annotations or {})},
            "spec": {"parallelism": ranks, "completions": ranks, "completionMode": "Indexed", "backoffLimit": 3,
                     "template": pod or self.pod_template(), **spec},
        }  # fmt: skip
        if owners:
            body["metadata"]["ownerReferences"] = owners
        self.api.create(names.jobs(self.namespace), body, Anything)
        return f"{self.namespace}/job/{name}"

    def running(self, job: str) -> Job:
        return self.phase(job, JobPhase.RUNNING)

    def phase(self, job: str, *wanted: JobPhase, within_s: float = 20.0) -> Job:
        last: list[Job] = []

        def there() -> Job | None:
            last[:] = [self.show(job)]
            return last[0] if last[0].phase in wanted else None

        try:
            found = until(there, f"{job} is {wanted}", within_s, 0.1)
        except Exception as error:
            raise AssertionError(f"{job} never was {wanted}: {last}") from error
        assert found is not None
        return found

    def gangs(self) -> index.Gangs:
        """All that the watches would have said by now."""
        made = index.Gangs(self.site, self.mark_of)
        for source in index.sources(self.site):
            try:
                found = self.api.list(source.path, GangObject, **source.params)
            except ApiError as error:
                if error.not_found and source.optional:
                    continue
                raise
            for obj in found:
                if source.name == index.NAMESPACE or obj.metadata.namespace == self.namespace:
                    made.put(source.name, obj)
        for pod in self.pods():
            made.put_pod(pod)
        return made

    def show(self, job: str) -> Job:
        return self.gangs().show(job)

    def mark_of(self, node: str) -> str:
        found = self.api.find(names.node(node), Anything)
        return found.metadata.annotation(self.site.keys.case) if found else ""

    def object(self, job: str) -> ITEM:
        known = kinds.parse(job)
        assert known is not None
        kind, namespace, name = known
        return self.api.get(kind.path(namespace, name), ITEM)

    def patch(self, job: str, body: Any) -> None:
        known = kinds.parse(job)
        assert known is not None
        kind, namespace, name = known
        self.api.patch(kind.path(namespace, name), body, Anything)

    # -- pods

    def pods(self) -> list[PodObject]:
        return self.api.list(names.pods(self.namespace), PodObject)

    def pod_on(self, node: str) -> PodObject:
        return next(pod for pod in self.pods() if pod.spec.node_name == node and pod.status.phase == "Running")

    def die(self, pod: PodObject, code: int = 1, message: str = "", **condition: str) -> None:
        """As a kubelet reports a container that ended."""
        over = {"exitCode": code, "reason": "Error", "message": message}
        status: ITEM = {"phase": "Failed", "containerStatuses": [
            {"name": "train", "image": "train:1", "imageID": "", "ready": False, "restartCount": 0,
             "state": {"terminated": over}}]}  # fmt: skip
        self.api.patch(f"{self.pod_path(pod)}/status", {"status": status}, Anything)

    def succeed(self, pod: PodObject) -> None:
        over = {"exitCode": 0, "reason": "Completed"}
        status: ITEM = {"phase": "Succeeded", "containerStatuses": [
            {"name": "train", "image": "train:1", "imageID": "", "ready": False, "restartCount": 0,
             "state": {"terminated": over}}]}  # fmt: skip
        self.api.patch(f"{self.pod_path(pod)}/status", {"status": status}, Anything)

    def until_replaced(self, count: int) -> None:
        """So many pods, the dead ones included, and all others run."""
        until(
            lambda: sum(p.status.phase in ("Running", "Failed") for p in self.pods()) >= count,
            "a new pod runs",
            20,
            0.1,
        )

    def until_condition(self, job: str, kind: str) -> None:
        def said() -> bool:
            found = self.object(job).get("status", {}).get("conditions") or ()
            return any(c["type"] == kind and c["status"] == "True" for c in found)

        until(said, f"{job} is {kind}", 20, 0.1)

    def until_pods(self, count: int) -> None:
        until(lambda: len(self.pods()) == count, f"there are {count} pods", 20, 0.1)

    def until_running(self, pod: str) -> None:
        def runs() -> bool:
            return self.api.get(names.pod(self.namespace, pod), PodObject).status.phase == "Running"

        until(runs, f"{pod} runs", 20, 0.1)

    def attempt(self, job: str, number: int) -> Job:
        found = until(
            lambda: shown if (shown := self.show(job)).attempt >= number else None, f"attempt {number}", 20, 0.1
        )
        assert found is not None
        return found

    def events(self, reason: str) -> list[ITEM]:
        return [e for e in self.api.list(names.events(self.namespace), ITEM) if e["reason"] == reason]

    def follow(self, job: str) -> Follower:
        return Follower(self, job)

    def fleet(self) -> list[Anything]:
        return self.api.list(names.NODES, Anything, labelSelector=f"{FLEET}={self.namespace}")

    def pod_path(self, pod: PodObject) -> str:
        return names.pod(pod.metadata.namespace, pod.metadata.name)

    # -- verbs

    def mark(self, node: str, number: int = 1) -> str:
        case = f"{node}.{number}"
        cordon.cordon(self.site, Action(f"{case}/1", Verb.CORDON, Place(node)))
        return case

    def stop(self, job: Job, key: str = "", **args: str) -> Action:
        given = {"job": job.id, "attempt": str(job.attempt), "last_step": str(job.step), **args}
        return Action(key or f"{job.id}#{job.attempt}.7", Verb.STOP_JOB, Place(""), given, job.nodes)

    def restart(self, job: Job, *nodes: str, from_step: int = 0, attempt: int = 0, call: bool = True) -> Action:
        given = {"job": job.id, "attempt": str(attempt or job.attempt + 1), "from_step": str(from_step)}
        key = f"{job.id}#{job.attempt}.9"
        return Action(key, Verb.RESTART_JOB, Place(""), given, tuple(nodes), sends=1, call=call)

    def do_once(self, action: Action) -> Outcome:
        return stop_job(self.site, action)

    def do(
        self, action: Action, verb: Callable[[Site, Action], Outcome] | None = None, within_s: float = 20.0
    ) -> Outcome:
        """Ask until it is neither Started nor Retry; a SENT_ONCE verb is called once and then looked at."""
        verb = verb or {Verb.STOP_JOB: stop_job, Verb.RESTART_JOB: restart_job}[action.verb]
        outcome: list[Outcome] = []

        def ended() -> bool:
            again = replace(action, call=not outcome) if action.verb is Verb.RESTART_JOB else action
            try:
                outcome[:] = [verb(self.site, again)]
            except ApiError as error:
                outcome[:] = [answered(error, action.verb)]
            return not isinstance(outcome[0], Started | Retry)

        until(ended, f"{action.verb} of {action.args.get('job')} ends", within_s, 0.1)
        return outcome[0]


class Follower:
    """One job followed by real watches, as platforms/kubernetes/watching.py does it."""

    def __init__(self, ground: Ground, job: str) -> None:
        self._ground, self._job = ground, job
        self._gangs = ground.gangs()
        self.phases: list[JobPhase] = []
        params = {"fieldSelector": f"metadata.namespace={ground.namespace}"}
        pods = Reflector(ground.api, names.pods(ground.namespace), PodObject, self._hear_pod)
        jobs = Reflector(ground.api, "/apis/batch/v1/jobs", GangObject, self._hear_job, params=params)
        self._watches = (pods.start(), jobs.start())

    def _hear_pod(self, told: Put[PodObject] | Gone | Synced) -> None:
        if isinstance(told, Put):
            self._take(self._gangs.put_pod(told.object))
        elif isinstance(told, Gone):
            self._take(self._gangs.gone_pod(told.namespace, told.name, told.version))

    def _hear_job(self, told: Put[GangObject] | Gone | Synced) -> None:
        if isinstance(told, Put):
            self._take(self._gangs.put("job", told.object))

    def _take(self, jobs: tuple[str, ...]) -> None:
        if self._job in jobs:
            self.phases.append(self._gangs.show(self._job).phase)

    def show(self) -> Job:
        return self._gangs.show(self._job)

    def until(self, seen: Callable[[], bool]) -> list[JobPhase]:
        until(lambda: bool(self.phases) and seen(), f"{self._job} goes on from {self.phases[-3:]}", 30, 0.05)
        return self.phases

    def stop(self) -> None:
        for watch in self._watches:
            watch.stop()
