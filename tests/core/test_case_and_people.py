"""A person's word, and what others do to the node: hold, pause, approve, abort, retry, examine, uncordon, delete."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.core.admit import Refusal
from sickbay.model import Done, Failed, Lost, Outcome, Phase, Refuted, Unguarded, Verb
from tests.builders import BOOT, GPU, a_case, a_finding, a_latch, a_node, a_past, a_policy, a_record, an_action
from tests.core.bedside import Bedside

TOUCHED = (
    Phase.CORDONING,
    Phase.HOLDING,
    Phase.DRAINING,
    Phase.COLLECTING,
    Phase.QUEUED,
    Phase.REPAIRING,
    Phase.VERIFYING,
    Phase.RETURNING,
)


def at(phase: Phase, code: str = "xid.79", **policy: object) -> Bedside:
    return Bedside(policy=a_policy(**policy)).finds(code).until(phase)


def escalated() -> Bedside:
    return at(Phase.DRAINING).answers(Failed("a pod cannot be evicted"))


# --- abort ------------------------------------------------------------------------------------------------------------


def test_an_abort_before_anything_was_touched_ends_the_case_at_once() -> None:
    bed = at(Phase.WAITING).commands("abort")
    assert bed.phase is Phase.DISMISSED
    assert bed.decision is not None
    assert bed.decision.consumed == ("cmd-abort",)


@pytest.mark.parametrize("phase", TOUCHED)
def test_an_abort_takes_off_our_marks_and_nothing_else(phase: Phase) -> None:
    bed = at(phase).commands("abort")
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)
    assert bed.case.pending is not None
    assert bed.case.pending.args["cancel"] == "1"
    assert bed.answers().phase is Phase.DISMISSED


def test_after_an_abort_the_fault_is_left_in_peace_for_a_while() -> None:
    bed = at(Phase.HOLDING).commands("abort").answers()
    assert bed.record.quiet == {f"gpu-lost|{BOOT}|{GPU}": bed.now + a_policy().quiet_s}
    assert bed.turns().live is None
    assert bed.waits(a_policy().quiet_s).phase is Phase.WAITING
    assert bed.case.id == "n1.2"


def test_an_abort_is_journalled_with_who_and_why() -> None:
    bed = at(Phase.HOLDING).commands("abort")
    last = bed.case.journal[-1]
    assert (last.by, last.why) == ("ann", "because I say so")


def test_a_case_that_is_let_go_first_watches_its_treatment_to_the_end() -> None:
    bed = at(Phase.REPAIRING).is_sent()
    key = bed.case.pending.key if bed.case.pending else ""
    bed.commands("abort")
    assert bed.case.pending is not None
    assert (bed.asks, bed.case.pending.key, bed.case.pending.call) == (Verb.REBOOT, key, False)
    watching = bed.case.step
    bed.answers(Done())
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)
    assert bed.case.pending is not None
    assert bed.case.step > watching
    assert bed.case.pending.key not in (key, f"n1.1/{watching}")
    assert bed.answers().phase is Phase.DISMISSED


@pytest.mark.parametrize("outcome", [Failed("it broke"), Lost("never arrived"), Unguarded("booted since")])
def test_a_watched_treatment_that_failed_or_never_arrived_is_over_too(outcome: Outcome) -> None:
    bed = at(Phase.REPAIRING).is_sent().commands("abort").answers(outcome)
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)


def test_a_treatment_that_was_never_sent_needs_no_watching() -> None:
    assert at(Phase.REPAIRING).commands("abort").asks is Verb.RELEASE


def test_a_treatment_that_timed_out_is_still_watched_when_the_case_is_let_go_later() -> None:
    bed = at(Phase.REPAIRING).is_sent().waits(1_800.0)
    assert bed.phase is Phase.QUEUED
    assert bed.commands("abort").asks is Verb.REBOOT


def test_a_release_that_fails_goes_to_a_person() -> None:
    bed = at(Phase.HOLDING).commands("abort").answers(Failed("forbidden"))
    assert bed.phase is Phase.ESCALATED
    assert bed.asks is None


@pytest.mark.parametrize("verb", ["retry", "examine"])
def test_a_cancelled_case_is_never_revived(verb: str) -> None:
    bed = at(Phase.HOLDING).commands("abort").answers(Failed("forbidden")).commands(verb)
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)


def test_a_cancelled_case_whose_node_rejoins_is_let_go_not_cordoned() -> None:
    bed = at(Phase.HOLDING).commands("abort").answers(Failed("forbidden")).shows(uid="uid-2")
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)


def test_what_is_found_while_a_case_is_let_go_opens_the_next_one() -> None:
    bed = at(Phase.HOLDING, "xid.63").commands("abort").finds("xid.79", 5)
    assert bed.answers().phase is Phase.DISMISSED
    assert "gpu-lost" not in bed.record.quiet
    assert bed.turns().case.id == "n1.2"
    assert [d.fault for d in bed.case.diagnoses] == ["gpu-lost"]


# --- retry and examine ------------------------------------------------------------------------------------------------


def test_a_retry_closes_and_empties_the_node_again_before_any_treatment() -> None:
    bed = escalated().commands("retry")
    assert (bed.phase, bed.asks) == (Phase.CORDONING, Verb.CORDON)
    bed.until(Phase.REPAIRING)
    assert bed.path[-6:] == ["CORDONING", "HOLDING", "DRAINING", "COLLECTING", "QUEUED", "REPAIRING"]


def test_a_retry_starts_at_the_bottom_of_the_ladder() -> None:
    case = a_case(Phase.ESCALATED, rung=Verb.REPLACE, visits=3, cordon_version=5)
    bed = Bedside(case, record=a_record(a_latch())).commands("retry")
    assert bed.case.rung is None
    assert bed.until(Phase.REPAIRING).asks is Verb.REBOOT


def test_an_examination_asked_for_treats_nothing() -> None:
    bed = escalated().commands("examine").until(Phase.VERIFYING)
    assert "REPAIRING" not in bed.path


def test_a_command_that_means_nothing_here_says_so_in_the_journal() -> None:
    bed = at(Phase.HOLDING).commands("retry")
    assert bed.phase is Phase.HOLDING
    assert "nothing to retry" in bed.why


# --- hold and pause ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", TOUCHED)
def test_a_held_case_stays_where_it_is_whatever_is_answered(phase: Phase) -> None:
    bed = at(phase).commands("hold")
    if bed.case.pending is not None:
        bed.answers()
    bed.grants()
    bed.waits(1e7)
    assert bed.phase is phase
    assert "held by ann" in bed.case.refusal


def test_a_held_case_gets_its_whole_time_again_when_it_is_let_on() -> None:
    bed = at(Phase.DRAINING).commands("hold").waits(1e6).commands("unhold")
    assert bed.phase is Phase.DRAINING
    assert bed.case.deadline == bed.now + a_policy().drain_s


def test_a_held_treatment_gets_its_rungs_whole_time_again() -> None:
    bed = at(Phase.REPAIRING).commands("hold").waits(1e6).commands("unhold")
    assert bed.case.deadline == bed.now + 1_800.0


def test_a_hold_during_the_examination_means_examining_anew() -> None:
    bed = at(Phase.VERIFYING).commands("hold")
    key = bed.case.pending.key if bed.case.pending else ""
    bed.commands("unhold")
    assert (bed.phase, bed.asks) == (Phase.VERIFYING, Verb.VERIFY)
    assert bed.case.pending is not None
    assert bed.case.pending.key != key


def test_a_hold_during_the_return_means_closing_and_examining_anew_without_a_rung() -> None:
    bed = at(Phase.RETURNING).commands("hold").commands("unhold")
    assert bed.phase is Phase.CORDONING
    treated = len(bed.case.rungs_tried)
    bed.until(Phase.VERIFYING)
    assert len(bed.case.rungs_tried) == treated


def test_a_hold_during_the_return_means_no_rung_even_where_clearing_is_not_believed() -> None:
    bed = at(Phase.RETURNING)
    bed.record = replace(bed.record, past=tuple(a_past(flap=True, case=f"n1.{n}") for n in (8, 9)))
    bed.commands("hold").commands("unhold").until(Phase.VERIFYING)
    assert bed.case.rungs_tried == (Verb.REBOOT,)


def test_a_held_case_can_be_aborted_and_is_really_let_go() -> None:
    bed = at(Phase.DRAINING).commands("hold").commands("abort")
    assert bed.phase is Phase.CANCELLING
    assert bed.answers().phase is Phase.DISMISSED


def test_a_held_case_ends_when_its_machine_is_gone() -> None:
    assert at(Phase.DRAINING).commands("hold").shows(gone=True).phase is Phase.RESOLVED


def test_a_pause_freezes_a_case_and_its_end_gives_it_its_time_again() -> None:
    bed = at(Phase.DRAINING)
    bed.paused = "fleet is paused by ann: power work"
    bed.turns()
    assert bed.case.refusal == bed.paused
    assert bed.waits(1e6).phase is Phase.DRAINING
    bed.paused = ""
    bed.turns()
    assert bed.phase is Phase.DRAINING
    assert bed.case.deadline == bed.now + a_policy().drain_s
    assert [e.event for e in bed.case.journal[-2:]] == ["PAUSED", "RESUMED"]


def test_a_case_that_is_released_while_its_fleet_is_paused_says_that_it_waits_for_that() -> None:
    bed = at(Phase.DRAINING).commands("hold")
    bed.paused = "fleet is paused by ann: power work"
    bed.turns()
    assert bed.case.refusal.startswith("held by")  # a hold is told before a pause
    bed.commands("unhold")
    assert bed.case.paused
    assert bed.case.refusal == bed.paused


def test_a_hold_is_still_told_when_a_pause_beside_it_has_ended() -> None:
    bed = at(Phase.DRAINING).commands("hold")
    bed.paused = "fleet is paused by ann: power work"
    bed.turns()
    bed.paused = ""
    bed.turns()
    assert bed.case.held
    assert bed.case.refusal.startswith("held by")


def test_a_pause_that_follows_another_is_told_in_its_own_words() -> None:
    bed = at(Phase.DRAINING)
    bed.paused = "fleet is paused by ann: power work"
    bed.turns()
    bed.paused = "it is away together with many others (absence.2): nothing is done to it"
    bed.turns()
    assert bed.case.refusal == bed.paused


def test_a_case_opened_during_a_pause_goes_no_further_than_suspicion() -> None:
    bed = Bedside()
    bed.paused = "fleet is paused by ann"
    bed.finds("xid.79")
    assert bed.phase is Phase.SUSPECTED
    bed.paused = ""
    assert bed.turns().phase is Phase.WAITING


def test_the_end_of_a_pause_does_not_lift_a_hold() -> None:
    bed = at(Phase.DRAINING).commands("hold")
    bed.paused = "fleet is paused by ann"
    bed.turns()
    bed.paused = ""
    assert bed.turns().waits(1e6).phase is Phase.DRAINING
    assert bed.case.held


# --- approval ---------------------------------------------------------------------------------------------------------


def test_an_approval_is_for_the_verb_it_names() -> None:
    bed = at(Phase.QUEUED).refuses().commands("approve", verb="REBOOT")
    assert bed.case.approved == (Verb.REBOOT,)
    assert bed.case.retry_at is None


def test_an_approval_without_a_verb_is_for_what_needs_one() -> None:
    assert at(Phase.QUEUED).commands("approve").case.approved == (Verb.REPLACE,)


@pytest.mark.parametrize("named", ["DRIAN", "REBOOTT", "REBOOT,REPLCE"])
def test_an_approval_of_a_verb_that_there_is_not_approves_nothing(named: str) -> None:
    """It was taken for what the case would do next: a mistyped DRAIN rebooted a node."""
    bed = at(Phase.QUEUED).refuses().commands("approve", verb=named)
    assert bed.case.approved == ()
    assert bed.case.journal[-1].event == "REFUSED"
    assert "is no verb" in bed.why


def test_an_approval_without_a_verb_is_for_nothing_where_a_case_rests_with_a_person_for_another_reason() -> None:
    bed = at(Phase.DRAINING).waits(86_400.0)
    assert bed.phase is Phase.ESCALATED
    bed.commands("approve")
    assert bed.case.approved == ()
    assert "name one of" in bed.why


# --- what others do to the node ---------------------------------------------------------------------------------------


def test_a_persons_uncordon_is_believed_and_the_node_left_alone() -> None:
    bed = at(Phase.HOLDING).shows(cordoned=False, mark="")
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)
    assert "uncordoned" in bed.why
    assert bed.case.journal[-1].by == "operator"


def test_an_uncordon_in_the_middle_of_a_reboot_is_left_alone_too() -> None:
    bed = at(Phase.REPAIRING).is_sent().shows(cordoned=False, mark="")
    assert bed.phase is Phase.CANCELLING
    assert bed.asks is Verb.REBOOT


def test_an_uncordon_is_believed_only_at_a_later_version_than_our_cordon() -> None:
    bed = at(Phase.HOLDING)
    assert bed.node is not None
    bed.node = replace(bed.node, cordoned=False, mark="", version=bed.case.cordon_version)
    assert bed.turns().phase is Phase.HOLDING


def test_a_look_from_before_our_cordon_was_answered_is_no_uncordon() -> None:
    bed = at(Phase.CORDONING).shows(cordoned=False, mark="")
    assert bed.phase is Phase.CORDONING


def closed_by_alice() -> Bedside:
    bed = at(Phase.WAITING).shows(others=("alice",)).grants()
    assert bed.case.pending is not None
    assert bed.case.pending.args["unless"] == "in service"
    return bed


def test_a_node_that_is_in_service_again_before_we_close_it_waits_for_a_place() -> None:
    bed = closed_by_alice().shows(others=()).answers(Refuted("n1 was out and is in service again"))
    assert (bed.phase, bed.case.unguarded) == (Phase.WAITING, 0)
    assert bed.why == "n1 was out and is in service again: closing it needs a place now"
    bed.grants()
    assert bed.case.pending is not None
    assert "unless" not in bed.case.pending.args


def test_a_node_that_was_opened_before_we_heard_that_it_was_closed_is_left_as_it_is() -> None:
    bed = closed_by_alice().marked().shows(cordoned=False, others=())
    assert bed.phase is Phase.CORDONING
    bed.answers(Refuted("n1 was out and is in service again"))
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)


def test_a_node_that_falls_ill_while_it_returns_needs_a_place_if_its_release_has_landed() -> None:
    """A newcomer had its place beside the limits; closed again, it was one too many (seed 1650)."""
    bed = at(Phase.RETURNING).commands("hold").commands("unhold")
    assert bed.case.pending is not None
    assert (bed.phase, bed.case.pending.args["unless"]) == (Phase.CORDONING, "in service")


def test_a_case_at_rest_that_goes_on_does_not_close_what_somebody_has_opened_unseen() -> None:
    bed = escalated().commands("retry")
    assert bed.case.pending is not None
    assert (bed.phase, bed.case.pending.args["unless"]) == (Phase.CORDONING, "opened")
    bed.shows(cordoned=False).answers(Refuted("n1 carries our mark, and somebody has opened it"))
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)


def test_a_cordon_asked_for_again_at_rest_does_not_close_what_somebody_has_opened_unseen() -> None:
    """It was asked for without looking: a node that a person opened while its release was refused was closed again."""
    bed = at(Phase.RETURNING).answers(Failed("only 7 of 8 GPUs are allocatable"))
    assert bed.case.pending is not None
    assert (bed.phase, bed.asks, bed.case.pending.args["unless"]) == (Phase.ESCALATED, Verb.CORDON, "opened")
    bed.shows(cordoned=False).answers(Refuted("n1 carries our mark, and somebody has opened it"))
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.RELEASE)


def test_a_cordon_asked_for_again_at_rest_closes_nothing_that_is_in_service_again_without_a_place() -> None:
    bed = closed_by_alice().answers(Failed("a right is missing"))
    assert bed.case.pending is not None
    assert (bed.phase, bed.case.pending.args["unless"]) == (Phase.ESCALATED, "in service")
    bed.shows(others=()).answers(Refuted("n1 was out and is in service again"))
    assert bed.phase is Phase.WAITING
    assert bed.why == "n1 was out and is in service again: closing it needs a place now"


# --- a release that lacks a right -------------------------------------------------------------------------------------

LACKS = Failed("a right is missing: we cannot patch n1", lacks=True)


@pytest.mark.parametrize("phase", [Phase.RETURNING, Phase.CANCELLING])
def test_a_release_that_lacks_a_right_is_told_once_and_asked_for_every_minute_until_it_is_back(phase: Phase) -> None:
    bed = at(Phase.RETURNING)
    if phase is Phase.CANCELLING:
        bed.commands("abort")
    for _ in range(120):
        bed.answers(LACKS)
        assert (bed.phase, bed.asks, bed.case.refusal) == (phase, Verb.RELEASE, LACKS.why)
        assert bed.case.pending is not None
        assert bed.case.pending.ask_at == bed.now + 60.0
        bed.waits(60.0)
    told = [n for n in bed.notices.values() if n.level == "urgent"]
    assert [LACKS.why in n.body and "goes on by itself" in n.body for n in told] == [True]
    assert bed.answers().phase in (Phase.RESOLVED, Phase.DISMISSED)


def test_a_node_that_falls_ill_while_its_release_lacks_a_right_is_not_opened() -> None:
    bed = at(Phase.RETURNING).answers(LACKS).waits(60.0)
    assert bed.finds("xid.95", 70).phase is Phase.CORDONING


def test_a_node_that_somebody_reboots_while_its_release_lacks_a_right_is_examined_in_that_boot() -> None:
    """It was opened on what had been found two hours and a boot ago (seed 50000271)."""
    bed = at(Phase.RETURNING).answers(LACKS).shows(ready=False)
    assert bed.waits(60.0).phase is Phase.RETURNING
    bed.shows(ready=True, boot_id="boot-b")
    assert (bed.phase, bed.why) == (Phase.CORDONING, "it has booted since it was examined: examined anew")
    tried = bed.case.rungs_tried
    bed.until(Phase.VERIFYING).verified()
    assert (bed.phase, bed.case.rungs_tried) == (Phase.RETURNING, tried)
    assert bed.answers(LACKS).waits(60.0).answers().phase is Phase.RESOLVED


# --- a word that comes late -------------------------------------------------------------------------------------------


def waited_for_reboot() -> Bedside:
    """Asked for, and nobody answered until its time was over."""
    bed = at(Phase.QUEUED, approval=("REBOOT", "REPLACE"))
    bed.turns(refusal=Refusal("REBOOT needs a person's approval", bed.now + 60.0, asks=Verb.REBOOT))
    bed.waits(86_400.0)
    assert bed.phase is Phase.ESCALATED
    return bed


def test_the_approval_that_a_case_had_waited_for_in_vain_takes_it_up_again() -> None:
    bed = waited_for_reboot().commands("approve", verb="REBOOT")
    assert (bed.phase, bed.case.approved) == (Phase.CORDONING, (Verb.REBOOT,))
    assert bed.until(Phase.REPAIRING).asks is Verb.REBOOT


def test_an_approval_without_a_verb_is_for_what_the_case_had_waited_for() -> None:
    assert waited_for_reboot().commands("approve").case.approved == (Verb.REBOOT,)


def test_a_case_that_is_taken_up_again_by_a_late_approval_goes_on_where_it_stood() -> None:
    bed = waited_for_reboot()
    bed.live = bed.last = replace(bed.case, rung=Verb.RESET_GPU, rungs_tried=(Verb.RESET_GPU,))
    assert bed.commands("approve", verb="REBOOT").case.rung is Verb.RESET_GPU


def test_a_late_approval_of_a_held_case_takes_it_up_when_it_is_let_on() -> None:
    bed = waited_for_reboot().commands("hold").commands("approve", verb="REBOOT")
    assert bed.phase is Phase.ESCALATED
    assert bed.commands("unhold").phase is Phase.CORDONING


def test_an_approval_given_twice_is_one_and_that_a_held_case_is_held_is_said() -> None:
    bed = at(Phase.QUEUED).commands("hold").commands("approve", verb="REBOOT").commands("approve", verb="REBOOT")
    assert bed.case.approved == (Verb.REBOOT,)
    assert bed.case.journal[-1].why.endswith("it is held: sickbay case unhold n1.1")


def test_a_late_approval_takes_a_case_up_once() -> None:
    """What escalates again, for whatever it waits then, stays with the person."""
    bed = waited_for_reboot().commands("approve", verb="REBOOT").until(Phase.QUEUED).waits(86_400.0)
    assert bed.phase is Phase.ESCALATED
    assert bed.turns().phase is Phase.ESCALATED


def test_a_late_approval_of_another_verb_says_what_the_case_waits_for() -> None:
    bed = waited_for_reboot().commands("approve", verb="REPLACE")
    assert bed.phase is Phase.ESCALATED
    assert "it waits for REBOOT, not for REPLACE: sickbay case approve n1.1 --verb REBOOT" in bed.why


def test_an_approval_of_a_case_that_rests_for_another_reason_is_kept_and_says_what_it_needs_besides() -> None:
    bed = escalated().commands("approve", verb="REPLACE")
    assert (bed.phase, bed.case.approved) == (Phase.ESCALATED, (Verb.REPLACE,))
    assert "sickbay case retry n1.1" in bed.why


def test_an_approval_that_can_change_nothing_approves_nothing_and_says_so() -> None:
    bed = at(Phase.QUEUED)
    bed.live = bed.last = replace(bed.case, rung=Verb.POWER_CYCLE)
    bed.commands("approve", verb="REBOOT")
    assert bed.case.approved == ()
    assert bed.why == "nothing is approved: the case will not ask for REBOOT; ahead: REPLACE"


def test_a_cancel_asks_that_what_was_sent_be_taken_back_and_says_what_became_of_it() -> None:
    bed = at(Phase.REPAIRING).is_sent().commands("abort")
    assert (bed.phase, bed.asks) == (Phase.CANCELLING, Verb.REBOOT)
    assert bed.case.pending is not None
    assert (bed.case.pending.call, bed.case.pending.args.get("withdraw")) == (False, "1")
    bed.answers(Lost("its Job had not started and is deleted"))
    assert bed.asks is Verb.RELEASE
    said = bed.case.journal[-1]
    assert (said.event, said.why) == (
        "WITHDRAWN",
        "REBOOT was not done to the node: its Job had not started and is deleted",
    )


@pytest.mark.parametrize("said", [Lost("it had not begun"), Unguarded("not empty"), Refuted("it is ready")])
def test_what_a_cancel_took_back_before_it_had_begun_is_no_rung_tried(said: Outcome) -> None:
    """The next case of the node took it for a relapse, and treated above it (found by an outsider)."""
    bed = at(Phase.REPAIRING).is_sent().commands("abort").answers(said)
    assert bed.asks is Verb.RELEASE
    assert bed.answers().phase is Phase.DISMISSED
    assert bed.case.rungs_tried == ()
    assert [p.rung for p in bed.record.past] == [None]


def test_a_treatment_that_had_begun_when_its_case_was_cancelled_was_tried() -> None:
    bed = at(Phase.REPAIRING).is_sent().commands("abort").answers(Done("booted")).answers()
    assert [p.rung for p in bed.record.past] == [Verb.REBOOT]


def test_a_treatment_that_was_never_sent_when_its_case_was_cancelled_was_not_tried() -> None:
    bed = at(Phase.REPAIRING).commands("abort").answers()
    assert bed.phase is Phase.DISMISSED
    assert [p.rung for p in bed.record.past] == [None]


def test_a_cancelled_case_leaves_the_rung_that_was_tried_before_the_one_that_was_taken_back() -> None:
    bed = at(Phase.REPAIRING).answers(Failed("no boot"))
    assert bed.grants().phase is Phase.REPAIRING
    bed.is_sent().commands("abort").answers(Lost("it had not begun")).answers()
    assert [p.rung for p in bed.record.past] == [Verb.REBOOT]


def test_nothing_is_said_to_be_under_way_any_more_once_a_cancelled_treatment_has_ended() -> None:
    """A case that rested with a person told them so two hours after the reboot (seed 1462)."""
    bed = at(Phase.REPAIRING).is_sent().commands("abort")
    bed.live = bed.last = replace(bed.case, refusal="REBOOT of n1 is under way")  # as the desk hears from the door
    bed.answers(Done("booted"))
    assert (bed.asks, bed.case.refusal) == (Verb.RELEASE, "")
    bed.waits(7_200.0)
    assert bed.phase is Phase.ESCALATED
    assert "under way" not in bed.why


def test_after_a_long_treatment_there_is_time_left_to_take_our_mark_off() -> None:
    """An hour less a minute had gone by until the cancelled REBOOT was over: where the platform was slow for two more,
    people were asked to decide about it, and the node stayed closed until they did."""
    bed = at(Phase.REPAIRING).is_sent().commands("abort").waits(3_540.0).answers(Done("booted"))
    assert bed.asks is Verb.RELEASE
    assert bed.waits(120.0).phase is Phase.CANCELLING
    assert bed.answers().phase is Phase.DISMISSED


def test_a_node_that_opts_out_is_let_go() -> None:
    bed = at(Phase.HOLDING).shows(opted_out=True)
    assert bed.phase is Phase.CANCELLING
    assert bed.turns().phase is Phase.CANCELLING


def test_an_object_that_is_deleted_is_not_a_machine_that_is_gone() -> None:
    bed = at(Phase.HOLDING).vanishes()
    assert bed.phase is not Phase.RESOLVED
    assert bed.live is not None


@pytest.mark.parametrize("phase", TOUCHED)
def test_a_node_object_that_comes_back_is_closed_again(phase: Phase) -> None:
    bed = at(phase).shows(uid="uid-2", cordoned=False, mark="")
    assert (bed.phase, bed.asks) == (Phase.CORDONING, Verb.CORDON)
    assert bed.case.uid == "uid-2"
    assert bed.turns().path.count("CORDONING") == 2


@pytest.mark.parametrize(("beside", "unless"), [(True, "in service"), (False, "opened")])
def test_a_node_object_that_comes_back_needs_a_place_if_its_node_was_closed_beside_the_limits(
    beside: bool, unless: str
) -> None:
    """It had been out for another's reason, which may be gone with the old object (seed 50001364)."""
    bed = at(Phase.QUEUED)
    bed.node = replace(a_node(), version=99, uid="uid-2", cordoned=False, mark="")
    bed.turns(beside=beside)
    assert bed.case.pending is not None
    assert (bed.phase, bed.case.pending.args["unless"]) == (Phase.CORDONING, unless)


