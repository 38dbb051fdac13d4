"""A case about many nodes that are away which may not go on: held, paused, unreadable, or its decision raises.

What is stopped is treatment. Who goes away beside such a case with others is one of many as ever, and people are told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sickbay.controller import desk
from sickbay.core import decide
from sickbay.model import Case, Command, NodeRecord, Pause, Verb
from sickbay.settings import Limit
from sickbay.stores.memory import MemoryStore
from tests.controller.door import Shift
from tests.controller.test_absences import HOUR, MINUTE, NAMES, a_shift, about_it, go, return_, treated
from tests.stores.conftest import SPOILERS

FIRST, LATER, LONE = NAMES[:5], NAMES[8:12], NAMES[15]


def says(shift: Shift, word: str, /, **args: str) -> None:
    order = Command(f"{word}-{shift.clock.mono:.0f}", word, "absence.1", "anna", "I look at it", 0.0, args)
    shift.store.create(order)


def hold(shift: Shift) -> None:
    says(shift, "hold")


def pause(shift: Shift) -> None:
    shift.store.create(Pause("fleet", "anna", "change freeze", shift.clock.now()))


def pause_it_alone(shift: Shift) -> None:
    shift.store.create(Pause("node:absence", "anna", "I look at it", shift.clock.now()))


def release(shift: Shift) -> Shift:
    says(shift, "unhold")
    for scope in ("fleet", "node:absence"):
        shift.store.delete(Pause, scope)
    return shift


Stop = Callable[[Shift], None]
stopped = pytest.mark.parametrize("stop", [hold, pause, pause_it_alone])


def wide(**policy: Any) -> Shift:
    """No limit may hide what would be done."""
    return a_shift(max_out=Limit(), max_out_fleet=Limit(), **policy)


def stands(stop: Stop, *back: str, **policy: Any) -> Shift:
    """Five went away together, somebody stopped the case, and these have been back for hours."""
    shift = go(wide(**policy), *FIRST).passes(20 * MINUTE)
    stop(shift)
    return return_(shift.passes(MINUTE), *back).passes(3 * HOUR)


def go_one_by_one(shift: Shift, *names: str) -> Shift:
    for name in names:
        go(shift, name).passes(MINUTE)
    return shift


def is_left_alone(shift: Shift, *names: str) -> None:
    """They are members of the one case, and nothing was done to them."""
    assert shift.case("absence") is not None
    assert [shift.case(name) for name in names] == [None] * len(names)
    assert treated(shift).isdisjoint(names)
    assert {a.place.node for a in shift.door.called(Verb.CORDON)}.isdisjoint(names)


@stopped
@pytest.mark.parametrize("back", [5, 4], ids=["all are back", "one is still away"])
@pytest.mark.parametrize("way", [go, go_one_by_one], ids=["at once", "one by one"])
def test_who_goes_away_with_others_beside_a_case_that_stands_is_one_of_many(stop: Stop, back: int, way: Any) -> None:
    """Four nodes without power were treated one by one beside a held case (seed 50000194)."""
    shift = way(stands(stop, *FIRST[:back]), *LATER).passes(2 * HOUR)
    is_left_alone(shift, *LATER)
    is_left_alone(release(shift).passes(3 * HOUR), *LATER)


@stopped
def test_who_goes_away_beside_a_case_that_stands_is_one_of_many_for_another_leader_too(stop: Stop) -> None:
    shift = go_one_by_one(stands(stop, *FIRST[:4]).successor(), *LATER[:2])
    shift = go_one_by_one(shift.successor(), *LATER[2:]).passes(2 * HOUR)
    is_left_alone(shift, *LATER)
    is_left_alone(release(shift.successor()).passes(3 * HOUR), *LATER)


def test_opted_out_nodes_are_company_for_who_goes_away_beside_a_held_case() -> None:
    shift = go(stands(hold, *FIRST), *LATER[:2], opted_out=True)
    is_left_alone(go_one_by_one(shift, *LATER[2:]).passes(2 * HOUR), *LATER)


def test_a_lone_node_whose_own_case_is_held_keeps_its_hold_when_many_go_away_and_are_back() -> None:
    shift = go(wide(), LONE).passes(7 * MINUTE)
    shift.store.create(Command("hold", "hold", f"{LONE}.1", "anna", "I look at it", 0.0))
    go(shift.passes(MINUTE), *FIRST).passes(HOUR)
    return_(shift, *FIRST).passes(3 * HOUR)
    case = shift.case(LONE)
    assert case is not None
    assert (case.id, case.held) == (f"{LONE}.1", True)
    assert treated(shift) == set()


@stopped
def test_a_straggler_is_not_treated_while_the_case_stands_and_has_its_whole_time_afterwards(stop: Stop) -> None:
    shift = stands(stop, *FIRST[:4])
    is_left_alone(shift, FIRST[4])
    is_left_alone(release(shift).passes(29 * MINUTE), FIRST[4])
    assert treated(shift.passes(30 * MINUTE)) == {FIRST[4]}


@stopped
def test_a_case_that_was_over_while_it_stood_ends_when_it_goes_on(stop: Stop) -> None:
    shift = stands(stop, *FIRST)
    assert shift.case("absence") is not None
    assert release(shift).passes(5 * MINUTE).case("absence") is None
    assert treated(shift) == set()


def test_who_goes_away_alone_when_all_are_back_is_treated_though_the_case_is_held() -> None:
    """A hold that is forgotten takes in nobody who is not one of many."""
    shift = go(stands(hold, *FIRST), LONE).passes(HOUR)
    assert treated(shift) == {LONE}


def test_two_of_a_later_absence_are_not_alone_when_the_hold_ends_before_the_third_goes() -> None:
    shift = go_one_by_one(stands(hold, *FIRST), *LATER[:2])
    go_one_by_one(release(shift), *LATER[2:]).passes(3 * HOUR)
    is_left_alone(shift, *LATER)


@stopped
@pytest.mark.parametrize("word", ["split", "approve"])
def test_a_persons_word_in_a_case_that_stands_is_for_those_who_were_away_when_it_was_said(
    stop: Stop, word: str
) -> None:
    shift = stands(stop)
    says(shift, word, **({"verb": "REPLACE"} if word == "approve" else {}))
    go(shift.passes(HOUR), *LATER).passes(HOUR)
    assert treated(shift) == set()
    release(shift).passes(4 * HOUR)
    assert treated(shift) == set(FIRST)
    is_left_alone(shift, *LATER)


@stopped
@pytest.mark.parametrize("back", [5, 4], ids=["all are back", "one is still away"])
def test_people_are_told_who_goes_away_later_beside_a_case_that_stands(stop: Stop, back: int) -> None:
    shift = stands(stop, *FIRST[:back])
    before = len(about_it(shift))
    go(shift, *LATER).passes(10 * MINUTE)
    (told,) = about_it(shift)[before:]
    assert "away together" in told.title
    assert LATER[0] in told.body
    assert "I look at it" in told.body or "change freeze" in told.body
    assert len(about_it(shift.passes(2 * HOUR))) <= before + 2


def test_who_comes_and_goes_beside_a_held_case_is_one_incident() -> None:
    shift = go(a_shift(), *FIRST).passes(20 * MINUTE)
    hold(shift)
    for _ in range(12):
        go(return_(shift, *FIRST).passes(20 * MINUTE), *FIRST).passes(10 * MINUTE)
    assert [n.title for n in about_it(shift)] == ["5 nodes are away together", "5 nodes come and go together"]


@pytest.mark.parametrize("said", ["abort", "split"])
def test_a_held_case_that_people_close_takes_nobody_with_it_who_goes_away_later(said: str) -> None:
    shift = stands(hold)
    says(shift, said)
    release(shift.passes(MINUTE))
    go_one_by_one(shift.passes(MINUTE), *LATER).passes(2 * HOUR)
    is_left_alone(shift, *LATER)


@pytest.mark.parametrize("about", ["Case", "NodeRecord"])
@pytest.mark.parametrize("back", [5, 4], ids=["all are back", "one is still away"])
@pytest.mark.parametrize("heir", [False, True], ids=["the same leader", "another leader"])
@pytest.mark.parametrize("held", [False, True])
def test_who_goes_away_while_the_case_cannot_be_read_is_one_of_many(
    about: str, back: int, heir: bool, held: bool
) -> None:
    shift = go(wide(), *FIRST).passes(20 * MINUTE)
    if held:
        hold(shift)
        shift.passes(MINUTE)
    case, spoiler = shift.case("absence"), SPOILERS["memory"](shift.store)
    assert case is not None
    record = shift.store.get(NodeRecord, "absence")
    assert record is not None
    spoiler.spoil(case if about == "Case" else record.value)
    shift = shift.successor() if heir else shift
    shift = return_(shift.passes(MINUTE), *FIRST[:back]).passes(3 * HOUR)
    go_one_by_one(shift, *LATER).passes(2 * HOUR)
    is_left_alone(shift, *LATER)
    spoiler.mend(case if about == "Case" else record.value)
    is_left_alone(shift.passes(2 * HOUR), *LATER)


unread = pytest.mark.parametrize("about", ["Case", "NodeRecord"])


class Spoilt:
    """Its case, or the record that remembers it, cannot be read until somebody mends it."""

    def __init__(self, shift: Shift, about: str) -> None:
        case, record = shift.case("absence"), shift.store.get(NodeRecord, "absence")
        assert case is not None
        assert record is not None
        self.value, self.spoiler = case if about == "Case" else record.value, SPOILERS["memory"](shift.store)
        self.spoiler.spoil(self.value)

    def mend(self) -> None:
        self.spoiler.mend(self.value)


def mostly_back(about: str) -> tuple[Shift, Spoilt]:
    """Eight of ten were back when it could be read last, and the other two minutes later."""
    ten = NAMES[:10]
    shift = return_(go(wide(), *ten).passes(20 * MINUTE), *ten[:8]).passes(5 * MINUTE)
    spoilt = Spoilt(shift, about)
    return return_(shift.passes(5 * MINUTE), *ten).passes(HOUR), spoilt


@unread
def test_who_goes_away_while_it_cannot_be_read_is_not_the_rest_of_those_who_went_before(about: str) -> None:
    """Two were rebooted in the second in which the third of them was back (found by an outsider)."""
    shift, spoilt = mostly_back(about)
    go_one_by_one(shift, *LATER[:3]).passes(10 * MINUTE)
    spoilt.mend()
    return_(shift.passes(5 * MINUTE), LATER[2]).passes(3 * HOUR)
    assert treated(shift) == set()
    return_(shift, *LATER).passes(HOUR)
    assert shift.case("absence") is None


@unread
def test_a_straggler_has_its_whole_time_again_when_the_case_can_be_read(about: str) -> None:
    shift = return_(go(wide(), *FIRST).passes(20 * MINUTE), *FIRST[:4]).passes(20 * MINUTE)
    spoilt = Spoilt(shift, about)
    shift.passes(8 * MINUTE)
    spoilt.mend()
    is_left_alone(shift.passes(28 * MINUTE), FIRST[4])
    assert treated(shift.passes(30 * MINUTE)) == {FIRST[4]}


def test_a_leader_who_finds_its_time_long_over_gives_the_rest_their_whole_time_again() -> None:
    """Who led before him could not read the record, and so wrote down nothing of what he saw."""
    shift = return_(go(wide(), *FIRST).passes(20 * MINUTE), *FIRST[:4]).passes(5 * MINUTE)
    spoilt = Spoilt(shift, "NodeRecord")
    shift = return_(shift.passes(5 * MINUTE), *FIRST).passes(2 * HOUR)
    shift.controller.abandon()
    go(shift, FIRST[4])
    spoilt.mend()
    is_left_alone(shift.successor().passes(25 * MINUTE), FIRST[4])


def names_commands(shift: Shift) -> list[str]:
    """The notices about absent nodes that say what people may decide."""
    return [n.key for n in shift.pager.told if "sickbay case split absence.1" in n.body]


@unread
def test_once_it_can_be_read_again_people_hear_what_they_may_decide_and_each_day_after_that(about: str) -> None:
    """What is lost was told while it could not be read, and then nothing for days (found by an outsider)."""
    shift = go(wide(), *FIRST).passes(20 * MINUTE)
    spoilt = Spoilt(shift, about)
    shift.passes(2 * HOUR)
    assert names_commands(shift) == ["absence.1/began"]
    spoilt.mend()
    shift.passes(MINUTE)
    readable = [*names_commands(shift)]
    assert readable == ["absence.1/began", "absence.1/readable/2"]
    shift.passes(49 * HOUR)
    assert names_commands(shift) == [*readable, "absence.1/day-1", "absence.1/day-2"]


@unread
def test_where_people_heard_the_commands_nothing_is_said_when_it_can_be_read_again(about: str) -> None:
    shift = go(wide(), *FIRST).passes(20 * MINUTE)
    spoilt = Spoilt(shift, about)
    shift.passes(20 * MINUTE)
    spoilt.mend()
    shift.passes(2 * HOUR)
    assert names_commands(shift) == ["absence.1/began", "absence.1/lost"]


def test_who_removes_the_case_that_cannot_be_read_has_closed_it_and_hears_nothing_else() -> None:
    shift = go(wide(), *FIRST).passes(20 * MINUTE)
    Spoilt(shift, "Case")
    shift.passes(2 * HOUR)
    before = len(about_it(shift))
    assert isinstance(shift.store, MemoryStore)
    shift.store.lose(Case, "absence.1")
    told = [n.key for n in about_it(shift.passes(10 * MINUTE))[before:]]
    assert told == ["absence.1/over"]
    assert names_commands(shift) == ["absence.1/began"]
    assert shift.case("absence") is None


def test_who_goes_away_while_the_decision_about_the_case_raises_is_one_of_many(monkeypatch: Any) -> None:
    shift = return_(go(wide(), *FIRST).passes(HOUR), *FIRST[:4])

    def raises(s: Any, ctx: Any) -> Any:
        if s.record.node == "absence":
            raise ValueError("a rule that is wrong")
        return decide.decide(s, ctx)

    monkeypatch.setattr(desk, "decide", raises)
    go_one_by_one(shift.passes(3 * HOUR), *LATER).passes(2 * HOUR)
    is_left_alone(shift, *LATER)
    monkeypatch.undo()
    is_left_alone(shift.passes(2 * HOUR), *LATER)
