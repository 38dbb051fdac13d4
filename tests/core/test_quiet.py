"""After a person's uncordon a fault is left in peace for a while: that fault, on that boot and device, and nobody is
left to wonder until when."""

from __future__ import annotations

from sickbay.model import Phase, Verb
from tests.builders import a_latch, a_policy, a_record
from tests.core.bedside import Bedside

OTHER_GPU = "0000:af:00"


def uncordoned() -> Bedside:
    """A GPU was lost, the node was closed, and a person opened it again."""
    bed = Bedside().finds("xid.79").until(Phase.HOLDING)
    bed.shows(cordoned=False).answers()
    assert bed.phase is Phase.DISMISSED
    return bed


def test_the_same_fault_on_the_same_boot_and_device_opens_no_case() -> None:
    assert uncordoned().finds("xid.79", n=2).live is None


def test_the_same_fault_on_a_new_boot_is_new_evidence() -> None:
    bed = uncordoned()
    bed.shows(boot_id="boot-b", findings=())
    assert bed.live is None
    bed.finds("xid.79")
    assert bed.phase is Phase.WAITING
    assert bed.case.id == "n1.2"


def test_the_same_fault_on_another_device_is_new_evidence() -> None:
    bed = uncordoned().finds("xid.79", n=2, device=OTHER_GPU)
    assert bed.phase is Phase.WAITING
    assert {d.place.device for d in bed.case.diagnoses} == {OTHER_GPU}


def test_the_same_fault_told_of_the_whole_node_is_nothing_new() -> None:
    assert uncordoned().finds("xid.79", n=2, device="").live is None


def test_a_record_that_names_only_the_fault_still_holds() -> None:
    bed = Bedside(record=a_record(a_latch(), quiet={"gpu-lost": 5_000.0}))
    assert bed.turns().live is None
    assert bed.waits(4_000.0).phase is Phase.WAITING


def test_the_notice_of_the_end_says_until_when_and_how_to_end_it() -> None:
    bed = uncordoned()
    told = [n.body for n in bed.notices.values() if "let go" in n.title]
    assert len(told) == 1
    assert "no new case" in told[0]
    assert "another boot or another device" in told[0]
    assert "2027-01-15 12:1" in told[0]  # four hours on, by the wall clock
    assert "sickbay case reopen n1" in told[0]


def test_a_case_that_was_cured_says_nothing_of_quiet() -> None:
    bed = Bedside().finds("xid.79").until(Phase.RESOLVED)
    assert not any("no new case" in n.body for n in bed.notices.values())


def test_a_person_ends_the_quiet_and_what_is_latched_opens_a_case() -> None:
    bed = uncordoned().finds("xid.79", n=2)
    bed.commands("reopen")
    assert bed.decision is not None
    assert bed.decision.consumed == ("cmd-reopen",)
    assert not bed.record.quiet
    assert bed.phase is Phase.WAITING
    assert bed.grants().asks is Verb.CORDON


def test_a_case_that_found_no_place_does_not_open_again_in_the_same_second_however_short_the_quiet_is() -> None:
    bed = Bedside(policy=a_policy(quiet_s=0.0, waiting_s=0.1)).finds("xid.79").waits(0.1)
    assert bed.phase is Phase.DEFERRED
    assert bed.waits(1.0).live is None
    assert bed.waits(3_600.0).phase is Phase.WAITING
    assert bed.case.id == "n1.2"
