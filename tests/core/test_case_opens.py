"""What opens a case and what does not: new findings, latches, quiet time, flaps, relapses, newcomers, parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.core import plan
from sickbay.core.moment import moment
from sickbay.model import Doubt, Phase, Place, Severity, Status, Verb, When
from tests.builders import (
    WALL,
    a_blind,
    a_case,
    a_finding,
    a_gpu,
    a_latch,
    a_node,
    a_past,
    a_policy,
    a_record,
)
from tests.core.bedside import Bedside

DAY = 86_400.0


def test_a_healthy_node_has_no_case() -> None:
    assert Bedside().passes("nvidia-smi", 1).last is None


def test_a_lost_gpu_opens_a_case_that_waits_for_its_seat() -> None:
    bed = Bedside().finds("xid.79")
    assert bed.path == ["SUSPECTED", "WAITING"]
    assert bed.case.id == "n1.1"
    assert [d.fault for d in bed.case.diagnoses] == ["gpu-lost"]


def test_the_same_finding_seen_again_changes_nothing() -> None:
    bed = Bedside().finds("xid.79")
    case, record = bed.case, bed.record
    bed.turns().turns()
    assert bed.case == case
    assert bed.record == record


def test_a_case_keeps_its_node_its_machine_and_the_jobs_on_it() -> None:
    bed = Bedside(node=a_node(jobs=("llama",), pool="train")).finds("xid.79")
    assert (bed.case.uid, bed.case.instance, bed.case.pool) == ("uid-n1", "i-n1", "train")
    assert bed.case.jobs_hurt == ("llama",)


def test_unknown_never_opens_a_case_but_is_told() -> None:
    bed = Bedside().reports(a_blind("dcgm-l2", "tool.missing"))
    assert bed.last is None
    assert [n.level for n in bed.notices.values()] == ["warning"]


def test_a_sick_instrument_is_told_once_a_day() -> None:
    bed = Bedside().reports(a_blind("dcgm-l2", "tool.missing", 1))
    bed.waits(3_600.0).reports(a_blind("dcgm-l2", "tool.missing", 2))
    assert len(bed.record.notices) == 1
    bed.waits(DAY).reports(a_blind("dcgm-l2", "tool.missing", 3))
    assert len(bed.record.notices) == 2


def test_an_application_fault_touches_no_node_and_tells_nobody() -> None:
    bed = Bedside().finds("xid.31")
    assert bed.last is None
    assert not bed.notices


def test_a_gpu_tool_that_cannot_be_killed_three_cycles_in_a_row_is_a_hung_driver() -> None:
    bed = Bedside()
    for n in (1, 2):
        bed.waits(300.0).reports(a_finding("smi.driver-hung", n, device="", check="nvidia-smi"))
        assert bed.phase is Phase.SUSPECTED
    bed.waits(200.0).reports(a_finding("smi.driver-hung", 3, device="", check="nvidia-smi"))
    assert bed.phase is Phase.WAITING
    assert bed.case.diagnoses[0].fault == "driver-hung"


def test_a_gpu_tool_that_is_slow_and_could_be_killed_is_told_and_never_a_case() -> None:
    bed = Bedside()
    for n in range(1, 10):
        bed.waits(300.0).reports(a_blind("nvidia-smi", "tool.timeout", n))
    assert bed.last is None
    assert not bed.record.latched
    assert len(bed.notices) == 1


def test_a_fault_that_needs_confirming_waits_for_its_third_cycle() -> None:
    bed = Bedside()
    for n, phase in ((1, Phase.SUSPECTED), (2, Phase.SUSPECTED), (3, Phase.WAITING)):
        bed.finds("smi.nvlink-inactive", n, check="nvidia-smi")
        assert bed.phase is phase


def test_a_code_may_ask_for_more_sightings_than_its_fault() -> None:
    bed = Bedside().finds("smi.slowdown-hw", 1, check="nvidia-smi")
    assert bed.phase is Phase.SUSPECTED


def test_a_suspicion_that_is_not_confirmed_in_time_is_dismissed_and_left_in_peace() -> None:
    bed = Bedside().finds("smi.nvlink-inactive", 1, check="nvidia-smi").shows(findings=()).waits(900.0)
    assert bed.phase is Phase.DISMISSED
    assert set(bed.record.quiet.values()) == {bed.now + a_policy().quiet_s}
    assert not any(p.flap for p in bed.record.past)
    assert bed.turns().live is None


def test_a_suspicion_that_is_shown_without_a_break_is_believed_in_the_end() -> None:
    bed = Bedside().finds("smi.slowdown-hw", 1, check="nvidia-smi").waits(a_policy().suspect_s - 1.0)
    assert bed.phase is Phase.SUSPECTED
    assert bed.waits(1.0).phase not in (Phase.SUSPECTED, Phase.DISMISSED)


def test_a_node_that_opted_out_gets_no_case() -> None:
    assert Bedside(node=a_node(opted_out=True)).finds("xid.79").last is None


def test_a_finding_from_a_boot_that_is_over_is_not_new() -> None:
    assert Bedside().finds("smi.remap-failed", boot="boot-before").last is None


def test_two_devices_are_two_diagnoses_of_one_case() -> None:
    bed = Bedside().reports(a_finding("xid.95", 1), a_finding("xid.95", 2, device="0000:5e:00"))
    assert {d.place.device for d in bed.case.diagnoses} == {"0000:3b:00", "0000:5e:00"}


def test_case_numbers_are_never_used_twice() -> None:
    bed = Bedside(record=a_record(a_latch(), last_n=41)).turns()
    assert bed.case.id == "n1.42"
    assert bed.record.last_n == 42


# --- quiet time, flaps, relapses --------------------------------------------------------------------------------------


def test_a_verdict_that_is_still_latched_opens_a_case_when_its_quiet_time_is_over() -> None:
    bed = Bedside(record=a_record(a_latch(), quiet={"gpu-lost": 5_000.0}))
    assert bed.turns().last is None
    bed.now = 5_000.0
    assert bed.turns().phase is Phase.WAITING


def test_quiet_for_one_fault_does_not_hide_another() -> None:
    bed = Bedside(record=a_record(a_latch("row-remap-pending"), quiet={"row-remap-pending": 5_000.0})).finds("xid.79")
    assert [d.fault for d in bed.case.diagnoses] == ["gpu-lost"]


def test_a_case_that_cleared_by_itself_is_a_flap() -> None:
    bed = Bedside().finds("smi.gpu-lost", 1, check="nvidia-smi").passes("nvidia-smi", 2)
    assert bed.phase is Phase.DISMISSED
    assert [p.flap for p in bed.record.past] == [True]
    assert not bed.record.quiet


def test_after_two_flaps_in_a_day_clearing_is_no_longer_believed() -> None:
    flaps = tuple(a_past("gpu-lost-silent", flap=True, case=f"n1.{n}") for n in (1, 2))
    bed = Bedside(record=a_record(past=flaps, last_n=2)).finds("smi.gpu-lost", 1, check="nvidia-smi")
    bed.passes("nvidia-smi", 2)
    assert bed.phase is Phase.WAITING
    bed.until(Phase.REPAIRING)
    assert bed.case.rung is Verb.REBOOT


def test_flaps_of_yesterday_are_forgiven() -> None:
    flaps = tuple(a_past("gpu-lost-silent", flap=True, case=f"n1.{n}") for n in (1, 2))
    bed = Bedside(record=a_record(past=flaps), now=DAY + 1.0).finds("smi.gpu-lost", 1, check="nvidia-smi")
    assert bed.passes("nvidia-smi", 2).phase is Phase.DISMISSED


def test_a_relapse_starts_above_the_highest_rung_ever_tried_and_raises_a_suspicion() -> None:
    past = (a_past(rung=Verb.POWER_CYCLE, case="n1.1"), a_past(rung=Verb.REBOOT, case="n1.2"))
    bed = Bedside(record=a_record(past=past), policy=a_policy(approval=())).finds("xid.79").until(Phase.QUEUED)
    assert bed.grants().case.rung is Verb.REPLACE
    assert [d.strikes for d in bed.record.doubts] == [1]
    assert "relapse of n1.1" in bed.case.journal[0].why


def test_a_relapse_of_the_same_part_under_another_name_counts_too() -> None:
    past = (a_past("gsp-timeout", rung=Verb.RESET_GPU, part="S1"),)
    bed = Bedside(record=a_record(past=past)).finds("xid.95", part="S1")
    assert bed.case.rung is Verb.RESET_GPU


def test_a_fault_that_comes_back_after_a_week_starts_at_the_bottom_again() -> None:
    bed = Bedside(record=a_record(past=(a_past(rung=Verb.REBOOT),)), now=8 * DAY).finds("xid.79")
    assert bed.case.rung is None


# --- merging ----------------------------------------------------------------------------------------------------------


def test_a_family_of_lines_is_one_case_with_one_plan() -> None:
    bed = Bedside().finds("xid.48", 1).finds("xid.63", 2).finds("xid.94", 3)
    assert bed.case.id == "n1.1"
    assert bed.case.plan.rungs[0].verb is Verb.RESET_GPU


def test_a_worse_finding_raises_the_plan_and_never_lowers_it() -> None:
    bed = Bedside().finds("xid.95", 1)
    assert bed.case.plan.rungs[0].verb is Verb.RESET_GPU
    assert bed.finds("xid.79", 2).case.plan.rungs[0].verb is Verb.REBOOT
    assert bed.finds("xid.63", 3, device="0000:5e:00").case.plan.rungs[0].verb is Verb.REBOOT


def test_a_merged_diagnosis_is_written_into_the_journal() -> None:
    bed = Bedside().finds("xid.95", 1).finds("xid.79", 2)
    assert any(e.event == "MERGED" and "fell off the bus" in e.why for e in bed.case.journal)


def test_a_finding_merged_later_adds_its_checks_to_the_examination() -> None:
    bed = Bedside(a_case(Phase.HOLDING, "filesystem-read-only"), record=a_record(a_latch("filesystem-read-only")))
    assert bed.case.plan.verify_with == ("nvidia-smi", "local-disks")
    assert "dcgm-l2" in bed.finds("xid.79", 2).case.plan.verify_with


# --- our own eyes -----------------------------------------------------------------------------------------------------


def test_a_node_that_stays_away_is_a_case_after_five_minutes() -> None:
    bed = Bedside().shows(ready=False)
    assert bed.waits(299.0).last is None
    assert bed.waits(1.0).case.diagnoses[0].fault == "node-not-ready"


def test_the_evidence_of_an_absence_is_as_true_when_it_is_read_days_later() -> None:
    """ "For five minutes" was told as evidence of a node that had been away for a week."""
    bed = Bedside().shows(ready=False)
    began = moment(WALL + bed.now)
    assert bed.waits(300.0).case.diagnoses[0].because == (f"n1 was not ready from {began} on",)


def test_a_node_that_comes_back_in_time_is_forgotten() -> None:
    bed = Bedside().shows(ready=False).waits(200.0).shows(ready=True)
    bed.waits(200.0)
    assert bed.last is None
    assert bed.record.not_ready_since is None


def test_a_condemned_part_that_reappears_opens_a_replace_case() -> None:
    bed = Bedside()
    bed.condemned = {"S9": ()}
    bed.shows(gpus=(a_gpu("S9"),))
    assert bed.case.diagnoses[0].fault == "condemned-part"
    assert [r.verb for r in bed.case.plan.rungs] == [Verb.REPLACE]
    assert "S9" in bed.case.journal[0].why


def test_a_part_that_a_person_was_to_decide_about_is_not_let_in_with_another_machine() -> None:
    """Its machine was taken away before they did; the light check at the gate passed (seed 50000349)."""
    bed = Bedside(node=a_node(gate=True, gpus=(a_gpu("S9"),)))
    bed.record = replace(bed.record, doubts=(Doubt("S9", kills=(1.0, 2.0, 3.0)),))
    bed.turns()
    assert "condemned-part" in [d.fault for d in bed.case.diagnoses]
    assert "GPU S9 of n1 has ended 3 jobs within 30 days" in bed.case.diagnoses[0].because[0]
    assert Verb.REPLACE in [r.verb for r in bed.case.plan.rungs]


def test_a_new_node_is_examined_before_work_lands_on_it() -> None:
    bed = Bedside(node=a_node(gate=True)).turns()
    assert bed.case.newcomer
    bed.until(Phase.VERIFYING)
    assert "REPAIRING" not in bed.path
    assert bed.verified().phase is Phase.RETURNING
    assert bed.answers().phase is Phase.RESOLVED


def test_a_newcomer_that_came_back_and_is_examined_in_vain_is_not_examined_again_at_once() -> None:
    """It was drained again within the minute, and people were told the same words (seed 50000099)."""
    policy = a_policy(max_verb="DRAIN", approval=(), verify_s=600.0)
    bed = Bedside(node=a_node(gate=True), policy=policy).turns().until(Phase.DRAINING)
    bed = bed.shows(ready=False).waits(1000.0).until(Phase.VERIFYING).waits(700.0)
    assert "UNREACHABLE" in [entry.event for entry in bed.case.journal]
    assert bed.phase is Phase.ESCALATED
    bed = bed.waits(60.0).shows(ready=True)
    assert bed.phase is Phase.CORDONING
    told = len(bed.until(Phase.VERIFYING).notices)
    bed = bed.waits(700.0).waits(10.0)
    assert (bed.phase, len(bed.notices)) == (Phase.ESCALATED, told)  # they know, in these very words
    assert bed.waits(3000.0).phase is Phase.ESCALATED
    assert bed.waits(700.0).phase is Phase.CORDONING


def test_a_newcomer_that_turns_out_sick_is_treated_like_any_other() -> None:
    bed = Bedside(node=a_node(gate=True)).turns().until(Phase.VERIFYING)
    bed.verified(sick=(a_finding("smi.gpu-lost", 60, check="nvidia-smi"),))
    assert bed.phase is Phase.QUEUED
    assert bed.grants().case.rung is Verb.REBOOT


def test_a_machine_exchanged_behind_our_back_starts_with_a_clean_record() -> None:
    old = a_record(a_latch(), past=(a_past(rung=Verb.REPLACE),), doubts=(Doubt("S9", 1),), quiet={"gpu-lost": 9e9})
    bed = Bedside(record=old, node=a_node(instance="i-other")).turns()
    assert bed.last is None
    assert (bed.record.latched, bed.record.past, bed.record.doubts) == ((), (), ())


@pytest.mark.parametrize(("status", "opens"), [(Status.OK, False), (Status.UNKNOWN, False), (Status.FAILED, True)])
def test_only_a_failed_check_opens_a_case(status: Status, opens: bool) -> None:
    bed = Bedside().finds("xid.79", status=status)
    assert (bed.last is not None) is opens


def test_a_source_that_may_cause_nothing_leaves_the_node_alone() -> None:
    """A job's log can blame, never open a case: its verdict may not even cordon."""
    case = a_case(diagnoses=(replace(a_case().diagnoses[0], source="job"),))
    assert not plan.allowed(case, a_policy(), frozenset(Verb))