def test_a_waiting_case_just_takes_the_new_object() -> None:
    bed = at(Phase.WAITING).shows(uid="uid-2")
    assert (bed.phase, bed.case.uid) == (Phase.WAITING, "uid-2")


@pytest.mark.parametrize("phase", TOUCHED)
def test_a_machine_that_is_gone_ends_the_case(phase: Phase) -> None:
    bed = at(phase)
    bed.node = None
    assert bed.turns(gone=True).phase is Phase.RESOLVED
    assert not bed.record.latched


def test_a_machine_that_is_gone_before_we_touched_it_is_dismissed() -> None:
    assert at(Phase.WAITING).shows(gone=True).phase is Phase.DISMISSED


def test_another_machine_under_the_same_name_ends_the_case() -> None:
    bed = at(Phase.VERIFYING).shows(instance="i-other", uid="uid-2", boot_id="boot-z")
    assert bed.phase is Phase.RESOLVED
    assert "another machine" in bed.why


# --- common causes ----------------------------------------------------------------------------------------------------


def test_a_node_whose_fault_a_common_cause_explains_gets_no_case_and_keeps_its_verdict() -> None:
    bed = Bedside()
    bed.explained = {"gpu-lost": "driver=570.1"}
    assert bed.finds("xid.79").last is None
    assert bed.faults == {"gpu-lost"}


