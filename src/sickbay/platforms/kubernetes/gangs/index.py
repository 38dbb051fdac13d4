"""All gangs of the cluster, kept up to date by the watches: what changed in, which jobs to show again out.

`Gangs` is fed by platforms/kubernetes/watching.py with the objects of SOURCES and with pods, and asked for model.Job.
It keeps what showing a job needs and no more; cost follows the change. Everything in it can be read again. It must
never do IO. Safe from several threads (watches, and the reader of progress).
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass

import msgspec

from sickbay.kube.objects import Container, ContainerStatus, Meta, PodObject, PodSpec, PodStatus
from sickbay.model import Checkpoint, Job, JobPhase
from sickbay.platforms.kubernetes.gangs import kinds, ranks, show, words
from sickbay.platforms.kubernetes.gangs.kinds import GangObject, GangSpec, Trainer, id_of
from sickbay.platforms.kubernetes.gangs.show import Gang, MarkOf, Memory
from sickbay.platforms.kubernetes.site import Site

NAMESPACE = "namespace"
MOST_TOMBSTONES = 4_096
LARGE = 64
KNOWN_OWNERS = ("CronJob", "TrainJob", "JobSet")  # the first makes Jobs and then leaves them alone; the others we know
WHOSE = "sickbay.dev/namespace"  # annotation on the ConfigMap of a bare gang: where its pods live
SIZE = "sickbay.dev/gang-size"  # annotation or label on bare pods: how many ranks the whole gang has


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of object that must be watched besides nodes and pods. `optional`: its CRD may not be installed."""

    name: str
    path: str
    params: dict[str, str]
    optional: bool = True


def sources(site: Site) -> tuple[Source, ...]:
    ours = f"/api/v1/namespaces/{site.settings.namespace}/configmaps"
    return (
        *(Source(kind.word, kind.path(), {}, optional=kind.word != "job") for kind in kinds.KINDS),
        Source(NAMESPACE, "/api/v1/namespaces", {}, optional=False),
        Source(kinds.BARE.word, ours, {"labelSelector": words.GANG}, optional=False),
    )


