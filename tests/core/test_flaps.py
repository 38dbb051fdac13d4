"""A node that does not answer, and nothing else is held against it: what is done, and when a person decides."""

from __future__ import annotations

from dataclasses import replace

from sickbay.core import triage
from sickbay.model import Done, Failed, Phase, Status, Verb
from tests.builders import a_case, a_diagnosis, a_finding, a_node, a_past, a_policy, a_record
from tests.core.bedside import Bedside


def away(*, tried: Verb | None = None) -> Bedside:
    """It has been away for a quarter of an hour; an earlier case, which somebody ended, tried that."""
    past = (a_past("node-not-ready", rung=tried, end="DISMISSED", case="n1.1"),) if tried else ()
    record = a_record(past=past, last_n=len(past))
    bed = Bedside(record=record, node=a_node(ready=False), policy=a_policy(max_verb="REPLACE", approval=()))
    return bed.turns().waits(900.0).until(Phase.ESCALATED if tried else Phase.QUEUED)


def test_a_node_that_was_rebooted_and_is_away_again_is_a_persons_and_gets_nothing_stronger() -> None:
    """A healthy node that was cut off was power-cycled, since somebody had deleted the record of the case that had
    rebooted it (seed 50001236); another was replaced (seed 50001602)."""
    for tried in (Verb.REBOOT, Verb.POWER_CYCLE):
        bed = away(tried=tried)
        assert (bed.phase, bed.case.rungs_tried) == (Phase.ESCALATED, ())
        assert f"no {tried} of it is known to have failed" in bed.why
        assert "sickbay case approve n1.2 --verb" in bed.why


def test_it_is_examined_when_it_answers_again() -> None:
    bed = away(tried=Verb.REBOOT).shows(ready=True, cordoned=True, mark="n1.2")
    assert bed.phase is Phase.CORDONING
    assert bed.until(Phase.RESOLVED).case.rungs_tried == ()


BLIND = a_finding(
    "", device="", source="agent", check="nvidia-smi", status=Status.UNKNOWN, reason="it printed nothing we can read"
)


def examined_in_vain() -> Bedside:
    """It was back before anything was done, and its examination says nothing."""
    bed = away().shows(ready=True, cordoned=True, mark="n1.1").until(Phase.VERIFYING)
    assert bed.case.pending is not None
    blind = replace(BLIND, answers=bed.case.pending.key)
    return bed.answers(Done(findings=(blind,)))


def test_who_answers_and_whose_examination_says_nothing_is_not_examined_again_at_once() -> None:
    """It was drained and examined three times within ten minutes, with a page each time (seed 101)."""
    bed = examined_in_vain()
    assert (bed.phase, len(bed.notices)) == (Phase.ESCALATED, 2)
    assert bed.waits(3000.0).phase is Phase.ESCALATED
    assert bed.waits(700.0).phase is Phase.CORDONING


def test_whom_a_weak_witness_accuses_is_left_to_a_person_once() -> None:
    """Every examination passed, and every time a person was to decide whether an llm is believed (seed 38)."""
    bed = examined_in_vain().finds("xid.119", 900, source="llm", check="llm")
    assert bed.waits(3700.0).waits(86_400.0).phase is Phase.ESCALATED
    assert "EXAMINED" not in [entry.event for entry in bed.case.journal]


def test_a_reboot_that_nobody_saw_the_end_of_is_followed_by_nothing_stronger() -> None:
    """Its node object was deleted and came back while it went on: POWER_CYCLE was next (seed 50001602)."""
    bed = away().grants().is_sent()
    assert bed.case.rung is Verb.REBOOT
    assert bed.shows(uid="another").phase is Phase.CORDONING
    bed.until(Phase.ESCALATED)
    assert (bed.phase, bed.case.rungs_tried) == (Phase.ESCALATED, (Verb.REBOOT,))


def test_where_the_reboot_failed_the_power_is_next() -> None:
    bed = away().grants().is_sent().answers(Failed("the node did not come back")).grants()
    assert bed.case.rung is Verb.POWER_CYCLE


def test_a_person_who_approves_it_has_it_done() -> None:
    bed = away(tried=Verb.REBOOT).commands("approve", verb="POWER_CYCLE").commands("retry")
    assert bed.until(Phase.QUEUED).grants().case.rung is Verb.POWER_CYCLE


def test_a_case_about_two_faults_that_went_away_is_one_flap() -> None:
    """A link and the reset that it asked for were two, and a node that had booted since was reset (seed 967)."""
    case = a_case(diagnoses=(a_diagnosis("nvlink-error"), a_diagnosis("reset-required")))
    faults = ("nvlink-error", "reset-required")
    past = tuple(replace(a_past(fault, flap=True), case="n1.1", ended=900.0) for fault in faults)
    policy = a_policy(flaps_accepted=2)
    assert triage.may_clear(a_record(past=past), case, policy, 1_000.0)
    again = replace(past[0], case="n1.2")
    assert not triage.may_clear(a_record(past=(*past, again)), case, policy, 1_000.0)
