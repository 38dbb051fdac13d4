"""batch/v1 Job with its real controller and the real scheduler."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from sickbay.kube.objects import Anything
from sickbay.model import Action, Done, Failed, JobPhase, Lost, Outcome, Place, Retry, Verb
from sickbay.platforms.kubernetes.drain import drain
from sickbay.platforms.kubernetes.gangs.restart import restart_job
from sickbay.platforms.kubernetes.gangs.stop import give_way, stop_job
from testbed.waiting import until
from tests.kubernetes.gangs.ground import IGNORE_DISRUPTION, Ground


def test_a_running_gang_is_shown_with_its_ranks_and_nodes(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(ground.job())
    assert sorted(job.nodes) == here
    assert (job.ranks, len(job.rank_nodes), job.attempt, job.managed) == (2, 2, 1, True)
    assert job.owner == ground.namespace


def test_a_stopped_gang_restarts_elsewhere_as_the_same_object_with_its_budget_unspent(ground: Ground) -> None:
    """originals 003.5 #8: the original never evicts the pods of a training job, and knows no checkpoint."""
    here = ground.nodes(3)
    job = ground.running(ground.job(annotations={"sickbay.dev/checkpoint-saved": "50"}))
    uid = ground.object(job.id)["metadata"]["uid"]
    sick = job.nodes[0]
    case = ground.mark(sick)
    assert give_way(ground.site, case, [ground.pod_on(sick)]) == (job.id,)
    down = ground.phase(job.id, JobPhase.STOPPED)
    assert (down.stopped_by, down.gpus_per_rank) == (f"drain:{case}", 8)
    assert set(down.nodes) == set(job.nodes)
    assert isinstance(ground.do(ground.stop(down)), Done)
    good = [node for node in here if node != sick]
    done = ground.do(ground.restart(down, *good, from_step=50))
    assert isinstance(done, Done), done
    again = ground.running(job.id)
    assert (again.attempt, set(again.nodes)) == (2, set(good))
    whole = ground.object(job.id)
    assert whole["metadata"]["uid"] == uid
    assert not whole["status"].get("failed")
    told = ground.pod_on(good[0]).metadata.annotations or {}
    assert (told["sickbay.dev/attempt"], told["sickbay.dev/from-step"]) == ("2", "50")