class Gangs:
    def __init__(self, site: Site, mark_of: MarkOf) -> None:
        self._site, self._mark_of = site, mark_of
        self._lock = threading.RLock()
        self._objects: dict[str, GangObject] = {}
        self._pods: dict[str, dict[str, PodObject]] = {}  # job -> name of pod -> pod
        self._homes: dict[tuple[str, str], str] = {}  # pod -> job
        self._parents: dict[str, str] = {}  # JobSet -> the TrainJob that made it
        self._namespaces: dict[str, str] = {}  # -> managed | native
        self._members: dict[str, set[str]] = {}  # namespace -> jobs
        self._memory: dict[str, Memory] = {}
        self._gpu: set[str] = set()  # jobs that have asked for GPUs
        self._versions: OrderedDict[str, int] = OrderedDict()

    # -- what the watches say; each answers with the jobs to show again

    def put(self, source: str, obj: GangObject) -> tuple[str, ...]:
        with self._lock:
            if source == NAMESPACE:
                return self._put_namespace(obj.metadata)
            if source == kinds.BARE.word:
                obj = bare_object(obj.metadata)
            return self._put_object(id_of(obj.metadata.namespace, source, obj.metadata.name), obj)

    def gone(self, source: str, namespace: str, name: str, version: int) -> tuple[str, ...]:
        """`name` of a ConfigMap says nothing about its gang: that one is known by its pods."""
        with self._lock:
            if source == NAMESPACE:
                self._namespaces.pop(name, None)
                return ()
            job = id_of(namespace, source, name) if source != kinds.BARE.word else self._bare_named(name)
            if self._objects.pop(job, None) is None:
                return ()
            self._note(job, version)
            self._parents.pop(job, None)
            self._forget_if_empty(job)
            return self._visible(job, gone=True)

    def put_pod(self, pod: PodObject) -> tuple[str, ...]:
        job = ranks.job_of(pod)
        if not job:
            return ()
        with self._lock:
            key = (pod.metadata.namespace, pod.metadata.name)
            if ranks.asks_for(pod, self._site.settings.gpu_resource):
                self._gpu.add(job)
            self._homes[key] = job
            self._pods.setdefault(job, {})[pod.metadata.name] = slim(pod)
            self._note(job, pod.metadata.version)
            self._members.setdefault(pod.metadata.namespace, set()).add(job)
            return self._visible(job)

    def gone_pod(self, namespace: str, name: str, version: int) -> tuple[str, ...]:
        with self._lock:
            job = self._homes.pop((namespace, name), "")
            if not job:
                return ()
            gone = self._pods.get(job, {}).pop(name, None)
            if gone is not None:
                self._memory_of(job).deaths.pop(gone.metadata.uid, None)
                self._recall_preemption(job, gone)
            self._note(job, version)
            self._forget_if_empty(job)
            return self._visible(job)

    def put_progress(self, shown: Job, step: int, at: float, saved: tuple[Checkpoint, ...] = ()) -> bool:
        """A step that was read from a log, an address, a file or an annotation. False if it is no news. A lower one is:
        a trainer that its own launcher has restarted begins again where it last saved."""
        with self._lock:
            memory = self._memory_of(shown.id)
            if memory.attempt != shown.attempt:
                return False  # of an attempt that has ended meanwhile
            fresh = tuple(c for c in saved if c.step not in {known.step for known in memory.saved})
            memory.saved = (*memory.saved, *fresh)[-words.MOST_CHECKPOINTS :]
            if step < 0 or step == memory.step:
                return bool(fresh)
            if 0 < memory.step < step and at > memory.step_at:
                pace = (at - memory.step_at) / (step - memory.step)
                memory.step_s = pace if memory.step_s == 1.0 else 0.7 * memory.step_s + 0.3 * pace
            memory.step, memory.step_at, memory.ever = step, at, True
            return True

    def put_unread(self, shown: Job, why: str) -> bool:
        """Why its steps cannot be read, "" when they can. False if it is no news."""
        with self._lock:
            memory = self._memory_of(shown.id)
            if memory.attempt != shown.attempt or memory.unread == why:
                return False
            memory.unread = why
            return True

    # -- what is asked

    def show(self, job: str) -> Job:
        """As it is now; GONE when there is no such job any more."""
        with self._lock:
            gang, version = self._gang(job), self._versions.get(job, 0)
            if gang is None:
                return Job(job, (), JobPhase.GONE, 0, version=version, cluster=self._site.cluster)
            memory = self._remembered(job, gang)
            if (attempt := show.attempt_of(gang.object)) != memory.attempt:
                memory.attempt, memory.step, memory.step_at, memory.unread = attempt, 0, 0.0, ""
            if fresh := _fresh(memory, show.told(gang)):
                memory.step, memory.step_at, memory.ever = max(fresh), self._site.clock.now(), True
            return show.show(
                gang, memory, self._mark_of, version=version, now=self._site.clock.now(), cluster=self._site.cluster
            )

    def all(self) -> tuple[Job, ...]:
        with self._lock:
            known = [job for job in {*self._objects, *self._pods} if self._visible(job) == (job,)]
            return tuple(self.show(job) for job in sorted(known) if self._gang(job) is not None)

    def managed(self) -> tuple[str, ...]:
        """Those that have opted in, without the cost of showing them."""
        with self._lock:
            known = {self._parents.get(job, job) for job in {*self._objects, *self._pods}}
            gangs = (gang for job in sorted(known) if (gang := self._gang(job)) is not None)
            return tuple(gang.id for gang in gangs if gang.recover == words.MANAGED)

    def gang(self, job: str) -> Gang | None:
        with self._lock:
            return self._gang(job)

    def is_kept(self, job: str) -> bool:
        """A bare gang whose manifests we have kept."""
        with self._lock:
            return job in self._objects and job.split("/")[1] == kinds.BARE.word

    def is_written_on(self, job: str) -> bool:
        """Does it carry an attempt of ours?"""
        gang = self.gang(job)
        return gang is not None and bool(gang.object.metadata.annotation(words.ATTEMPT))

    def known_as(self, job: str) -> str:
        """The id under which a job is told, given the one by which its pods name it. Takes no lock: see watching.py."""
        return self._parents.get(job, job)

    def is_large(self, job: str) -> bool:
        """So many ranks that showing it for each of its pods would take longer than they need to start."""
        with self._lock:
            homes = [job, *(child for child, parent in self._parents.items() if parent == job)]
            return sum(len(self._pods.get(home, ())) for home in homes) > LARGE

    def on_node(self, node: str) -> tuple[str, ...]:
        """Jobs with a living pod there: to be shown again when the node gets or loses our mark."""
        with self._lock:
            there = {job for job, pods in self._pods.items() if any(p.spec.node_name == node for p in pods.values())}
            return tuple(job for one in sorted(there) for job in self._visible(one))

    # -- inside

    def _put_namespace(self, meta: Meta) -> tuple[str, ...]:
        word = meta.label(words.RECOVER)
        if self._namespaces.get(meta.name, "") == word:
            return ()
        self._namespaces[meta.name] = word
        return tuple(job for one in sorted(self._members.get(meta.name, ())) for job in self._visible(one))

    def _put_object(self, job: str, obj: GangObject) -> tuple[str, ...]:
        if self._is_ours(obj.metadata):
            return ()
        self._objects[job] = obj
        self._members.setdefault(obj.metadata.namespace, set()).add(job)
        self._note(job, obj.metadata.version)
        owner = next((o for o in obj.metadata.owner_references or () if o.controller and o.kind == "TrainJob"), None)
        if owner is not None:
            self._parents[job] = id_of(obj.metadata.namespace, "trainjob", owner.name)
        return self._visible(job)

    def _is_ours(self, meta: Meta) -> bool:
        keys = self._site.keys
        return bool(meta.label(keys.target_node) or meta.annotation(keys.action))

    def _gang(self, job: str) -> Gang | None:
        known = kinds.parse(job)
        if known is None:
            return None
        kind, namespace, name = known
        pods = self._pods_of(job)
        obj = self._objects.get(job)
        if kind is kinds.BARE and (obj is not None or pods):
            obj = bare_shown(obj, namespace, name, pods)
        if obj is None:
            return None
        if kind.word == "trainjob":
            obj = with_jobs(obj, self._objects.get(id_of(namespace, "jobset", name)))
        return Gang(kind, obj, pods, recover_of(obj, pods, self._namespaces.get(namespace, "")))

    def _pods_of(self, job: str) -> list[PodObject]:
        homes = [job, *(child for child, parent in self._parents.items() if parent == job)]
        return [pod for home in homes for pod in self._pods.get(home, {}).values()]

    def _visible(self, job: str, *, gone: bool = False) -> tuple[str, ...]:
        """The job that people know: a JobSet's Jobs are the JobSet, a TrainJob's JobSet is the TrainJob."""
        obj, top = self._objects.get(job), self._parents.get(job, job)
        owned = {o.kind for o in (obj.metadata.owner_references or () if obj else ()) if o.controller}
        if "JobSet" in owned:
            return ()
        if top != job:
            self._note(top, self._versions.get(job, 0))
            if job in self._gpu:
                self._gpu.add(top)
        gang = self._gang(top)
        if gang is None:
            return (top,) if gone or top in self._gpu else ()
        return (top,) if top in self._gpu or gang.recover else ()

    def _note(self, job: str, version: int) -> None:
        self._versions[job] = max(version, self._versions.pop(job, 0))

    def _memory_of(self, job: str) -> Memory:
        return self._memory.setdefault(self._parents.get(job, job), Memory())

    def _remembered(self, job: str, gang: Gang) -> Memory:
        """What its pods have said. A new object of a later attempt is the same job, made anew by us; of any other the
        old one's steps and checkpoints say nothing, though its pods may still be there when it comes."""
        memory, uid = self._memory_of(job), show.uid_of(gang)
        if job in self._parents:  # it remembers with its TrainJob
            return memory
        if memory.uid and uid != memory.uid and show.attempt_of(gang.object) <= memory.attempt:
            memory = self._memory[job] = Memory()
        memory.uid = uid
        return memory

    def _recall_preemption(self, job: str, pod: PodObject) -> None:
        if ranks.disruption(pod) in ranks.PREEMPTED:
            self._memory_of(job).preempted = show.PREEMPTION

    def _bare_named(self, configmap: str) -> str:
        return next((job for job in self._objects if job.split("/")[1] == kinds.BARE.word
                     and bare_name(*job.split("/")[::2]) == configmap), "")  # fmt: skip

    def _forget_if_empty(self, job: str) -> None:
        """Nothing of it is left: only its version, so that a late word about it is known to be late."""
        if job in self._objects or self._pods.get(job):
            return
        self._pods.pop(job, None)
        self._memory.pop(job, None)
        namespace = job.partition("/")[0]
        members = self._members.get(namespace, set())
        members.discard(job)
        if not members:
            self._members.pop(namespace, None)
        while len(self._versions) > max(MOST_TOMBSTONES, 4 * len(self._objects)):
            old, _ = self._versions.popitem(last=False)
            self._gpu.discard(old)


