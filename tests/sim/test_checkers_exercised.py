"""What a checker counts as exercised: something that it would have complained of, had it been done wrongly."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sickbay.model import Action, Ledger, Pause, Phase, Place, Verb
from tests.builders import a_case
from tests.sim.ward import Ward, a_policy

NODE = "node-0001"


def unwatched(**policy: object) -> Ward:
    return Ward(brains=0, policy=a_policy(**policy))


def looks(ward: Ward) -> None:
    ward.world.note("tick")
    ward.judge.look()


def counted(ward: Ward, what: str) -> int:
    looks(ward)
    return ward.judge.exercised().get(what, 0)


def test_a_node_that_is_closed_in_a_case_that_nobody_holds_exercises_no_hold() -> None:
    ward = unwatched()
    ward.run.store.create(a_case(Phase.CORDONING, node=NODE))
    ward.run.platform.perform(Action(f"{NODE}.1/2", Verb.CORDON, Place(NODE)))
    assert counted(ward, "HoldObeyed") == 0


@pytest.mark.parametrize(("phase", "times"), [(Phase.QUEUED, 1), (Phase.ESCALATED, 0)])
def test_a_held_case_exercises_the_hold_once_and_only_if_it_would_go_on(phase: Phase, times: int) -> None:
    ward = unwatched()
    ward.run.store.create(a_case(phase, node=NODE, held=True))
    for _ in range(5):
        looks(ward)
    assert counted(ward, "HoldObeyed: held") == times


@pytest.mark.parametrize(("scope", "branch", "times"), [
    ("fleet", "fleet", 1), (f"node:{NODE}", "node", 1), ("pool:default", "pool", 1), ("node:node-0009", "node", 0),
])  # fmt: skip
def test_a_pause_is_exercised_by_a_case_in_its_scope_once(scope: str, branch: str, times: int) -> None:
    ward = unwatched()
    ward.run.store.create(a_case(Phase.QUEUED, node=NODE))
    ward.run.store.create(Pause(scope, "alice", "change freeze", 0.0))
    for _ in range(5):
        looks(ward)
    assert counted(ward, f"PauseObeyed: {branch}") == times


def test_a_process_exercises_the_search_for_exceptions_once_however_often_it_is_looked_at() -> None:
    ward = unwatched()
    process = SimpleNamespace(first_led=0.0, led_since=None, controller=SimpleNamespace(contained=[]))
    ward.run.brains.append(process)  # type: ignore[arg-type]
    for _ in range(5):
        looks(ward)
    assert counted(ward, "NoException") == 1
    process.controller = SimpleNamespace(contained=[])
    assert counted(ward, "NoException") == 2


@pytest.mark.parametrize("tripped", [True, False])
def test_a_breaker_that_was_open_and_has_closed_again_was_exercised(tripped: bool) -> None:
    ward = unwatched()
    ledger = Ledger(breaker="5 cases were escalated" if tripped else "", breaker_until=3600.0)
    version = ward.run.store.create(ledger)
    looks(ward)
    ward.run.store.commit(replace(ledger, breaker="", breaker_until=0.0, watch_time=9000.0), version, 1)
    ward.judge.conclude()
    assert ward.judge.exercised().get("EveryStateHasAnExit: breaker", 0) == int(tripped)
    assert ward.judge.violations == []


def test_each_scope_of_a_limit_is_counted_for_itself_and_a_domain_only_where_there_is_one() -> None:
    ward = unwatched()
    ward.run.platform.perform(Action(f"{NODE}.1/2", Verb.CORDON, Place(NODE)))
    assert (counted(ward, "WithinLimits: rack"), counted(ward, "WithinLimits: domain")) == (1, 0)
