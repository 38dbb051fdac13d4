"""What a pod says about the gang it belongs to: which job, which rank, which attempt, and how it ended.

Called by the showing, the verbs, and whoever asks what work lives on a node (`job_of`). Pure: labels, owners and status
only. A pod's labels are its user's words, so an owner must agree with them before they name another object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate

from sickbay.kube.objects import Owner, PodObject, Terminated
from sickbay.model import RankExit
from sickbay.platforms.kubernetes.gangs import kinds, words
from sickbay.platforms.kubernetes.gangs.kinds import GangSpec, Kind, id_of

OVER = frozenset({"Succeeded", "Failed"})
PREEMPTED = frozenset({"PreemptionByScheduler", "PreemptionByKubeScheduler"})
EVICTED = "EvictionByEvictionAPI"
ALL_GPUS = 1_000


def controller_of(pod: PodObject) -> Owner | None:
    return next((owner for owner in pod.metadata.owner_references or () if owner.controller), None)


def job_of(pod: PodObject) -> str:
    """Id of the gang this pod is a rank of; "" if it is none that we know. A TrainJob's pods name its JobSet."""
    meta, owner = pod.metadata, controller_of(pod)
    if owner is None:
        name = meta.label(words.GANG)
        return id_of(meta.namespace, kinds.BARE.word, name) if name else ""
    if owner.kind == "Job" and owner.api_version.startswith("batch/"):
        jobset = meta.label(kinds.JOBSET_NAME)
        return id_of(meta.namespace, "jobset", jobset) if jobset else id_of(meta.namespace, "job", owner.name)
    if owner.kind == "PyTorchJob":
        return id_of(meta.namespace, "pytorchjob", owner.name)
    return ""


def rank_of(kind: Kind, spec: GangSpec, pod: PodObject) -> int:
    """Its rank among the pods of the gang; -1 when nothing says."""
    return ranking(kind, spec)(pod)


def ranking(kind: Kind, spec: GangSpec) -> Callable[[PodObject], int]:
    """The same for many pods of one gang: what its spec says is worked out once."""
    if kind.word == "jobset":
        before = _ranks_before(spec)
        return lambda pod: _jobset_rank(before, pod)
    return partial(_RANKS[kind.word], spec)


def _word(pod: PodObject, key: str) -> int:
    return words.number(pod.metadata.label(key) or pod.metadata.annotation(key), -1)


def _job_rank(spec: GangSpec, pod: PodObject) -> int:
    return _word(pod, kinds.JOB_INDEX)


def _jobset_rank(before: list[int], pod: PodObject) -> int:
    """Jobs before it in the set, each with all its indexes, then its own index."""
    job, index = _word(pod, kinds.JOBSET_GLOBAL), max(0, _word(pod, kinds.JOB_INDEX))
    return before[job] + index if 0 <= job < len(before) else -1


def _ranks_before(spec: GangSpec) -> list[int]:
    wide = [
        kinds.job_ranks(r.template.spec) for r in spec.replicated_jobs or () for _ in range(min(r.replicas, 65_536))
    ]
    return [0, *accumulate(wide)][:-1]


def _pytorch_rank(spec: GangSpec, pod: PodObject) -> int:
    index = _word(pod, kinds.KUBEFLOW_INDEX)
    master = (spec.pytorch_replica_specs or {}).get("Master")
    before = master.replicas if master and pod.metadata.label(kinds.KUBEFLOW_TYPE) != "master" else 0
    return index + before if index >= 0 else -1


def _train_rank(spec: GangSpec, pod: PodObject) -> int:
    trains = pod.metadata.label(kinds.JOBSET_REPLICATED) == kinds.trainer_job(spec)
    return _word(pod, kinds.JOB_INDEX) if trains else -1


def _bare_rank(spec: GangSpec, pod: PodObject) -> int:
    said = pod.metadata.label(words.RANK)
    return words.number(said or pod.metadata.name.rpartition("-")[2], -1)


_RANKS = {
    "job": _job_rank,
    "pytorchjob": _pytorch_rank,
    "trainjob": _train_rank,
    "gang": _bare_rank,
}


def attempt_of(pod: PodObject) -> int:
    return words.number(pod.metadata.annotation(words.ATTEMPT))


def disruption(pod: PodObject) -> str:
    """Why somebody else is taking it away (DisruptionTarget), "" if nobody is."""
    found = (c for c in pod.status.conditions or () if c.type == "DisruptionTarget" and c.status == "True")
    return next((c.reason for c in found), "")


def lives(pod: PodObject) -> bool:
    """Its processes may still run. A pod that is being deleted lives until its kubelet says otherwise."""
    return pod.status.phase not in OVER


def runs(pod: PodObject) -> bool:
    return pod.status.phase == "Running" and not pod.metadata.deletion_timestamp


def ended(pod: PodObject) -> Terminated | None:
    """How its containers ended; the first that failed speaks for the pod."""
    states = [s.state.terminated for s in pod.status.container_statuses or () if s.state and s.state.terminated]
    return next((t for t in states if t.exit_code), states[0] if states else None)


def by_death(dead: Mapping[int, PodObject]) -> list[tuple[int, PodObject]]:
    """Those that died first come first: what the others say is often only that somebody is gone. Last, those whose end
    nobody has written down."""
    return sorted(dead.items(), key=lambda one: (_ended_at(one[1]) or "~", one[0]))


def _ended_at(pod: PodObject) -> str:
    over = ended(pod)
    return over.finished_at if over else ""


def exit_of(rank: int, pod: PodObject, tail: tuple[str, ...] = ()) -> RankExit:
    """A rank that has died, in the words of its kubelet where its log has none."""
    over = ended(pod)
    if pod.status.phase != "Failed":
        return RankExit(rank, pod.spec.node_name, None, tail)
    said = [over.reason if over and over.reason not in ("Error", "Completed") else "", pod.status.reason]
    told = [f"pod {pod.metadata.name}: {word}" for word in said if word]
    if pod.status.message:
        told.append(pod.status.message[:300])
    if over and over.message:
        told += over.message.splitlines()[-20:]
    code = over.exit_code if over else None
    return RankExit(rank, pod.spec.node_name, code if code is not None else -1, (*tail, *told)[-40:])


def gpus_of(pod: PodObject, resource: str) -> int:
    """Whole GPUs that it holds. What it has by a claim nobody can count here: then it has them all."""
    if pod.spec.resource_claims:
        return ALL_GPUS
    asked = (c.resources.limits or {} for c in pod.spec.containers or () if c.resources)
    return sum(words.number(str(limits.get(resource, ""))) for limits in asked)


def asks_for(pod: PodObject, resource: str) -> bool:
    asked = (c.resources for c in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())) if c.resources)
    return any(str((r.limits or {}).get(resource, "0")) not in ("0", "") for r in asked)