def test_a_silent_rank_makes_its_node_a_suspect_that_is_only_examined() -> None:
    why = "rank 3 of llama fell silent"
    silent = a_finding("monitor.silent-rank", 900, device="", source="monitor", check="monitor", reason=why)
    bed = Bedside().turns(findings=(replace(silent, place=Place("n1"), severity=Severity.MONITOR),))
    assert bed.case.diagnoses[0].fault == "job-suspect"
    assert bed.case.diagnoses[0].when is When.IDLE
    bed.until(Phase.VERIFYING)
    assert not bed.case.rungs_tried
    assert bed.verified().phase is Phase.RETURNING


def test_a_node_that_invents_devices_cannot_grow_its_record_nor_push_out_the_worst() -> None:
    bed = Bedside().finds("xid.79")
    told = [a_finding("xid.63", n=n, place=Place("n1", f"0000:{n:04x}:00")) for n in range(2, 200)]
    bed.reports(*told)
    assert len(bed.record.latched) == 64
    assert "gpu-lost" in {latch.fault for latch in bed.record.latched}


@pytest.mark.parametrize("ended", [False, True])
def test_another_sign_of_what_is_known_is_no_remark_that_the_node_stays_in_service(ended: bool) -> None:
    """While a node was emptied for its XID 79, and after a person had let it go: "GPU missing, and no XID says why"."""
    bed = Bedside().finds("xid.79").until(Phase.HOLDING)
    if ended:
        bed.commands("abort").answers()
    bed.finds("smi.gpu-lost", 60, check="nvidia-smi")
    assert [n.title for n in bed.notices.values() if "stays in service" in n.body] == []


def test_the_signs_of_one_fault_are_one_remark() -> None:
    """Somebody repeated what the agent had said of a node that was let go: the same words came twice (seed 26)."""
    signs = ("xid.48", "xid.63", "xid.94", "smi.remap-pending")
    bed = Bedside().finds("xid.48").until(Phase.HOLDING).commands("abort").answers()
    bed.reports(*(a_finding(code, 100 + n, source="condition", check="condition") for n, code in enumerate(signs)))
    titles = [n.title for n in bed.notices.values() if "stays in service" in n.body]
    assert titles
    assert len(titles) == len(set(titles))
