"""Blast radius: who gets a seat, who does not, and what a refusal says. The words are product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.core.admit import (
    OUT,
    TREAT,
    Admitted,
    Counts,
    Refusal,
    Request,
    admit,
    is_needed,
    request_of,
    room,
    sweep,
    sweeps_at,
    trip,
)
from sickbay.model import Ledger, Phase, Severity, Verb, When
from sickbay.settings import Limit, Policy
from tests.builders import a_case, a_ledger, a_node, a_policy, a_request, a_seat, an_action

FREE = Limit()
WIDE = a_policy(max_out=FREE, max_out_fleet=FREE, max_out_rack=FREE, max_out_domain=FREE, at_once=FREE)
NOW = 1_000.0
HUNDRED = Counts({"fleet": 100, "pool:default": 100})


def ask(
    *requests: Request, ledger: Ledger | None = None, counts: Counts = HUNDRED, policy: Policy = WIDE, now: float = 0.0
) -> Admitted:
    return admit(requests, ledger or a_ledger(), counts, lambda pool: policy, now)


def refusal(*requests: Request, **how: object) -> Refusal:
    refused = ask(*requests, **how).refused  # type: ignore[arg-type]
    return refused[requests[-1].case]


def out(most: int, **more: object) -> Policy:
    return a_policy(max_out=Limit(count=most), max_out_fleet=FREE, at_once=FREE, **more)


def four() -> list[Request]:
    return [a_request(f"n{n}.1") for n in range(1, 5)]


# --- how many ---------------------------------------------------------------------------------------------------------


def test_what_fits_is_granted_and_seated() -> None:
    said = ask(a_request("n1.1"), a_request("n2.1"))
    assert said.granted == {"n1.1", "n2.1"}
    assert [(s.case, s.node, s.kind) for s in said.ledger.seats] == [("n1.1", "n1", OUT), ("n2.1", "n2", OUT)]


def test_a_full_limit_names_the_scope_the_nodes_and_when_it_is_tried_again() -> None:
    no = refusal(a_request("n3.1"), ledger=a_ledger(a_seat("n1.1"), a_seat("n2.1")), policy=out(2), now=500.0)
    assert no.why == "2 of at most 2 nodes of pool:default are out already: n1, n2"
    assert no.full == "pool:default"
    assert no.again_at == 560.0


def test_seats_granted_in_one_pass_count_for_each_other() -> None:
    assert len(ask(*four(), policy=out(2)).granted) == 2


def test_nodes_down_by_anybodys_doing_count() -> None:
    counts = Counts({"fleet": 100, "pool:default": 100}, {"pool:default": {"n8", "n9"}})
    assert "n8, n9" in refusal(a_request("n1.1"), counts=counts, policy=out(2)).why


def test_a_node_that_is_out_and_has_a_seat_counts_once() -> None:
    counts = Counts({"fleet": 100, "pool:default": 100}, {"pool:default": {"n1"}})
    assert ask(a_request("n2.1"), ledger=a_ledger(a_seat("n1.1")), counts=counts, policy=out(2)).granted


def test_a_node_that_a_person_cordoned_is_not_counted_against_itself() -> None:
    counts = Counts({"fleet": 100, "pool:default": 100}, {"pool:default": {"n1"}})
    assert ask(a_request("n1.1"), counts=counts, policy=out(1)).granted


@pytest.mark.parametrize(
    ("limit", "total", "most"),
    [
        (Limit(percent=10.0), 100, 10),
        (Limit(count=3, percent=10.0), 100, 3),
        (Limit(percent=10.0, at_least=2), 5, 2),
        (Limit(percent=10.0, at_least=2), 1, 1),
        (Limit(count=0, percent=100.0, at_least=0), 50, 0),
    ],
)
def test_the_smaller_of_count_and_percent_counts_but_a_small_pool_may_lose_one(
    limit: Limit, total: int, most: int
) -> None:
    assert room(limit, total) == most


@given(st.integers(0, 500), st.floats(0.0, 100.0), st.integers(0, 5), st.integers(0, 5_000))
def test_a_limit_never_exceeds_its_scope_or_its_bounds(count: int, percent: float, least: int, total: int) -> None:
    most = room(Limit(count, percent, least), total)
    assert 0 <= most <= total if least <= total and count <= total else most <= max(count, least)
    assert most <= max(count, min(least, total))


@pytest.mark.parametrize(
    ("where", "policy"),
    [
        ("rack:r1", a_policy(max_out=FREE, max_out_fleet=FREE, max_out_rack=Limit(count=1))),
        ("domain:d1", a_policy(max_out=FREE, max_out_fleet=FREE, max_out_rack=FREE, max_out_domain=Limit(count=1))),
        ("fleet", a_policy(max_out=FREE, max_out_rack=FREE, max_out_domain=FREE, max_out_fleet=Limit(count=1))),
    ],
)
def test_every_scope_has_its_own_limit(where: str, policy: Policy) -> None:
    counts = Counts({"fleet": 100, "pool:default": 100, "rack:r1": 8, "domain:d1": 4})
    ledger = a_ledger(a_seat("n1.1", rack="r1", domain="d1"))
    no = refusal(a_request("n2.1", rack="r1", domain="d1"), ledger=ledger, counts=counts, policy=policy)
    assert where in no.why


def test_another_pools_seats_do_not_fill_this_pool() -> None:
    assert ask(a_request("n2.1"), ledger=a_ledger(a_seat("n1.1", pool="other")), policy=out(1)).granted


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(list(When))), max_size=20), st.integers(0, 6))
def test_whoever_asks_the_limit_holds(asking: list[tuple[int, When]], most: int) -> None:
    requests = [a_request(f"n{n}.{i}", when=when) for i, (n, when) in enumerate(asking)]
    policy = a_policy(max_out=Limit(count=most, at_least=0), max_out_fleet=FREE, per_window={})
    said = ask(*requests, policy=policy)
    assert len({s.node for s in said.ledger.seats}) <= most
    assert said.granted | set(said.refused) == {r.case for r in requests}
    assert not said.granted & set(said.refused)


# --- who first --------------------------------------------------------------------------------------------------------


def test_urgent_goes_before_severe_before_old() -> None:
    urgent = a_request("n1.1", when=When.NOW, severity=Severity.RESET, since=9.0)
    severe = a_request("n2.1", when=When.CHECKPOINT, severity=Severity.REPLACE, since=8.0)
    older = a_request("n3.1", when=When.CHECKPOINT, severity=Severity.RESET, since=1.0)
    newer = a_request("n4.1", when=When.CHECKPOINT, severity=Severity.RESET, since=2.0)
    said = ask(newer, older, severe, urgent, policy=a_policy(max_out=FREE, max_out_fleet=FREE))
    assert [s.case for s in said.ledger.seats] == ["n1.1", "n2.1", "n3.1", "n4.1"]


def test_one_place_is_kept_for_urgent_faults() -> None:
    ledger = a_ledger(a_seat("n1.1"))
    no = refusal(a_request("n2.1", when=When.IDLE), ledger=ledger, policy=out(2))
    assert "one place is kept for urgent faults" in no.why
    assert ask(a_request("n2.1", when=When.NOW), ledger=ledger, policy=out(2)).granted


def test_where_only_one_may_be_out_nothing_can_be_kept_back() -> None:
    assert ask(a_request("n2.1", when=When.IDLE), policy=out(1)).granted


def test_a_node_that_is_already_down_needs_no_free_seat() -> None:
    full = a_ledger(a_seat("n1.1"), a_seat("n2.1"))
    assert ask(a_request("n3.1", down=True), ledger=full, policy=out(2)).granted


@pytest.mark.parametrize("shown", [{"ready": False}, {"others": ("asg",)}, {"gate": True}])
def test_down_is_what_a_fresh_read_says(shown: dict[str, Any]) -> None:
    assert wants(a_node(**shown)).down
    assert not wants(a_node()).down


def wants(node: object, verb: Verb = Verb.CORDON) -> Request:
    return request_of(
        a_case(), node, verb, when=When.NOW, severity=Severity.REBOOT, in_window=True, alive=False  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_node_that_went_away_a_moment_ago_is_not_down_yet_unless_somebody_holds_it() -> None:
    """A network that was cut for two minutes let all who waited have a place beside the limits (seed 468)."""

    def blinking(**shown: Any) -> Request:
        return request_of(
            a_case(), a_node(**shown), Verb.CORDON, when=When.NOW, severity=Severity.REBOOT, in_window=True,
            alive=False, blinks=True,
        )  # fmt: skip

    assert not blinking(ready=False).down
    assert blinking(ready=False, others=("asg",)).down


def test_a_node_whose_object_is_not_there_is_not_called_down() -> None:
    assert not wants(None).down


def test_a_treatment_asks_for_another_kind_of_seat() -> None:
    assert wants(a_node(), Verb.REBOOT).kind == TREAT
    assert wants(a_node(), Verb.CORDON).kind == OUT


# --- treatments -------------------------------------------------------------------------------------------------------


def treat(case: str, verb: Verb = Verb.REBOOT, **changed: object) -> Request:
    return a_request(case, kind=TREAT, verb=verb, **changed)


def test_only_so_many_are_treated_at_once() -> None:
    policy = a_policy(at_once=Limit(count=1))
    no = refusal(treat("n2.1"), ledger=a_ledger(a_seat("n1.1", TREAT, Verb.REBOOT)), policy=policy)
    assert no.why == "1 of at most 1 nodes of pool:default are being treated: n1"


def test_the_next_rung_of_the_same_case_takes_the_seat_of_the_last() -> None:
    ledger = a_ledger(a_seat("n1.1", TREAT, Verb.REBOOT))
    said = ask(treat("n1.1", Verb.POWER_CYCLE), ledger=ledger, policy=a_policy(at_once=Limit(count=1)))
    assert [(s.case, s.verb) for s in said.ledger.seats] == [("n1.1", "POWER_CYCLE")]


def test_a_verb_that_needs_approval_waits_and_says_which_command_to_type() -> None:
    no = refusal(treat("n1.1", Verb.REPLACE))
    assert no.why == "REPLACE needs a person's approval: sickbay case approve n1.1"
    assert ask(treat("n1.1", Verb.REPLACE, approved=True)).granted


def test_only_so_many_of_one_verb_fit_in_a_window_and_the_refusal_knows_when_it_opens() -> None:
    policy = a_policy(per_window={"REBOOT": 2}, at_once=FREE, window_s=3_600.0)
    ledger = a_ledger(windows={"default/REBOOT": (100.0, 200.0)})
    no = refusal(treat("n1.1"), ledger=ledger, policy=policy, now=300.0)
    assert no.why == "2 REBOOT in pool default within 60 minutes, at most 2"
    assert no.again_at == 3_700.0
    assert ask(treat("n1.1"), ledger=ledger, policy=policy, now=3_700.0).granted


def test_a_window_counts_one_verb_only() -> None:
    policy = a_policy(per_window={"REBOOT": 1}, at_once=FREE)
    ledger = a_ledger(windows={"default/REBOOT": (100.0,)})
    assert ask(treat("n1.1", Verb.RESET_GPU), ledger=ledger, policy=policy, now=300.0).granted


def test_a_fault_that_can_wait_waits_for_a_maintenance_window() -> None:
    policy = out(9, windows=("Sat 02:00-05:00",))
    no = refusal(a_request(when=When.IDLE, in_window=False), policy=policy)
    assert "outside the maintenance windows (Sat 02:00-05:00)" in no.why
    assert ask(a_request(when=When.NOW, in_window=False), policy=policy).granted


def test_a_newcomer_at_its_gate_is_examined_at_any_hour() -> None:
    """Nobody is disturbed, and it must not wait for Saturday. Its treatment waits, and so does what is down for now."""
    policy = out(9, windows=("Sat 02:00-05:00",))
    wish = a_request("n1.1", when=When.IDLE, in_window=False, down=True, gated=True)
    assert ask(wish, policy=policy).granted == {"n1.1"}
    for more in ({"kind": TREAT, "verb": Verb.REBOOT}, {"hurts": True}, {"gated": False}):
        assert "maintenance windows" in refusal(replace(wish, **more), policy=policy).why


def test_a_request_says_whether_its_node_waits_at_its_gate() -> None:
    for gate in (True, False):
        wish = request_of(a_case(), a_node(gate=gate), Verb.CORDON, when=When.IDLE, severity=Severity.MONITOR,
                          in_window=False, alive=False)  # fmt: skip
        assert wish.gated is gate


def test_our_drains_stop_only_so_many_jobs_in_a_window() -> None:
    policy = a_policy(max_out=FREE, max_out_fleet=FREE, jobs_hurt_per_window=1)
    first = a_request("n1.1", when=When.CHECKPOINT, hurts=True)
    second = a_request("n2.1", when=When.CHECKPOINT, hurts=True, since=1.0)
    said = ask(first, second, policy=policy)
    assert said.granted == {"n1.1"}
    assert "have stopped 1 jobs" in said.refused["n2.1"].why
    assert ask(a_request("n3.1", when=When.NOW, hurts=True), ledger=said.ledger, policy=policy).granted


# --- the breaker ------------------------------------------------------------------------------------------------------


def test_too_many_escalations_open_the_breaker_and_nothing_new_is_taken() -> None:
    policy = a_policy(breaker_failures=3, max_out=FREE, max_out_fleet=FREE)
    ledger = trip(trip(a_ledger(), policy, 2, 100.0), policy, 1, 200.0)
    no = refusal(a_request(), ledger=ledger, policy=policy, now=300.0)
    assert no.why == "the breaker is open: 3 cases were escalated within 60 minutes"
    assert no.again_at == 200.0 + policy.breaker_quiet_s


def test_the_breaker_closes_after_a_quiet_period() -> None:
    policy = a_policy(breaker_failures=1, max_out=FREE, max_out_fleet=FREE)
    ledger = trip(a_ledger(), policy, 1, 0.0)
    later = policy.breaker_quiet_s
    assert trip(ledger, policy, 0, later - 1.0).breaker
    closed = trip(ledger, policy, 0, later)
    assert closed.breaker == ""
    assert ask(a_request(), ledger=closed, policy=policy, now=later).granted


def test_a_further_escalation_keeps_the_breaker_open_longer() -> None:
    policy = a_policy(breaker_failures=1)
    ledger = trip(trip(a_ledger(), policy, 1, 0.0), policy, 1, 3_000.0)
    assert ledger.breaker_until == 3_000.0 + policy.breaker_quiet_s


def test_escalations_far_apart_do_not_open_it() -> None:
    policy = a_policy(breaker_failures=2)
    assert not trip(trip(a_ledger(), policy, 1, 0.0), policy, 1, policy.window_s).breaker


# --- seats ------------------------------------------------------------------------------------------------------------


def test_asking_twice_takes_one_seat_and_one_place_in_the_window() -> None:
    once = ask(a_request())
    twice = ask(a_request(), ledger=once.ledger, policy=a_policy(max_out=Limit(count=0, at_least=0)))
    assert twice.granted == {"n1.1"}
    assert twice.ledger == once.ledger


def test_a_place_given_beside_the_limits_is_none_once_the_node_is_in_service_again() -> None:
    full = a_ledger(a_seat("n2.1"), a_seat("n3.1"))
    beside = ask(a_request("n1.1", down=True), ledger=full, policy=out(2))
    assert beside.granted == {"n1.1"}
    assert ask(a_request("n1.1", down=True), ledger=beside.ledger, policy=out(2)).granted == {"n1.1"}
    assert "2 of at most 2" in refusal(a_request("n1.1"), ledger=beside.ledger, policy=out(2)).why
    again = ask(a_request("n1.1"), ledger=beside.ledger, policy=out(3)).ledger
    assert [(s.case, s.free) for s in again.seats] == [("n2.1", False), ("n3.1", False), ("n1.1", False)]


@pytest.mark.parametrize(
    ("phase", "kind", "needed"),
    [
        (Phase.WAITING, OUT, True),
        (Phase.ESCALATED, OUT, True),
        (Phase.CANCELLING, OUT, True),
        (Phase.SUSPECTED, OUT, False),
        (Phase.QUEUED, TREAT, True),
        (Phase.REPAIRING, TREAT, True),
        (Phase.VERIFYING, TREAT, False),
    ],
)
def test_a_seat_lasts_as_long_as_it_is_needed(phase: Phase, kind: str, needed: bool) -> None:
    assert is_needed(a_seat(kind=kind), a_case(phase), NOW) is needed


def test_a_seat_beside_the_limits_is_given_back_by_one_that_waits_in_service() -> None:
    """Two whose nodes came back open held each other's place."""
    assert not is_needed(a_seat(free=True), a_case(Phase.WAITING), NOW)
    assert is_needed(a_seat(free=True), a_case(Phase.CORDONING), NOW)


