"""From the queue to the end: rungs, the door's guard, the examination, the return."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.core.admit import TREAT, is_needed
from sickbay.model import Done, Doubt, Failed, Finding, Lost, Outcome, Phase, Place, Status, Unguarded, Verb
from sickbay.settings import Policy
from tests.builders import (
    GPU,
    a_blind,
    a_case,
    a_diagnosis,
    a_finding,
    a_latch,
    a_node,
    a_pass,
    a_policy,
    a_record,
    a_seat,
    an_action,
)
from tests.core.bedside import Bedside

OPEN_HANDED = a_policy(approval=())


def treated(code: str = "xid.79", policy: Policy = OPEN_HANDED) -> Bedside:
    """A case whose first rung is under way."""
    return Bedside(policy=policy).finds(code).until(Phase.REPAIRING).is_sent()


# --- rungs ------------------------------------------------------------------------------------------------------------


def test_a_lost_gpu_is_rebooted_then_power_cycled_then_the_machine_is_replaced() -> None:
    bed = treated()
    assert bed.asks is Verb.REBOOT
    bed.treated().verified(sick=(a_finding("smi.gpu-lost", 60, check="nvidia-smi", boot="boot-a+"),))
    assert bed.grants().asks is Verb.POWER_CYCLE
    bed.is_sent().treated().verified(sick=(a_finding("smi.gpu-lost", 60, check="nvidia-smi", boot="boot-a++"),))
    assert bed.grants().asks is Verb.REPLACE
    assert bed.is_sent().answers(Done("i-new takes its place")).phase is Phase.RESOLVED
    assert bed.case.rungs_tried == (Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE)


def test_a_reset_is_for_the_sick_gpu_and_a_reboot_for_the_node() -> None:
    reset = treated("xid.95").case.pending
    assert reset is not None
    assert (reset.verb, reset.place) == (Verb.RESET_GPU, Place("n1", GPU))
    reboot = treated("xid.79").case.pending
    assert reboot is not None
    assert reboot.place == Place("n1")


def test_a_reset_for_two_sick_gpus_is_for_all_of_them() -> None:
    bed = Bedside(policy=OPEN_HANDED)
    bed.reports(a_finding("xid.95", 1), a_finding("xid.95", 2, device="0000:5e:00")).until(Phase.REPAIRING)
    assert bed.case.pending is not None
    assert bed.case.pending.place == Place("n1")


@pytest.mark.parametrize("outcome", [Failed("GPU is in use"), None])
def test_a_treatment_that_fails_or_takes_too_long_leads_to_the_next_rung(outcome: Outcome | None) -> None:
    bed = treated()
    bed.answers(outcome) if outcome else bed.waits(1_800.0)
    assert bed.phase is Phase.QUEUED
    assert bed.grants().asks is Verb.POWER_CYCLE


def test_a_rung_gets_the_time_its_ladder_gives_it() -> None:
    bed = treated()
    assert bed.case.deadline == bed.case.entered + 1_800.0


def test_a_rung_the_policy_does_not_allow_is_skipped() -> None:
    bed = treated(policy=a_policy(max_verb="REBOOT"))
    bed.answers(Failed("it did not come back"))
    assert bed.phase is Phase.ESCALATED
    assert "no stronger treatment" in bed.why
    assert "REBOOT" in bed.why


def test_a_rung_the_platform_cannot_do_is_skipped() -> None:
    bed = Bedside(verbs=frozenset(Verb) - {Verb.RESET_GPU}, policy=OPEN_HANDED).finds("xid.95").until(Phase.REPAIRING)
    assert bed.asks is Verb.REBOOT


def test_where_no_treatment_is_allowed_the_checks_decide() -> None:
    bed = Bedside(policy=a_policy(max_verb="DRAIN")).finds("xid.79").until(Phase.VERIFYING)
    assert bed.case.rungs_tried == ()
    assert "REPAIRING" not in bed.path


def test_an_untreated_node_that_is_still_sick_goes_to_a_person_and_does_not_circle() -> None:
    bed = Bedside(policy=a_policy(max_verb="DRAIN")).finds("xid.79").until(Phase.VERIFYING)
    bed.verified(sick=(a_finding("smi.gpu-lost", 60, check="nvidia-smi"),))
    assert bed.phase is Phase.ESCALATED
    assert bed.path.count("VERIFYING") == 1


def test_a_used_up_ladder_goes_to_a_person() -> None:
    bed = Bedside(a_case(Phase.QUEUED, rung=Verb.REPLACE, visits=2), record=a_record(a_latch())).turns()
    assert bed.phase is Phase.ESCALATED
    assert [n.level for n in bed.notices.values()] == ["urgent"]


def test_a_case_waits_in_the_queue_with_its_reason_until_it_is_granted() -> None:
    bed = Bedside().finds("xid.79").until(Phase.QUEUED).refuses("another node is being treated")
    assert (bed.phase, bed.case.refusal) == (Phase.QUEUED, "another node is being treated")
    assert bed.waits(86_400.0).phase is Phase.ESCALATED


# --- the guard at the door --------------------------------------------------------------------------------------------


def test_a_treatment_refused_at_the_door_closes_and_empties_the_node_again_and_is_tried_again() -> None:
    bed = treated().answers(Unguarded("n1 is not empty: llama"))
    assert bed.phase is Phase.CORDONING
    assert "n1 is not empty" in bed.why
    bed.until(Phase.REPAIRING)
    assert bed.asks is Verb.REBOOT
    assert bed.case.rungs_tried == (Verb.REBOOT,)


@pytest.mark.parametrize("refused", [Unguarded("n1 is under treatment: n1.1/7"), Lost("nothing reaches it")])
def test_a_treatment_that_goes_on_while_the_next_one_is_refused_at_the_door_keeps_its_place(refused: Outcome) -> None:
    """Its node's object was deleted and is back; its place was given to a third node (seed 70020122)."""
    bed = treated()
    reboot = bed.case.pending
    bed.shows(uid="uid-2", cordoned=False, mark="").until(Phase.REPAIRING).is_sent().answers(refused)
    assert bed.case.unfinished == reboot
    assert is_needed(a_seat(kind=TREAT, verb=Verb.POWER_CYCLE), replace(bed.case, phase=Phase.CORDONING), bed.now)
    assert bed.until(Phase.REPAIRING).is_sent().treated().case.unfinished is None


