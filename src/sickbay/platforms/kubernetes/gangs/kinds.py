"""The kinds of job we know, as a table: where they live in the API, how they are suspended, and what their pods say.

Every other file of this package asks here instead of naming a kind. A new kind is a new row (and a test with its real
controller or its real schema). It must never do IO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sickbay.kube.api import segment
from sickbay.kube.objects import Condition, Meta, Shape
from sickbay.platforms.kubernetes.gangs import overrides

JOB_NAME = "batch.kubernetes.io/job-name"
JOB_INDEX = "batch.kubernetes.io/job-completion-index"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOBSET_REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_GLOBAL = "jobset.sigs.k8s.io/job-global-index"
KUBEFLOW_NAME = "training.kubeflow.org/job-name"
KUBEFLOW_TYPE = "training.kubeflow.org/replica-type"
KUBEFLOW_INDEX = "training.kubeflow.org/replica-index"
QUEUE = "kueue.x-k8s.io/queue-name"
ANCESTOR, NODE = "trainer.kubeflow.org/trainjob-ancestor-step", "node"


class JobBody(Shape):
    parallelism: int | None = None
    completions: int | None = None


class Labelled(Shape):
    labels: dict[str, str] | None = None


class JobTemplate(Shape):
    metadata: Labelled = msgspec.field(default_factory=Labelled)
    spec: JobBody = msgspec.field(default_factory=JobBody)


class ReplicatedJob(Shape):
    name: str = ""
    replicas: int = 1
    template: JobTemplate = msgspec.field(default_factory=JobTemplate)


class ReplicaSpec(Shape):
    replicas: int = 1


class RunPolicy(Shape):
    suspend: bool | None = None


class ElasticPolicy(Shape):
    min_replicas: int | None = None
    max_replicas: int | None = None


class Trainer(Shape):
    num_nodes: int | None = None


class GangSpec(Shape):
    """The few fields of all kinds together: what is not of this kind stays at its default. The replicated jobs of a
    TrainJob are those of the JobSet that was made for it."""

    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    replicated_jobs: list[ReplicatedJob] | None = None
    run_policy: RunPolicy | None = None
    pytorch_replica_specs: dict[str, ReplicaSpec] | None = None
    elastic_policy: ElasticPolicy | None = None
    trainer: Trainer | None = None


class GangStatus(Shape):
    conditions: list[Condition] | None = None
    restarts: int = 0  # JobSet: gangs its controller has restarted by itself
    start_time: str = ""


class GangObject(Shape):
    """A job of any kind, as the watches decode it. `data` is of the ConfigMap that stands for a bare gang."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: GangSpec = msgspec.field(default_factory=GangSpec)
    status: GangStatus = msgspec.field(default_factory=GangStatus)


