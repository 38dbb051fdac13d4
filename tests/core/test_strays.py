"""Our mark on a node, and no record of the case that put it there: found, told, and either examined and returned, or
left to a person who is told which command ends it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.model import Before, Done, Failed, Node, Phase, Started, Verb
from tests.builders import a_case, a_node, a_policy, an_action
from tests.core.bedside import Bedside


def stray(**changed: Any) -> Node:
    """Closed in the name of a case that nobody knows."""
    return a_node(cordoned=True, mark="n1.7", **changed)


def at_stray(node: Node | None = None, **policy: object) -> Bedside:
    bed = Bedside(node=node or stray(), policy=a_policy(**policy))
    return bed.turns(stray="n1.7")


def test_a_mark_without_a_record_is_taken_over_and_its_node_examined_before_it_returns() -> None:
    bed = at_stray()
    assert (bed.phase, bed.asks) == (Phase.CORDONING, Verb.CORDON)
    assert bed.case.pending is not None
    assert bed.case.pending.args["adopts"] == "n1.7"
    bed.until(Phase.RESOLVED)
    assert "VERIFYING" in bed.path
    assert not bed.case.rungs_tried


def test_its_number_is_above_that_of_the_mark_so_that_no_action_is_mistaken_for_an_old_one() -> None:
    assert at_stray().case.id == "n1.8"


def test_it_is_told_whose_mark_it_was_and_what_happens_now() -> None:
    bed = at_stray()
    told = [n.body for n in bed.notices.values()]
    assert len(told) == 1
    assert "n1.7" in told[0]
    assert "no record" in told[0]
    assert "examined" in told[0]


@pytest.mark.parametrize(
    ("bed", "word"),
    [
        (at_stray(max_verb="OBSERVE"), "policy.max_verb is OBSERVE"),
        (at_stray(approval=("CORDON",)), "approval"),
        (Bedside(node=stray()).turns(stray="n1.7", paused="fleet is paused by ann"), "fleet is paused by ann"),
    ],
)
def test_where_nothing_may_be_done_it_is_left_to_a_person_with_the_command_that_ends_it(
    bed: Bedside, word: str
) -> None:
    assert (bed.phase, bed.asks) == (Phase.ESCALATED, None)
    (told,) = bed.notices.values()
    assert told.level == "urgent"
    assert word in told.body
    assert "sickbay case examine n1.8" in told.body
    assert "sickbay case abort n1.8" in told.body


def test_a_node_that_comes_back_without_the_mark_is_not_closed_without_a_persons_word() -> None:
    bed = at_stray(approval=("CORDON",)).shows(uid="uid-again", cordoned=False, mark="")
    assert (bed.phase, bed.asks) == (Phase.RESOLVED, None)
    assert "without the mark" in bed.case.journal[-1].why


def test_a_person_who_aborts_it_has_the_old_mark_taken_off() -> None:
    bed = at_stray(max_verb="OBSERVE").commands("abort")
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)
    assert bed.case.pending is not None
    assert bed.case.pending.args == {"cancel": "1", "adopts": "n1.7"}
    assert bed.answers().phase is Phase.DISMISSED


def test_a_person_who_has_it_examined_gets_the_node_back() -> None:
    bed = at_stray(max_verb="OBSERVE").commands("examine")
    assert bed.phase is Phase.CORDONING
    assert bed.until(Phase.RESOLVED).phase is Phase.RESOLVED


def test_the_old_mark_on_the_node_is_no_uncordon_by_a_person() -> None:
    bed = at_stray(max_verb="OBSERVE").shows(last_check=5.0)
    assert bed.phase is Phase.ESCALATED


def test_a_person_who_uncordons_the_node_meanwhile_is_obeyed() -> None:
    bed = at_stray(max_verb="OBSERVE").shows(cordoned=False)
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)


AWAY_AND_HELD = {
    "ready": False,
    "others": ("alice",),
}  # no case comes for it, and nobody would find the mark (seed 1310)


@pytest.mark.parametrize("changed", [{"cordoned": False}, {"opted_out": True}, {"ready": False}, AWAY_AND_HELD])
def test_on_a_node_that_is_open_or_opted_out_or_away_only_the_remains_are_taken_off(
    changed: dict[str, object],
) -> None:
    bed = at_stray(replace(stray(), **changed))  # type: ignore[arg-type]
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)
    assert bed.answers().phase is Phase.DISMISSED


def test_on_a_node_that_is_away_with_many_others_it_is_looked_at_when_they_are_back() -> None:
    """Taken off meanwhile, the node would be in service again without an examination."""
    away = "it is away together with many others"
    bed = Bedside(node=stray(ready=False)).turns(stray="n1.7", absent=away)
    assert bed.live is None
    bed.node = stray()
    assert bed.turns(stray="n1.7", absent=away).phase is Phase.CORDONING


def test_an_examination_that_finds_it_sick_goes_on_with_its_treatment() -> None:
    bed = at_stray().until(Phase.VERIFYING).finds("xid.79").until(Phase.REPAIRING)
    assert bed.asks is Verb.REBOOT


def test_a_node_with_a_known_fault_gets_an_ordinary_case_which_takes_the_mark_over() -> None:
    bed = Bedside(node=stray()).finds("xid.79").grants()
    assert (bed.phase, bed.asks) == (Phase.CORDONING, Verb.CORDON)
    assert bed.case.pending is not None
    assert bed.case.pending.args["adopts"] == "n1.7"
    assert "gpu-lost" in {d.fault for d in bed.case.diagnoses}


def test_a_mark_that_its_open_case_answers_for_is_no_stray() -> None:
    bed = Bedside().finds("xid.79").until(Phase.HOLDING)
    assert bed.case.adopts == ""
    assert "adopts" not in (bed.until(Phase.RETURNING).case.pending or an_action()).args


# --- a record that somebody deletes -----------------------------------------------------------------------------------


def deleted(phase: Phase = Phase.HOLDING, **changed: Any) -> Bedside:
    """The record of an open case was deleted while we looked on."""
    case = a_case(phase, **changed)
    bed = Bedside(node=a_node(cordoned=True, mark=case.id))
    return bed.turns(lost=case)


def test_deleting_the_record_of_an_open_case_is_a_cancel() -> None:
    bed = deleted()
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)
    assert bed.case.id == "n1.2"
    assert bed.case.pending is not None
    assert bed.case.pending.args == {"cancel": "1", "adopts": "n1.1"}
    assert bed.answers().phase is Phase.DISMISSED
    told = [n for n in bed.notices.values() if "deleted" in n.body]
    assert told
    assert "cancel" in told[0].body


def test_after_that_its_fault_is_left_in_peace_as_after_any_cancel() -> None:
    bed = deleted().answers()
    assert bed.finds("xid.79").live is None


def test_a_treatment_that_was_sent_is_watched_to_its_end_before_the_marks_go() -> None:
    sent = an_action(Verb.REBOOT, "n1.1/7", sends=1, before=Before("boot-a"))
    bed = deleted(Phase.REPAIRING, pending=sent, rung=Verb.REBOOT)
    assert bed.case.pending is not None
    assert (bed.case.pending.key, bed.case.pending.call) == ("n1.1/7", False)
    bed.answers(Done())
    assert bed.asks is Verb.RELEASE


def test_a_record_that_is_deleted_before_the_node_was_touched_leaves_it_as_it_is() -> None:
    bed = Bedside().turns(lost=a_case(Phase.WAITING))
    assert bed.answers(Done("nothing of ours is there")).phase is Phase.DISMISSED


def test_who_was_to_take_off_an_earlier_mark_and_is_deleted_leaves_that_to_the_next() -> None:
    """It took the mark for its own, which it never was, and the earlier one stayed for ever (seed 1142)."""
    node = a_node(cordoned=True, mark="n1.2")
    bed = Bedside(node=node).turns(lost=a_case(Phase.CANCELLING, id="n1.3", adopts="n1.2"))
    assert bed.case.pending is not None
    assert bed.case.pending.args == {"cancel": "1", "adopts": "n1.2"}


def test_a_record_that_is_deleted_with_its_node_leaves_nothing_to_do() -> None:
    bed = Bedside()
    bed.node = None
    assert bed.turns(lost=a_case(Phase.HOLDING)).live is None


# --- a cordon that could not be made ----------------------------------------------------------------------------------


def test_a_cordon_that_failed_is_asked_again_and_taken_up_when_it_succeeds() -> None:
    bed = Bedside().finds("xid.79").until(Phase.CORDONING).answers(Failed("the API server refuses: forbidden"))
    assert (bed.phase, bed.asks) == (Phase.ESCALATED, Verb.CORDON)
    bed.waits(60.0).answers(Failed("the API server refuses: forbidden"))
    assert bed.phase is Phase.ESCALATED
    bed.waits(60.0).marked().answers(Done())
    assert bed.path[-2:] == ["HOLDING", "DRAINING"]
    assert bed.until(Phase.RESOLVED).case.rungs_tried == (Verb.REBOOT,)


def test_a_mark_for_which_the_door_refused_the_cordon_is_taken_over_by_the_very_case_that_it_kept_out() -> None:
    """A store that was put back brought it, and the view did not show it yet: the case rested with a person, and the
    mark stayed for ever (seed 70054)."""
    refused = Failed("n1 carries the mark of n1.7")
    bed = Bedside().finds("xid.79").until(Phase.CORDONING).answers(refused)
    bed.node = stray(version=20)
    bed.turns(stray="n1.7")
    assert bed.phase is Phase.ESCALATED
    assert bed.case.pending is not None
    assert bed.case.pending.args["adopts"] == "n1.7"
    bed.marked().answers(Done())
    assert bed.path[-1] == "HOLDING"
    assert bed.until(Phase.RESOLVED).case.rungs_tried == (Verb.REBOOT,)


def test_a_case_that_has_closed_its_node_takes_no_other_mark_over() -> None:
    bed = Bedside().finds("xid.79").until(Phase.VERIFYING).answers(Failed("the tools hang"))
    assert bed.turns(stray="n1.7").case.adopts == ""


def test_a_case_that_escalated_later_is_closed_again_and_stays_with_its_person() -> None:
    bed = Bedside().finds("xid.79").until(Phase.RETURNING).answers(Failed("only 7 of 8 GPUs are allocatable"))
    assert (bed.phase, bed.asks) == (Phase.ESCALATED, Verb.CORDON)
    bed.marked().answers(Done())
    assert (bed.phase, bed.asks) == (Phase.ESCALATED, None)


def test_an_answer_that_is_still_to_come_moves_nothing() -> None:
    bed = Bedside().finds("xid.79").until(Phase.CORDONING).answers(Failed("forbidden"))
    assert bed.answers(Started(30.0, "later")).phase is Phase.ESCALATED


# --- somebody writes over our mark ------------------------------------------------------------------------------------

CLOSED = [Phase.HOLDING, Phase.DRAINING, Phase.COLLECTING, Phase.QUEUED, Phase.REPAIRING, Phase.VERIFYING,
          Phase.RETURNING]  # fmt: skip


def overwritten(phase: Phase) -> Bedside:
    bed = Bedside().finds("xid.79").until(phase)
    bed.notices.clear()
    return bed.shows(mark="n2.1")


@pytest.mark.parametrize("phase", CLOSED)
def test_a_mark_that_somebody_wrote_over_is_no_uncordon_and_its_node_is_treated_and_returned(phase: Phase) -> None:
    bed = overwritten(phase)
    assert (bed.phase, bed.asks) == (Phase.CORDONING, Verb.CORDON)
    assert bed.case.pending is not None
    assert bed.case.pending.args["adopts"] == "n2.1"
    assert bed.until(Phase.RESOLVED).case.rungs_tried == (Verb.REBOOT,)


@pytest.mark.parametrize("phase", CLOSED)
def test_whose_mark_is_taken_off_is_told(phase: Phase) -> None:
    (told,) = [n for n in overwritten(phase).notices.values() if n.level == "warning"]
    assert "the mark of n2.1 in the place of ours" in told.body


def test_a_treatment_that_is_under_way_is_seen_to_its_end_before_the_mark_is_taken_back() -> None:
    bed = Bedside().finds("xid.79").until(Phase.REPAIRING).is_sent().shows(mark="n2.1")
    assert bed.phase is Phase.REPAIRING
    assert bed.treated().path[-3:] == ["REPAIRING", "VERIFYING", "CORDONING"]
    assert bed.until(Phase.RESOLVED).case.rungs_tried == (Verb.REBOOT,)


def test_a_mark_that_is_written_over_again_is_left_until_a_person_has_decided() -> None:
    bed = overwritten(Phase.COLLECTING).until(Phase.COLLECTING).shows(mark="n2.2").waits(3_600.0)
    assert (bed.phase, bed.case.paused) == (Phase.COLLECTING, True)
    assert "another Sickbay may be at work" in bed.case.refusal
    (told,) = [n for n in bed.notices.values() if n.level == "urgent"]
    assert f"sickbay case abort {bed.case.id}" in told.body
    assert bed.commands("abort").phase is Phase.CANCELLING


def test_it_goes_on_when_the_mark_is_ours_again() -> None:
    bed = overwritten(Phase.COLLECTING).until(Phase.COLLECTING).shows(mark="n2.2")
    assert bed.marked().turns().until(Phase.RESOLVED).case.rungs_tried == (Verb.REBOOT,)


def test_a_person_who_holds_the_case_is_not_told_of_it_with_every_look() -> None:
    bed = Bedside().finds("xid.79").until(Phase.COLLECTING).commands("hold")
    bed.notices.clear()
    bed.shows(mark="n2.1").waits(10.0).waits(10.0)
    assert not [n for n in bed.notices.values() if n.level != "info"]
    assert bed.commands("unhold").phase is Phase.CORDONING


def test_where_nothing_may_be_done_a_second_mark_on_a_stray_changes_nothing() -> None:
    bed = at_stray(max_verb="OBSERVE").shows(mark="n2.1")
    assert (bed.phase, bed.asks) == (Phase.ESCALATED, None)
