"""One gang as the brain sees it: the job's object and its pods become a model.Job. Pure, and the heart of this package.

Called by Gangs for every change and by the verbs for a direct look. What is a failure and what is not is decided here:
preemption, a suspension or deletion by others, and fewer ranks by a smaller spec are none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sickbay.kube.objects import PodObject
from sickbay.model import Checkpoint, Job, JobPhase, RankExit
from sickbay.platforms.kubernetes.gangs import kinds, ranks, words
from sickbay.platforms.kubernetes.gangs.kinds import GangObject, Kind, id_of

MarkOf = Callable[[str], str]  # node -> the case whose mark it carries, "" if none

KUEUE = "Kueue"
SOMEBODY = "its owner or another controller"
NEVER_S = 1e9  # "a step" of a job that tells none: it can never be said to hang
PREEMPTION = "preemption by work of higher priority"


@dataclass(slots=True)
class Memory:
    """What pods said before they went away; only ever a help, never needed to be right."""

    nodes: tuple[str, ...] = ()  # of each rank, when last all were placed
    attempt: int = 0  # the one that `step` is of
    step: int = 0
    step_at: float = 0.0
    step_s: float = 1.0
    ever: bool = False  # has it ever told a step?
    deaths: dict[str, int] = field(default_factory=dict)  # uid of a failed pod -> the job's step when it was seen
    uid: str = ""  # of the object that all this is about; "": not known, or it has none that lasts
    preempted: str = ""  # until the whole gang runs again
    saved: tuple[Checkpoint, ...] = ()
    told: dict[str, int] = field(default_factory=dict)  # steps in annotations, as last seen
    unread: str = ""  # why its steps cannot be read now


@dataclass(slots=True)
class Gang:
    """Everything one look at a job has. Not changed once made; what is derived from all its pods is derived once."""

    kind: Kind
    object: GangObject
    pods: Sequence[PodObject]
    recover: str = ""  # managed | native | ""
    _newest: dict[int, PodObject] | None = None

    @property
    def id(self) -> str:
        return id_of(self.object.metadata.namespace, self.kind.word, self.object.metadata.name)


def attempt_of(obj: GangObject) -> int:
    """Ours, and the restarts that its own controller has made since we wrote it down."""
    meta = obj.metadata
    since = obj.status.restarts - words.number(meta.annotation(words.BASE))
    return max(1, words.number(meta.annotation(words.ATTEMPT), 1)) + max(0, since)


def stop_of(obj: GangObject) -> words.Stop | None:
    """Our own stop of the attempt that is there now; one of an earlier attempt is history. One of a later attempt is no
    history: somebody has lowered the number since. A restart takes the plain words off."""
    stop = words.read_stop(obj.metadata.annotation(words.STOPPED))
    if stop is None or stop.attempt < attempt_of(obj):
        return None
    stands = stop.attempt == attempt_of(obj) or obj.metadata.annotation(words.STOPPED_BY) == stop.key
    return stop if stands else None


def uid_of(gang: Gang) -> str:
    """Its identity. It lasts over a restart, which is a resume, but for a job that its controller had ended: that is
    made anew and then carries a later attempt (recreate.py). Bare pods have none: each restart makes others, and what
    stands for them is made with our first stop."""
    return gang.object.metadata.uid if _has_object(gang) else ""


def owner_of(obj: GangObject) -> str:
    return obj.metadata.annotation(words.OWNER) or obj.metadata.label(words.OWNER) or obj.metadata.namespace


def current(gang: Gang) -> dict[int, PodObject]:
    """The newest pod of each rank in this attempt. Ranks that nothing names are counted in the order of their names."""
    if gang._newest is None:
        gang._newest = _newest_of(gang)
    return gang._newest


def _newest_of(gang: Gang) -> dict[int, PodObject]:
    found: dict[int, PodObject] = {}
    free: list[PodObject] = []
    rank_of = ranks.ranking(gang.kind, gang.object.spec)
    for pod in gang.pods:
        if is_earlier(gang, pod):
            continue
        rank = rank_of(pod)
        if rank < 0:
            free.append(pod)
        elif rank not in found or _age(found[rank]) < _age(pod):
            found[rank] = pod
    if not found and gang.kind.word != "trainjob":
        found = dict(enumerate(sorted(free, key=lambda pod: pod.metadata.name)))
    return found


def _age(pod: PodObject) -> tuple[int, bool, str, int]:
    """Larger is newer. A pod that lives is newer than one that failed in the same second."""
    return ranks.attempt_of(pod), pod.status.phase != "Failed", pod.metadata.creation_timestamp, pod.metadata.version


def is_earlier(gang: Gang, pod: PodObject) -> bool:
    """Left over from an attempt before this one."""
    meta = gang.object.metadata
    if meta.annotation(words.IN_PODS) == "true":
        return ranks.attempt_of(pod) < words.number(meta.annotation(words.ATTEMPT), 1)
    if pod.status.phase != "Failed":
        return False
    started = gang.object.status.start_time  # reset by a resume; both times are the control plane's own
    return (bool(started) and pod.metadata.creation_timestamp < started) or _has_yet_to_begin(gang)


def _has_yet_to_begin(gang: Gang) -> bool:
    """A Job that we have given back to its queue, and its controller has not begun with: what is dead there died
    before."""
    stop = words.read_stop(gang.object.metadata.annotation(words.STOPPED))
    if gang.kind.word != "job" or stop is None or stop.attempt >= attempt_of(gang.object):
        return False
    return any(c.type == "Suspended" and c.status == "True" for c in gang.object.status.conditions or ())


def dead_ranks(gang: Gang, memory: Memory) -> dict[int, PodObject]:
    """Ranks whose pod has failed by itself, as long as nothing shows that the gang has gone on without it."""
    failed = [pod for pod in gang.pods if pod.status.phase == "Failed"]
    if not failed:
        return {}
    newest = current(gang)
    alive = [pod for pod in newest.values() if ranks.runs(pod)]
    whole = len(alive) >= wanted_ranks(gang)
    found: dict[int, PodObject] = {}
    for pod in failed:
        if is_earlier(gang, pod) or ranks.disruption(pod):
            continue
        seen = memory.deaths.setdefault(pod.metadata.uid, memory.step)
        if whole and (_all_newer(alive, pod) or memory.step > seen or is_elastic(gang)):
            continue
        rank = ranks.rank_of(gang.kind, gang.object.spec, pod)
        found.setdefault(rank if rank >= 0 else _place(newest, pod), pod)
    return dict(sorted(found.items()))


def _place(newest: Mapping[int, PodObject], pod: PodObject) -> int:
    return next((rank for rank, one in newest.items() if one is pod), 0)


def _all_newer(alive: Sequence[PodObject], dead: PodObject) -> bool:
    return all(pod.metadata.creation_timestamp > dead.metadata.creation_timestamp for pod in alive)


def is_elastic(gang: Gang) -> bool:
    return gang.object.spec.elastic_policy is not None


def wanted_ranks(gang: Gang) -> int:
    """How many must run. A gang that may shrink (elastic policy) runs with its least."""
    elastic = gang.object.spec.elastic_policy
    count = gang.kind.ranks(gang.object.spec)
    if elastic is not None and elastic.min_replicas:
        return min(count, elastic.min_replicas) or elastic.min_replicas
    stop = stop_of(gang.object)
    return count or (len(stop.nodes) if stop else 0) or 1


# --- phases -----------------------------------------------------------------------------------------------------------


def phase_of(gang: Gang, memory: Memory, mark_of: MarkOf) -> tuple[JobPhase, str]:
    """The phase, and who stopped it when somebody did."""
    obj = gang.object
    if obj.metadata.deletion_timestamp or (not _has_object(gang) and not gang.pods and stop_of(obj) is None):
        return JobPhase.GONE, ""
    said = {c.type for c in obj.status.conditions or () if c.status == "True"}
    if said.intersection(gang.kind.ended_well):
        return JobPhase.SUCCEEDED, ""
    if said & {"Failed", "FailureTarget"}:
        return JobPhase.FAILED, ""
    if gang.kind.is_suspended(obj.spec):
        stop = stop_of(obj)
        return (JobPhase.STOPPED, stop.key) if stop else (JobPhase.SUSPENDED, _suspender(obj))
    return _phase_by_pods(gang, memory, mark_of)


def _suspender(obj: GangObject) -> str:
    return KUEUE if obj.metadata.label(kinds.QUEUE) else SOMEBODY


def _phase_by_pods(gang: Gang, memory: Memory, mark_of: MarkOf) -> tuple[JobPhase, str]:
    newest, wanted = current(gang), wanted_ranks(gang)
    if drained := _drained_by(gang, mark_of):
        return JobPhase.STOPPED, f"drain:{drained}"
    well = [pod for pod in newest.values() if ranks.runs(pod) or pod.status.phase == "Succeeded"]
    if (
        len(well) >= wanted
        and all(pod.status.phase == "Succeeded" for pod in newest.values())
        and not _has_object(gang)
    ):
        return JobPhase.SUCCEEDED, ""
    taken = {ranks.disruption(pod) for pod in gang.pods if not is_earlier(gang, pod)} - {""}
    if len(well) < wanted and taken & ranks.PREEMPTED:  # its peers may have crashed by that: still no failure
        memory.preempted = PREEMPTION
        return JobPhase.SUSPENDED, PREEMPTION
    if dead_ranks(gang, memory):
        return JobPhase.FAILED, ""
    if len(well) >= wanted:
        memory.preempted = ""
        return JobPhase.RUNNING, ""
    return _phase_by_loss(gang, memory, taken)


def _phase_by_loss(gang: Gang, memory: Memory, taken: set[str]) -> tuple[JobPhase, str]:
    """Not all are there, and none has failed by itself: preempted, lost with its node, or not yet placed."""
    if memory.preempted:
        return JobPhase.SUSPENDED, memory.preempted
    if not _has_object(gang) and (stop := stop_of(gang.object)):
        return JobPhase.STOPPED, stop.key
    return (JobPhase.FAILED, "") if taken else (JobPhase.PENDING, "")


def _has_object(gang: Gang) -> bool:
    return gang.kind is not kinds.BARE


def _drained_by(gang: Gang, mark_of: MarkOf) -> str:
    """The case in whose name a rank was evicted and is not back yet."""
    newest = current(gang)
    for pod in gang.pods:
        if not pod.status.conditions or ranks.disruption(pod) != ranks.EVICTED:
            continue
        if is_earlier(gang, pod) or not pod.spec.node_name:
            continue
        if case := mark_of(pod.spec.node_name):
            rank = ranks.rank_of(gang.kind, gang.object.spec, pod)
            if newest.get(rank, pod) is pod:
                return case
    return ""


# --- the whole --------------------------------------------------------------------------------------------------------


def show(gang: Gang, memory: Memory, mark_of: MarkOf, *, version: int = 0, now: float = 0.0, cluster: str = "") -> Job:
    phase, by = phase_of(gang, memory, mark_of)
    newest, stop = current(gang), stop_of(gang.object)
    placed = tuple(newest[rank].spec.node_name for rank in sorted(newest))
    if placed and all(placed) and len(placed) >= wanted_ranks(gang) and phase is not JobPhase.STOPPED:
        memory.nodes = placed
    rank_nodes = _where(phase, stop, placed, memory)
    step, step_s = _pace(gang, memory, phase)
    saved = checkpoints_of(gang, memory, now)
    return Job(
        id=gang.id, nodes=tuple(dict.fromkeys(n for n in rank_nodes if n)), phase=phase,
        attempt=attempt_of(gang.object),
        checkpoint=saved[-1] if saved else None, checkpoints=saved, step=step, step_at=memory.step_at,
        step_s=step_s, ranks=max(len(rank_nodes), gang.kind.ranks(gang.object.spec)),
        exits=_exits(gang, memory, phase, stop), silent=tuple(stop.silent) if stop else (), rank_nodes=rank_nodes,
        unplaced=_unplaced(gang, phase), gpus_per_rank=stop.gpus if stop else 0,
        owner=owner_of(gang.object), managed=gang.recover == words.MANAGED, stopped_by=by, version=version,
        cluster=cluster, unread=memory.unread if phase is JobPhase.RUNNING else "",
        fenced=gang.object.metadata.annotation(words.FENCED) == "true", uid=uid_of(gang),
    )  # fmt: skip


def _unplaced(gang: Gang, phase: JobPhase) -> int:
    """Only of a gang that waits for nodes: one whose ranks all have theirs is starting, and must do so in time."""
    placed = sum(bool(pod.spec.node_name) for pod in current(gang).values())
    return max(0, wanted_ranks(gang) - placed) if phase is JobPhase.PENDING else 0


def _pace(gang: Gang, memory: Memory, phase: JobPhase) -> tuple[int, float]:
    """Its step and how long one takes. A job that has never told a step is not watched for standing still, and all of
    its ranks running is all the life it shows: that counts as one step after the one it began from."""
    record = words.read_stop(gang.object.metadata.annotation(words.STOPPED))
    if memory.ever or memory.step or (record is not None and record.step):
        return memory.step, memory.step_s
    began = words.number(gang.object.metadata.annotation(words.FROM_STEP))
    return (began + 1 if phase is JobPhase.RUNNING else began), NEVER_S


def _where(phase: JobPhase, stop: words.Stop | None, placed: tuple[str, ...], memory: Memory) -> tuple[str, ...]:
    """Where its ranks run, else where they ran: a job that is down still needs as many nodes."""
    if phase in (JobPhase.RUNNING, JobPhase.SUCCEEDED) and placed:
        return placed
    if stop is not None and stop.nodes:
        return tuple(stop.nodes)
    return memory.nodes or placed


def _exits(gang: Gang, memory: Memory, phase: JobPhase, stop: words.Stop | None) -> tuple[RankExit, ...]:
    if stop is not None and stop.exits:
        return stop.rank_exits()
    if phase not in (JobPhase.FAILED, JobPhase.STOPPED):
        return ()
    dead = dead_ranks(gang, memory)
    lost = {} if dead else _lost_ranks(gang)
    return tuple(ranks.exit_of(rank, pod) for rank, pod in ranks.by_death({**dead, **lost}))[:256]


def _lost_ranks(gang: Gang) -> dict[int, PodObject]:
    """Taken away with their node (taint manager, kubelet, garbage collection): no log says why, so the pod's word."""
    newest = current(gang)
    return {rank: pod for rank, pod in sorted(newest.items()) if ranks.disruption(pod)}


