"""Nodes that go away together through a whole controller: one case, no cordon, no treatment, and people told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.model import Action, Case, Command, Failed, Ledger, NodeRecord, Notice, Outcome, Pause, Phase, Verb
from sickbay.settings import Limit
from sickbay.stores.memory import MemoryStore
from tests.builders import a_finding, a_node, a_policy
from tests.controller.door import Door, Shift, busy

MINUTE, HOUR = 60.0, 3_600.0
NAMES = tuple(f"n{n:02}" for n in range(20))
TREATED = (Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE)


def a_shift(**policy: Any) -> Shift:
    return Shift(Door(*(a_node(name) for name in NAMES)), policy=a_policy(approval=(), **policy)).passes(30.0)


def go(shift: Shift, *names: str, **changed: Any) -> Shift:
    for name in names:
        shift.door.shows(name, ready=False, **changed)
    return shift


def return_(shift: Shift, *names: str) -> Shift:
    for name in names:
        shift.door.shows(name, ready=True)
    return shift


def treated(shift: Shift) -> set[str]:
    return {a.place.node for verb in TREATED for a in shift.door.called(verb)}


def orders(shift: Shift, verb: str, /, **args: str) -> None:
    shift.store.create(Command(f"{verb}-1", verb, "absence.1", "anna", "I looked", 0.0, args))


def sent(shift: Shift) -> list[Verb]:
    """Each treatment that was asked for, in order."""
    return list(dict.fromkeys(a.verb for a in shift.door.asked if a.verb in TREATED and a.call))


def fails(_: Action) -> Outcome:
    return Failed("nobody answers")


def about_it(shift: Shift) -> list[Notice]:
    return [n for n in shift.pager.told if n.case.startswith("absence.")]


def test_five_that_are_away_for_hours_are_one_case_and_nothing_is_done_to_them() -> None:
    shift = go(a_shift(), *NAMES[:5]).passes(5 * HOUR)
    case = shift.case("absence")
    assert case is not None
    assert case.phase is Phase.ESCALATED
    assert all(shift.case(name) is None for name in NAMES)
    assert treated(shift) == set()
    assert shift.door.called(Verb.CORDON) == []
    assert 1 <= len(about_it(shift)) <= 3


def test_it_ends_ten_minutes_after_all_are_back() -> None:
    shift = return_(go(a_shift(), *NAMES[:5]).passes(HOUR), *NAMES[:5])
    assert shift.passes(9 * MINUTE).case("absence") is not None
    assert shift.passes(3 * MINUTE).case("absence") is None
    assert treated(shift.passes(HOUR)) == set()


def test_the_fifth_that_does_not_come_back_with_the_others_is_treated_alone() -> None:
    shift = return_(go(a_shift(), *NAMES[:5]).passes(HOUR), *NAMES[:4])
    assert treated(shift.passes(29 * MINUTE)) == set()
    assert treated(shift.passes(30 * MINUTE)) == {NAMES[4]}


def test_a_person_splits_it_and_they_are_treated() -> None:
    shift = go(a_shift(max_out=Limit(), max_out_fleet=Limit()), *NAMES[:5]).passes(HOUR)
    orders(shift, "split")
    assert treated(shift.passes(HOUR)) == set(NAMES[:5])


def test_a_person_closes_it_and_they_are_left_to_people() -> None:
    shift = go(a_shift(), *NAMES[:5]).passes(HOUR)
    orders(shift, "abort")
    shift.passes(HOUR)
    assert shift.case("absence") is None
    assert treated(shift) == set()


def test_a_person_who_deletes_its_record_has_closed_it() -> None:
    shift = go(a_shift(), *NAMES[:5]).passes(HOUR)
    assert isinstance(shift.store, MemoryStore)
    shift.store.lose(Case, "absence.1")
    shift.passes(HOUR)
    assert shift.case("absence") is None
    assert treated(shift) == set()


def test_the_next_one_gets_a_number_of_its_own_though_the_record_of_the_first_was_deleted() -> None:
    shift = go(a_shift(), *NAMES[:5]).passes(HOUR)
    assert isinstance(shift.store, MemoryStore)
    shift.store.lose(Case, "absence.1")
    again = go(return_(shift.passes(HOUR), *NAMES[:5]).successor().passes(HOUR), *NAMES[:5]).passes(HOUR)
    case = again.case("absence")
    assert case is not None
    assert case.id == "absence.2"


def test_the_next_one_gets_a_number_of_its_own_though_only_the_archive_knows_of_the_first() -> None:
    """The old number was refused, which was read as a person's deletion: nobody heard that they are away."""
    shift = return_(go(a_shift(), *NAMES[:5]).passes(HOUR), *NAMES[:5]).passes(2 * HOUR)
    assert isinstance(shift.store, MemoryStore)
    shift.store.lose(NodeRecord, "absence")
    again = go(shift.successor().passes(HOUR), *NAMES[:5]).passes(HOUR)
    case = again.case("absence")
    assert case is not None
    assert case.id == "absence.2"
    assert "absence.2/began" in [notice.key for notice in about_it(again)]