def with_jobs(obj: GangObject, jobset: GangObject | None) -> GangObject:
    """A TrainJob that knows which jobs its runtime has made of it."""
    jobs = jobset.spec.replicated_jobs if jobset else None
    return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, replicated_jobs=jobs))


def _fresh(memory: Memory, told: dict[str, int]) -> list[int]:
    """Steps in annotations that are not what the same object said before. A rank that no longer tells hides nobody."""
    before, memory.told = memory.told, told
    return [step for who, step in told.items() if before.get(who) != step]


def recover_of(obj: GangObject, pods: list[PodObject], by_namespace: str) -> str:
    """managed, native or "": the job's own label, for bare gangs its pods', else its namespace's. A job that another
    controller has made is "": whatever we write there, its maker writes over."""
    if foreign_owner(obj):
        return ""
    said = obj.metadata.label(words.RECOVER) or (pods[0].metadata.label(words.RECOVER) if pods else "")
    word = said or by_namespace
    return word if word in (words.MANAGED, words.NATIVE) else ""


def foreign_owner(obj: GangObject) -> str:
    """The maker of this object who is none of ours to speak with, as "Kind name"; "" if there is none."""
    owner = next((o for o in obj.metadata.owner_references or () if o.controller), None)
    return f"{owner.kind} {owner.name}" if owner is not None and owner.kind not in KNOWN_OWNERS else ""