def test_a_treatment_that_never_arrived_was_not_tried_and_nothing_stronger_follows() -> None:
    bed = treated().answers(Lost("the provider could not be reached"))
    assert (bed.phase, bed.why) == (Phase.QUEUED, "REBOOT could not be delivered: the provider could not be reached")
    assert bed.case.rungs_tried == ()
    assert bed.case.unfinished is None
    assert bed.until(Phase.REPAIRING).asks is Verb.REBOOT


def test_the_third_treatment_that_was_refused_at_the_door_goes_to_a_person() -> None:
    bed = treated()
    for phase in (Phase.CORDONING, Phase.CORDONING, Phase.ESCALATED):
        bed.until(Phase.REPAIRING).answers(Unguarded("somebody keeps uncordoning it"))
        assert bed.phase is phase
    assert bed.case.rungs_tried == ()


def tried_again(bed: Bedside) -> Bedside:
    """A place is free as soon as it is tried again."""
    assert bed.case.undelivered is not None
    bed.now = bed.case.undelivered.again_at
    return bed.grants()


def test_what_cannot_be_delivered_is_tried_again_later_and_later() -> None:
    bed, waited = treated(), []
    for _ in range(7):
        bed.answers(Lost("the provider does not answer"))
        assert bed.case.undelivered is not None
        waited.append(bed.case.undelivered.again_at - bed.now)
        tried_again(bed)
    assert waited == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0, 600.0]


def test_what_cannot_be_delivered_says_what_does_not_answer_and_when_it_is_tried_again() -> None:
    """That a key never arrived is nothing that anybody can act on: the door had said why a moment ago."""
    bed = treated()
    bed.live = bed.last = replace(bed.case, refusal="the provider's API does not answer")
    bed.answers(Lost("n1.1/9 never arrived at n1"))
    assert bed.case.refusal == (
        "REBOOT could not be delivered: the provider's API does not answer; it is tried again in 1 minute"
    )