def test_who_goes_away_after_people_closed_a_case_is_none_of_theirs_for_the_next_leader_either() -> None:
    shift = go(a_shift(), *NAMES[:3]).passes(0.5 * HOUR)
    orders(shift, "abort")
    again = go(shift.passes(HOUR), *NAMES[3:8]).passes(10.0).successor().passes(300.0)
    case = again.case("absence")
    assert case is not None
    assert case.absence is not None
    assert case.absence.names == tuple(NAMES[3:8])


def test_a_record_about_them_that_somebody_moves_does_not_leave_those_to_people_who_go_away_next() -> None:
    shift = return_(go(a_shift(), *NAMES[:5]).passes(HOUR), *NAMES[:5]).passes(0.5 * HOUR)
    stored = shift.store.get(NodeRecord, "absence")
    assert stored is not None
    shift.store.commit(replace(stored.value, lemon="a person was here"), stored.version, stored.epoch)
    shift = go(shift, *NAMES[:5]).passes(0.5 * HOUR)
    assert shift.case("absence") is not None
    assert [notice for notice in about_it(shift) if "left to people" in notice.title] == []


def test_it_begins_for_people_when_they_are_many_and_not_when_the_first_of_them_went_away_alone() -> None:
    """Eight minutes after it had begun they read that three nodes had been away for an hour (seed 1240)."""
    shift = go(a_shift(), NAMES[0], machine="running").passes(HOUR - 5 * MINUTE)
    told = [n.title for n in about_it(go(shift, *NAMES[1:3]).passes(50 * MINUTE))]
    assert told == ["3 nodes are away together"]
    told = [n.title for n in about_it(shift.passes(15 * MINUTE))]
    assert told[1:] == ["3 nodes have been away for an hour"]


def test_who_goes_away_beside_those_that_people_look_after_is_one_of_many() -> None:
    shift = go(a_shift(), *NAMES[:5]).passes(HOUR)
    orders(shift, "abort")
    go(shift.passes(10 * MINUTE), NAMES[5]).passes(HOUR)
    assert shift.case("absence") is not None
    assert (shift.case(NAMES[5]), treated(shift)) == (None, set())


def test_when_their_time_is_over_and_they_are_still_away_they_are_many_again() -> None:
    shift = go(a_shift(quiet_s=2 * HOUR), *NAMES[:5]).passes(HOUR)
    orders(shift, "abort")
    assert shift.passes(HOUR).case("absence") is None
    assert shift.passes(3 * HOUR).case("absence") is not None
    assert treated(shift) == set()


def test_a_person_approves_replace_for_all_of_them() -> None:
    shift = go(a_shift(max_out=Limit(), max_out_fleet=Limit()), *NAMES[:5]).passes(HOUR)
    orders(shift, "approve", verb="REPLACE")
    shift.passes(3 * HOUR)  # some REPLACE wait: windows still hold
    assert sorted(a.place.node for a in shift.door.called(Verb.REPLACE)) == sorted(NAMES[:5])
    old = {f"i-{name}" for name in NAMES}
    assert not [a for a in shift.door.called(Verb.REBOOT) if a.before.instance in old]


def test_a_successor_that_does_not_answer_either_is_a_node_like_any_other() -> None:
    """Each was given back for another one, hour after hour, by one approval."""
    shift = go(a_shift(max_out=Limit(), max_out_fleet=Limit()), *NAMES[:5]).passes(HOUR)
    orders(shift, "approve", verb="REPLACE")
    shift.passes(3 * HOUR)
    later = [a for a in shift.door.called(Verb.REBOOT) if a.before.instance == "i-n00+"]
    assert [a.key.partition("/")[0] for a in later] == ["n00.2"]


