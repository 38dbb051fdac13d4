"""STOP_JOB: the whole gang ends and its object lives on, resumable. Refused when the job has moved on since.

platform.perform calls `stop_job`; a drain calls `give_way` first, so that a managed gang is stopped whole instead of
losing one rank. One write suspends the job and says who did it, which attempt, where it ran and what had died: a crash
before it leaves the job running, a crash after it leaves everything known. It must never write `suspend` of a job that
Kueue looks after, and never touch a job that has not opted in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sickbay.kube.conflicts import settle
from sickbay.kube.objects import Anything, PodObject
from sickbay.model import Action, Done, Failed, JobPhase, Outcome, Retry, Started
from sickbay.platforms.kubernetes.gangs import bare, kinds, kueue, logs, progress, ranks, show, telling, words
from sickbay.platforms.kubernetes.gangs.index import foreign_owner
from sickbay.platforms.kubernetes.gangs.left import left, where
from sickbay.platforms.kubernetes.gangs.read import (
    Found,
    job_named,
    look,
    may_be_managed,
    read,
)
from sickbay.platforms.kubernetes.gangs.show import Gang, Memory
from sickbay.platforms.kubernetes.gangs.silent import silent_ranks
from sickbay.platforms.kubernetes.site import Site

SOON_S, LATER_S = 2.0, 15.0
PATIENCE_S = 60.0  # for a job's controller to end the pods of a gang that we stopped
MOST_TAILS = 12  # logs read at a stop: it must answer within ten seconds


def stop_job(site: Site, action: Action) -> Outcome:
    return settle(lambda: _stop_job(site, action))


def _stop_job(site: Site, action: Action) -> Outcome:
    found = read(site, job_named(action))
    if found is None:
        return Done("there is no such job")
    if refused := not_ours(found):
        return Failed(refused)
    gang, obj = found.gang, found.gang.object
    stop, attempt = words.read_stop(obj.metadata.annotation(words.STOPPED)), show.attempt_of(obj)
    if stop is not None and stop.key == action.key and stop.attempt < attempt:
        return Done(f"{gang.id} attempt {stop.attempt} was stopped; attempt {attempt} has followed")
    if attempt > words.number(action.args.get("attempt", ""), attempt):
        return Failed(f"moved: {gang.id} is at attempt {attempt}")
    phase, by = look(site, found)
    if phase in (JobPhase.SUCCEEDED, JobPhase.GONE):
        return Done(f"{gang.id} does not run: {phase.value.lower()}")
    if phase is JobPhase.SUSPENDED and not ranks_left(found):
        return Done(f"{gang.id} does not run: suspended by {by}")
    down = is_down(found) and show.stop_of(obj) is not None
    if stop is not None and stop.key == action.key and not down:
        return Failed(f"moved: {gang.id} was stopped by us and somebody has resumed it")
    if not down:
        reading = progress.read(site, gang)
        if phase is JobPhase.RUNNING and (why := _moves(gang, reading, action.args.get("last_step", ""))):
            return Failed(why)
        silent = silent_ranks(site, gang) if phase is JobPhase.RUNNING else []
        step = max(reading.step, show.step_of(gang))
        if waits := _stop(site, found, action.key, step, told=True, silent=silent):
            return waits
        found = read(site, gang.id) or found
    return settled(site, found)


def _moves(gang: Gang, reading: progress.Reading, last: str) -> str:
    """Why a job whose ranks all run may not be stopped for standing still at this step; "" when it may. Also one that
    tells a lower step has moved: its launcher has restarted it in place."""
    if not last:
        return ""
    if reading.unread:
        return f"its progress cannot be read: {reading.unread}"
    told = {reading.step, *show.told(gang).values()} - {-1}
    if not told or words.number(last) in told:
        return ""
    return f"moved: {gang.id} is at step {max(reading.step, 0) or max(told)}, no longer at {last}"


def not_ours(found: Found) -> str:
    """Why this job is not ours to stop or restart; "" when it is."""
    gang = found.gang
    if owner := foreign_owner(gang.object):
        return f"{gang.id} belongs to {owner}, which would undo what we write"
    if gang.recover == words.NATIVE:
        return f"{gang.id} is labelled {words.RECOVER}=native: its own controller restarts it, we only cordon"
    if gang.recover != words.MANAGED:
        return f"{gang.id} has not opted in: label it, or its namespace, {words.RECOVER}=managed"
    return ""


def is_down(found: Found) -> bool:
    """Is nothing needed any more to end it? Suspended, ended by its own controller, Kueue's to end, or bare."""
    gang = found.gang
    over = is_over(found) or gang.kind.is_suspended(gang.object.spec)
    return over or gang.kind is kinds.BARE or kueue.is_queued(found)


def is_over(found: Found) -> bool:
    """Its own controller has ended it as failed, for good: no resume brings it back."""
    said = {c.type for c in found.gang.object.status.conditions or () if c.status == "True"}
    return bool(said & {"Failed", "FailureTarget"})


def ranks_left(found: Found) -> list[PodObject]:
    return [pod for pod in found.gang.pods if ranks.lives(pod)]


# --- writing ----------------------------------------------------------------------------------------------------------