def test_what_cannot_be_delivered_for_a_while_is_told_once() -> None:
    bed = treated()
    for _ in range(12):
        bed.answers(Lost("the provider does not answer"))
        tried_again(bed)
    told = [n for n in bed.notices.values() if n.key.endswith("/undelivered")]
    assert [n.level for n in told] == ["warning"]
    assert "the provider does not answer" in told[0].body
    assert "sickbay case hold n1.1" in told[0].body
    assert "sickbay case abort n1.1" in told[0].body


def test_what_cannot_be_delivered_for_hours_is_a_persons() -> None:
    bed = treated()
    began = bed.now
    while bed.answers(Lost("the provider does not answer")).phase is Phase.QUEUED:
        tried_again(bed)
    assert (bed.phase, bed.case.rungs_tried) == (Phase.ESCALATED, ())
    assert bed.why == "REBOOT could not be delivered for 6 hours: the provider does not answer"
    assert bed.now - began >= 6 * 3_600.0
    assert bed.case.undelivered is None, "a person's retry has its whole time again"


def test_what_was_delivered_after_all_was_never_undelivered() -> None:
    bed = tried_again(treated().answers(Lost("the provider does not answer")))
    assert bed.treated().case.undelivered is None


# --- the examination --------------------------------------------------------------------------------------------------


def test_a_node_is_not_returned_until_its_checks_pass_again() -> None:
    bed = treated().treated()
    assert (bed.phase, bed.asks) == (Phase.VERIFYING, Verb.VERIFY)
    assert bed.case.pending is not None
    assert bed.case.pending.args["checks"] == "nvidia-smi,dcgm-l2"
    assert bed.verified().phase is Phase.RETURNING
    assert bed.answers().phase is Phase.RESOLVED
    assert not bed.record.latched


def test_the_examination_waits_until_the_fault_would_show_again_after_the_boot() -> None:
    bed = treated().treated()
    assert bed.case.pending is not None
    assert bed.case.pending.ask_at == bed.now + 120.0


def test_an_examination_that_is_not_let_in_is_told_once_and_asked_for_until_it_is() -> None:
    """Its time was over after half an hour, and a well node that nobody could look at got the next rung."""
    bed = treated().treated()
    refused = Failed("a ResourceQuota of namespace sickbay refuses its Job: raise it", lacks=True)
    for _ in range(90):
        bed.answers(refused)
        assert (bed.phase, bed.asks, bed.case.refusal) == (Phase.VERIFYING, Verb.VERIFY, refused.why)
        bed.waits(60.0)
    told = [n for n in bed.notices.values() if n.level == "urgent"]
    assert ["it cannot be examined" in n.title and refused.why in n.body for n in told] == [True]
    assert bed.verified().phase is Phase.RETURNING


def test_a_check_that_still_fails_leads_to_the_next_rung() -> None:
    bed = treated().treated().verified(sick=(a_finding("smi.gpu-lost", 60, check="nvidia-smi", boot="boot-a+"),))
    assert bed.phase is Phase.QUEUED
    assert bed.grants().asks is Verb.POWER_CYCLE


def test_another_fault_found_by_the_examination_joins_the_case() -> None:
    bed = treated("xid.95").treated().verified(sick=(a_finding("smi.gpu-lost", 60, check="nvidia-smi"),))
    assert "gpu-lost-silent" in {d.fault for d in bed.case.diagnoses}
    assert bed.grants().asks is Verb.REBOOT


@pytest.mark.parametrize("findings", [(), (a_blind("dcgm-l2", "tool.missing", 60),)], ids=["absent", "unknown"])
def test_a_check_that_gives_no_answer_never_passes_an_examination(findings: tuple[Finding, ...]) -> None:
    bed = treated().treated()
    assert bed.case.pending is not None
    said = (a_pass("nvidia-smi", 60, boot="boot-a+"), *findings)
    bed.answers(Done("", tuple(replace(f, answers=bed.case.pending.key) for f in said)))
    assert bed.phase is Phase.ESCALATED
    assert "dcgm-l2 gave no answer" in bed.why


