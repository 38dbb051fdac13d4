"""Every verb that settings accept in `approval` and `per_window` is honoured; nothing is a limit too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.core.admit import room
from sickbay.model import Action, Case, Command, Failed, Outcome, Phase, Verb
from sickbay.settings import Limit
from sickbay.settings_load import load
from sickbay.settings_rules import ACTS
from tests.builders import a_finding, a_job, a_node, a_policy
from tests.controller.door import Door, Shift, busy

HOUR = 3_600.0
FREE = Limit(count=50, at_least=50)


def a_busy_ward(*names: str, code: str = "xid.79", **policy: Any) -> Shift:
    """Each node with a job of its own that makes progress; an agent then sees a GPU that fell off its bus."""
    door = Door(
        *(a_node(n, jobs=(f"job-{n}",)) for n in names),
        jobs=tuple(replace(a_job(nodes=(n,)), id=f"job-{n}", managed=False) for n in names),
    )
    door.says[Verb.DRAIN] = lambda action: _emptied(door, action)
    limits = {"approval": (), "max_out": FREE, "max_out_fleet": FREE, "at_once": FREE, "per_window": {}, **policy}
    shift = Shift(door, policy=a_policy(**limits))
    for name in names:
        door.shows(name, findings=(a_finding(code, 1, node=name),))
    return shift


def _emptied(door: Door, action: Action) -> Outcome:
    if action.args.get("evict") == "1":
        door.shows(action.place.node, jobs=())
    return door._does(action)


def the_case(shift: Shift, node: str = "n1") -> Case:
    case = shift.case(node)
    assert case is not None
    return case


def says(shift: Shift, verb: str, target: str, **args: str) -> None:
    shift.store.create(Command(f"{verb}-{target}", verb, target, "alice", "go on", 0.0, args))


# --- approval -------------------------------------------------------------------------------------------------------


def test_a_drain_that_needs_approval_waits_closed_and_says_which_command_ends_it() -> None:
    shift = a_busy_ward("n1", approval=("DRAIN",)).passes(HOUR)
    case = the_case(shift)
    assert case.phase is Phase.HOLDING
    assert case.refusal == f"DRAIN needs a person's approval: sickbay case approve {case.id}"
    assert not shift.door.called(Verb.DRAIN)
    says(shift, "approve", case.id)
    shift.passes(HOUR)
    assert shift.door.called(Verb.DRAIN)
    assert shift.door.called(Verb.REBOOT)


def test_a_drain_that_evicts_nobody_needs_nobodys_word() -> None:
    shift = a_busy_ward("n1", approval=("DRAIN",))
    shift.door.shows("n1", jobs=())
    shift.passes(HOUR)
    assert shift.door.called(Verb.REBOOT)
    assert {a.args["evict"] for a in shift.door.called(Verb.DRAIN)} == {"0"}, "and evicts nobody who came since"


@pytest.mark.parametrize("verb", ACTS)
def test_every_verb_in_approval_waits_for_a_person_and_goes_on_when_approved(verb: str) -> None:
    shift = a_busy_ward("n1", code="xid.48" if verb == "RESET_GPU" else "xid.79", approval=(verb,))
    never = Verb(verb)
    for weaker in (Verb.RESET_GPU, Verb.REBOOT, Verb.POWER_CYCLE):
        shift.door.says[weaker] = useless
    shift.passes(6 * HOUR)
    asked = [a.verb for a in shift.door.asked]
    assert never not in asked
    assert verb in the_case(shift).refusal
    says(shift, "approve", the_case(shift).id)
    shift.passes(HOUR)
    assert never in [a.verb for a in shift.door.asked]


def useless(_: Action) -> Outcome:
    return Failed("it did not help")


def test_an_approval_is_for_what_the_case_waits_for_now() -> None:
    """The first verb of policy.approval was approved, whatever the case waited for."""
    shift = a_busy_ward("n1", approval=("REPLACE", "DRAIN")).passes(HOUR)
    case = the_case(shift)
    says(shift, "approve", case.id)
    shift.passes(60.0)
    assert the_case(shift).approved == (Verb.DRAIN,)
    assert any(e.event == "APPROVE" and e.why == "DRAIN is approved: go on" for e in the_case(shift).journal)


def test_an_approval_of_nothing_approves_nothing_and_says_so() -> None:
    shift = a_busy_ward("n1")
    shift.door.says[Verb.REBOOT] = busy
    shift.passes(HOUR / 4)
    case = the_case(shift)
    says(shift, "approve", case.id)
    shift.passes(60.0)
    assert the_case(shift).approved == ()
    assert the_case(shift).journal[-1].why == "nothing ahead of it waits for approval"


# --- per window -----------------------------------------------------------------------------------------------------


def test_drains_that_evict_are_counted_in_a_window() -> None:
    shift = a_busy_ward("n1", "n2", "n3", per_window={"DRAIN": 1}).passes(HOUR / 2)
    drained = {a.place.node for a in shift.door.called(Verb.DRAIN)}
    assert len(drained) == 1
    waiting = [the_case(shift, n) for n in ("n1", "n2", "n3") if n not in drained]
    assert {c.phase for c in waiting} == {Phase.HOLDING}
    assert {c.refusal for c in waiting} == {"1 DRAIN in pool default within 60 minutes, at most 1"}
    shift.passes(3 * HOUR)
    assert {a.place.node for a in shift.door.called(Verb.DRAIN)} == {"n1", "n2", "n3"}


def test_a_window_of_no_drains_evicts_nobody() -> None:
    shift = a_busy_ward("n1", per_window={"DRAIN": 0}).passes(HOUR)
    assert not shift.door.called(Verb.DRAIN)
    assert "policy.per_window.DRAIN is 0" in the_case(shift).refusal


# --- none -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [Limit(percent=0.0), Limit(count=0), Limit(percent=0.0, at_least=2)])
def test_an_explicit_zero_is_none_whatever_at_least_says(limit: Limit) -> None:
    assert [room(limit, total) for total in (1, 4, 1000)] == [0, 0, 0]


@pytest.mark.parametrize("text", ['"0%"', "0", "{ percent = 0 }", "{ count = 0 }"])
@pytest.mark.parametrize(("key", "told"), [("max_out", "taken out"), ("at_once", "treated")])
def test_a_limit_of_zero_in_the_file_means_none(text: str, key: str, told: str, tmp_path: Any) -> None:
    file = tmp_path / "sickbay.toml"
    file.write_text(f'[policy]\nmax_verb = "REPLACE"\n{key} = {text}\n')
    policy = replace(load(file, {}).settings.policy, approval=())
    shift = Shift(Door(a_node("n1")), policy=policy)
    shift.door.shows("n1", findings=(a_finding("xid.79", 1, node="n1"),))
    shift.passes(HOUR)
    assert not shift.door.called(Verb.REBOOT)
    assert the_case(shift).refusal == f"no node of pool:default may be {told}: policy.{key} allows none"