def a_careful_shift(**policy: Any) -> Shift:
    """REPLACE needs a person's word, as it does by default."""
    careful = a_policy(approval=("REPLACE",), max_out=Limit(), max_out_fleet=Limit(), **policy)
    return Shift(Door(*(a_node(name) for name in NAMES)), policy=careful).passes(30.0)


def replaced(shift: Shift) -> set[str]:
    return {a.place.node for a in shift.door.called(Verb.REPLACE)}


def test_an_approval_for_all_of_them_ends_with_the_case_of_each() -> None:
    """Sixteen healthy machines were replaced five hours after the person had let every case go."""
    shift = go(a_careful_shift(quiet_s=2 * HOUR, at_once=Limit(count=1)), *NAMES[:5]).passes(HOUR)
    orders(shift, "approve", verb="REPLACE")
    shift.passes(2 * MINUTE)
    before = replaced(shift)
    for name in NAMES[:5]:
        if (case := shift.case(name)) is not None:
            shift.store.create(Command(f"abort-{name}", "abort", case.id, "anna", "leave them to me", 0.0))
    shift.passes(12 * HOUR)
    assert replaced(shift) == before


def test_an_approval_for_all_of_them_is_not_one_for_those_who_were_left_to_people_before() -> None:
    shift = go(a_careful_shift(quiet_s=2 * HOUR), *NAMES[:5]).passes(HOUR)
    orders(shift, "abort")
    go(shift.passes(10 * MINUTE), *NAMES[5:10]).passes(30 * MINUTE)
    shift.store.create(Command("approve-2", "approve", "absence.2", "anna", "exchange", 0.0, {"verb": "REPLACE"}))
    shift.passes(12 * HOUR)
    assert replaced(shift) == set(NAMES[5:10])


def test_who_was_split_then_let_go_and_is_many_again_is_replaced_when_a_person_approves_that() -> None:
    shift = go(a_careful_shift(quiet_s=2 * HOUR, at_once=Limit(count=0)), *NAMES[:5]).passes(HOUR)
    orders(shift, "split")
    go(shift.passes(5 * MINUTE), *NAMES[5:9]).passes(5 * MINUTE)
    for case in ["absence.2", *(f"{name}.1" for name in NAMES[:5])]:
        shift.store.create(Command(f"abort-{case}", "abort", case, "anna", "leave them to me", 0.0))
    found = shift.passes(3 * HOUR).case("absence")
    assert found is not None
    shift.store.create(Command("approve-3", "approve", found.id, "anna", "exchange", 0.0, {"verb": "REPLACE"}))
    shift.passes(HOUR)
    assert [c.approved for name in NAMES[:9] if (c := shift.case(name))] == [(Verb.REPLACE,)] * 9


def test_while_its_case_is_held_an_approval_replaces_nobody() -> None:
    shift = go(a_careful_shift(), *NAMES[:5]).passes(HOUR)
    orders(shift, "hold")
    orders(shift.passes(MINUTE), "approve", verb="REPLACE")
    go(shift.passes(HOUR), NAMES[7]).passes(3 * HOUR)
    assert treated(shift) == set()
    orders(shift, "unhold")
    assert replaced(shift.passes(3 * HOUR)) >= set(NAMES[:5])


def test_while_a_pause_lasts_a_split_makes_nobody_a_node_of_its_own() -> None:
    shift = go(a_careful_shift(), *NAMES[:5]).passes(HOUR)
    shift.store.create(Pause("fleet", "anna", "a freeze", 0.0))
    orders(shift.passes(MINUTE), "split")
    go(shift.passes(HOUR), *NAMES[5:8]).passes(HOUR)
    ledger = shift.store.get(Ledger, "ledger")
    assert ledger is not None
    assert ledger.value.split_at == -1.0


def test_four_that_leave_and_one_that_is_missed_are_not_many() -> None:
    shift = go(go(a_shift(), *NAMES[:4], leaving="the autoscaler removes it"), NAMES[4]).passes(HOUR)
    assert shift.case("absence") is None
    assert treated(shift) == {NAMES[4]}


def test_four_that_somebody_holds_and_one_that_is_missed_are_not_many() -> None:
    shift = go(go(a_shift(), *NAMES[:4], others=("anna",)), NAMES[4]).passes(HOUR)
    assert shift.case("absence") is None


