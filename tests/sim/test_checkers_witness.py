"""The second witness, fences and other people's jobs: the checkers complain when they must, and not where the word of
the provider, an owner's declaration or the truth says otherwise. The world is driven by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sickbay.model import Action, JobPhase, Place, Verb
from sickbay.sim.checkers.outages import KNOWN_S
from tests.builders import a_case
from tests.sim.ward import Ward, names

NODE, GANG, HOUR = "node-0003", names(0, 4), 3600.0


def unwatched(**world: Any) -> Ward:
    ward = Ward(20, brains=0, **world)
    ward.judge.silent = frozenset()
    return ward


def complaints(ward: Ward, by: str) -> list[str]:
    ward.judge.look()
    return [said for said, who in zip(ward.judge.violations, ward.judge.by, strict=True) if who == by]


def treats(ward: Ward, verb: Verb = Verb.REBOOT, fault: str = "node-not-ready") -> None:
    """In the name of a case about nothing but its absence, or about something else."""
    ward.judge.look()
    ward.run.store.create(a_case(fault=fault, node=NODE))
    ward.run.platform.perform(Action(f"{NODE}.1/2", Verb.CORDON, Place(NODE)))
    ward.world.treatments.begin(f"{NODE}.1/7", verb, ward.world.nodes[NODE])


@pytest.mark.parametrize(
    ("tells", "away_s", "fault", "complained"),
    [
        (True, 2 * KNOWN_S, "node-not-ready", True),
        (False, 2 * KNOWN_S, "node-not-ready", False),  # nobody says that it is alive
        (True, KNOWN_S / 2, "node-not-ready", False),  # whoever decided it may not have heard that yet
        (True, 2 * KNOWN_S, "gpu-lost", False),  # it is not done for its absence
    ],
)
def test_a_node_is_rebooted_that_its_provider_calls_alive(
    tells: bool, away_s: float, fault: str, complained: bool
) -> None:
    ward = unwatched(provider_tells=tells)
    ward.world.network.cut([NODE], "control", 6 * HOUR)
    ward.passes(away_s)
    treats(ward, fault=fault)
    said = complaints(ward, "HealthyLeftAlone")
    assert bool(said) is complained
    assert all("its provider said that it runs" in words for words in said)


@pytest.mark.parametrize("why", ["provider away", "provider back", "no power", "ill", "approved"])
def test_a_node_may_be_rebooted_of_which_nobody_knows_that_it_runs(why: str) -> None:
    ward = unwatched(provider_tells=True)
    if why == "ill":
        ward.world.strike("host_crash", NODE, cure="reboot")
    ward.world.network.cut([NODE], "power" if why == "no power" else "control", 6 * HOUR)
    ward.passes(2 * KNOWN_S)
    if why.startswith("provider"):
        ward.world.services.fail("provider", 60.0 if why == "provider back" else None)
        ward.passes(120.0)
    if why == "approved":
        ward.world.note("person", NODE, act="approve", by="alice", case=f"{NODE}.1", verb="REBOOT")
    treats(ward)
    assert complaints(ward, "HealthyLeftAlone") == []


@pytest.mark.parametrize(("managed", "complained"), [(False, True), (True, False)])
def test_a_job_is_stopped_or_placed_that_another_scheduler_looks_after(managed: bool, complained: bool) -> None:
    ward = unwatched()
    job = ward.submit("llama", GANG, managed=managed)
    ward.passes(600.0)
    ward.world.strike("job_hang", NODE)
    ward.passes(HOUR)
    ward.world.gangs.stop(job, "llama#3")
    assert bool(complaints(ward, "HealthyJobsRun")) is complained
    ward.world.gangs.restart("llama#4", job, 2, 0, GANG)
    assert bool(complaints(ward, "PlacedSafely")) is complained


@pytest.mark.parametrize("managed", [True, False])
def test_a_scheduler_of_its_own_may_place_a_job_and_a_drain_may_stop_it(managed: bool) -> None:
    ward = unwatched()
    job = ward.submit("llama", GANG, managed=managed, requeue_s=60.0)
    ward.passes(600.0)
    ward.world.gangs.stop(job, f"drain:{NODE}.1", JobPhase.FAILED)
    ward.passes(600.0)
    assert job.attempt == 2
    assert complaints(ward, "PlacedSafely") + complaints(ward, "HealthyJobsRun") == []


@pytest.mark.parametrize(("fenced", "complained"), [(False, True), (True, False)])
def test_an_attempt_begins_beside_ranks_out_of_reach(fenced: bool, complained: bool) -> None:
    ward = unwatched()
    job = ward.submit("llama", GANG, fenced=fenced)
    ward.passes(600.0)
    ward.world.network.cut(GANG, "control")
    ward.passes(600.0)
    ward.world.gangs.restart("llama#4", job, 2, 0, tuple(names(8, 4)))
    assert bool(complaints(ward, "OneAttemptWrites")) is complained


@pytest.mark.parametrize(("fenced", "complained"), [(False, True), (True, False)])
def test_an_owner_hears_nothing_of_ranks_out_of_reach_for_which_his_job_waits(fenced: bool, complained: bool) -> None:
    ward = unwatched()
    led: Any = SimpleNamespace(
        first_led=0.0, led_since=ward.world.now, controller=None, next_turn=float("inf"), wake=lambda: None
    )
    ward.run.brains.append(led)
    ward.submit("llama", GANG, fenced=fenced)
    ward.world.network.cut(GANG, "control", 9000.0)
    ward.passes(400.0)
    ward.judge.look()
    ward.passes(600.0)
    ward.world.note("tick")
    assert bool(complaints(ward, "OwnersTold")) is complained
