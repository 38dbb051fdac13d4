"""From a seat to an empty node: cordon, settle, hold, checkpoint, drain."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.core.admit import counts_as_failed
from sickbay.core.decide import wake_at
from sickbay.model import Archive, Done, Failed, Phase, Unguarded, Verb
from tests.builders import a_case, a_context, a_latch, a_node, a_policy, a_record, an_action
from tests.core.bedside import Bedside

NOW = "xid.79"


def busy(fault: str, **policy: object) -> Bedside:
    """A case in HOLDING on a node whose job makes progress, settled."""
    bed = Bedside(node=a_node(jobs=("llama",)), policy=a_policy(**policy))
    bed.busy = True
    bed.record = a_record(a_latch(fault, seen=bed.now), last_n=1)
    bed.live = bed.last = a_case(Phase.CORDONING, fault, pending=an_action(Verb.CORDON))
    return bed.marked().answers(Done())


def test_a_case_waits_until_it_is_granted_a_seat_and_says_why() -> None:
    bed = Bedside().finds(NOW).refuses("2 of at most 2 nodes are out")
    assert bed.phase is Phase.WAITING
    assert bed.case.refusal == "2 of at most 2 nodes are out"
    assert bed.case.retry_at == bed.now + 60.0
    assert bed.grants().case.refusal == ""


def test_a_case_that_waits_a_day_is_deferred_and_leaves_no_mark() -> None:
    bed = Bedside().finds(NOW).waits(86_400.0)
    assert bed.phase is Phase.DEFERRED
    assert not bed.case.ours
    assert min(bed.record.quiet.values()) > bed.now


def test_a_grant_closes_the_node_for_new_work() -> None:
    bed = Bedside().finds(NOW).grants()
    assert (bed.phase, bed.asks) == (Phase.CORDONING, Verb.CORDON)
    assert bed.case.ours


def test_a_cordon_that_fails_goes_to_a_person_and_is_asked_for_again_but_not_at_once() -> None:
    bed = Bedside().finds(NOW).grants().answers(Failed("forbidden"))
    assert (bed.phase, bed.asks) == (Phase.ESCALATED, Verb.CORDON)
    bed.answers(Failed("forbidden"))
    assert bed.case.pending is not None
    assert bed.case.pending.ask_at == bed.now + 60.0
    bed.marked().answers(Done())
    assert bed.asks is None
    assert bed.case.cordon_version


def test_a_cordon_that_is_refused_and_asked_for_again_does_not_count_for_the_breaker() -> None:
    bed = Bedside().finds(NOW).grants().answers(Failed("a right is missing", lacks=True))
    assert (bed.phase, bed.asks) == (Phase.ESCALATED, Verb.CORDON)
    assert not counts_as_failed(bed.case)


def test_a_drain_that_lacks_a_right_does_not_count_for_the_breaker_and_one_that_failed_does() -> None:
    assert not counts_as_failed(draining_without_a_right().case)
    assert counts_as_failed(busy("gpu-lost").waits(10.0).answers(Failed("there is no such node")).case)


def draining_without_a_right() -> Bedside:
    bed = busy("gpu-lost").waits(10.0)
    assert bed.phase is Phase.DRAINING
    return bed.answers(Failed("a right is missing", lacks=True))


def test_a_drain_that_lacks_a_right_goes_to_a_person_and_is_asked_for_again_until_the_right_is_back() -> None:
    bed = draining_without_a_right()
    assert (bed.phase, bed.asks) == (Phase.ESCALATED, Verb.DRAIN)
    assert bed.case.pending is not None
    assert bed.case.pending.ask_at == bed.now + 60.0
    assert bed.case.pending.args["evict"] == "1"
    bed.waits(60.0).answers(Failed("a right is missing", lacks=True))
    assert bed.case.pending.ask_at <= bed.now + 60.0
    assert bed.node is not None
    bed.busy, bed.node = False, replace(bed.node, jobs=())
    bed.waits(60.0).answers(Done("empty"))
    assert bed.path[-2:] == ["HOLDING", "DRAINING"]


def test_a_drain_that_failed_for_another_reason_waits_for_a_person() -> None:
    bed = busy("gpu-lost").waits(10.0).answers(Failed("there is no such node"))
    assert (bed.phase, bed.asks) == (Phase.ESCALATED, None)


def test_what_was_cleared_while_a_right_was_missing_evicts_nobody() -> None:
    bed = draining_without_a_right()
    bed.record = replace(bed.record, latched=())
    bed.turns()
    assert (bed.phase, bed.asks) == (Phase.ESCALATED, None)


def test_an_urgent_fault_is_drained_after_it_has_settled_even_under_a_job() -> None:
    bed = busy("gpu-lost")
    assert bed.phase is Phase.HOLDING
    assert bed.waits(9.0).phase is Phase.HOLDING
    assert bed.waits(1.0).phase is Phase.DRAINING
    assert bed.case.pending is not None
    assert bed.case.pending.args["evict"] == "1"


def test_a_node_is_emptied_of_all_that_the_next_rung_would_end_and_of_no_more() -> None:
    for code, scope in (("xid.79", "all"), ("xid.48", None)):  # rebooted first; reset first
        bed = Bedside().finds(code).until(Phase.DRAINING)
        assert bed.case.pending is not None
        assert bed.case.pending.args.get("scope") == scope


def test_a_node_that_is_only_examined_is_emptied_of_its_gpu_work_alone() -> None:
    bed = busy("gpu-lost", max_verb="RESET_GPU").until(Phase.DRAINING)
    assert bed.case.pending is not None
    assert "scope" not in bed.case.pending.args


def test_before_a_rung_that_ends_more_than_the_last_the_node_is_emptied_once_more() -> None:
    """The reset needed the GPUs free; the reboot that follows would end the pods without GPUs as well."""
    bed = Bedside().finds("xid.48").until(Phase.REPAIRING)
    assert (bed.phase, bed.asks) == (Phase.REPAIRING, Verb.RESET_GPU)
    bed.is_sent().answers(Failed("the GPU does not answer")).until(Phase.REPAIRING)
    assert (bed.phase, bed.asks) == (Phase.REPAIRING, Verb.REBOOT)
    bed.is_sent().answers(Unguarded("n1 is not empty: web/replicaset/web")).until(Phase.DRAINING)
    assert bed.case.pending is not None
    assert bed.case.pending.args["scope"] == "all"
    assert bed.until(Phase.REPAIRING).asks is Verb.REBOOT


def test_a_further_line_of_the_family_starts_the_settling_anew() -> None:
    bed = busy("gpu-lost").waits(8.0)
    bed.finds("xid.79", 7)
    assert bed.waits(8.0).phase is Phase.HOLDING
    assert bed.waits(2.0).phase is Phase.DRAINING


def test_an_idle_fault_evicts_nothing_and_is_treated_when_the_job_ends() -> None:
    bed = busy("row-remap-pending")
    assert bed.asks is None
    assert bed.waits(100_000.0).phase is Phase.HOLDING
    bed.busy = False
    assert bed.shows(jobs=()).phase is Phase.DRAINING


def test_a_node_held_for_a_week_goes_to_a_person() -> None:
    assert busy("row-remap-pending").waits(604_800.0).phase is Phase.ESCALATED


def test_a_degrading_gpu_lets_its_job_save_first() -> None:
    bed = busy("gpu-degrading")
    assert bed.asks is Verb.CHECKPOINT_JOB
    assert bed.case.pending is not None
    assert bed.case.pending.args["jobs"] == "llama"
    assert bed.waits(20.0).phase is Phase.HOLDING
    assert bed.answers(Done("llama has saved step 120")).phase is Phase.DRAINING
    assert "step 120" in bed.why


def test_a_job_that_saved_while_the_fault_settles_is_asked_again_afterwards_not_in_a_circle() -> None:
    bed = busy("gpu-degrading").waits(4.0).answers(Done("saved"))
    assert bed.phase is Phase.HOLDING
    assert bed.case.pending is not None
    assert bed.case.pending.ask_at == pytest.approx(bed.now + 6.0)


@pytest.mark.parametrize("wait_s", [20.0, 600.0])
def test_a_job_that_cannot_save_is_drained_all_the_same(wait_s: float) -> None:
    bed = busy("gpu-degrading").waits(wait_s)
    if bed.phase is Phase.HOLDING:
        bed.answers(Failed("it hangs"))
    assert bed.phase is Phase.DRAINING


def test_where_work_may_not_be_evicted_nobody_is_asked_to_save() -> None:
    bed = busy("gpu-degrading", evict=False)
    assert bed.asks is None
    assert bed.waits(10_000.0).phase is Phase.HOLDING
    bed.busy = False
    assert bed.shows(jobs=()).phase is Phase.DRAINING


def test_a_source_without_drain_waits_until_the_node_is_empty() -> None:
    bed = busy("gpu-lost", max_verb="CORDON").waits(10_000.0)
    assert bed.phase is Phase.HOLDING
    assert bed.shows(jobs=()).phase is Phase.DRAINING
    assert bed.case.pending is not None
    assert bed.case.pending.args["evict"] == "0"


def test_a_job_that_makes_no_progress_does_not_hold_up_a_drain() -> None:
    bed = busy("driver-hung").waits(1_000.0)
    assert bed.phase is Phase.HOLDING
    bed.busy = False
    assert bed.turns().phase is Phase.DRAINING


def test_a_fault_that_cleared_while_held_is_examined_before_the_node_returns() -> None:
    bed = Bedside().finds("smi.gpu-lost", 1, check="nvidia-smi").until(Phase.HOLDING).passes("nvidia-smi", 2)
    bed.waits(10.0)
    assert bed.phase is Phase.DRAINING
    bed.until(Phase.VERIFYING)
    assert "REPAIRING" not in bed.path
    assert bed.verified().phase is Phase.RETURNING


def test_a_fault_that_cleared_under_a_running_job_does_not_cost_the_job() -> None:
    bed = busy("gpu-lost-silent").passes("nvidia-smi", 9).waits(1_000.0)
    assert bed.phase is Phase.HOLDING
    bed.busy = False
    bed.shows(jobs=())
    assert bed.case.examine


def test_a_drain_that_is_done_leads_to_the_evidence_being_kept_before_any_treatment() -> None:
    bed = Bedside().finds(NOW).until(Phase.COLLECTING)
    assert bed.asks is Verb.COLLECT
    assert bed.answers(Done("/evidence/n1.1.zip")).phase is Phase.QUEUED
    assert bed.case.evidence == "/evidence/n1.1.zip"


@pytest.mark.parametrize("outcome", [Failed("disk full"), None])
def test_evidence_is_best_effort(outcome: Failed | None) -> None:
    bed = Bedside().finds(NOW).until(Phase.COLLECTING)
    bed.answers(outcome) if outcome else bed.waits(300.0)
    assert bed.phase is Phase.QUEUED


def test_a_node_that_has_not_answered_for_five_minutes_needs_no_drain() -> None:
    bed = Bedside().finds(NOW).until(Phase.DRAINING).shows(ready=False)
    assert bed.waits(299.0).phase is Phase.DRAINING
    assert bed.waits(1.0).phase is Phase.COLLECTING
    assert "not ready" in bed.why


@pytest.mark.parametrize("minutes", [None, 30.0])
def test_a_drain_that_fails_or_takes_too_long_goes_to_a_person(minutes: float | None) -> None:
    bed = Bedside().finds(NOW).until(Phase.DRAINING)
    bed.answers(Failed("a pod cannot be evicted")) if minutes is None else bed.waits(minutes * 60.0)
    assert bed.phase is Phase.ESCALATED


@given(st.floats(0.0, 1e6, allow_nan=False), st.floats(0.001, 1e4, allow_nan=False))
def test_a_case_that_asks_to_be_woken_has_settled_when_it_is(seen: float, settle_s: float) -> None:
    policy = a_policy(settle_s=settle_s)
    case = a_case(Phase.HOLDING, entered=seen, deadline=seen + 1e9)
    record = a_record(a_latch(seen=seen))
    at = wake_at(case, record, a_context(seen, policy))
    assert at is not None
    bed = Bedside(case, record=record, policy=policy, now=at)
    for _ in range(2):  # at most the settling, then the checkpoint limit
        if bed.turns().phase is Phase.DRAINING:
            return
        bed.now = wake_at(bed.case, bed.record, a_context(bed.now, policy)) or bed.now
    assert bed.turns().phase is Phase.DRAINING


def test_what_an_agent_only_repeats_does_not_put_the_drain_off_for_ever() -> None:
    bed = Bedside(policy=a_policy(settle_s=600.0)).finds(NOW).until(Phase.HOLDING)
    for n in range(2, 7):
        bed.now += 299.0
        bed.finds(NOW, n=n)
    assert bed.phase is Phase.DRAINING


def test_a_new_member_of_the_family_does_put_it_off() -> None:
    bed = Bedside(policy=a_policy(settle_s=600.0)).finds(NOW).until(Phase.HOLDING)
    bed.now += 599.0
    assert bed.finds("xid.64", n=2).phase is Phase.HOLDING
    assert bed.waits(599.0).phase is Phase.HOLDING
    assert bed.waits(1.0).phase is Phase.DRAINING


def test_a_held_node_is_not_looked_at_every_second() -> None:
    case = a_case(Phase.HOLDING, "row-remap-pending")
    at = wake_at(case, a_record(a_latch("row-remap-pending")), a_context(1_000.0))
    assert at is not None
    assert at >= case.entered + a_policy().checkpoint_s


def test_a_silent_node_is_asked_to_drain_before_it_is_called_unreachable() -> None:
    """Its case opens when it has been silent for long: its platform may still know it down, and empty it."""
    bed = Bedside(node=a_node(jobs=("llama",))).shows(ready=False).waits(300.0).until(Phase.DRAINING)
    entered = bed.now
    assert bed.asks is Verb.DRAIN
    assert bed.waits(59.0).phase is Phase.DRAINING
    assert wake_at(bed.case, bed.record, a_context(bed.now, bed.policy)) == pytest.approx(entered + 60.0)
    assert bed.waits(1.0).phase is Phase.COLLECTING
    assert "nothing there can answer" in bed.why


def test_what_was_collected_is_known_by_its_digest_and_a_later_failure_does_not_forget_it() -> None:
    kept = Archive("n1.1-4-00000000.tar.gz", "0" * 64, 10)
    bed = Bedside().finds("xid.79").until(Phase.COLLECTING).answers(Done("10 bytes are kept", archive=kept))
    assert bed.case.archive == kept
    again = Bedside(replace(bed.case, phase=Phase.COLLECTING, pending=an_action(Verb.COLLECT)), node=bed.node)
    again.answers(Done("the node says nothing any more"))
    assert again.case.archive == kept


def test_evidence_that_is_not_kept_holds_up_no_treatment() -> None:
    bed = Bedside().finds("xid.79").until(Phase.COLLECTING).answers(Failed("the evidence store is full"))
    assert bed.phase is Phase.QUEUED
    assert "the evidence store is full" in bed.case.journal[-1].why
    assert bed.grants().phase is Phase.REPAIRING
