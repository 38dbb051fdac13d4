"""What is a failure and what is not, in all combinations that a real cluster would take long to make."""

from __future__ import annotations

from typing import cast

import pytest

from sickbay.kube.api import Api
from sickbay.kube.objects import (
    Condition,
    ContainerState,
    ContainerStatus,
    Meta,
    Owner,
    PodObject,
    PodSpec,
    PodStatus,
    Terminated,
)
from sickbay.model import Checkpoint, Job, JobPhase
from sickbay.platforms.kubernetes.gangs import index, kinds, show, words
from sickbay.platforms.kubernetes.gangs.kinds import GangObject, GangSpec, GangStatus
from sickbay.platforms.kubernetes.gangs.show import Gang, Memory
from sickbay.platforms.kubernetes.site import site_of
from sickbay.settings import KubernetesSettings
from tests.kubernetes.gangs.ground import WallClock


def a_pod(rank: int, phase: str = "Running", *, made: int = 0, code: int | None = None, why: str = "",
          attempt: int = 0, node: str = "", leaving: bool = False, name: str = "") -> PodObject:  # fmt: skip
    ended = [ContainerStatus(state=ContainerState(Terminated(code)))] if code is not None else None
    hit = [Condition("DisruptionTarget", "True", why)] if why else None
    meta = Meta(
        name=name or f"p-{rank}-{made}", namespace="n", uid=f"u-{rank}-{made}", labels={kinds.JOB_INDEX: str(rank)},
        creation_timestamp=f"2026-01-01T00:00:{made:02d}Z", deletion_timestamp="now" if leaving else "",
        annotations={"sickbay.dev/attempt": str(attempt)} if attempt else None,
        owner_references=[Owner("Job", "j", "1", True, "batch/v1")],
    )  # fmt: skip
    return PodObject(meta, PodSpec(node or f"node-{rank}"), PodStatus(phase, conditions=hit, container_statuses=ended))


def a_gang(*pods: PodObject, ranks: int = 2, notes: dict[str, str] | None = None, **status: object) -> Gang:
    meta = Meta(name="j", namespace="n", annotations=notes)
    spec = GangSpec(parallelism=ranks, completions=ranks)
    return Gang(kinds.BY_WORD["job"], GangObject(meta, spec, GangStatus(**status)), pods, "managed")  # type: ignore[arg-type]


def shown(gang: Gang, memory: Memory | None = None, mark: str = "") -> Job:
    return show.show(gang, memory or Memory(), lambda node: mark)


def test_a_dead_rank_stays_a_failure_although_its_controller_has_replaced_it() -> None:
    """The other ranks wait for the dead one for ever; a new pod under its number does not help them."""
    gang = a_gang(a_pod(0), a_pod(1, "Failed", code=1), a_pod(1, made=9))
    job = shown(gang)
    assert (job.phase, [(x.rank, x.code) for x in job.exits]) == (JobPhase.FAILED, [(1, 1)])


def test_a_gang_that_makes_steps_after_a_death_has_gone_on_without_it() -> None:
    memory = Memory(step=5, ever=True)
    gang = a_gang(a_pod(0), a_pod(1, "Failed", code=1), a_pod(1, made=9))
    assert shown(gang, memory).phase is JobPhase.FAILED
    memory.step = 6
    assert shown(gang, memory).phase is JobPhase.RUNNING


def test_a_gang_whose_controller_has_replaced_every_rank_runs() -> None:
    gang = a_gang(a_pod(0, "Failed", code=1), a_pod(1, "Failed", code=1), a_pod(0, made=9), a_pod(1, made=9))
    assert shown(gang).phase is JobPhase.RUNNING


def test_dead_pods_of_an_earlier_attempt_say_nothing_about_this_one() -> None:
    notes = {"sickbay.dev/attempt": "2", "sickbay.dev/attempt-in-pods": "true"}
    old = a_pod(1, "Failed", code=139)
    assert shown(a_gang(old, notes=notes)).phase is JobPhase.PENDING
    gang = a_gang(old, a_pod(0, made=5, attempt=2), a_pod(1, made=5, attempt=2), notes=notes)
    assert (shown(gang).phase, shown(gang).attempt) == (JobPhase.RUNNING, 2)
    queued = a_gang(old, notes={"sickbay.dev/attempt": "2"}, start_time="2026-01-01T00:00:05Z")  # Kueue: resumed later
    assert shown(queued).phase is JobPhase.PENDING


def test_a_job_given_back_to_its_queue_has_not_failed_by_the_dead_of_the_attempt_before() -> None:
    notes = {"sickbay.dev/attempt": "2", "sickbay.dev/stopped": '{"key":"j#1.7","attempt":1}'}
    held = [Condition("Suspended", "True")]  # by its controller's word, which comes after its queue's
    gang = a_gang(a_pod(0, "Failed", code=1, made=3), notes=notes, conditions=held, start_time="2026-01-01T00:00:02Z")
    assert shown(gang).phase is JobPhase.PENDING
    begun = a_gang(a_pod(0, "Failed", code=1, made=9), notes=notes, start_time="2026-01-01T00:00:05Z")
    assert shown(begun).phase is JobPhase.FAILED


def test_a_job_that_we_stopped_is_not_its_owners_to_resume_because_its_number_was_lowered_since() -> None:
    stop = {"sickbay.dev/stopped": '{"key":"j#2.7","attempt":2}'}
    gang = a_gang(notes={**stop, "sickbay.dev/stopped-by": "j#2.7"})
    gang.object.spec.suspend = True
    assert (shown(gang).phase, shown(gang).stopped_by) == (JobPhase.STOPPED, "j#2.7")
    restarted = a_gang(notes=stop)  # as attempt 3, and then the number was removed and its owner suspended it
    restarted.object.spec.suspend = True
    assert shown(restarted).phase is JobPhase.SUSPENDED