def test_an_answer_to_another_examination_proves_nothing() -> None:
    bed = treated().treated()
    stale = tuple(a_pass(c, 60, boot="boot-a+", answers="n1.1/3") for c in bed.case.plan.verify_with)
    assert bed.answers(Done("", stale)).phase is Phase.ESCALATED


@pytest.mark.parametrize("outcome", [Failed("no agent there"), None])
def test_an_examination_that_fails_or_takes_too_long_leads_to_the_next_rung(outcome: Outcome | None) -> None:
    bed = treated().treated()
    bed.answers(outcome) if outcome else bed.waits(1_800.0)
    assert bed.phase is Phase.QUEUED


def test_a_verdict_that_only_an_operator_clears_keeps_a_node_from_returning() -> None:
    case = a_case(Phase.VERIFYING, "row-remap-failed", pending=an_action(Verb.VERIFY), visits=1)
    bed = Bedside(case, record=a_record(a_latch("row-remap-failed"))).verified()
    assert bed.phase is not Phase.RETURNING
    assert any("cleared only by operator" in e.why for e in bed.case.journal)


def test_a_verdict_that_only_a_boot_clears_keeps_a_node_that_was_not_booted_from_returning() -> None:
    case = a_case(Phase.VERIFYING, "gpu-lost", pending=an_action(Verb.VERIFY), visits=1)
    bed = Bedside(case, record=a_record(a_latch("gpu-lost"))).verified()
    assert bed.phase is Phase.QUEUED
    assert "cleared only by boot" in bed.why


def test_a_fault_seen_by_the_agent_during_the_examination_outweighs_it() -> None:
    bed = treated().treated().finds("xid.79", 7)
    assert bed.phase is Phase.QUEUED
    assert "GPU fell off the bus was seen while it was examined" in bed.why


def test_a_fault_newer_than_the_passed_check_is_not_cleared_by_it() -> None:
    """Both arrive in one pass: the check looked first, then the agent saw it. After a reset the boot is the same."""
    bed = treated("xid.95").treated()
    assert bed.node is not None
    assert bed.case.pending is not None
    lost = a_finding("smi.gpu-lost", 70, check="nvidia-smi")
    bed.node = replace(bed.node, findings=(lost,), version=99)
    bed.verified(n=60)
    assert bed.phase is not Phase.RETURNING


def test_a_reset_clears_what_a_reset_clears_on_the_device_it_touched() -> None:
    other = a_latch("ecc-uncontained", device="0000:5e:00")
    record = a_record(a_latch("ecc-uncontained"), other)
    case = a_case(Phase.REPAIRING, "ecc-uncontained", rung=Verb.RESET_GPU)
    action = an_action(Verb.RESET_GPU, place=Place("n1", GPU), sends=1)
    bed = Bedside(replace(case, pending=action), record=record).answers()
    assert bed.record.latched == (other,)


# --- what clears a verdict --------------------------------------------------------------------------------------------


def test_absence_is_not_clearing() -> None:
    bed = Bedside(record=a_record(a_latch("row-remap-pending"))).shows(findings=())
    assert bed.faults == {"row-remap-pending"}


def test_a_passed_check_clears_only_what_it_can_see() -> None:
    record = a_record(a_latch("row-remap-pending"), a_latch("gpu-lost-silent"))
    assert Bedside(record=record).passes("nvidia-smi", 5).faults == {"row-remap-pending"}


def test_a_pass_that_is_older_than_the_finding_clears_nothing() -> None:
    assert Bedside(record=a_record(a_latch("gpu-lost-silent", n=9))).passes("nvidia-smi", 5).faults


def test_a_boot_clears_a_verdict_only_after_it_has_settled() -> None:
    bed = Bedside(record=a_record(a_latch("gpu-lost"), quiet={"gpu-lost": 9e9}), node=a_node(boot_id="boot-b"))
    assert bed.turns().faults == {"gpu-lost"}
    assert bed.waits(119.0).faults == {"gpu-lost"}
    assert bed.waits(1.0).faults == set()


def test_a_boot_does_not_clear_what_only_an_operator_clears() -> None:
    record = a_record(a_latch("row-remap-failed"), quiet={"row-remap-failed": 9e9})
    assert Bedside(record=record, node=a_node(boot_id="boot-b")).turns().waits(9_999.0).faults == {"row-remap-failed"}


