"""The Ledger is deleted and somebody else takes the lead: what it said is made again from the other records."""

from __future__ import annotations

from typing import Any

from sickbay.model import Ledger, Verb
from sickbay.settings import Limit
from sickbay.stores.memory import MemoryStore
from tests.builders import a_finding, a_node, a_policy
from tests.controller.door import Door, Shift
from tests.controller.test_absences import HOUR, MINUTE, NAMES, a_shift, go, orders, treated


def sick(**policy: Any) -> Shift:
    """Four sick nodes, and no limit but what is named."""
    free = a_policy(approval=(), max_out=Limit(), max_out_fleet=Limit(), at_once=Limit(), **policy)
    shift = Shift(Door(*(a_node(name, factors={"driver": "580"}) for name in NAMES)), policy=free)
    for name in NAMES[:4]:
        shift.door.shows(name, findings=(a_finding(node=name),))
    return shift.passes(5 * MINUTE)


def robbed(shift: Shift) -> Shift:
    """Its Ledger is deleted while nobody leads who would miss it."""
    assert isinstance(shift.store, MemoryStore)
    shift.store.lose(Ledger, "ledger")
    return shift.successor()


def reboots(shift: Shift) -> int:
    return len({a.key for a in shift.door.called(Verb.REBOOT)})


def test_what_the_window_has_had_is_counted_by_whoever_leads_next() -> None:
    shift = sick(per_window={"REBOOT": 2})
    assert reboots(shift) == 2
    assert reboots(robbed(shift).passes(30 * MINUTE)) == 2


def test_it_is_counted_too_if_that_one_dies_before_it_has_worked_by_what_it_wrote() -> None:
    again = robbed(sick(per_window={"REBOOT": 2}))
    assert reboots(again.successor().passes(30 * MINUTE)) == 2


def test_what_is_latched_was_seen_and_counts_for_a_slow_roll_out() -> None:
    again = robbed(sick(per_window={"REBOOT": 0})).passes(MINUTE)
    known = {(s.node, s.fault, s.factors["driver"]) for s in again.controller.records.ledger.sightings}
    assert known == {(name, "gpu-lost", "580") for name in NAMES[:4]}


def test_nodes_that_people_look_after_are_not_counted_or_told_of_anew() -> None:
    shift = go(a_shift(), *NAMES[:5]).passes(HOUR)
    orders(shift, "abort")
    told = len(shift.passes(10 * MINUTE).pager.told)
    again = robbed(shift).passes(HOUR)
    assert again.case("absence") is None
    assert treated(again) == set()
    assert len(again.pager.told) == told


def test_nodes_that_a_person_had_treated_one_by_one_still_are() -> None:
    shift = go(a_shift(at_once=Limit(count=1, percent=100.0), max_out=Limit(), max_out_fleet=Limit()), *NAMES[:5])
    orders(shift.passes(HOUR), "split")
    again = robbed(shift.passes(5 * MINUTE)).passes(3 * HOUR)
    assert again.case("absence") is None
    assert treated(again) == set(NAMES[:5])