def test_stop_twice_is_stop_once_also_after_a_restart(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(ground.job())
    action = ground.stop(job)
    assert isinstance(ground.do(action), Done)
    assert ground.show(job.id).stopped_by == action.key
    assert isinstance(ground.do(ground.restart(job, *here)), Done)
    assert isinstance(stop_job(ground.site, action), Done)
    assert ground.running(job.id).attempt == 2


def test_stop_is_refused_when_the_job_has_moved(ground: Ground) -> None:
    ground.nodes(2)
    job = ground.running(ground.job(annotations={"sickbay.dev/step": "7"}))
    outcome = stop_job(ground.site, ground.stop(job, last_step="6"))
    assert isinstance(outcome, Failed)
    assert outcome.why == f"moved: {job.id} is at step 7, no longer at 6"
    assert ground.show(job.id).phase is JobPhase.RUNNING


def test_a_restart_is_refused_while_an_earlier_attempt_lives(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(ground.job())
    outcome = restart_job(ground.site, ground.restart(job, *here))
    assert isinstance(outcome, Failed)
    assert "still lives on" in outcome.why
    assert ground.show(job.id).attempt == 1


def test_a_restart_that_never_arrived_is_lost_and_made_once(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(ground.job())
    ground.do(ground.stop(job))
    assert isinstance(restart_job(ground.site, ground.restart(job, *here, call=False)), Lost)
    for _ in range(3):
        assert isinstance(restart_job(ground.site, ground.restart(job, *here)), Done)
    assert isinstance(restart_job(ground.site, ground.restart(job, *here, call=False)), Done)
    assert ground.running(job.id).attempt == 2


def test_a_restart_is_refused_on_a_node_that_carries_a_mark_and_from_a_step_never_saved(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(ground.job())
    ground.do(ground.stop(job))
    never = restart_job(ground.site, ground.restart(job, *here, from_step=7))
    assert isinstance(never, Failed)
    assert "no complete checkpoint of step 7" in never.why
    case = ground.mark(here[0])
    held = restart_job(ground.site, ground.restart(job, *here))
    assert isinstance(held, Failed)
    assert f"{here[0]}: carries the mark of case {case}" in held.why
    assert ground.show(job.id).attempt == 1


def test_a_suspect_that_nobody_has_cordoned_is_not_used_again(ground: Ground) -> None:
    ground.nodes(3)
    job = ground.running(ground.job())
    spare = next(n.metadata.name for n in ground.fleet() if n.metadata.name not in job.nodes)
    ground.do(ground.stop(job))
    done = ground.do(ground.restart(job, job.nodes[1], spare))
    assert isinstance(done, Done)
    assert set(ground.running(job.id).nodes) == {job.nodes[1], spare}
    ground.do(ground.stop(ground.show(job.id)))
    ground.do(ground.restart(ground.show(job.id), *job.nodes))  # back: the suspicion was lifted
    assert set(ground.running(job.id).nodes) == set(job.nodes)


def test_a_suspension_by_its_owner_is_no_failure_and_not_ours_to_resume(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(ground.job())
    ground.patch(job.id, {"spec": {"suspend": True}})
    down = ground.phase(job.id, JobPhase.SUSPENDED)
    assert down.stopped_by == "its owner or another controller"
    outcome = ground.do(ground.restart(down, *here))
    assert isinstance(outcome, Failed)
    assert "theirs to resume" in outcome.why


def test_a_job_resumed_by_its_owner_after_our_stop_is_alive_again(ground: Ground) -> None:
    ground.nodes(2)
    job = ground.running(ground.job())
    action = ground.stop(job)
    ground.do(action)
    ground.patch(job.id, {"spec": {"suspend": False}})
    assert ground.running(job.id).attempt == 1
    again = stop_job(ground.site, action)
    assert isinstance(again, Failed)
    assert "somebody has resumed it" in again.why


def test_a_deleted_job_is_gone(ground: Ground) -> None:
    ground.nodes(2)
    job = ground.running(ground.job())
    ground.api.delete(f"/apis/batch/v1/namespaces/{ground.namespace}/jobs/llama", {"propagationPolicy": "Background"})
    gone = ground.phase(job.id, JobPhase.GONE)
    assert isinstance(stop_job(ground.site, ground.stop(job)), Done)
    outcome = restart_job(ground.site, ground.restart(gone))
    assert isinstance(outcome, Failed)


def test_a_job_that_succeeds_is_done_and_never_restarted(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(ground.job())
    for pod in ground.pods():
        ground.succeed(pod)
    done = ground.phase(job.id, JobPhase.SUCCEEDED)
    outcome = restart_job(ground.site, ground.restart(done, *here))
    assert isinstance(outcome, Failed)
    assert "succeeded" in outcome.why


def test_a_rank_that_dies_is_a_failure_with_its_exit_code_and_last_words(ground: Ground) -> None:
    ground.nodes(2)
    job = ground.running(ground.job())
    pod = ground.pod_on(job.rank_nodes[1])
    ground.die(pod, 139, "CUDA error: an illegal memory access")
    down = ground.phase(job.id, JobPhase.FAILED)
    assert [(x.rank, x.node, x.code) for x in down.exits] == [(1, job.rank_nodes[1], 139)]
    assert "illegal memory access" in down.exits[0].tail[-1]
    assert isinstance(ground.do(ground.stop(down)), Done)
    kept = ground.show(job.id)  # its pods are gone, what they said is not
    assert (kept.phase, kept.exits[0].code, set(kept.nodes)) == (JobPhase.STOPPED, 139, set(job.nodes))


def test_a_drain_ends_the_gang_whole_evicts_none_of_it_and_says_so(ground: Ground) -> None:
    ground.nodes(3)
    job = ground.running(ground.job(podFailurePolicy=IGNORE_DISRUPTION))
    case = ground.mark(job.nodes[0])
    action = Action(f"{case}/2", Verb.DRAIN, Place(job.nodes[0]), {"evict": "1"})
    outcome = ground.do(action, partial(drain, give_way=give_way))
    assert isinstance(outcome, Done), outcome
    assert ground.show(job.id).stopped_by == f"drain:{case}"
    assert not ground.object(job.id)["status"].get("failed")
    (event,) = ground.events("GivingWay")
    assert f"because case {case} empties a node under it" in event["message"]


def test_a_drain_does_not_suspend_a_gang_that_has_never_run_whole(ground: Ground) -> None:
    """Nobody looks after it yet, so nobody would resume it: its ranks leave one by one."""
    (node,) = ground.nodes(1)
    job = ground.job(podFailurePolicy=IGNORE_DISRUPTION)
    until(lambda: any(pod.status.phase == "Running" for pod in ground.pods()), "one rank runs", 20, 0.1)
    assert ground.show(job).phase is JobPhase.PENDING
    case = ground.mark(node)
    action = Action(f"{case}/2", Verb.DRAIN, Place(node))
    assert isinstance(ground.do(action, partial(drain, give_way=give_way)), Done)
    assert not ground.object(job)["spec"].get("suspend")


def test_where_jobs_are_not_helped_a_drain_evicts_instead_of_stopping_a_gang_that_nobody_would_resume(
    ground: Ground,
) -> None:
    ground.nodes(2)
    job = ground.running(ground.job())
    site = replace(ground.site, helps_jobs=False)
    case = ground.mark(job.nodes[0])
    assert give_way(site, case, [ground.pod_on(job.nodes[0])]) == ()
    whole = ground.object(job.id)
    assert not whole["spec"].get("suspend")
    assert not whole["metadata"].get("annotations")
    assert ground.events("NodeIsSick")


def test_a_job_that_its_controller_has_ended_is_made_anew_and_never_lost(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(ground.job(backoffLimit=0))
    uid = ground.object(job.id)["metadata"]["uid"]
    ground.die(ground.pod_on(job.nodes[0]), 1, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
    down = ground.phase(job.id, JobPhase.FAILED)
    ground.until_condition(job.id, "Failed")
    assert isinstance(ground.do(ground.stop(down)), Done)
    assert ground.show(job.id).exits[0].code == 1
    done = ground.do(ground.restart(down, *here))
    assert isinstance(done, Done), done
    again = ground.running(job.id)
    assert again.attempt == 2
    assert ground.object(job.id)["metadata"]["uid"] != uid


def test_a_job_whose_making_anew_is_refused_halfway_is_made_by_a_later_ask(ground: Ground) -> None:
    """Its old object is deleted by then: whoever gave up here would lose the job."""
    here = ground.nodes(2)
    job = ground.running(ground.job(backoffLimit=0))
    ground.die(ground.pod_on(job.nodes[0]))
    ground.until_condition(job.id, "Failed")
    down = ground.phase(job.id, JobPhase.FAILED)
    ground.do(ground.stop(down))
    quota = f"/api/v1/namespaces/{ground.namespace}/resourcequotas"
    no_jobs = {"metadata": {"name": "full"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    ground.api.create(quota, no_jobs, Anything)
    until(lambda: ground.api.get(f"{quota}/full", dict[str, Any]).get("status", {}).get("hard"), "it holds", 20, 0.1)
    action = ground.restart(down, *here)
    said = until(
        lambda: (o := restart_job(ground.site, action)) and _says(o, "exceeded quota"), "it is refused", 20, 0.1
    )
    assert said
    ground.api.delete(f"{quota}/full")
    later = replace(action, call=False)
    until(lambda: isinstance(restart_job(ground.site, later), Done), "a later ask makes it", 20, 0.1)
    assert ground.running(job.id).attempt == 2


def _says(outcome: Outcome, words: str) -> bool:
    return isinstance(outcome, Retry) and words in outcome.why


def test_a_failed_job_whose_owner_wants_it_left_as_it_is_stays(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(ground.job(backoffLimit=0, annotations={"sickbay.dev/recreate": "never"}))
    ground.die(ground.pod_on(job.nodes[0]))
    ground.until_condition(job.id, "Failed")
    ground.do(ground.stop(ground.show(job.id)))
    outcome = restart_job(ground.site, ground.restart(job, *here))
    assert isinstance(outcome, Failed)
    assert "BackoffLimitExceeded" in outcome.why


def test_a_job_that_has_not_opted_in_is_seen_and_never_touched(ground: Ground) -> None:
    ground.nodes(2)
    job = ground.running(ground.job(labels={}))
    assert not job.managed
    version = ground.object(job.id)["metadata"]["generation"]
    outcome = stop_job(ground.site, ground.stop(job))
    assert isinstance(outcome, Failed)
    assert "has not opted in" in outcome.why
    assert give_way(ground.site, "n.1", ground.pods()) == ()
    assert ground.object(job.id)["metadata"]["generation"] == version
    (event,) = ground.events("NodeIsSick")
    assert event["involvedObject"]["name"] == "llama"
    assert "this is not the job's fault" in event["message"]
    assert "sickbay.dev/recover=managed" in event["message"]


def test_a_namespace_can_opt_in_for_all_its_jobs_and_a_job_can_say_otherwise(ground: Ground) -> None:
    ground.nodes(2)
    here = f"/api/v1/namespaces/{ground.namespace}"
    ground.api.patch(here, {"metadata": {"labels": {"sickbay.dev/recover": "managed"}}}, Anything)
    plain = ground.running(ground.job("plain", 1, labels={}))
    own = ground.running(ground.job("own", 1, labels={"sickbay.dev/recover": "native"}))
    assert (plain.managed, own.managed) == (True, False)
    outcome = stop_job(ground.site, ground.stop(own))
    assert isinstance(outcome, Failed)
    assert "its own controller restarts it" in outcome.why


def test_a_job_that_tells_no_steps_is_never_said_to_hang_and_its_restart_counts_when_it_runs(ground: Ground) -> None:
    here = ground.nodes(2)
    job = ground.running(ground.job())
    assert (job.step, job.step_s) == (1, 1e9)
    ground.do(ground.stop(job))
    ground.do(ground.restart(job, *here))
    again = ground.running(job.id)
    assert (again.attempt, again.step) == (2, 1)


def test_a_step_of_an_earlier_attempt_is_no_step_of_the_next(ground: Ground) -> None:
    here = ground.nodes(2)
    saved = {"sickbay.dev/step": "140", "sickbay.dev/checkpoint-saved": "100"}
    job = ground.running(ground.job(annotations=saved))
    assert job.step == 140
    ground.do(ground.stop(job))
    ground.do(ground.restart(job, *here, from_step=100))
    again = ground.running(job.id)
    assert (again.attempt, again.step, again.step_s) == (2, 0, 1.0)
    ground.patch(job.id, {"metadata": {"annotations": {"sickbay.dev/step": "101"}}})
    assert ground.show(job.id).step == 101


def test_a_job_that_another_controller_has_made_is_not_ours_to_stop(ground: Ground) -> None:
    ground.nodes(2)
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "night", "uid": "1", "controller": True}
    job = ground.running(ground.job(owners=[owner]))
    assert not job.managed
    outcome = stop_job(ground.site, ground.stop(job))
    assert isinstance(outcome, Failed)
    assert "belongs to Workflow night, which would undo what we write" in outcome.why


def test_a_job_whose_number_somebody_removed_is_restarted_under_one_that_no_attempt_has_had(ground: Ground) -> None:
    """Its second attempt would be numbered anew: dead pods of the one before would be taken for its own."""
    here = ground.nodes(3)
    ground.do(ground.stop(ground.running(ground.job())))
    ground.do(ground.restart(ground.show(f"{ground.namespace}/job/llama"), *here))
    second = ground.running(f"{ground.namespace}/job/llama")
    ground.patch(second.id, {"metadata": {"annotations": {"sickbay.dev/attempt": None}}})
    case = ground.mark(second.nodes[0])
    give_way(ground.site, case, [ground.pod_on(second.nodes[0])])
    down = ground.phase(second.id, JobPhase.STOPPED)
    assert (down.attempt, down.stopped_by) == (1, f"drain:{case}")
    known = replace(down, attempt=second.attempt)  # as its record has it
    assert isinstance(ground.do(ground.stop(known)), Done)
    good = [node for node in here if node != second.nodes[0]]
    assert isinstance(ground.do(ground.restart(known, *good)), Done)
    assert ground.running(second.id).attempt == 3