def test_an_operator_clears_everything_by_acknowledging_it() -> None:
    record = a_record(a_latch("row-remap-failed"), quiet={"row-remap-failed": 9e9}, doubts=(Doubt("S1", 1),))
    bed = Bedside(record=record).commands("acknowledge")
    assert (bed.faults, bed.record.doubts) == (set(), ())


# --- the return -------------------------------------------------------------------------------------------------------


def test_a_fault_seen_while_returning_closes_the_node_again_because_the_release_may_have_landed() -> None:
    bed = treated().treated().verified().finds("xid.79", 70)
    assert (bed.phase, bed.asks) == (Phase.CORDONING, Verb.CORDON)
    assert bed.case.cordon_version == 0


@pytest.mark.parametrize("outcome", [Failed("only 7 of 8 GPUs are allocatable"), None])
def test_a_return_that_fails_goes_to_a_person_and_closes_the_node_again(outcome: Outcome | None) -> None:
    bed = treated().treated().verified()
    bed.answers(outcome) if outcome else bed.waits(600.0)
    assert (bed.phase, bed.asks) == (Phase.ESCALATED, Verb.CORDON)


def test_our_own_release_is_not_taken_for_a_persons_uncordon() -> None:
    bed = treated().treated().verified().shows(cordoned=False, mark="")
    assert bed.phase is Phase.RETURNING
    assert bed.answers(Failed("only 7 of 8 GPUs are allocatable")).turns().phase is Phase.ESCALATED


def test_a_resolved_case_leaves_what_it_tried_for_the_next_one() -> None:
    bed = treated().until(Phase.RESOLVED)
    assert [(p.fault, p.rung, p.flap, p.end) for p in bed.record.past] == [("gpu-lost", Verb.REBOOT, False, "RESOLVED")]


def test_closing_a_case_twice_after_a_crash_counts_once() -> None:
    bed = treated().treated().verified()
    returning, record = bed.case, bed.record
    bed.answers()
    bed.live = bed.last = returning  # the archive write was lost; the record was kept
    bed.answers()
    assert len(bed.record.past) == 1
    assert record.past == ()


# --- replaced machines ------------------------------------------------------------------------------------------------


def replacing() -> Bedside:
    diagnoses = (a_diagnosis("row-remap-failed", part="S1"),)
    case = a_case(Phase.REPAIRING, diagnoses=diagnoses, rung=Verb.REPLACE, rungs_tried=(Verb.REPLACE,))
    case = replace(case, pending=an_action(Verb.REPLACE, sends=1))
    return Bedside(case, record=a_record(a_latch("row-remap-failed", part="S1")))


def test_a_replaced_machine_ends_the_case_and_condemns_its_part() -> None:
    bed = replacing().shows(instance="i-new", uid="uid-new", boot_id="boot-new")
    assert bed.phase is Phase.RESOLVED
    assert bed.decision is not None
    assert dict(bed.decision.condemn) == {"S1": "row-remap-failed in case n1.1"}


def test_the_successor_starts_with_a_clean_record() -> None:
    bed = replacing().shows(instance="i-new", uid="uid-new", boot_id="boot-new")
    assert (bed.record.past, bed.record.latched) == ((), ())
    bed.finds("xid.79", boot="boot-new")
    assert bed.case.id == "n1.1"  # the first number of this record; the real one has last_n
    assert bed.case.rung is None


def test_what_is_found_on_the_successor_in_the_same_look_is_not_lost() -> None:
    bed = replacing()
    sick = a_finding("xid.79", 1, boot="boot-new")
    bed.shows(instance="i-new", uid="uid-new", boot_id="boot-new", findings=(sick,))
    assert bed.phase is Phase.RESOLVED
    assert bed.faults == {"gpu-lost"}
    assert bed.turns().phase is Phase.WAITING


def condemned_with(bed: Bedside) -> dict[str, str]:
    assert bed.phase is Phase.RESOLVED
    assert bed.decision is not None
    return dict(bed.decision.condemn)