def test_a_node_that_somebody_holds_and_that_is_away_with_many_others_is_left_alone_like_them() -> None:
    shift = go(go(a_shift(), *NAMES[:5]), NAMES[5], others=("anna",)).passes(5 * HOUR)
    case = shift.case("absence")
    assert case is not None
    assert case.absence is not None
    assert case.absence.most == 5
    assert treated(shift) == set()
    assert shift.door.called(Verb.CORDON) == []


def test_a_person_who_closes_it_while_it_ends_by_itself_closes_it() -> None:
    shift = return_(go(a_shift(), *NAMES[:5]).passes(HOUR), *NAMES[:5])
    shift.passes(9 * MINUTE)
    orders(shift, "abort")
    assert shift.passes(3 * MINUTE).case("absence") is None


def test_a_lone_node_is_treated_only_after_ten_minutes() -> None:
    shift = go(a_shift(), NAMES[0])
    assert treated(shift.passes(9 * MINUTE)) == set()
    assert treated(shift.passes(5 * MINUTE)) == {NAMES[0]}


def test_a_lone_node_that_is_back_before_its_treatment_is_not_rebooted() -> None:
    shift = return_(go(a_shift(), NAMES[0]).passes(8 * MINUTE), NAMES[0])
    assert treated(shift.passes(HOUR)) == set()
    assert shift.case(NAMES[0]) is None


def test_a_machine_that_its_provider_says_runs_is_not_treated() -> None:
    assert treated(go(a_shift(), NAMES[0], machine="running").passes(3 * HOUR)) == set()


def test_what_an_agent_sees_elsewhere_is_treated_while_many_are_away() -> None:
    shift = go(a_shift(), *NAMES[:8]).passes(HOUR)
    shift.door.shows(NAMES[19], findings=(a_finding(node=NAMES[19]),))
    assert {a.place.node for a in shift.passes(HOUR).door.called(Verb.CORDON)} == {NAMES[19]}


def test_a_successor_of_which_nobody_has_heard_is_not_closed_while_it_is_away_with_many_others() -> None:
    """A successor was closed beside all the others, in the pass in which the case of its predecessor ended (seed
    50001073): nobody had heard of the exchange before, for a person held that case."""
    shift = a_shift(max_out=Limit(), max_out_fleet=Limit())
    shift.door.says[Verb.REPLACE] = busy
    shift.door.shows(NAMES[0], findings=(a_finding("smi.remap-failed", node=NAMES[0], part="S1"),))
    shift.passes(HOUR)
    shift.store.create(Command("hold-1", "hold", f"{NAMES[0]}.1", "anna", "I look at it", 0.0))
    shift.passes(MINUTE).door.shows(
        NAMES[0], instance="i-new", uid="u-new", boot_id="b-new", findings=(), cordoned=False, mark=""
    )
    go(shift.passes(MINUTE), *NAMES[:5]).passes(HOUR)
    shift.store.create(Command("unhold-1", "unhold", f"{NAMES[0]}.1", "anna", "go on", 0.0))
    shift.passes(HOUR)
    assert [a.key.partition("/")[0] for a in shift.door.called(Verb.CORDON)] == ["n00.1"]
    return_(shift, *NAMES[:5]).passes(MINUTE)
    assert shift.case(NAMES[0]) is None


@pytest.mark.parametrize("answer", [busy, fails], ids=["nobody hears of it", "it fails"])
def test_whose_treatment_was_under_way_when_many_went_away_gets_no_stronger_one_before_it_is_back(answer: Any) -> None:
    """It was power cycled and given back, one after the other, for a network that all were without."""
    shift = a_shift(max_out=Limit(), max_out_fleet=Limit())
    shift.door.says[Verb.REBOOT] = busy
    shift.door.shows(NAMES[0], findings=(a_finding("xid.79", node=NAMES[0]),))
    go(shift.passes(10 * MINUTE), *NAMES[:5]).passes(10 * MINUTE)
    shift.door.says = dict.fromkeys(TREATED, answer)
    shift.passes(5 * HOUR)
    assert sent(shift) == [Verb.REBOOT]
    shift.door.says = {Verb.REBOOT: fails}
    return_(shift, *NAMES[:5]).passes(HOUR)
    assert treated(shift) == {NAMES[0]}
    assert sent(shift)[:2] == [Verb.REBOOT, Verb.POWER_CYCLE]  # it was sick before, and is