Ranks = Callable[[GangSpec], int]
Templates = Callable[[dict[str, Any], GangSpec], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Kind:
    word: str  # in job ids: "<namespace>/<word>/<name>"
    kind: str
    group: str  # "batch/v1"
    plural: str
    suspend: tuple[str, ...]  # path of the field
    ended_well: tuple[str, ...]  # condition types
    ranks: Ranks
    templates: Templates  # pod templates within a whole object, to be changed in place
    steers: bool  # may node affinity be changed while it is suspended?
    keeps_off: str  # how a restarted gang is kept off a suspect, in words
    budget: str  # which of the user's own limits an infrastructure failure may spend, in words

    def path(self, namespace: str = "", name: str = "") -> str:
        where = f"namespaces/{segment(namespace)}/" if namespace else ""
        base = f"/apis/{self.group}/{where}{self.plural}"
        return f"{base}/{segment(name)}" if name else base

    def is_suspended(self, spec: GangSpec) -> bool:
        if self.suspend[0] == "runPolicy":
            return bool(spec.run_policy and spec.run_policy.suspend)
        return bool(spec.suspend)

    def suspension(self, on: bool) -> dict[str, Any]:
        """The merge patch of `spec` that suspends or resumes it."""
        patch: dict[str, Any] = {}
        inner = patch
        for part in self.suspend[:-1]:
            inner = inner.setdefault(part, {})
        inner[self.suspend[-1]] = on
        return patch


def job_ranks(spec: GangSpec | JobBody) -> int:
    """parallelism; an Indexed Job never runs more than its completions."""
    wide = 1 if spec.parallelism is None else spec.parallelism
    return wide if spec.completions is None else min(wide, spec.completions)


def _jobset_ranks(spec: GangSpec) -> int:
    return sum(r.replicas * job_ranks(r.template.spec) for r in spec.replicated_jobs or ())


def _pytorch_ranks(spec: GangSpec) -> int:
    return sum(replica.replicas for replica in (spec.pytorch_replica_specs or {}).values())


def _train_ranks(spec: GangSpec) -> int:
    """0: its runtime says, and we count pods."""
    return (spec.trainer.num_nodes or 0) if spec.trainer else 0


def trainer_job(spec: GangSpec) -> str:
    """The replicated job of a TrainJob that trains: `node` in the runtimes of Kubeflow Trainer (with MPI the launcher
    carries the label), in others the one that is labelled so."""
    jobs = spec.replicated_jobs or ()
    if any(job.name == NODE for job in jobs):
        return NODE
    return next((job.name for job in jobs if (job.template.metadata.labels or {}).get(ANCESTOR) == "trainer"), NODE)


def _job_templates(whole: dict[str, Any], spec: GangSpec) -> list[dict[str, Any]]:
    return [whole["spec"].setdefault("template", {})]


def _jobset_templates(whole: dict[str, Any], spec: GangSpec) -> list[dict[str, Any]]:
    jobs = whole["spec"].get("replicatedJobs") or ()
    return [job["template"]["spec"]["template"] for job in jobs]


def _pytorch_templates(whole: dict[str, Any], spec: GangSpec) -> list[dict[str, Any]]:
    return [replica["template"] for replica in (whole["spec"].get("pytorchReplicaSpecs") or {}).values()]


def _train_templates(whole: dict[str, Any], spec: GangSpec) -> list[dict[str, Any]]:
    return overrides.templates(whole, trainer_job(spec))


BY_AFFINITY = "node affinity, written while it is suspended"
BY_CHILDREN = "node affinity, in the Jobs it has made: its own template does not let it be changed"

KINDS: tuple[Kind, ...] = (
    Kind(
        "job", "Job", "batch/v1", "jobs", ("suspend",), ("Complete", "SuccessCriteriaMet"), job_ranks,
        _job_templates, True, BY_AFFINITY,
        "backoffLimit, unless podFailurePolicy ignores pods with the condition DisruptionTarget",
    ),
    Kind(
        "jobset", "JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets", ("suspend",), ("Completed",), _jobset_ranks,
        _jobset_templates, False, BY_CHILDREN,
        "failurePolicy.maxRestarts, unless a rule RestartJobSetAndIgnoreMaxRestarts takes infrastructure failures",
    ),
    Kind(
        "pytorchjob", "PyTorchJob", "kubeflow.org/v1", "pytorchjobs", ("runPolicy", "suspend"), ("Succeeded",),
        _pytorch_ranks, _pytorch_templates, True, BY_AFFINITY,
        "runPolicy.backoffLimit: this kind cannot tell infrastructure failures from others",
    ),
    Kind(
        "trainjob", "TrainJob", "trainer.kubeflow.org/v1alpha1", "trainjobs", ("suspend",), ("Complete",),
        _train_ranks, _train_templates, False, BY_CHILDREN,
        "whatever the JobSet of its runtime sets: failurePolicy there, not on the TrainJob",
    ),
)  # fmt: skip

BARE = Kind(
    "gang", "Pod", "v1", "configmaps", ("suspend",), (), _train_ranks, lambda whole, spec: [], True,
    "node affinity, in the pods that are made anew", "nothing: bare pods have no limit of their own",
)  # fmt: skip

BARE_PATH = "/api/v1/namespaces/{}/configmaps/{}"

BY_WORD: Mapping[str, Kind] = {kind.word: kind for kind in (*KINDS, BARE)}
BY_KIND: Mapping[str, Kind] = {kind.kind: kind for kind in KINDS}


def id_of(namespace: str, word: str, name: str) -> str:
    return f"{namespace}/{word}/{name}"


def parse(job: str) -> tuple[Kind, str, str] | None:
    """A job id as its kind, namespace and name; None if it is not one of ours."""
    namespace, _, rest = job.partition("/")
    word, _, name = rest.partition("/")
    kind = BY_WORD.get(word)
    return (kind, namespace, name) if kind and namespace and name and "/" not in name else None