def test_what_is_found_on_the_successor_in_the_same_look_condemns_none_of_its_parts() -> None:
    """On the same device too: there it was the new part that was condemned, and not the one that had left."""
    sick = a_finding("smi.remap-failed", 1, boot="boot-new", part="S2")
    bed = replacing().shows(instance="i-new", uid="uid-new", boot_id="boot-new", findings=(sick,))
    assert condemned_with(bed) == {"S1": "row-remap-failed in case n1.1"}


@pytest.mark.parametrize("said", ["hold", "pause"])
def test_what_is_said_of_the_successor_while_a_person_keeps_the_old_case_is_about_the_successor(said: str) -> None:
    """A webhook's word about a healthy machine condemned its GPU, for which it was replaced (seed 50001073)."""
    bed = replacing()
    bed = bed.commands("hold") if said == "hold" else bed
    bed.paused = "the fleet is paused" if said == "pause" else ""
    bed.shows(instance="i-new", uid="uid-new", boot_id="boot-new")
    bed.finds("xid.64", 2, part="S2", source="alertmanager")
    assert [d.part for d in bed.case.diagnoses] == ["S1"]
    bed.paused = ""
    bed = bed.commands("unhold") if said == "hold" else bed.turns()
    assert condemned_with(bed) == {"S1": "row-remap-failed in case n1.1"}
    assert bed.faults == {"row-remap-error"}  # still known, and a case of the new machine's own


def test_a_part_is_not_condemned_by_the_word_of_one_who_may_cause_no_replacement() -> None:
    """The next machine with that part was replaced for it: more than any word of that source may cause."""
    bed = replacing().finds("xid.64", 2, part="S2", source="alertmanager", device="0000:b9:00")
    assert [d.part for d in bed.case.diagnoses] == ["S1", "S2"]
    bed.shows(instance="i-new", uid="uid-new", boot_id="boot-new")
    assert condemned_with(bed) == {"S1": "row-remap-failed in case n1.1"}


@pytest.mark.parametrize(("kills", "condemned"), [((1.0, 2.0, 3.0), True), ((1.0, 2.0), False)])
def test_a_part_that_had_ended_three_jobs_when_its_machine_was_taken_away_is_condemned(
    kills: tuple[float, ...], condemned: bool
) -> None:
    """It came back in a machine of another name and ended three more (seed 50001167)."""
    bed = Bedside(policy=OPEN_HANDED).finds("xid.79", part="S1").until(Phase.DRAINING)
    bed.record = replace(bed.record, doubts=(Doubt("S1", kills=kills),))
    bed.shows(gone=True)
    assert bed.decision is not None
    assert [part for part, _ in bed.decision.condemn] == ["S1"] * condemned


def test_a_case_without_a_replacement_condemns_no_part() -> None:
    bed = Bedside(policy=OPEN_HANDED).finds("xid.79", part="S1").until(Phase.RESOLVED)
    assert bed.case.diagnoses[0].part == "S1"
    assert bed.decision is not None
    assert bed.decision.condemn == ()


def test_a_degraded_but_passing_check_is_a_pass() -> None:
    bed = treated().treated()
    assert bed.case.pending is not None
    key = bed.case.pending.key
    said = tuple(a_pass(c, 60, boot="boot-a+", status=Status.DEGRADED, answers=key) for c in bed.case.plan.verify_with)
    assert bed.answers(Done("", said)).phase is Phase.RETURNING


def test_no_node_is_treated_on_a_sweeps_word_alone() -> None:
    """Whoever holds the sweeper's token can write it: the node itself is asked before anything is done to it."""
    bed = Bedside().finds("xid.79", source="sweep", check="dcgm-l2").until(Phase.VERIFYING)
    assert bed.case.rungs_tried == ()
    bed.verified(sick=(a_finding("xid.79", 60),)).grants()
    assert bed.phase is Phase.REPAIRING


def test_what_a_sweep_said_and_the_node_does_not_show_is_left_to_a_person() -> None:
    bed = Bedside().finds("xid.79", source="sweep", check="dcgm-l2").until(Phase.VERIFYING).verified().turns()
    assert bed.phase is Phase.ESCALATED
    assert bed.case.rungs_tried == ()