def test_when_the_common_cause_is_over_what_it_explained_opens_a_case_at_once() -> None:
    bed = Bedside()
    bed.explained = {"gpu-lost": "driver=570.1"}
    bed.finds("xid.79")
    bed.explained = {}
    assert bed.turns().phase is Phase.WAITING


def test_a_common_cause_lets_a_case_go_that_has_no_mark_yet_and_leaves_no_quiet_time() -> None:
    bed = at(Phase.WAITING)
    bed.explained = {"gpu-lost": "driver=570.1"}
    assert bed.turns().phase is Phase.DISMISSED
    assert "driver=570.1" in bed.why
    assert not bed.notices  # the one case about the cause has told people
    bed.explained = {}
    assert bed.turns().phase is Phase.WAITING


def test_a_closed_node_whose_fault_a_common_cause_explains_stays_closed_and_nothing_is_done_to_it() -> None:
    bed = at(Phase.HOLDING)
    bed.explained = {"gpu-lost": "driver=570.1"}
    bed.turns().waits(30 * 86_400.0)
    assert bed.phase is Phase.HOLDING
    assert "common cause" in bed.case.refusal
    bed.explained = {}
    assert bed.turns().waits(60.0).phase is Phase.DRAINING


def test_a_node_does_not_climb_while_a_common_cause_explains_its_fault() -> None:
    bed = at(Phase.REPAIRING).is_sent().answers(Failed("it did not come back"))
    bed.explained = {"gpu-lost": "driver=570.1"}
    bed.turns().grants()
    assert bed.phase is Phase.QUEUED
    bed.explained = {}
    assert bed.turns().grants().phase is Phase.REPAIRING