def bare_name(namespace: str, gang: str) -> str:
    """Name of the ConfigMap, in our namespace, that stands for a bare gang once we have stopped it."""
    return f"gang-{hashlib.sha256(f'{namespace}/{gang}'.encode()).hexdigest()[:20]}"


def bare_object(meta: Meta) -> GangObject:
    """Such a ConfigMap as the object of its gang."""
    shown = Meta(
        name=meta.label(words.GANG), namespace=meta.annotation(WHOSE), uid=meta.uid, annotations=meta.annotations,
        resource_version=meta.resource_version, labels=meta.labels, deletion_timestamp=meta.deletion_timestamp,
        creation_timestamp=meta.creation_timestamp,
    )  # fmt: skip
    return GangObject(metadata=shown)


def is_of_another(meta: Meta, pods: list[PodObject]) -> bool:
    """Is this ConfigMap left over from an earlier gang of the same name? Pods that we made carry their attempt, and
    those that we stopped are older than it: its own gang has no others."""
    made = meta.creation_timestamp
    return bool(pods) and not any(ranks.attempt_of(p) or p.metadata.creation_timestamp <= made for p in pods)


def bare_shown(obj: GangObject | None, namespace: str, name: str, pods: list[PodObject]) -> GangObject:
    if obj is not None and is_of_another(obj.metadata, pods):
        obj = None
    first = pods[0].metadata if pods else Meta()
    meta = obj.metadata if obj else Meta(name=name, namespace=namespace)
    meta = msgspec.structs.replace(
        meta,
        annotations={**(first.annotations or {}), **(meta.annotations or {})},
        labels={**(first.labels or {}), **(meta.labels or {})},
    )
    stop = words.read_stop(meta.annotation(words.STOPPED))
    said = max((words.number(p.metadata.annotation(SIZE) or p.metadata.label(SIZE)) for p in pods), default=0)
    size = said or max(len(stop.nodes) if stop else 0, len({p.metadata.name for p in pods}))
    return GangObject(metadata=meta, spec=GangSpec(trainer=Trainer(num_nodes=size)))


_KEPT_LABELS = (
    kinds.JOB_INDEX, kinds.JOBSET_NAME, kinds.JOBSET_REPLICATED, kinds.JOBSET_GLOBAL, kinds.KUBEFLOW_TYPE,
    kinds.KUBEFLOW_INDEX, words.GANG, words.RANK, words.RECOVER, SIZE,
)  # fmt: skip
_KEPT_ANNOTATIONS = (
    kinds.JOB_INDEX, words.ATTEMPT, words.STEP, words.SAVED, words.PROGRESS, words.SAVES, words.HOW_TO_SAVE,
    words.OWNER, SIZE,
)  # fmt: skip


def slim(pod: PodObject) -> PodObject:
    """What showing a gang needs of a pod: thousands are kept."""
    meta, status, first = pod.metadata, pod.status, (pod.spec.containers or [])[:1]  # whose log is read
    return PodObject(
        metadata=Meta(
            name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version,
            labels=_kept(meta.labels, _KEPT_LABELS), annotations=_kept(meta.annotations, _KEPT_ANNOTATIONS),
            creation_timestamp=meta.creation_timestamp, deletion_timestamp=meta.deletion_timestamp,
            owner_references=meta.owner_references,
        ),
        spec=PodSpec(node_name=pod.spec.node_name, containers=[Container(name=c.name) for c in first] or None),
        status=PodStatus(
            phase=status.phase, reason=status.reason, message=status.message[:300], pod_ip=status.pod_ip,
            conditions=[c for c in status.conditions or () if c.type == "DisruptionTarget"] or None,
            container_statuses=[
                ContainerStatus(name=s.name, state=s.state) for s in status.container_statuses or ()
                if s.state and s.state.terminated
            ] or None,
        ),
    )  # fmt: skip


def _kept(found: dict[str, str] | None, keys: tuple[str, ...]) -> dict[str, str] | None:
    return {key: found[key] for key in keys if key in found} or None if found else None
