"""Nodes that are away together: when they are many, who is not missed, when it is over, and one that is away alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.core import absence
from sickbay.core.absence import Absentee, counted, excuse, keys_of, open_case, scope_of
from sickbay.core.admit import Counts, Request, admit
from sickbay.model import Absence, Case, Ledger, Phase, Verb, When
from sickbay.settings import ControllerSettings, Limit
from tests.builders import a_case, a_ledger, a_node, a_policy, a_request, a_seat, an_action
from tests.core.bedside import Bedside

LIMITS = ControllerSettings()
MINUTE = 60.0


def away(count: int, *keys: str, first: int = 0) -> list[Absentee]:
    return [Absentee(f"n{n:03}", 0.0, keys or ("pool:default",)) for n in range(first, first + count)]


def scope(absent: list[Absentee], fleet: int, **members: int) -> tuple[str, ...]:
    """Of nodes that went away one by one, an hour apart."""
    absent = [replace(a, since=3_600.0 * n) for n, a in enumerate(absent)]
    named = {key.replace("__", ":").replace("_is_", "="): n for key, n in members.items()}
    return scope_of(absent, {"fleet": fleet, **named}, LIMITS)


# --- many -------------------------------------------------------------------------------------------------------------


def test_a_twentieth_of_the_fleet_is_many() -> None:
    assert scope(away(5), 100, pool__default=100) == ("fleet",)
    assert scope(away(4), 100, pool__default=100) == ()


def test_three_that_went_away_at_one_moment_are_many_in_any_fleet() -> None:
    members = {"fleet": 10_000, "pool:default": 10_000}
    together, later = away(3), [Absentee("late", 4_000.0, ("pool:default",))]
    assert (found := scope_of([*together, *later], members, LIMITS)) == ("at:0",)
    assert [absence.belongs(a, found) for a in (*together, *later)] == [True, True, True, False]
    assert scope_of([*away(2), *later], members, LIMITS) == ()


def test_two_are_not_many_however_small_the_fleet() -> None:
    assert scope(away(2), 10, pool__default=10) == ()
    assert scope(away(3), 10, pool__default=10) == ("fleet",)


def test_three_that_are_a_quarter_of_a_rack_are_many_in_a_large_fleet() -> None:
    rack = away(3, "pool:default", "rack=r7")
    assert scope(rack, 1_000, pool__default=1_000, rack_is_r7=12) == ("rack=r7",)
    assert scope(rack, 1_000, pool__default=1_000, rack_is_r7=13) == ()


def test_two_of_a_rack_of_four_are_not_many() -> None:
    assert scope(away(2, "pool:default", "rack=r7"), 1_000, pool__default=1_000, rack_is_r7=4) == ()


@pytest.mark.parametrize("size", [2, 3])
def test_all_of_a_small_pool_are_many_and_all_but_one_are_not(size: int) -> None:
    assert scope(away(size, "pool:tiny"), 1_000, pool__tiny=size) == ("pool:tiny",)
    assert scope(away(size - 1, "pool:tiny"), 1_000, pool__tiny=size) == ()


def test_the_only_node_of_a_pool_is_not_many() -> None:
    assert scope(away(1, "pool:one"), 1_000, pool__one=1) == ()


def test_all_of_them_away_for_half_a_minute_are_a_hiccup() -> None:
    assert not absence.lasts(away(5), 30.0)
    assert absence.lasts(away(5), 60.0)


def test_a_nodes_rack_and_domain_are_what_it_shares() -> None:
    assert keys_of(a_node(rack="r7", domain="d1")) == ("pool:default", "rack:r7", "domain:d1")


def test_what_they_share_is_named_by_the_factor_that_few_others_have() -> None:
    rack = away(6, "pool:default", "rack=r7", "driver=570")
    assert absence.shared_by(rack, {"fleet": 64, "pool:default": 64, "rack=r7": 8, "driver=570": 64}) == "rack=r7"


def test_what_is_spread_over_the_fleet_is_put_down_to_the_network_or_the_power() -> None:
    spread = [Absentee(f"n{n}", 0.0, ("pool:default", f"rack=r{n}")) for n in range(6)]
    members = {"fleet": 64, "pool:default": 64, **{f"rack=r{n}": 8 for n in range(6)}}
    assert "look at network, power and control plane" in absence.shared_by(spread, members)


# --- who is not missed ------------------------------------------------------------------------------------------------


def test_a_node_that_is_not_ready_is_missed() -> None:
    assert excuse(a_node(ready=False), None) == ""


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ({"leaving": "its spot capacity ends"}, "its spot capacity ends"),
        ({"machine": "dead"}, "its provider calls it dead"),
        ({"machine": "retired"}, "its provider calls it retired"),
        ({"gone": True}, "its machine is gone"),
    ],
)
def test_who_leaves_or_is_dead_by_its_providers_word_is_not_missed(shown: dict[str, Any], why: str) -> None:
    assert excuse(a_node(ready=False, **shown), None) == why


def test_a_node_that_we_reboot_is_not_missed_and_one_that_only_waits_for_it_is() -> None:
    sent = a_case(Phase.REPAIRING, pending=an_action(sends=1))
    assert excuse(a_node(ready=False), sent) == f"it is being treated in {sent.id}"
    assert excuse(a_node(ready=False), a_case(Phase.REPAIRING, pending=an_action())) == ""
    assert excuse(a_node(ready=False), replace(sent, held=True)) == "", "nobody hears when that was over"


def test_one_that_we_have_treated_in_vain_and_left_to_a_person_a_day_ago_is_no_company() -> None:
    given_up = a_case(Phase.ESCALATED, rungs_tried=(Verb.REBOOT,), entered=0.0)
    assert absence.is_known_dead(given_up, 86_400.0)
    assert not absence.is_known_dead(given_up, 86_399.0)
    assert not absence.is_known_dead(replace(given_up, rungs_tried=()), 86_400.0)


# --- the one case -----------------------------------------------------------------------------------------------------


def one_case(count: int = 10) -> Case:
    return open_case(away(count), ("fleet",), {"fleet": 64}, n=1, now=0.0, at=0.0, cluster="")


def after(count: int, now: float, before: Absence | None = None) -> Absence:
    known = before or one_case().absence
    assert known is not None
    return counted(known, away(count), (), {"fleet": 64}, now)


def ending(absent: Absence, approved: tuple[Verb, ...], now: float, **case: Any) -> tuple[str, float | None] | None:
    return absence.ending(replace(one_case(), absence=absent, approved=approved, **case), now)


def taken_up(stored: Absence, kept: Absence | None, now: float = 9_000.0) -> Absence:
    cases = [replace(one_case(), absence=absent) if absent else None for absent in (stored, kept)]
    assert cases[0] is not None
    found = absence.taken_up(cases[0], cases[1], now).absence
    assert found is not None
    return found


def test_what_was_counted_while_its_record_could_not_be_read_counts_and_what_people_decided_before() -> None:
    stored = replace(after(2, 1_000.0), split=True, decided=500.0)
    kept = replace(after(3, 8_000.0), most=3, mostly_back=7_000.0)
    assert taken_up(stored, kept) == replace(kept, split=True, decided=500.0, mostly_back=None)


def test_where_nobody_was_away_with_many_meanwhile_all_were_back_and_each_time_limit_begins_anew() -> None:
    found = taken_up(after(2, 1_000.0), None)
    assert (found.fewest, found.returned, found.mostly_back, found.all_back) == (0, 9_000.0, None, None)


def test_a_case_whose_time_was_over_long_ago_was_passed_over_unless_somebody_has_stopped_it() -> None:
    case = replace(one_case(), absence=replace(after(2, 1_000.0), mostly_back=1_000.0, pause=0.0))
    due = 1_000.0 + absence.MOSTLY_S
    assert not absence.was_passed_over(case, due + 60.0)
    assert absence.was_passed_over(case, due + 3_600.0)
    assert not absence.was_passed_over(replace(case, held=True), due + 3_600.0)


def test_the_case_rests_with_a_person_names_twenty_and_plans_nothing() -> None:
    case = one_case(40)
    assert (case.phase, case.plan.rungs, case.pending) == (Phase.ESCALATED, (), None)
    assert case.absence is not None
    assert (case.absence.count, case.absence.most, len(case.absence.names)) == (40, 40, 20)


def test_it_ends_when_all_have_been_back_for_ten_minutes() -> None:
    back = after(0, 100.0)
    assert ending(back, (), 100.0 + 10 * MINUTE - 1) is None
    assert ending(back, (), 100.0 + 10 * MINUTE) == ("all are back and have been ready for 10 minutes", None)


def test_one_that_goes_away_again_begins_the_ten_minutes_anew() -> None:
    again = after(0, 900.0, after(1, 400.0, after(0, 100.0)))
    assert again.all_back == 900.0


def test_when_four_fifths_have_been_back_for_half_an_hour_the_rest_are_treated_alone() -> None:
    rest = after(2, 100.0)
    assert ending(rest, (), 100.0 + 30 * MINUTE - 1) is None
    then = 100.0 + 30 * MINUTE
    assert ending(rest, (), then) == (
        "8 of 10 are back and nobody else for 30 minutes; who has been away all that time is treated alone",
        then - 10 * MINUTE,  # who went away since may be the first of others: one was rebooted as the rest of these
    )


def test_while_they_come_back_one_by_one_the_last_are_waited_for() -> None:
    """Each had power again half an hour after the one before; the last one was rebooted before its turn (seed 1502)."""
    rest, at = after(6, 0.0, one_case(6).absence), 0.0
    for still in (5, 4, 3, 2, 1):
        at += 30 * MINUTE
        rest = after(still, at, rest)
        assert ending(rest, (), at + 59 * MINUTE) is None
    assert ending(rest, (), at + 60 * MINUTE) is not None


def test_one_that_comes_and_goes_does_not_put_off_the_others() -> None:
    rest = after(2, 100.0)
    for at in range(200, 1700, 100):
        rest = after(2 + at // 100 % 2, float(at), rest)
    assert ending(rest, (), 100.0 + 30 * MINUTE + 1e4) is not None
    assert rest.returned == 100.0


def test_who_was_taken_away_has_not_returned() -> None:
    rest = counted(after(3, 100.0), away(2), (), {"fleet": 64}, 500.0, left=1)
    assert rest.returned == 100.0


def test_while_fewer_than_four_fifths_are_back_it_goes_on_for_ever() -> None:
    assert ending(after(3, 100.0), (), 1e6) is None


def test_the_last_of_three_that_is_still_away_is_treated_alone() -> None:
    """Two of three are not four fifths; it would have waited for ever in a case about many (seed 300058)."""
    three = one_case(3).absence
    assert three is not None
    rest = counted(three, away(1), (), {}, 100.0)
    assert ending(rest, (), 100.0 + 30 * MINUTE) is not None
    two_left = counted(three, away(2), (), {}, 100.0)
    assert ending(two_left, (), 1e6) is None


@pytest.mark.parametrize(("most", "left", "ends"), [(3, 1, True), (4, 2, True), (3, 2, False), (6, 3, False)])
def test_who_is_left_of_a_few_and_would_not_be_many_alone_is_treated_alone(most: int, left: int, ends: bool) -> None:
    rest = after(left, 100.0, one_case(most).absence)
    assert (ending(rest, (), 100.0 + 30 * MINUTE) is not None) is ends


def test_who_was_taken_away_meanwhile_is_not_back() -> None:
    """An autoscaler took two of four that were cut off: the other two were rebooted and replaced (seeds 67, 187)."""
    four = one_case(4).absence
    assert four is not None
    rest = counted(four, away(2), (), {}, 100.0, left=2)
    assert (rest.most, rest.left, rest.count, rest.names) == (4, 2, 2, tuple(a.node for a in away(2)))
    assert ending(rest, (), 1e6) is None
    one_back = counted(rest, away(1), (), {}, 100.0)
    assert ending(one_back, (), 1e6) is None, "one of four that were away is no sign (seed 520)"


def test_the_last_of_a_few_is_not_alone_while_those_whom_people_look_after_are_away_too() -> None:
    """Three of a rack without power were left to people, the fourth was rebooted and power-cycled (seed 600)."""
    three = one_case(3).absence
    assert three is not None
    assert counted(three, away(1), (), {}, 100.0).mostly_back == 100.0
    assert counted(three, away(1), ("rack=r3",), {}, 100.0).mostly_back is None


@pytest.mark.parametrize(("went", "alone"), [(0.0, False), (4_000.0, True), (9_000.0, False)])
def test_who_did_not_go_away_when_most_went_is_no_straggler(went: float, alone: bool) -> None:
    """A dead switch before the whole fleet was cut off for ten minutes; its four nodes were rebooted (seed 2055)."""
    four = [replace(a, since=went) for a in away(4)]
    others = [replace(a, since=4_000.0) for a in away(16, first=4)]
    first = open_case(four, absence.FLEET, {}, n=1, now=100.0, at=0.0, cluster="").absence
    assert first is not None
    all_away = counted(first, [*(a for a in four if went <= 4_000.0), *others], absence.FLEET, {}, 4_100.0)
    rest = counted(replace(all_away, most=20), four, absence.FLEET, {}, 10_000.0)
    assert (ending(rest, (), 10_000.0 + 30 * MINUTE) is not None) is alone


def test_who_returns_from_a_later_absence_says_nothing_about_those_of_an_earlier_one() -> None:
    """Three of a rack without power, then four others for ten minutes. One of the three was taken away, and for the
    four who were back the other two were rebooted (seed 50001778)."""
    three, four = away(3), [replace(a, since=4_000.0) for a in away(4, first=3)]
    first = one_case(3).absence
    assert first is not None
    worst = counted(first, [*three, *four], absence.FLEET, {}, 4_100.0)
    rest = counted(worst, three, absence.FLEET, {}, 5_000.0)
    two = counted(rest, three[:2], (), {}, 6_000.0, left=1)
    assert (worst.most, two.most, two.left) == (7, 3, 1)
    assert ending(two, (), 1e6) is None
    assert ending(counted(rest, three[:1], (), {}, 6_000.0), (), 1e6) is not None, "two of the three are back"


def test_who_was_back_before_others_went_says_nothing_about_those() -> None:
    """Eight booted after a power cut; minutes later three were cut off. One of these was taken away, and for the eight
    the other two, which had nothing wrong, were rebooted (seed 1629)."""
    all_back = counted(one_case(8).absence or Absence((), "", 0.0, 0, 0), [], (), {}, 1_300.0)
    three = [replace(a, since=1_400.0) for a in away(3)]
    two = counted(counted(all_back, three, absence.FLEET, {}, 1_400.0), three[:2], (), {}, 1_900.0, left=1)
    assert (two.most, two.left, two.mostly_back) == (3, 1, None)
    assert ending(two, (), 1e6) is None
    rest = counted(counted(all_back, three, absence.FLEET, {}, 1_400.0), three[:1], (), {}, 1_900.0)
    assert ending(rest, (), 1e6) is not None, "two of the three are back"
    one = counted(all_back, three[:1], (), {}, 1_400.0)
    assert ending(one, (), 1e6) is not None, "one that goes away alone is no other absence"


def test_of_whom_an_earlier_version_counted_nobody_is_counted_anew() -> None:
    """It did not write how few had been left: nine of ten back would be none of one."""
    old = replace(one_case(20).absence or Absence((), "", 0.0, 0, 0), fewest=0)
    assert counted(old, away(4), absence.FLEET, {}, 1_400.0).most == 20


def test_a_new_leader_who_does_not_know_when_they_went_takes_none_of_them_for_a_straggler() -> None:
    """He takes all for newly away; then four whom a dead switch had cut off before were counted as part of the whole
    fleet that was back (seed 2055)."""
    known = replace(one_case(20).absence or Absence((), "", 0.0, 0, 0), wave=4_000.0)
    fresh = [replace(a, since=4_300.0) for a in away(20)]
    half = counted(counted(known, fresh, absence.FLEET, {}, 4_310.0), fresh[:10], absence.FLEET, {}, 4_500.0)
    four = counted(half, fresh[:4], absence.FLEET, {}, 4_600.0)
    assert (four.most, four.wave, four.mostly_back) == (20, 4_000.0, None)


def test_a_person_splits_it_and_each_is_treated_alone() -> None:
    split = replace(after(9, 100.0), split=True, decided=90.0)
    assert ending(split, (), 100.0) == ("a person split it: the 9 that are still away are treated one by one", 90.0)


def test_a_person_approves_replace_for_all_that_are_still_away() -> None:
    said = ("a person approved REPLACE for the 9 that are still away", 90.0)
    assert ending(replace(after(9, 100.0), decided=90.0), (Verb.REPLACE,), 100.0) == said


def test_a_word_of_which_an_earlier_version_kept_no_time_is_for_all_that_are_away_now() -> None:
    assert (ending(replace(after(9, 100.0), split=True), (), 100.0) or ("", None))[1] == 100.0


@pytest.mark.parametrize("stopped", [{"held": True}, {"paused": True}])
def test_nothing_ends_a_case_that_somebody_has_stopped(stopped: dict[str, bool]) -> None:
    for absent in (after(0, 100.0), after(2, 100.0), replace(after(9, 100.0), split=True)):
        assert ending(absent, (), 1e6) is not None
        assert ending(absent, (), 1e6, **stopped) is None
    assert ending(after(9, 100.0), (Verb.REPLACE,), 1e6, **stopped) is None


def test_until_its_case_has_ended_nobody_is_treated_alone_or_left_to_people() -> None:
    ledger, rest = a_ledger(), after(2, 100.0)
    ended = replace(one_case(), absence=rest, phase=Phase.RESOLVED)
    assert absence.settled(ledger, ended, 3_600.0, 5_000.0, ("n1",)) == replace(ledger, split_at=5_000.0 - 10 * MINUTE)
    assert absence.settled(ledger, replace(ended, held=True), 3_600.0, 5_000.0, ("n1",)) == ledger
    assert absence.settled(ledger, replace(ended, absence=after(0, 100.0)), 3_600.0, 5_000.0, ("n1",)) == ledger
    assert absence.settled(ledger, replace(ended, phase=Phase.DISMISSED), 3_600.0, 5_000.0, ("n1",)) == replace(
        ledger, left_at=5_000.0, left_names=("n1",)
    )
    assert absence.settled(ledger, replace(ended, phase=Phase.DISMISSED), 3_600.0, 5_000.0, ()) == ledger
    crowd = [f"n{n}" for n in range(absence.LEFT_MOST + 1)]
    assert absence.left_to_people(ledger, 5_000.0, crowd) == replace(ledger, left_at=5_000.0)
    exchanged = absence.settled(
        ledger, replace(ended, absence=replace(rest, decided=90.0), approved=(Verb.REPLACE,)), 3_600.0, 5_000.0, ("n1",)
    )
    assert (exchanged.split_at, exchanged.replaced_at, exchanged.replaced_scope) == (90.0, 90.0, rest.scope)


def test_one_that_is_over_and_held_takes_in_only_those_who_are_many() -> None:
    over, later = after(0, 100.0), away(3, "pool:default", first=20)
    assert absence.joining(over, later, (), 100.0 + 10 * MINUTE) == []
    assert absence.joining(over, later, absence.FLEET, 100.0 + 10 * MINUTE) == later
    assert absence.joining(over, later, (), 100.0) == later


@pytest.mark.parametrize("before", [0, 2], ids=["all were back", "two were still away"])
def test_many_that_go_away_when_it_would_have_ended_are_counted_anew(before: int) -> None:
    held = replace(after(before, 100.0), told=("began", "lost"))
    later = [replace(a, since=20_000.0) for a in away(4, first=20)]
    anew = counted(held, [*away(before), *later], absence.FLEET, {"fleet": 64}, 20_060.0)
    assert (anew.most, anew.count, anew.wave, anew.told) == (before + 4, before + 4, 20_000.0, ())
    assert anew.names == tuple(a.node for a in [*away(before), *later])
    assert (anew.mostly_back, anew.all_back) == (None, None)
    soon = counted(held, [*away(before), *later], absence.FLEET, {"fleet": 64}, 160.0)
    assert (soon.most, soon.told) == (10 if before else 4, ("began", "lost"))


@pytest.mark.parametrize("pause", ["", "fleet is paused by anna"])
def test_who_is_not_back_has_the_whole_time_when_a_case_that_stood_goes_on(pause: str) -> None:
    bed = Bedside(replace(one_case(), absence=after(2, 100.0))).vanishes()
    bed.paused = pause
    bed = bed.turns() if pause else bed.commands("hold")
    assert bed.case.absence == after(2, 100.0)
    bed.paused = ""
    bed = bed.turns() if pause else bed.commands("unhold")
    assert bed.case.absence == replace(after(2, 100.0), mostly_back=None)


def test_a_persons_word_is_for_those_who_are_away_when_it_is_said() -> None:
    for order in ("split", "approve"):
        case = Bedside(one_case(), now=500.0).vanishes().commands(order, verb="REPLACE").case
        assert case.absence is not None
        assert case.absence.decided == 500.0


def test_who_went_away_before_it_was_split_is_alone_and_before_it_was_closed_is_left_to_people() -> None:
    assert absence.is_alone(500.0, Ledger(split_at=500.0))
    assert not absence.is_alone(501.0, Ledger(split_at=500.0))
    assert absence.is_left(500.0, Ledger(left_at=500.0), 60.0, 559.0)
    assert not absence.is_left(500.0, Ledger(left_at=500.0), 60.0, 560.0)
    assert not absence.is_left(501.0, Ledger(left_at=500.0), 60.0, 510.0)


def test_who_was_left_to_people_after_a_split_is_counted_anew_when_their_time_is_over() -> None:
    """Seventeen healthy nodes that people had let go were rebooted one by one four hours later."""
    assert not absence.is_alone(500.0, Ledger(split_at=600.0, left_at=700.0))
    assert absence.is_alone(500.0, Ledger(split_at=800.0, left_at=700.0))


def test_what_nobody_has_decided_yet_holds_for_nobody() -> None:
    none = Ledger()
    assert not absence.is_left(none.left_at, none, 60.0, 10.0)
    assert not absence.is_alone(none.split_at, none)
    assert not absence.is_exchanged(absence.Absentee("n1", none.replaced_at, ()), none)
    assert not absence.is_alone(0.0, Ledger())


def test_its_scope_only_grows() -> None:
    known = replace(after(10, 0.0), scope=("rack=r1",))
    assert counted(known, [], ("rack=r2",), {}, 0.0).scope == ("rack=r1", "rack=r2")
    assert counted(known, [], ("fleet",), {}, 0.0).scope == ("fleet",)
    assert counted(known, [], (), {}, 0.0).scope == ("rack=r1",)


def test_a_member_gets_no_case_and_the_case_it_had_is_let_go() -> None:
    assert Bedside().shows(ready=False).waits(600.0).live is not None
    bed = Bedside(node=a_node(ready=False)).turns(absent="many are away")
    bed.now += 600.0
    assert bed.turns(absent="many are away").live is None
    alone = Bedside().shows(ready=False).waits(600.0).turns(absent="many are away")
    assert alone.live is None
    assert alone.last is not None
    assert alone.last.phase is Phase.DISMISSED


def test_what_an_agent_saw_on_a_member_stays_but_nothing_is_done_about_it() -> None:
    bed = Bedside().finds("xid.79")
    bed.turns(absent="many are away", granted=True)
    assert bed.phase is Phase.WAITING


# --- places while many are away ---------------------------------------------------------------------------------------


def asks(request: Request, absent: int = 30, others: int = 0, ours: tuple[str, ...] = ()) -> bool:
    """At most a tenth of a hundred, `at_least` two; thirty are away together."""
    names = {f"m{n}" for n in range(absent)}
    down = {*names, *(f"o{n}" for n in range(others))}
    counts = Counts({"pool:default": 100}, {"pool:default": down}, frozenset(names))
    policy = a_policy(max_out=Limit(percent=10.0, at_least=2), max_out_fleet=Limit())
    seats = [a_seat(f"{name}.1") for name in ours]
    return bool(admit([request], a_ledger(*seats), counts, lambda pool: policy, 0.0).granted)


def test_the_few_places_of_every_pool_stay_for_what_cannot_wait_and_was_seen_by_an_agent() -> None:
    assert asks(a_request(when=When.NOW, seen=True))
    assert not asks(a_request(when=When.CHECKPOINT, seen=True))
    assert not asks(a_request(when=When.NOW, seen=False))


def test_they_are_as_few_as_at_least_says() -> None:
    assert asks(a_request(when=When.NOW, seen=True), others=1)
    assert not asks(a_request(when=When.NOW, seen=True), others=2)


def test_who_was_taken_out_before_it_went_away_with_many_still_fills_its_place() -> None:
    assert asks(a_request("n1.1", when=When.NOW, seen=True), ours=("m1",))
    assert not asks(a_request("n1.1", when=When.NOW, seen=True), ours=("m1", "m2"))


# --- one that is away alone -------------------------------------------------------------------------------------------


def lone(**changed: Any) -> Case:
    return a_case(Phase.QUEUED, "node-not-ready", **changed)


def test_a_lone_node_waits_ten_minutes_for_company() -> None:
    why = absence.too_soon(lone(), 0.0, 5 * MINUTE, LIMITS)
    assert why == "n1 is away alone: it is treated when that has lasted for 10 minutes and no others went away too"
    assert absence.too_soon(lone(), 0.0, 10 * MINUTE, LIMITS) == ""


def test_what_is_sick_besides_waits_for_no_company() -> None:
    assert absence.too_soon(a_case(Phase.QUEUED, "gpu-lost"), 0.0, MINUTE, LIMITS) == ""


def test_a_second_witness_who_says_that_it_is_alive_keeps_our_hands_off() -> None:
    why = absence.cut_off(lone(), a_node(ready=False), "its agent is still heard by another road")
    assert why.startswith("n1 is cut off, not down: its agent is still heard by another road.")
    assert "sickbay case approve n1.1 --verb REBOOT" in why


def test_without_a_witness_or_when_back_or_with_a_persons_word_it_is_not_kept() -> None:
    gone = a_node(ready=False)
    assert absence.cut_off(lone(), gone, "") == ""
    assert absence.cut_off(lone(), a_node(), "its agent is heard") == ""
    assert absence.cut_off(lone(approved=(Verb.REBOOT,)), gone, "its agent is heard") == ""