def test_a_common_cause_does_not_end_a_case_whose_treatment_has_begun() -> None:
    bed = at(Phase.REPAIRING).is_sent()
    bed.explained = {"gpu-lost": "driver=570.1"}
    assert bed.turns().phase is Phase.REPAIRING


def test_a_common_cause_does_not_end_a_case_between_two_rungs() -> None:
    bed = at(Phase.REPAIRING).is_sent().answers(Failed("it did not come back"))
    bed.explained = {"gpu-lost": "driver=570.1"}
    assert bed.turns().phase is Phase.QUEUED


def test_a_common_cause_does_not_explain_a_case_with_another_fault_besides() -> None:
    bed = Bedside().reports(a_finding("xid.95", 1), a_finding("xid.79", 2, device="0000:5e:00")).until(Phase.HOLDING)
    bed.explained = {"gpu-lost": "driver=570.1"}
    assert bed.turns().phase is Phase.HOLDING


def test_a_weak_word_does_not_make_a_node_be_treated_for_what_a_common_cause_explains() -> None:
    """Seed 50001034: a hot row explained the node's GPUs; it was away for a while, and a consultant said NVLink."""
    bed = Bedside()
    bed.explained = {"gpu-degrading": "rack=r1"}
    bed.finds("smi.slowdown-hw")
    assert bed.faults == {"gpu-degrading"}
    bed.shows(ready=False).waits(bed.policy.unreachable_s)
    bed.until(Phase.HOLDING)
    bed.reports(replace(a_finding("xid.74", 9), source="llm")).shows(ready=True)
    assert bed.turns().waits(3_600.0).phase is not Phase.REPAIRING
    assert "common cause" in bed.case.refusal


def test_a_case_about_a_factor_touches_no_node_and_ends_when_a_person_says_so() -> None:
    case = a_case(Phase.ESCALATED, node="driver=570.12", factor="driver=570.12")
    bed = Bedside(case, record=a_record(node="driver=570.12"))
    bed.node = None
    assert bed.turns().asks is None
    bed.commands("abort")
    assert bed.phase is Phase.DISMISSED


def test_an_answer_to_an_older_step_changes_nothing() -> None:
    case = a_case(Phase.REPAIRING, rung=Verb.REBOOT, pending=an_action(Verb.REBOOT, "n1.1/7", sends=1))
    bed = Bedside(case, record=a_record(a_latch()), node=a_node())
    bed.turns(outcome=Done(), answers="n1.1/6")
    assert bed.case == case


def test_a_record_that_names_a_machine_by_its_object_still_means_this_machine() -> None:
    """Records of machines without a provider, from before the machine's own identity was read."""
    bed = at(Phase.HOLDING)
    bed.live = replace(bed.case, instance="uid-n1")
    bed.record = replace(bed.record, instance="uid-n1")
    assert bed.shows(last_check=7.0).faults == {"gpu-lost"}
    assert bed.phase is not Phase.RESOLVED
