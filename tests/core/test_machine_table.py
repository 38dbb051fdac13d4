"""The shape of the case table, read without running it; it is held against section 4 of the plan."""

from __future__ import annotations

from dataclasses import fields

import pytest

from sickbay.core import machine
from sickbay.core.phases import RULES
from sickbay.model import Event, Phase
from sickbay.settings import Policy

E, P = Event, Phase

# Section 4 of the plan, row by row. What holds for "any live phase" is added below.
PLAN = {
    P.SUSPECTED: {E.CONFIRMED: P.WAITING, E.CLEARED: P.DISMISSED, E.TIMED_OUT: P.DISMISSED},
    P.WAITING: {E.ADMITTED: P.CORDONING, E.CLEARED: P.DISMISSED, E.TIMED_OUT: P.DEFERRED},
    P.CORDONING: {E.DONE: P.HOLDING, E.FAILED: P.ESCALATED, E.TIMED_OUT: P.ESCALATED},
    P.HOLDING: {E.READY: P.DRAINING, E.WORSENED: P.DRAINING, E.CLEARED: P.DRAINING, E.TIMED_OUT: P.ESCALATED},
    P.DRAINING: {
        E.DONE: P.COLLECTING, E.UNREACHABLE: P.COLLECTING, E.FAILED: P.ESCALATED, E.TIMED_OUT: P.ESCALATED,
    },
    P.COLLECTING: {E.DONE: P.QUEUED, E.FAILED: P.QUEUED, E.TIMED_OUT: P.QUEUED},
    P.QUEUED: {
        E.ADMITTED: P.REPAIRING, E.UNTREATED: P.VERIFYING, E.EXHAUSTED: P.ESCALATED, E.TIMED_OUT: P.ESCALATED,
    },
    P.REPAIRING: {
        E.DONE: P.VERIFYING, E.REPLACED: P.RESOLVED, E.FAILED: P.QUEUED, E.TIMED_OUT: P.QUEUED,
        E.UNGUARDED: P.CORDONING,
    },
    P.VERIFYING: {
        E.DONE: P.RETURNING, E.FAILED: P.QUEUED, E.TIMED_OUT: P.QUEUED, E.WORSENED: P.QUEUED,
        E.INCONCLUSIVE: P.ESCALATED, E.UNHELD: P.VERIFYING,
    },
    P.RETURNING: {
        E.DONE: P.RESOLVED, E.WORSENED: P.CORDONING, E.FAILED: P.ESCALATED, E.TIMED_OUT: P.ESCALATED,
        E.UNHELD: P.VERIFYING,
    },
    P.ESCALATED: {E.RETRIED: P.CORDONING, E.EXAMINED: P.CORDONING},
    P.CANCELLING: {E.DONE: P.DISMISSED, E.FAILED: P.ESCALATED, E.TIMED_OUT: P.ESCALATED},
    P.RESOLVED: {},
    P.DISMISSED: {},
    P.DEFERRED: {},
}  # fmt: skip

# Where the table knowingly differs from the plan, and why.
DIFFERENCES = {
    (P.RETURNING, E.UNHELD): P.CORDONING,  # RELEASE may have landed: close it again, then verify only
    (P.REPAIRING, E.EXHAUSTED): P.ESCALATED,  # the third UNGUARDED arrives as EXHAUSTED: guards are events
    (P.ESCALATED, E.DONE): P.HOLDING,  # only a cordon that had failed is still asked for: made, the case goes on
    (P.REPAIRING, E.UNREACHABLE): P.QUEUED,  # it could not be delivered: not tried, asked for again after a while
    (P.ESCALATED, E.UNGUARDED): P.WAITING,  # as in CORDONING, for a cordon that is still asked for
    (P.CORDONING, E.UNGUARDED): P.WAITING,  # it was out, so it had no place; in service again it needs one
    (P.QUEUED, E.CLEARED): P.CORDONING,  # refuted before a treatment was sent: closed and emptied again, then verified
    (P.REPAIRING, E.CLEARED): P.CORDONING,  # likewise, at the door or just before it
    (P.ESCALATED, E.CLEARED): P.RESOLVED,  # only a case about something shared: it ends by itself
}