def test_a_rank_that_leaves_a_dead_node_for_ever_does_not_hide_its_successor() -> None:
    gang = a_gang(a_pod(0), a_pod(1, leaving=True, node="dead"), a_pod(1, made=9, node="new"))
    job = shown(gang)
    assert (job.phase, job.nodes) == (JobPhase.RUNNING, ("node-0", "new"))


def test_ranks_lost_with_their_node_are_a_failure_that_names_it() -> None:
    for why in ("DeletionByTaintManager", "TerminationByKubelet", "DeletionByPodGC"):
        job = shown(a_gang(a_pod(0), a_pod(1, "Failed", why=why, node="dead")))
        assert (job.phase, [x.node for x in job.exits]) == (JobPhase.FAILED, ["dead"]), why


def test_an_eviction_from_a_node_that_carries_our_mark_is_our_drain_and_any_other_is_not() -> None:
    gang = a_gang(a_pod(0), a_pod(1, "Failed", why="EvictionByEvictionAPI"))
    ours = shown(gang, mark="node-1.3")
    assert (ours.phase, ours.stopped_by) == (JobPhase.STOPPED, "drain:node-1.3")
    assert shown(gang).phase is JobPhase.FAILED


def test_preemption_is_remembered_until_the_whole_gang_runs_again() -> None:
    memory = Memory()
    first = shown(a_gang(a_pod(0), a_pod(1, why="PreemptionByScheduler", leaving=True)), memory)
    assert (first.phase, first.stopped_by) == (JobPhase.SUSPENDED, show.PREEMPTION)
    assert shown(a_gang(a_pod(0), a_pod(1, "Pending", made=5)), memory).phase is JobPhase.SUSPENDED
    assert shown(a_gang(a_pod(0), a_pod(1, made=5)), memory).phase is JobPhase.RUNNING
    assert shown(a_gang(a_pod(0), a_pod(1, "Pending", made=9)), memory).phase is JobPhase.PENDING


def test_peers_that_crash_because_a_rank_was_preempted_are_no_failure_although_nobody_saw_it_happen() -> None:
    gang = a_gang(a_pod(0, "Failed", code=1), a_pod(1, why="PreemptionByScheduler", leaving=True))
    assert shown(gang).phase is JobPhase.SUSPENDED


def test_a_gang_that_waits_for_nodes_says_for_how_many() -> None:
    waits = shown(a_gang(a_pod(0)))
    assert (waits.phase, waits.unplaced) == (JobPhase.PENDING, 1)
    assert shown(a_gang(a_pod(0), a_pod(1, "Pending"))).unplaced == 0


def test_a_smaller_gang_and_a_pod_that_somebody_deleted_are_no_failures() -> None:
    assert shown(a_gang(a_pod(0), ranks=1)).phase is JobPhase.RUNNING
    assert shown(a_gang(a_pod(0), a_pod(1, leaving=True))).phase is JobPhase.PENDING


def test_a_job_that_is_down_still_says_where_it_ran() -> None:
    memory = Memory()
    assert shown(a_gang(a_pod(0), a_pod(1)), memory).rank_nodes == ("node-0", "node-1")
    over = a_gang(conditions=[Condition("Failed", "True", "BackoffLimitExceeded")])
    assert (shown(over, memory).phase, shown(over, memory).nodes) == (JobPhase.FAILED, ("node-0", "node-1"))


def test_a_checkpoint_that_says_no_time_was_made_when_we_first_heard_of_it() -> None:
    """After memory corruption only a checkpoint older than the first evidence is trusted."""
    memory, gang = Memory(), a_gang(a_pod(0), a_pod(1), notes={"sickbay.dev/checkpoint-saved": "50"})
    first = show.show(gang, memory, lambda node: "", now=100.0).checkpoint
    later = show.show(gang, memory, lambda node: "", now=900.0).checkpoint
    assert first is not None
    assert (first.step, first.at) == (50, 100.0)
    assert later == first


def test_a_job_shows_the_identity_of_its_object_and_bare_pods_have_none_that_lasts() -> None:
    """What stands for bare pods is made with our first stop, and they are others after each restart."""
    gang = a_gang(a_pod(0), a_pod(1))
    gang.object.metadata.uid = "u-1"
    assert shown(gang).uid == "u-1"
    gang.kind = kinds.BARE
    assert shown(gang).uid == ""


@pytest.mark.parametrize(("attempt", "forgotten"), [("", True), ("2", True), ("3", False)])
def test_of_another_job_of_the_name_nothing_is_remembered_and_of_one_that_we_made_anew_it_is(
    attempt: str, forgotten: bool
) -> None:
    """Pods of the old one may still be there when its owner has submitted it again, with our words on it or without."""
    gangs = index.Gangs(site_of(cast(Api, None), KubernetesSettings(), WallClock()), lambda node: "")
    gangs.put("job", an_object("old", "2"))
    gangs.put_pod(a_pod(0))
    before = gangs.show("n/job/j")
    assert gangs.put_progress(before, 500, 1.0, (Checkpoint(400, 1.0, 2),))
    gangs.gone("job", "n", "j", 2)
    gangs.put("job", an_object("new", attempt))
    after = gangs.show("n/job/j")
    assert after.uid == "new"
    assert (after.checkpoints == ()) is forgotten
    assert after.step != 500


def an_object(uid: str, attempt: str) -> GangObject:
    notes = {words.ATTEMPT: attempt} if attempt else None
    return GangObject(Meta(name="j", namespace="n", uid=uid, annotations=notes), GangSpec(parallelism=1))
