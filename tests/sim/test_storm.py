"""The weather of a storm: each kind can be switched on alone, moves nothing else, and ends with the calm."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from sickbay.errors import UserError
from sickbay.model import Absence, Action, Phase, Place, RecoveryPhase, Verb
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.sim import storm
from sickbay.sim.check import play, tell_weather
from sickbay.sim.shape import two_gangs
from sickbay.sim.world import World
from sickbay.stores.memory import MemoryStore
from tests.builders import a_case, a_command, a_latch, a_record, a_recovery

HOUR = 3600.0
SEEDS = range(40)


def brewed(seed: int, kinds: set[str]) -> tuple[World, dict[str, int]]:
    world = World(seed, 12, rack_size=4)
    return world, storm.brew(world, MemoryStore(), kinds, world.now + 8 * HOUR)


@pytest.mark.parametrize("kind", sorted(storm.WEATHER))
def test_every_kind_is_drawn_by_some_seeds_and_not_by_all(kind: str) -> None:
    drawn = sum(bool(brewed(seed, {kind})[1]) for seed in SEEDS)
    assert 0 < drawn < len(SEEDS)


@pytest.mark.parametrize("kind", sorted(storm.WEATHER))
def test_after_the_calm_nothing_is_away_and_nobody_is_cut_off(kind: str) -> None:
    for seed in SEEDS:
        world, drawn = brewed(seed, {kind})
        if drawn:
            world.run_for(8 * HOUR)
            storm.calm(world, MemoryStore())
            world.run_for(2 * HOUR)
            assert not [n.name for n in world.nodes.values() if n.cuts or not (n.ready or n.gone)]
            assert not [name for name in ("api", "provider", "registry", "manager") if world.services.is_away(name)]
            return


def lived_in(seed: int) -> tuple[World, MemoryStore]:
    """A world with what a brain and fate leave behind: marks, records, a host that is down."""
    world, store = World(seed, 12, rack_size=4), MemoryStore()
    world.strike("host_crash", "node-0011", cure="replace")
    for hour in range(8):
        name = f"node-{hour:04d}"
        store.create(a_case(node=name))
        store.create(a_recovery(RecoveryPhase.STOPPING, job=f"job-{hour}"))
        world.after(hour * HOUR + 60.0, partial(closed, world, name))
    for spec in two_gangs():
        world.submit(spec)
    store.create(a_record(a_latch(), node="node-0009", quiet={"gpu-lost||": 9e9}))
    store.create(a_case(Phase.ESCALATED, node="absence", absence=Absence(("fleet",), "", 0.0, 3, 3)))
    store.create(a_command("hold"))
    return world, store


def closed(world: World, name: str) -> None:
    SimulatedPlatform(world).perform(Action(f"{name}.1/2", Verb.CORDON, Place(name)))


@pytest.mark.parametrize("kind", sorted(storm.WEATHER))
def test_every_kind_finds_somebody_whom_it_befalls_in_some_seed(kind: str) -> None:
    """Events that find nobody are as if they had not been drawn: each kind says how often it struck."""
    for seed in SEEDS:
        world, store = lived_in(seed)
        struck = storm.brew(world, store, {kind}, world.now + 8 * HOUR)
        world.run_for(9 * HOUR)
        if struck.get(kind):
            return
    raise AssertionError(f"{kind} never found a target")


def test_a_kind_that_never_found_a_target_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert tell_weather({"comes-back": 7, "liars": 3}, {"comes-back": 0, "liars": 9}) == ["comes-back"]
    assert "never found a target: comes-back" in capsys.readouterr().out
    assert tell_weather({"liars": 3}, {"liars": 9}) == []


def test_switching_one_kind_on_moves_no_other() -> None:
    def cuts(kinds: set[str]) -> list[str]:
        world, _ = brewed(seed, kinds)
        world.run_for(10 * HOUR)
        return [f.line() for f in world.log if f.kind == "cut"]

    seed = next(s for s in SEEDS if len(brewed(s, {"cut-control", "provider-away"})[1]) == 2)
    assert cuts({"cut-control"}) == cuts({"cut-control", "provider-away"}) != []


def test_the_end_of_a_capacity_block_takes_one_whole_pool_and_nothing_of_another() -> None:
    """Each node drew a pool of its own, and a pool practically never ended."""
    for seed in SEEDS:
        world = World(seed, 14, pools={"default": 9, "small": 3, "pair": 2})
        storm.block_ends(storm.Sky(world, MemoryStore(), Random(seed), world.now + HOUR))
        gone = {n.name for n in world.nodes.values() if n.gone}
        pools = {world.nodes[name].pool for name in gone}
        assert len(pools) == 1
        assert len(gone) == {"default": 3, "small": 3, "pair": 2}[pools.pop()]


BUILT = {"witness", "agent-reboots", "fenced", "told-by-pods", "unmanaged"}


def test_how_a_trial_is_built_is_drawn_by_the_seed_and_is_plain_without_weather() -> None:
    jobs = two_gangs()
    worlds = [World(seed, 4) for seed in SEEDS]
    for world in worlds:
        storm.lay_out(world, BUILT)
    assert {world.provider_tells for world in worlds} == {True, False}
    assert {world.network.reboots_by for world in worlds} == {"agent", "provider"}
    drawn = [storm.declared(seed, jobs, BUILT) for seed in SEEDS]
    assert {job.fenced for row in drawn for job in row} == {True, False}
    assert {job.told_by for row in drawn for job in row} == {"pods", "storage"}
    assert {sum(job.managed for job in row) for row in drawn} == {1, 2}  # never all of them are somebody else's
    storm.lay_out(worlds[0], ())
    assert (worlds[0].provider_tells, worlds[0].network.reboots_by) == (False, "provider")
    assert storm.declared(0, jobs, ()) == jobs


def test_weather_is_asked_for_by_name_and_a_wrong_name_is_refused_in_words() -> None:
    assert storm.asked("borne") == storm.BORNE
    assert storm.asked("all") == frozenset(storm.WEATHER)
    assert storm.asked("none") == frozenset()
    assert storm.asked("cut-data, api-away") == {"cut-data", "api-away"}
    with pytest.raises(UserError, match="no such kind; known are"):
        storm.asked("hail")


def test_what_is_borne_is_a_kind_of_weather() -> None:
    assert set(storm.WEATHER) >= storm.BORNE


def test_the_same_seed_and_weather_give_the_same_trace() -> None:
    one, two = play(5, frozenset(storm.WEATHER)), play(5, frozenset(storm.WEATHER))
    assert one.digest == two.digest != play(5, frozenset()).digest