UNTOUCHED = (P.SUSPECTED, P.WAITING)  # nothing of ours is on the node yet
LIVE = sorted(machine.LIVE)


def planned() -> dict[tuple[Phase, Event], Phase]:
    cells = {(phase, event): to for phase, row in PLAN.items() for event, to in row.items()}
    for phase in machine.LIVE:
        early = phase in UNTOUCHED
        cells[(phase, E.GONE)] = P.DISMISSED if early else P.RESOLVED
        if phase is not P.CANCELLING:
            cells[(phase, E.CANCELLED)] = P.DISMISSED if early else P.CANCELLING
        if not early and phase is not P.CANCELLING:
            cells[(phase, E.REJOINED)] = P.CORDONING
    return cells | DIFFERENCES


def test_the_table_is_section_4_of_the_plan_but_for_the_differences_listed() -> None:
    table = {(phase, event): to for phase, row in machine.TABLE.items() for event, to in row.items()}
    assert table == planned()


def test_every_phase_has_a_row() -> None:
    assert set(machine.TABLE) == set(Phase)


def test_three_ends_absorb_everything() -> None:
    assert {P.RESOLVED, P.DISMISSED, P.DEFERRED} == machine.ENDS


@pytest.mark.parametrize("phase", [p for p in LIVE if p is not P.ESCALATED])
def test_a_live_phase_has_a_time_limit_and_answers_it(phase: Phase) -> None:
    assert E.TIMED_OUT in machine.TABLE[phase]
    if phase is not P.REPAIRING:  # its rung has its own
        assert machine.DEADLINE_OF[phase] in {f.name for f in fields(Policy)}


def test_escalated_has_no_time_limit_because_a_person_owns_it() -> None:
    assert P.ESCALATED not in machine.DEADLINE_OF
    assert E.TIMED_OUT not in machine.TABLE[P.ESCALATED]


@pytest.mark.parametrize("phase", LIVE)
def test_a_live_phase_answers_a_cancel_and_a_machine_that_is_gone(phase: Phase) -> None:
    assert E.GONE in machine.TABLE[phase]
    assert phase is P.CANCELLING or E.CANCELLED in machine.TABLE[phase]


def test_every_phase_can_be_reached() -> None:
    reached, frontier = {P.SUSPECTED}, [P.SUSPECTED]
    while frontier:
        for to in machine.TABLE[frontier.pop()].values():
            if to not in reached:
                reached.add(to)
                frontier.append(to)
    assert reached == set(Phase)


def leading_to(phase: Phase) -> set[Phase]:
    return {source for source, row in machine.TABLE.items() if phase in row.values()}


def test_only_a_passed_examination_returns_a_node() -> None:
    assert leading_to(P.RETURNING) == {P.VERIFYING}
    assert [e for e, to in machine.TABLE[P.VERIFYING].items() if to is P.RETURNING] == [E.DONE]


def test_only_a_grant_in_the_queue_starts_a_treatment() -> None:
    assert leading_to(P.REPAIRING) == {P.QUEUED}
    assert [e for e, to in machine.TABLE[P.QUEUED].items() if to is P.REPAIRING] == [E.ADMITTED]


def test_a_node_is_taken_out_only_by_a_grant_or_after_it_was_taken_before() -> None:
    assert leading_to(P.CORDONING) & set(UNTOUCHED) == {P.WAITING}
    assert [e for e, to in machine.TABLE[P.WAITING].items() if to is P.CORDONING] == [E.ADMITTED]


def test_what_was_never_touched_ends_without_a_release() -> None:
    for phase in UNTOUCHED:
        assert P.CANCELLING not in machine.TABLE[phase].values()


def test_every_event_is_answered_somewhere_and_every_live_phase_has_a_rule() -> None:
    assert {event for row in machine.TABLE.values() for event in row} == set(Event)
    assert set(RULES) == machine.LIVE


def test_nothing_revives_a_cancelled_case() -> None:
    assert set(machine.AFTER_CANCEL.values()) == {P.CANCELLING}
    assert set(machine.TABLE[P.ESCALATED]) - set(machine.AFTER_CANCEL) == {E.CANCELLED, E.CLEARED, E.GONE}
