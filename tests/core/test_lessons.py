"""What the prototype taught (lessons.md), each item that can be shown in core alone, under its number.

The rest needs a shell or a world: 5, 14, 16 and 18 are in tests/controller/test_lessons.py; 7, 15 and 18 at a real door
are scenarios of the simulator.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.core.admit import Counts, admit, is_needed
from sickbay.core.recover import decide as decide_job
from sickbay.core.turn import JobSlice, Now
from sickbay.model import Done, Failed, Job, JobPhase, Phase, RecoveryPhase, Unguarded, Verb
from sickbay.settings import JobPolicy, Limit
from tests.builders import (
    WALL,
    a_case,
    a_finding,
    a_job,
    a_latch,
    a_ledger,
    a_node,
    a_past,
    a_policy,
    a_record,
    a_recovery,
    a_request,
    a_seat,
    an_action,
)
from tests.core.bedside import Bedside

OPEN_HANDED = a_policy(approval=())


def test_01_case_numbers_are_never_reused_so_an_old_answer_never_counts() -> None:
    bed = Bedside().finds("xid.79").until(Phase.CORDONING)
    old = bed.case.pending
    assert old is not None
    bed.commands("abort").answers()
    bed.waits(a_policy().quiet_s).until(Phase.CORDONING)
    assert bed.case.pending is not None
    assert bed.case.pending.key != old.key
    bed.turns(outcome=Done(), answers=old.key)
    assert bed.phase is Phase.CORDONING


def test_02_a_flapping_check_does_not_open_cases_for_ever() -> None:
    bed, n = Bedside(policy=OPEN_HANDED), 0
    for _ in range(5):
        n += 2
        bed.finds("smi.gpu-lost", n, check="nvidia-smi").passes("nvidia-smi", n + 1)
    assert bed.live is not None
    assert bed.case.id == "n1.3"
    assert bed.until(Phase.REPAIRING).asks is Verb.REBOOT


def test_03_a_latched_sickness_is_not_forgotten_when_its_case_was_deferred() -> None:
    bed = Bedside().finds("xid.79").waits(86_400.0)
    assert bed.phase is Phase.DEFERRED
    bed.waits(a_policy().quiet_s)
    assert (bed.phase, bed.case.id) == (Phase.WAITING, "n1.2")


def test_04_a_used_up_ladder_is_not_mistaken_for_an_empty_one() -> None:
    bed = Bedside(policy=a_policy(max_verb="REBOOT")).finds("xid.79").until(Phase.REPAIRING).is_sent().treated()
    bed.verified(sick=(a_finding("smi.gpu-lost", 60, check="nvidia-smi", boot="boot-a+"),))
    assert bed.phase is Phase.ESCALATED
    assert bed.path.count("VERIFYING") == 1


def test_06_a_relapse_does_not_restart_at_the_bottom_rung() -> None:
    bed = Bedside(policy=OPEN_HANDED).finds("xid.79").until(Phase.RESOLVED)
    bed.finds("xid.79", 9).until(Phase.REPAIRING)
    assert bed.asks is Verb.POWER_CYCLE


def test_07_a_job_that_moved_while_its_stall_was_read_is_not_stopped() -> None:
    stop = an_action(Verb.STOP_JOB, "llama#5")
    r = a_recovery(RecoveryPhase.STOPPING, pending=stop)
    s = JobSlice(a_job(step=101), r, Failed("moved: step 101"), "llama#5")
    said = decide_job(s, JobPolicy(), Now(1_100.0, WALL)).recovery
    assert said is not None
    assert said.phase is RecoveryPhase.RUNNING


def test_08_a_hung_node_that_can_never_drain_does_not_keep_its_case() -> None:
    bed = Bedside(node=a_node(jobs=("llama",))).finds("xid.79").until(Phase.DRAINING).shows(ready=False)
    assert bed.waits(300.0).phase is Phase.COLLECTING


def test_09_a_node_whose_fault_cleared_in_holding_is_not_returned_unverified() -> None:
    bed = Bedside().finds("smi.gpu-lost", 1, check="nvidia-smi").until(Phase.HOLDING).passes("nvidia-smi", 2)
    bed.waits(10.0).until(Phase.RESOLVED)
    assert "VERIFYING" in bed.path


def test_10_an_object_deleted_is_not_a_machine_gone() -> None:
    bed = Bedside().finds("xid.79").until(Phase.HOLDING)
    node = bed.node
    bed.vanishes().waits(60.0)
    assert bed.live is not None
    assert node is not None
    bed.node = replace(node, uid="uid-2", cordoned=False, mark="", version=99)
    assert bed.turns().phase is Phase.CORDONING


def test_11_a_node_already_down_waits_for_no_seat_and_a_stale_read_gives_none_away() -> None:
    full = Counts({"fleet": 10, "pool:default": 10}, {"pool:default": {"n8", "n9"}})
    policy = a_policy(max_out=Limit(count=2))
    down, up = a_request("n8.1", down=True), a_request("n1.1")
    said = admit([down, up], a_ledger(), full, lambda pool: policy, 0.0)
    assert said.granted == {"n8.1"}


@pytest.mark.parametrize("job", [a_job(JobPhase.FAILED, attempt=2), a_job(attempt=2, step=0)], ids=["dies", "stands"])
def test_12_a_restart_that_fails_has_a_row(job: Job) -> None:
    r = a_recovery(RecoveryPhase.RESTARTING, deadline=1_050.0, checkpoint_step=80)
    said = decide_job(JobSlice(job, r), JobPolicy(), Now(1_100.0, WALL)).recovery
    assert said is not None
    assert said.phase is RecoveryPhase.STOPPING


@pytest.mark.parametrize("verb", ["retry", "examine"])
def test_13_a_cancelled_case_is_not_revived(verb: str) -> None:
    bed = Bedside().finds("xid.79").until(Phase.DRAINING).commands("abort").answers(Failed("no")).commands(verb)
    assert bed.phase is Phase.CANCELLING


def test_15_a_live_attempt_is_not_ignored() -> None:
    r = a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY)
    said = decide_job(JobSlice(a_job(attempt=2, step=3), r, good=("n1", "n2")), JobPolicy(), Now(1_100.0, WALL))
    assert said.recovery is not None
    assert (said.recovery.phase, said.recovery.pending) == (RecoveryPhase.RUNNING, None)


def test_17_a_retry_does_not_go_straight_to_treatment() -> None:
    bed = Bedside().finds("xid.79").until(Phase.DRAINING).answers(Failed("stuck")).commands("retry")
    assert bed.until(Phase.REPAIRING).path[-6:-1] == ["CORDONING", "HOLDING", "DRAINING", "COLLECTING", "QUEUED"]


def test_18_a_treatment_the_door_refused_empties_the_node_again_first() -> None:
    bed = Bedside().finds("xid.79").until(Phase.REPAIRING).is_sent().answers(Unguarded("not empty"))
    assert bed.until(Phase.REPAIRING).path[-6:-1] == ["CORDONING", "HOLDING", "DRAINING", "COLLECTING", "QUEUED"]


# --- seen in traces ---------------------------------------------------------------------------------------------------


def test_a_stale_view_does_not_clear() -> None:
    bed = Bedside().finds("smi.gpu-lost", 9, check="nvidia-smi").passes("nvidia-smi", 3)
    assert bed.phase is Phase.WAITING


def test_another_fault_is_not_missed_by_a_narrow_examination() -> None:
    bed = Bedside(policy=OPEN_HANDED).finds("kernel.fs-read-only").until(Phase.VERIFYING)
    assert bed.case.pending is not None
    assert "nvidia-smi" in bed.case.pending.args["checks"]
    bed.verified(sick=(a_finding("smi.gpu-lost", 60, check="nvidia-smi", boot="boot-a+"),))
    assert bed.phase is Phase.QUEUED


def test_a_finding_is_not_swallowed_by_a_case_that_is_let_go() -> None:
    bed = Bedside().finds("xid.63").until(Phase.HOLDING).commands("abort").finds("xid.79", 5).answers().turns()
    assert (bed.case.id, [d.fault for d in bed.case.diagnoses]) == ("n1.2", ["gpu-lost"])


def test_a_hold_during_the_examination_does_not_return_on_old_evidence() -> None:
    bed = Bedside().finds("xid.79").until(Phase.VERIFYING).commands("hold").verified()
    assert bed.phase is Phase.VERIFYING
    bed.commands("unhold")
    assert (bed.phase, bed.asks) == (Phase.VERIFYING, Verb.VERIFY)


def test_a_seat_is_not_freed_while_a_reboot_may_be_under_way() -> None:
    bed = Bedside().finds("xid.79").until(Phase.REPAIRING).is_sent().commands("abort")
    assert is_needed(a_seat(kind="treat", verb=Verb.REBOOT), bed.case, 0.0)
    bed.answers(Done())
    assert not is_needed(a_seat(kind="treat", verb=Verb.REBOOT), bed.case, 0.0)


# --- found by reading -------------------------------------------------------------------------------------------------


def test_after_a_reset_the_boot_is_the_same_so_freshness_is_a_sequence_number() -> None:
    record = a_record(a_latch("gpu-lost-silent", n=40))
    case = a_case(Phase.VERIFYING, "gpu-lost-silent", pending=an_action(Verb.VERIFY), visits=1)
    assert Bedside(case, record=record).verified(n=39).phase is Phase.QUEUED
    assert Bedside(case, record=record).verified(n=41).phase is Phase.RETURNING


def test_a_release_may_have_landed_when_returning_worsens() -> None:
    bed = Bedside().finds("xid.79").until(Phase.RETURNING).finds("xid.79", 80)
    assert (bed.phase, bed.asks) == (Phase.CORDONING, Verb.CORDON)


def test_an_uncordon_is_believed_only_at_a_version_later_than_our_cordon() -> None:
    bed = Bedside().finds("xid.79").until(Phase.HOLDING)
    assert bed.node is not None
    cordoned = bed.node
    bed.node = replace(cordoned, cordoned=False, mark="", version=cordoned.version - 1)
    assert bed.turns().phase is Phase.HOLDING
    bed.node = replace(cordoned, cordoned=False, mark="", version=cordoned.version + 1)
    assert bed.turns().phase is Phase.CANCELLING


def test_two_flaps_and_a_relapse_are_remembered_for_the_right_machine_only() -> None:
    record = a_record(past=(a_past(rung=Verb.POWER_CYCLE), a_past(flap=True), a_past(flap=True)))
    bed = Bedside(record=record, node=a_node(instance="i-other")).finds("xid.79")
    assert bed.case.rung is None