def checkpoints_of(gang: Gang, memory: Memory, now: float) -> tuple[Checkpoint, ...]:
    """Complete ones: what was written down on the job, and what the trainer says on it or on a rank's pod.

    One that says no time was made, as far as we know, when we first heard of it: never earlier, since after memory
    corruption an old checkpoint is trusted and a new one is not.
    """
    meta = gang.object.metadata
    known = {(c.step, c.attempt): c for c in words.read_checkpoints(meta.annotation(words.CHECKPOINTS))}
    known.update({(c.step, c.attempt): c for c in memory.saved})
    steps = {c.step for c in known.values()}
    for text in (meta.annotation(words.SAVED), *(pod.metadata.annotation(words.SAVED) for pod in gang.pods[:64])):
        step = words.number(text, -1)
        if step >= 0 and step not in steps:
            steps.add(step)
            made = Checkpoint(step, now, attempt_of(gang.object))
            memory.saved = (*memory.saved, made)[-words.MOST_CHECKPOINTS :]
            known[made.step, made.attempt] = made
    return tuple(known[key] for key in sorted(known))[-words.MOST_CHECKPOINTS :]


def told(gang: Gang) -> dict[str, int]:
    """Steps that the trainer has written on its job ("") and on the pods of this attempt, by the pod's name."""
    said = {"": gang.object.metadata, **{pod.metadata.name: pod.metadata for pod in _first(current(gang))}}
    return {who: step for who, meta in said.items() if (step := words.number(meta.annotation(words.STEP)))}


def _first(newest: Mapping[int, PodObject]) -> list[PodObject]:
    return [newest[rank] for rank in sorted(newest)[:64]]


def step_of(gang: Gang) -> int:
    """The newest step that the trainer has written on its job or on a rank's pod; 0 when it writes none."""
    return max(told(gang).values(), default=0)
