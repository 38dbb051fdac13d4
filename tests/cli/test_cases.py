"""`sickbay cases` and `sickbay case ...`: what is listed, what is asked, what is refused."""

from __future__ import annotations

import json
import time

import pytest

from sickbay.model import Case, Command, Entry, Phase, RecoveryPhase, Verb

from .builders import XID_79, Bay, a_case, a_ledger, a_recovery


def test_open_cases_are_listed_and_ended_ones_only_with_all(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3", refusal="REPLACE needs a person's approval"))
    bay.end(a_case("gpu-9.1", Phase.RESOLVED))
    listed = bay.run("cases").out
    assert "gpu-17.3" in listed
    assert "needs a person's approval" in listed
    assert "gpu-9.1" not in listed
    assert "gpu-9.1" in bay.run("cases", "--all").out


def test_no_cases_is_a_sentence(bay: Bay) -> None:
    assert "No open cases." in bay.run("cases").out


def test_json_is_one_object_a_line(bay: Bay) -> None:
    bay.put(a_case("gpu-1.1"), a_case("gpu-2.1"))
    rows = [json.loads(line) for line in bay.run("cases", "--json").out.splitlines()]
    assert [(row["id"], row["phase"], row["diagnoses"][0]["severity"]) for row in rows] == [
        ("gpu-1.1", "QUEUED", "REBOOT"),
        ("gpu-2.1", "QUEUED", "REBOOT"),
    ]


def test_show_tells_an_open_case_and_an_ended_one(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3"))
    bay.end(a_case("gpu-9.1", Phase.RESOLVED))
    for case_id in ("gpu-17.3", "gpu-9.1"):
        said = bay.run("case", "show", case_id).out
        assert case_id in said
        assert "REBOOT" in said
        assert "i-0123" in said


def test_show_mentions_what_was_asked_and_not_yet_done(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3"))
    bay.run("case", "hold", "gpu-17.3", "--why", "my node")
    assert "Asked, not yet taken up: hold by ann" in bay.run("case", "show", "gpu-17.3").out


def test_a_wish_is_written_with_who_and_why_and_touches_no_case(bay: Bay) -> None:
    case = a_case("gpu-17.3")
    bay.put(case, a_ledger(time.time()))
    with bay.led():
        said = bay.run("case", "abort", "gpu-17.3", "--why", "mine now")
    assert said.code == 0
    assert "on the next pass" in said.out
    (wish,) = bay.all(Command)
    assert (wish.verb, wish.target, wish.by, wish.why, wish.cluster) == ("abort", "gpu-17.3", "ann", "mine now", "west")
    assert [stored.phase for stored in bay.all(Case)] == [Phase.QUEUED]


def test_nobody_asks_in_another_persons_name(bay: Bay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "bob")
    monkeypatch.setenv("SUDO_USER", "bob")
    bay.put(a_case("gpu-17.3"))
    bay.run("case", "hold", "gpu-17.3")
    assert bay.all(Command)[0].by == "ann"


def test_with_no_controller_the_wish_waits_and_says_so(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3"), a_ledger(time.time() - 3600))
    said = bay.run("case", "hold", "gpu-17.3").out
    assert "when a controller runs" in said
    assert "1 h ago" in said


def test_approval_is_for_the_next_treatment_that_needs_it(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3", rung=Verb.POWER_CYCLE))
    said = bay.run("case", "approve", "gpu-17.3").out
    assert "Approved: REPLACE of gpu-17" in said
    assert dict(bay.all(Command)[0].args) == {"verb": "REPLACE"}


def test_approval_of_a_named_treatment(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3"))
    bay.run("case", "approve", "gpu-17.3", "--verb", "reboot")
    assert dict(bay.all(Command)[0].args) == {"verb": "REBOOT"}


def test_a_late_approval_says_that_the_case_is_taken_up_again(bay: Bay) -> None:
    bay.put(waited_in_vain("REBOOT"))
    said = bay.run("case", "approve", "gpu-17.3")
    assert "Approved: REBOOT of gpu-17" in said.out
    assert "it is taken up again where it stood" in said.out
    assert dict(bay.all(Command)[0].args) == {"verb": "REBOOT"}


def test_an_approval_of_another_verb_than_the_one_asked_for_says_so(bay: Bay) -> None:
    bay.put(waited_in_vain("REBOOT"))
    said = bay.run("case", "approve", "gpu-17.3", "--verb", "REPLACE").out
    assert "it waits for REBOOT, not for REPLACE: sickbay case approve gpu-17.3 --verb REBOOT" in said


def test_an_approval_of_a_held_case_says_that_it_is_held(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3", held=True, rung=Verb.POWER_CYCLE))
    assert "it is held: sickbay case unhold gpu-17.3" in bay.run("case", "approve", "gpu-17.3").out


def test_a_job_that_runs_is_not_said_to_be_started_elsewhere(bay: Bay) -> None:
    bay.put(a_recovery("llama", phase=RecoveryPhase.RUNNING))
    said = bay.run("job", "restart", "llama").out
    assert "llama runs, as far as is known" in said
    assert "nothing is done" in said


def test_an_approval_of_a_case_that_rests_for_another_reason_says_what_it_needs_besides(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3", Phase.ESCALATED))
    said = bay.run("case", "approve", "gpu-17.3", "--verb", "REPLACE").out
    assert "goes on by: sickbay case retry gpu-17.3" in said


def waited_in_vain(verb: str) -> Case:
    asked = Entry(8, "ASKED", 1.0, "sickbay", f"{verb} waits for a person's word", "QUEUED")
    late = Entry(9, "TIMED_OUT", 2.0, "sickbay", "longer than allowed", "ESCALATED")
    timeline = (("QUEUED", 1.0), ("ESCALATED", 2.0))
    return a_case("gpu-17.3", Phase.ESCALATED, step=9, journal=(asked, late), timeline=timeline)


def test_approval_of_what_is_behind_is_refused(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3", rung=Verb.POWER_CYCLE))
    said = bay.run("case", "approve", "gpu-17.3", "--verb", "REBOOT")
    assert said.code == 2
    assert "ahead: REPLACE" in said.err
    assert bay.all(Command) == []


@pytest.mark.parametrize(
    ("verb", "case"),
    [
        ("hold", a_case("gpu-17.3", held=True)),
        ("unhold", a_case("gpu-17.3")),
        ("abort", a_case("gpu-17.3", cancelled=True)),
        ("retry", a_case("gpu-17.3", Phase.DRAINING)),
        ("examine", a_case("gpu-17.3", Phase.WAITING)),
        ("approve", a_case("gpu-17.3", cancelled=True)),
        ("approve", a_case("gpu-17.3", rung=Verb.REPLACE)),
    ],
)
def test_a_wish_that_could_do_nothing_is_refused_with_the_reason(bay: Bay, verb: str, case: Case) -> None:
    bay.put(case)
    said = bay.run("case", verb, case.id)
    assert said.code == 2
    assert case.id in said.err
    assert bay.all(Command) == []


@pytest.mark.parametrize("verb", ["retry", "examine", "abort", "hold"])
def test_an_escalated_case_can_be_taken_up_again(bay: Bay, verb: str) -> None:
    bay.put(a_case("gpu-17.3", Phase.ESCALATED))
    assert bay.run("case", verb, "gpu-17.3").code == 0
    assert [wish.verb for wish in bay.all(Command)] == [verb]


def test_an_ended_case_cannot_be_changed(bay: Bay) -> None:
    bay.end(a_case("gpu-9.1", Phase.RESOLVED))
    said = bay.run("case", "retry", "gpu-9.1")
    assert said.code == 2
    assert "has ended" in said.err


def test_an_unknown_id_is_answered_with_the_nearest(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3"))
    bay.end(a_case("gpu-18.1", Phase.RESOLVED))
    said = bay.run("case", "show", "gpu-17.1")
    assert said.code == 2
    assert "Did you mean" in said.err
    assert "gpu-17.3" in said.err


def test_a_node_given_for_a_case_is_answered_with_its_open_case(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3"))
    assert "The open case of node gpu-17 is gpu-17.3" in bay.run("case", "hold", "gpu-17").err


def test_text_from_a_sick_machine_cannot_drive_the_terminal(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3", refusal="\x1b[2J\x07gone", evidence="a\x1b]0;x\x07"))
    for args in (["cases"], ["case", "show", "gpu-17.3"], ["nodes"], ["why", "gpu-17"]):
        said = bay.run(*args)
        assert "\x1b" not in said.out
        assert "\x07" not in said.out


def test_the_quoted_line_is_in_the_story(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3"))
    assert XID_79 in bay.run("case", "show", "gpu-17.3").out


@pytest.mark.parametrize(
    ("known", "meant"),
    [((), "None is at the moment."), (("llama",), "Did you mean llama?"), (("a", "b"), "There are: a, b.")],
)
def test_a_job_that_is_not_there_cannot_be_restarted_and_those_that_are_there_are_named(
    bay: Bay, known: tuple[str, ...], meant: str
) -> None:
    bay.put(*(a_recovery(job) for job in known))
    said = bay.run("job", "restart", "lama")
    assert said.code == 2
    assert f"There is no job lama that is looked after. {meant}" in said.err