def _stop(site: Site, found: Found, key: str, step: int, *, told: bool, silent: Sequence[int] = ()) -> Outcome | None:
    """Write it; None when that is done. `told`: with the last words of the ranks that died."""
    record = record_of(site, found, key, step, told=told)
    record.silent = list(silent)
    if found.gang.kind is kinds.BARE:
        return bare.stop(site, found, record)
    admitted = kueue.find(site, found)
    if admitted is None and kueue.is_queued(found):
        return Retry(LATER_S, f"{found.gang.id} is in a Kueue queue and has no Workload yet; its suspend is Kueue's")
    spec = None if admitted or is_over(found) else found.gang.kind.suspension(True)
    site.api.patch(found.path, _patch(found, record, spec), Anything)
    if admitted is not None:
        kueue.set_active(site, admitted, False)
    return None


def _patch(found: Found, record: words.Stop, spec: dict[str, Any] | None) -> dict[str, Any]:
    notes = {
        words.ATTEMPT: str(record.attempt),
        words.BASE: str(found.gang.object.status.restarts) if found.gang.object.status.restarts else None,
        words.STOPPED_BY: record.key,
        words.STOPPED: words.stop_text(record),
    }
    patch: dict[str, Any] = {"metadata": {"annotations": notes, "resourceVersion": found.version}}
    return {**patch, "spec": spec} if spec is not None else patch


def record_of(site: Site, found: Found, key: str, step: int, *, told: bool) -> words.Stop:
    gang, memory = found.gang, Memory()
    newest, dead = show.current(gang), show.dead_ranks(gang, memory)
    lost = {rank: pod for rank, pod in newest.items() if rank not in dead and ranks.disruption(pod)}
    ended = ranks.by_death({**dead, **lost})
    said = logs.tails(site, [pod for _, pod in ended[:MOST_TAILS]]) if told else []
    exits = [ranks.exit_of(rank, pod, said[i] if i < len(said) else ()) for i, (rank, pod) in enumerate(ended)]
    return words.Stop(
        key=key, attempt=show.attempt_of(gang.object), at=site.clock.now(), step=step,
        nodes=_nodes(gang.object, [newest[rank].spec.node_name for rank in sorted(newest)]),
        exits=[words.Exit(x.rank, x.node, x.code, list(x.tail)) for x in exits],
        gpus=max((ranks.gpus_of(pod, site.settings.gpu_resource) for pod in newest.values()), default=0),
    )  # fmt: skip


def _nodes(obj: kinds.GangObject, now: list[str]) -> list[str]:
    """Where the ranks are; where they were, if an earlier stop of the same attempt wrote that down."""
    if now and all(now):
        return now
    before = show.stop_of(obj)
    return before.nodes if before and before.nodes else [node for node in now if node]


def settled(site: Site, found: Found) -> Outcome:
    """Has every rank ended that anybody can end? What may run where no kubelet answers is not waited for here: it holds
    the restart back."""
    gang = found.gang
    admitted = kueue.find(site, found) if gang.kind is not kinds.BARE else None
    if admitted is not None and admitted.active:  # we were killed between the two writes
        kueue.set_active(site, admitted, False)
    if gang.kind is kinds.BARE:
        bare.remove(site, found)
    there = left(site, found)
    ending = there.ending or bare.in_the_way(found)
    stop = show.stop_of(gang.object)
    if ending:
        return Started(SOON_S, f"{len(ending)} of {len(gang.pods)} pods of {gang.id} still end, on {where(ending)}")
    also = f"; not confirmed on {where(there.hidden)}, where no kubelet answers" if there.hidden else ""
    attempt = show.attempt_of(gang.object)
    return Done(f"{gang.id} attempt {attempt} is stopped at step {stop.step if stop else 0}{also}")


# --- for a drain ------------------------------------------------------------------------------------------------------


def give_way(site: Site, case: str, pods: Sequence[PodObject]) -> tuple[str, ...]:
    """Stop every managed gang with a rank among these pods, whole, in the name of `case`; returns those that end now.

    A drain calls it before it evicts: a gang that lost one rank would hang, and its controller would spend its budget
    on it. The pods of those that are returned end without an eviction; when their controller takes longer than
    PATIENCE_S they are no longer returned. Idempotent. Jobs that have not opted in are left to the eviction, and so is
    a gang that has never run whole (nobody looks after it yet, so nobody would resume it) and every one where jobs are
    not helped.
    """
    return settle(lambda: _give_way(site, case, pods))


def _give_way(site: Site, case: str, pods: Sequence[PodObject]) -> tuple[str, ...]:
    spaces: dict[str, str] = {}
    given: list[str] = []
    for job, pod in {job: pod for pod in pods if (job := ranks.job_of(pod))}.items():
        found = read(site, job) if site.helps_jobs and may_be_managed(site, job, spaces) else None
        if found is None or not_ours(found):
            telling.blame(site, job, pod.spec.node_name, case)
        elif _gives_way(site, found, case):
            given.append(job)
    return tuple(given)


def _gives_way(site: Site, found: Found, case: str) -> bool:
    """Stop it if it runs. True as long as its pods may be expected to end by that."""
    gang = found.gang
    phase, _ = show.phase_of(gang, Memory(), lambda node: "")
    stop = show.stop_of(gang.object)
    if phase not in GIVES_WAY:
        return False
    if stop is not None and is_down(found):
        return site.clock.now() - stop.at < PATIENCE_S
    if _stop(site, found, f"drain:{case}", show.step_of(gang), told=False) is not None:
        return False
    telling.tell(
        site, found, telling.GIVING_WAY, f"stopped whole because case {case} empties a node under it; {RESUMES}"
    )
    telling.advise(site, found)
    if gang.kind is kinds.BARE:
        bare.remove(site, found)
    return True


GIVES_WAY = frozenset({JobPhase.RUNNING, JobPhase.FAILED, JobPhase.STOPPED})
RESUMES = "it is resumed on good nodes from its newest complete checkpoint"