def test_a_treatment_that_may_still_be_under_way_keeps_its_seat() -> None:
    case = a_case(Phase.CANCELLING, unfinished=an_action(Verb.REBOOT, sends=1))
    assert is_needed(a_seat(kind=TREAT, verb=Verb.REBOOT), case, NOW)


def test_a_replace_that_a_person_let_go_keeps_its_seat_for_the_time_of_its_rung() -> None:
    sent = an_action(Verb.REPLACE, sends=1)
    case, seat = a_case(Phase.ESCALATED, unfinished=sent, cancelled=True), a_seat(kind=TREAT, verb=Verb.REPLACE)
    lasts = next(r.timeout_s for r in case.plan.rungs if r.verb is Verb.REPLACE)
    assert is_needed(seat, case, seat.since + lasts - 1.0)
    assert not is_needed(seat, case, seat.since + lasts)
    assert sweeps_at(a_ledger(seat), {case.id: case}) == seat.since + lasts
    assert sweeps_at(a_ledger(seat), {case.id: a_case(Phase.REPAIRING)}) == float("inf")


def test_orphan_seats_are_swept() -> None:
    ledger = a_ledger(a_seat("n1.1"), a_seat("n2.1"))
    assert [s.case for s in sweep(ledger, {"n1.1": a_case()}, NOW).seats] == ["n1.1"]


def test_the_case_that_takes_over_a_mark_takes_over_the_seats_of_its_deleted_record() -> None:
    ledger = a_ledger(a_seat(kind=TREAT, verb=Verb.REPLACE), a_seat())
    heir = a_case(Phase.CANCELLING, id="n1.2", adopts="n1.1", unfinished=an_action(Verb.REPLACE, sends=1))
    assert [(s.case, s.kind) for s in sweep(ledger, {heir.id: heir}, NOW).seats] == [(heir.id, TREAT), (heir.id, OUT)]
    let_go = replace(heir, unfinished=None)
    assert [s.kind for s in sweep(ledger, {heir.id: let_go}, NOW).seats] == [OUT]


def test_a_sweep_that_finds_nothing_writes_nothing() -> None:
    ledger = a_ledger(a_seat("n1.1"))
    assert sweep(ledger, {"n1.1": a_case()}, NOW) is ledger
