"""What people read: sentences with one full stop, without the machine's own words, naming what to type."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sickbay.core import explain
from sickbay.core.causes import Cause, case_of
from sickbay.model import Blame, Done, Entry, Event, Failed, Phase, RecoveryPhase, Unguarded, Verb
from tests.builders import CATALOG, WALL, a_blind, a_case, a_finding, a_policy, a_recovery
from tests.core.bedside import Bedside

VERBS = {v.value for v in Verb}
NOISE = {e.value for e in (*Event, *Phase)} - VERBS - {"DONE", "GONE", "READY"}  # words that may be ordinary ones


def is_a_sentence(line: str) -> bool:
    return line.endswith(".") and not line.endswith("..") and "None" not in line and "  " not in line


def stories() -> list[Bedside]:
    """Cases that lived through as much as possible."""
    treated = Bedside(policy=a_policy(approval=())).finds("xid.79").until(Phase.REPAIRING).is_sent()
    sick = a_finding("smi.gpu-lost", 60, check="nvidia-smi", boot="boot-a+")
    long = treated.treated().verified(sick=(sick,)).until(Phase.RESOLVED)
    refused = Bedside().finds("xid.79").until(Phase.REPAIRING).is_sent().answers(Unguarded("n1 is not empty: llama"))
    late = Bedside().finds("xid.79").until(Phase.CORDONING).waits(120.0)
    timeless = Bedside().finds("xid.63").waits(86_400.0)
    people = Bedside().finds("xid.79").until(Phase.HOLDING).commands("hold").commands("unhold").commands("abort")
    failed = Bedside().finds("xid.79").until(Phase.DRAINING).answers(Failed("a pod cannot be evicted."))
    return [long, refused, late, timeless, people.answers(Done()), failed.commands("retry").refuses()]


@pytest.mark.parametrize("bed", stories(), ids=lambda bed: bed.phase.value)
def test_the_story_of_a_case_reads_as_sentences(bed: Bedside) -> None:
    story = explain.case_story(bed.case)
    assert all(is_a_sentence(line) for line in story), story
    words = set(re.findall(r"[A-Z_]{3,}", " ".join(story)))
    assert not words & NOISE, words & NOISE


@pytest.mark.parametrize("bed", stories(), ids=lambda bed: bed.phase.value)
def test_every_notice_begins_with_a_sentence_about_the_node(bed: Bedside) -> None:
    assert bed.notices
    for notice in bed.notices.values():
        first = notice.body.splitlines()[0]
        assert first.startswith("n1 is ")
        assert is_a_sentence(first), first
        assert notice.title.startswith("n1: ")
        assert not set(re.findall(r"[A-Z_]{3,}", first)) & NOISE


def test_the_last_line_of_a_story_says_where_it_stands_and_why_it_waits() -> None:
    case = replace(a_case(Phase.WAITING), refusal="2 of at most 2 nodes are out")
    assert explain.case_story(case)[-1] == "n1 is waiting for its turn to be taken out: 2 of at most 2 nodes are out."


def test_what_a_person_said_is_signed() -> None:
    said = Entry(1, "ABORT", WALL, "ann", "wrong node.")
    assert explain.case_story(replace(a_case(), journal=(said,)))[0] == "2027-01-15 08:00:00Z Wrong node (said ann)."


def test_an_escalation_is_urgent_and_names_the_commands_to_type() -> None:
    notice = explain.notice_of(a_case(Phase.ESCALATED), "the drain failed", CATALOG, WALL)
    assert notice is not None
    assert notice.level == "urgent"
    for command in ("sickbay case show n1.1", "sickbay case retry n1.1", "examine", "abort"):
        assert command in notice.body
    assert "Evidence: the line that says gpu-lost" in notice.body


def test_a_common_cause_says_that_no_node_is_treated_and_how_to_close_it() -> None:
    case = case_of(Cause("driver=570", "nvlink-down", ("n1", "n2", "n3"), "3 nodes show it"), 1, 0.0, WALL, "west")
    notice = explain.notice_of(case, "3 nodes show it", CATALOG, WALL)
    assert notice is not None
    assert "No node is treated" in notice.body
    assert "sickbay case abort driver=570.1" in notice.body
    assert notice.title.startswith("driver=570: ")


def test_phases_that_people_need_not_hear_about_make_no_notice() -> None:
    silent = [p for p in Phase if explain.notice_of(a_case(p), "so it is", CATALOG, WALL) is None]
    assert {Phase.DRAINING, Phase.QUEUED, Phase.VERIFYING, Phase.RETURNING} <= set(silent)


def test_a_new_node_that_is_well_is_not_worth_a_word() -> None:
    assert explain.notice_of(a_case(Phase.RESOLVED, newcomer=True), "it is well", CATALOG, WALL) is None


def test_every_step_has_its_own_notice_key() -> None:
    one, two = (explain.notice_of(a_case(Phase.ESCALATED, step=n), "so", CATALOG, WALL) for n in (1, 2))
    assert one is not None
    assert two is not None
    assert one.key != two.key


def test_a_sick_instrument_is_a_warning_that_the_node_stays_in_service() -> None:
    notice = explain.remark(a_blind(reason="dcgmi is not there."), CATALOG.faults["monitor-sick"], WALL)
    assert notice.level == "warning"
    assert notice.body.splitlines()[0] == "dcgmi is not there. The node stays in service."


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_of_a_case_has_words(phase: Phase) -> None:
    assert explain.PHASE_WORDS[phase].islower()


@pytest.mark.parametrize("phase", list(RecoveryPhase))
def test_every_phase_of_a_job_has_words(phase: RecoveryPhase) -> None:
    assert is_a_sentence(explain.recovery_story(a_recovery(phase))[-1])


def test_the_owner_reads_which_node_why_and_what_was_lost() -> None:
    r = a_recovery(
        attempt=3, blame=Blame.HARDWARE, suspects=("n2",), because=("Xid 79",), lost_steps=40, checkpoint_step=80
    )
    body = explain.restarted(r, 420.0, WALL).body
    assert body.splitlines() == [
        "llama was interrupted because the hardware failed (n2).",
        "Evidence: Xid 79",
        "It runs again as attempt 3 from step 80: 40 steps and 7 minutes were lost.",
    ]


def test_a_job_that_is_given_up_says_why_and_shows_the_evidence() -> None:
    notice = explain.gave_up(a_recovery(because=("TypeError: x",)), "its own program failed", WALL)
    assert notice.body.splitlines() == ["llama is not restarted: its own program failed.", "Evidence: TypeError: x"]


def test_the_owner_of_a_job_that_tells_no_steps_is_not_told_of_steps() -> None:
    silent = a_recovery(RecoveryPhase.RUNNING, job_step=1, checkpoint_step=-1, lost_steps=1)
    told = explain.restarted(silent, 240.0, WALL).body
    assert "1 steps" not in told
    assert "from step" not in told
    assert "It tells no steps" in told
    assert "4 minutes were lost" in told


def test_one_step_is_one_step() -> None:
    told = explain.restarted(a_recovery(job_step=41, checkpoint_step=40, lost_steps=1), 240.0, WALL).body
    assert "from step 40: 1 step and 4 minutes were lost." in told


def test_each_step_of_a_story_has_its_time() -> None:
    lines = [*explain.case_story(a_case())[:-1], *explain.recovery_story(a_recovery())[:-1]]
    assert lines
    assert all(line.startswith("2027-01-15 08:00:00Z ") for line in lines)
