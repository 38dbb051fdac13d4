"""When several nodes show one fault, is it the nodes or something they share?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sickbay.core import machine
from sickbay.core.causes import (
    Cause,
    brought,
    came_with,
    case_of,
    find,
    find_slow,
    is_news,
    is_over,
    kept,
    opened,
    reminder,
    taken_back,
    widen,
    would_spread,
)
from sickbay.core.decide import decide
from sickbay.core.turn import NodeSlice
from sickbay.model import Event, NodeRecord, Phase, Sighting, Verb
from sickbay.settings import ControllerSettings
from tests.builders import a_context

LIMITS = ControllerSettings()


def seen(*nodes: str, fault: str = "nvlink-down", at: float = 0.0, job: str = "", **factors: str) -> list[Sighting]:
    return [Sighting(n, fault, at, (job,) if job else (), factors) for n in nodes]


def found(*sightings: list[Sighting], now: float = 0.0, **members: int) -> Cause | None:
    names = {key.replace("__", "="): n for key, n in members.items()}
    return next(find([s for group in sightings for s in group], names, LIMITS, now), None)


def test_three_nodes_of_one_job_within_a_minute_are_a_common_cause() -> None:
    cause = found(seen("n1", "n2", at=0.0, job="llama"), seen("n3", at=60.0, job="llama"), now=60.0)
    assert cause is not None
    assert (cause.factor, cause.nodes) == ("job=llama", ("n1", "n2", "n3"))
    assert "3 nodes of job llama" in cause.why


def test_three_nodes_of_one_job_over_an_hour_are_not() -> None:
    assert found(seen("n1", "n2", job="llama"), seen("n3", at=3_600.0, job="llama"), now=3_600.0) is None


def test_two_nodes_are_never_a_common_cause() -> None:
    assert found(seen("n1", "n2", job="llama", driver="570"), driver__570=2) is None


def test_one_node_that_says_it_three_times_is_one_node() -> None:
    assert found(seen("n1", "n1", "n1", job="llama")) is None


def test_a_quarter_of_the_nodes_with_one_driver_is_a_common_cause() -> None:
    cause = found(seen("n1", "n2", "n3", "n4", driver="570", rack="r1"), driver__570=16, rack__r1=100)
    assert cause is not None
    assert cause.factor == "driver=570"
    assert "25% of those with driver=570" in cause.why


def test_three_unrelated_nodes_of_a_large_fleet_are_not_a_common_cause() -> None:
    sightings = [s for n in "123" for s in seen(f"n{n}", driver="570", rack=f"r{n}", job=f"j{n}")]
    assert found(sightings, driver__570=512, rack__r1=8, rack__r2=8, rack__r3=8) is None


def test_three_nodes_with_different_faults_are_not_a_common_cause() -> None:
    three = [seen(f"n{n}", fault=f, driver="570") for n, f in enumerate(("gpu-lost", "nvlink-down", "gsp-timeout"))]
    assert found(*three, driver__570=3) is None


def test_the_factor_with_the_largest_share_is_named() -> None:
    cause = found(seen("n1", "n2", "n3", driver="570", rack="r7"), driver__570=10, rack__r7=3)
    assert cause is not None
    assert cause.factor == "rack=r7"


def test_sightings_older_than_the_window_do_not_count() -> None:
    assert found(seen("n1", "n2", "n3", driver="570"), now=601.0, driver__570=3) is None


def test_the_case_about_a_factor_rests_with_a_person_and_treats_nothing() -> None:
    cause = Cause("driver=570", "nvlink-down", ("n1", "n2", "n3"), "3 nodes show it")
    case = case_of(cause, 2, 100.0, 200.0, "west")
    assert (case.id, case.factor, case.phase) == ("driver=570.2", "driver=570", Phase.ESCALATED)
    assert (case.plan.rungs, case.pending, case.deadline) == ((), None, None)
    assert {d.place.node for d in case.diagnoses} == {"n1", "n2", "n3"}


@pytest.mark.parametrize("event", [Event.RETRIED, Event.EXAMINED, Event.DONE, Event.REJOINED])
def test_the_case_about_a_factor_leaves_a_persons_hands_only_to_end(event: Event) -> None:
    case = case_of(Cause("driver=570", "nvlink-down", ("n1", "n2", "n3"), "3 nodes show it"), 2, 100.0, 200.0, "west")
    assert machine.goes_to(case, event) is None
    assert machine.goes_to(case, Event.CLEARED) is Phase.RESOLVED
    assert machine.goes_to(case, Event.CANCELLED) is Phase.CANCELLING


def test_a_case_about_a_factor_that_a_person_lets_go_ends_also_when_it_is_over_by_itself() -> None:
    case = case_of(Cause("driver=570", "nvlink-down", ("n1", "n2", "n3"), "3 nodes show it"), 2, 100.0, 200.0, "west")
    cancelling = replace(case, phase=Phase.CANCELLING, cancelled=True)
    slice_ = NodeSlice(NodeRecord("driver=570"), case=cancelling, over="nobody shows it any more")
    decision = decide(slice_, a_context(1_000.0))
    assert decision.case is not None
    assert decision.case.phase is Phase.DISMISSED


def test_two_faults_of_one_driver_are_two_causes_and_one_case() -> None:
    nodes = ("n1", "n2", "n3")
    both = [*seen(*nodes, driver="570"), *seen(*nodes, fault="gsp-timeout", driver="570")]
    gsp, nvlink = find(both, {"driver=570": 4}, LIMITS, 0.0)
    assert (gsp.fault, nvlink.fault) == ("gsp-timeout", "nvlink-down")
    case = widen(case_of(gsp, 1, 0.0, 0.0, ""), nvlink, 5.0)
    assert {d.fault for d in case.diagnoses} == {"gsp-timeout", "nvlink-down"}
    assert "also nvlink-down" in case.journal[-1].why


# --- slow roll-outs ---------------------------------------------------------------------------------------------------


def test_three_of_the_three_nodes_that_have_a_new_driver_are_a_cause_though_days_lie_between() -> None:
    slow = [
        *seen("n1", at=0.0, driver="590"),
        *seen("n2", at=90_000.0, driver="590"),
        *seen("n3", at=1.8e5, driver="590"),
    ]
    cause = next(find_slow(slow, {"fleet": 64, "driver=590": 3}, LIMITS))
    assert (cause.factor, cause.nodes) == ("driver=590", ("n1", "n2", "n3"))
    assert "hardly any other" in cause.why


def test_a_value_that_the_whole_fleet_has_explains_nothing() -> None:
    assert not list(find_slow(seen("n1", "n2", "n3", driver="580"), {"fleet": 64, "driver=580": 64}, LIMITS))


def test_a_fault_as_common_elsewhere_is_no_roll_out() -> None:
    there, others = seen("n1", "n2", "n3", driver="590"), seen(*(f"o{i}" for i in range(10)), driver="580")
    assert not list(find_slow([*there, *others], {"fleet": 30, "driver=590": 10, "driver=580": 20}, LIMITS))


def test_what_is_remembered_is_the_newest_of_each_node_and_fault_within_three_days() -> None:
    old, new = seen("n1", at=0.0), seen("n1", "n2", at=300_000.0)
    assert kept([*old, *new], 300_000.0) == tuple(new)


def test_a_cause_is_over_when_for_a_day_it_was_no_commoner_there_than_elsewhere() -> None:
    case = case_of(Cause("driver=590", "nvlink-down", ("n1",), "why"), 1, 0.0, 0.0, "")
    members = {"fleet": 64, "driver=590": 8}
    assert is_over(case, (), {}, members, 3_600.0) == ""
    assert is_over(case, (), {"nvlink-down": 2}, members, 90_000.0) == ""
    assert "no commoner" in is_over(case, (), {}, members, 90_000.0)


def test_people_are_reminded_of_an_open_cause_once_a_day() -> None:
    case = case_of(Cause("driver=590", "nvlink-down", ("n1",), "why"), 1, 0.0, 0.0, "")
    assert reminder(case, 3_600.0, 0.0) is None
    first, again = reminder(case, 90_000.0, 0.0), reminder(case, 93_600.0, 0.0)
    assert first is not None
    assert again is not None
    assert first.key == again.key


def test_nothing_is_done_that_would_bring_a_node_onto_what_is_suspected() -> None:
    suspected = ["driver=590"]
    assert would_spread(Verb.REPLACE, {"driver": "580"}, suspected, ()) == "driver=590"
    assert would_spread(Verb.REBOOT, {"driver": "580"}, suspected, ()) == ""
    assert would_spread(Verb.REBOOT, {"driver": "580"}, suspected, suspected) == "driver=590"
    assert would_spread(Verb.REPLACE, {"driver": "590"}, suspected, ()) == ""


def came(*nodes: str, at: float = 0.0) -> list[Sighting]:
    """It began within the hour after driver 590 had come to these."""
    return [replace(s, came=("driver=590",)) for s in seen(*nodes, at=at, driver="590")]


def test_three_of_ten_that_fell_ill_right_after_a_driver_came_are_a_cause_in_a_fleet_too_small_for_chance() -> None:
    cause = next(find_slow(came("n1", "n2", "n3"), {"fleet": 32, "driver=590": 10}, LIMITS), None)
    assert cause is not None
    assert cause.factor == "driver=590"
    assert "within an hour after that had come" in cause.why


def test_two_of_them_are_not_nor_three_of_forty() -> None:
    assert list(find_slow(came("n1", "n2"), {"fleet": 32, "driver=590": 10}, LIMITS)) == []
    assert list(find_slow(came("n1", "n2", "n3"), {"fleet": 64, "driver=590": 40}, LIMITS)) == []


def test_what_is_as_common_without_the_driver_did_not_come_with_it() -> None:
    others = seen("n7", "n8", "n9", driver="580")
    assert list(find_slow([*came("n1", "n2", "n3"), *others], {"fleet": 32, "driver=590": 10}, LIMITS)) == []


@pytest.mark.parametrize(("now", "found"), [("590", True), ("580", False)])
def test_who_fell_ill_before_it_showed_the_driver_that_it_has_now_speaks_for_neither_side(
    now: str, found: bool
) -> None:
    """Its platform told its version late (seed 50001957)."""
    late = seen("n7", "n8", "n9", driver="580")
    carried = {s.node: {"driver": now} for s in late}
    said = list(find_slow([*came("n1", "n2", "n3"), *late], {"fleet": 32, "driver=590": 10}, LIMITS, carried))
    assert bool(said) is found


def test_that_it_came_with_a_value_is_remembered_when_it_is_seen_again() -> None:
    again = seen("n1", at=7_200.0, driver="590")
    assert kept([*came("n1"), *again], 7_200.0)[0].came == ("driver=590",)
    elsewhere = seen("n1", at=7_200.0, driver="580")
    assert kept([*came("n1"), *elsewhere], 7_200.0)[0].came == ()


def test_a_value_that_is_still_there_is_what_it_came_with_and_one_that_is_not_was_taken_back() -> None:
    on, off = {"driver": "590"}, {"driver": "580"}
    assert came_with(came("n1"), "n1", ["nvlink-down"], on) == "driver=590"
    assert came_with(came("n1"), "n1", ["gpu-lost"], on) == came_with(came("n1"), "n2", ["nvlink-down"], on) == ""
    assert taken_back(came("n1"), "n1", ["nvlink-down"], off) == "driver=590"
    assert taken_back(came("n1"), "n1", ["nvlink-down"], on) == ""


# --- a cause covers those who are sick, and who is explained makes no other one ---------------------------------------


def all_found(sightings: list[Sighting], members: dict[str, int], *known: Cause) -> list[str]:
    opens = [opened(case_of(cause, 1, 0.0, 0.0, "")) for cause in known]
    return [cause.factor for cause in find(sightings, members, LIMITS, 0.0, opens)]


def of_racks(sick: int, racks: int, job: str = "", **factors: str) -> list[Sighting]:
    """So many sick nodes in each of the first racks."""
    jobs = (job,) if job else ()
    sick_in = [(f"r{r}", f"n{r}-{i}") for r in range(racks) for i in range(sick)]
    return [Sighting(node, "nvlink-down", 0.0, jobs, {"rack": rack, **factors}) for rack, node in sick_in]


RACKS = {**{f"rack=r{r}": 8 for r in range(8)}, "driver=570": 64, "fleet": 64}


def test_a_job_does_not_hide_that_as_many_other_nodes_with_the_same_driver_are_sick() -> None:
    """30 of 48 sick nodes ran one job, which was named; the other 18 were treated one by one."""
    sick = [*of_racks(6, 5, job="llama", driver="570"), *of_racks(6, 8, driver="570")[30:]]
    assert all_found(sick, {**RACKS, "job=llama": 40}) == ["driver=570"]


def test_what_a_job_that_is_already_suspected_leaves_unexplained_is_explained_by_what_is_wider() -> None:
    sick = [*of_racks(6, 5, job="llama", driver="570"), *of_racks(6, 8, driver="570")[30:]]
    first = Cause("job=llama", "nvlink-down", ("n0-0", "n0-1", "n0-2"), "why")
    assert all_found(sick, {**RACKS, "job=llama": 40}, first) == ["driver=570"]


def test_some_strays_elsewhere_do_not_make_a_jobs_fault_the_drivers() -> None:
    sick = [*of_racks(8, 5, job="llama", driver="570"), *seen("n7-0", "n7-1", "n6-0", driver="570")]
    assert all_found(sick, {**RACKS, "job=llama": 40}) == ["job=llama"]


def test_half_of_the_nodes_of_every_rack_are_sick_by_their_driver_and_three_whole_racks_by_themselves() -> None:
    assert all_found(of_racks(4, 8, driver="570"), RACKS) == ["driver=570"]
    assert all_found(of_racks(8, 3, driver="570"), RACKS) == ["rack=r0", "rack=r1", "rack=r2"]


def test_what_the_sick_nodes_share_as_much_is_named_beside_it() -> None:
    members = {**RACKS, "image=ami-1": 64}
    [cause] = find(of_racks(4, 8, driver="570", image="ami-1"), members, LIMITS, 0.0)
    assert cause.factor == "driver=570"
    assert "image=ami-1" in cause.why


def test_who_is_explained_by_an_open_cause_makes_no_other_one() -> None:
    """A lying agent was found, and then seven racks and a job were announced for the same."""
    known = Cause("agent=v2", "nvlink-down", ("n0-0", "n0-1", "n0-2"), "why")
    sick = of_racks(4, 8, job="llama", agent="v2", driver="570")
    assert all_found(sick, RACKS, known) == []
    assert all_found([*sick, *seen("m1", "m2", agent="v1", rack="r7")], {**RACKS, "rack=r7": 8}, known) == []


def test_enough_others_beside_an_open_cause_are_one_by_themselves() -> None:
    known = Cause("agent=v2", "nvlink-down", ("n0-0", "n0-1", "n0-2"), "why")
    others = seen("m1", "m2", "m3", agent="v1", rack="r7")
    assert all_found([*of_racks(2, 4, agent="v2"), *others], {**RACKS, "agent=v1": 40}, known) == ["rack=r7"]


def test_what_a_roll_out_brings_is_named_though_a_rack_was_suspected_first_and_only_once() -> None:
    slow = next(find_slow(seen("n1", "n2", "n3", driver="590", rack="r1"), {"fleet": 64, "driver=590": 3}, LIMITS))
    sick = seen("n1", "n2", "n3", driver="590", rack="r1", agent="v2")
    rack, agent = (Cause(key, "nvlink-down", ("n1", "n2", "n3"), "why") for key in ("rack=r1", "agent=v2"))
    assert is_news(slow, sick, [opened(case_of(rack, 1, 0.0, 0.0, ""))], LIMITS)
    assert not is_news(slow, sick, [opened(case_of(agent, 1, 0.0, 0.0, ""))], LIMITS)


def test_a_common_fault_does_not_push_a_slow_roll_out_out_of_the_record() -> None:
    """Of all faults the newest 128 were kept: above some forty findings a day less than three days were."""
    record: tuple[Sighting, ...] = ()
    for hour in range(72):
        at = hour * 3_600.0
        noise = seen(*(f"o{hour}-{i}" for i in range(8)), fault="xid-31", at=at, driver="580")
        slow = seen(f"n{hour}", at=at, driver="590") if hour % 18 == 0 else []
        record = kept([*record, *noise, *slow], at)
    assert [s.node for s in record if s.fault == "nvlink-down"] == ["n0", "n18", "n36", "n54"]
    assert len(record) <= 256
    cause = next(find_slow(record, {"fleet": 640, "driver=590": 5, "driver=580": 635}, LIMITS))
    assert (cause.factor, len(cause.nodes)) == ("driver=590", 4)


def test_what_boots_may_bring_is_derived_from_what_is_on_record() -> None:
    assert brought([*came("n1"), *seen("n2", driver="580")]) == {"driver=590"}
    assert brought([replace(s, came=("image=ami-2",)) for s in seen("n1")]) == set()
