"""What operators do in a storm: as the command line would post it, told in the world's log, and over with the calm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from sickbay.cli import wishes
from sickbay.model import Absence, Case, Command, NodeRecord, Pause, Phase, Recovery, RecoveryPhase
from sickbay.sim import backup, operators
from sickbay.sim.jobs import JobSpec
from sickbay.sim.storm import Sky
from sickbay.sim.world import World
from sickbay.stores.memory import MemoryStore
from tests.builders import a_case, a_latch, a_record, a_recovery
from tests.sim.ward import names

NODE = "node-0003"
BESIDE = {"acknowledge", "restart", "reopen"}  # what is said of a node or a job


def a_sky(seed: int = 1) -> Sky:
    world = World(seed, 8)
    return Sky(world, MemoryStore(), Random(seed), world.now + 28_800.0)


def an_absence() -> Case:
    absence = Absence(("fleet",), "nothing", 0.0, 4, 4, ())
    return replace(
        a_case(Phase.ESCALATED, node="absence", id="absence.1"), absence=absence, factor="absence", record=None
    )


def commands(sky: Sky) -> list[Command]:
    return [stored.value for stored in sky.store.list(Command)]


def said(sky: Sky, act: str) -> list[str]:
    return [f.line() for f in sky.world.log if f.kind in ("order", "person") and f.detail.get("act") == act]


@pytest.mark.parametrize(
    ("event", "verb", "target", "args"),
    [
        (operators.splits, "split", "absence.1", {}),
        (operators.exchanges_absence, "approve", "absence.1", {"verb": "REPLACE"}),
        (operators.reopens, "reopen", NODE, {}),
        (operators.acknowledges, "acknowledge", NODE, {}),
        (operators.restarts_job, "restart", "llama", {}),
    ],
)
def test_what_they_say_is_the_command_that_the_command_line_would_post(
    event: Callable[[Sky], None], verb: str, target: str, args: dict[str, str]
) -> None:
    sky = a_sky()
    sky.world.submit(JobSpec("llama", names(0, 4)))
    sky.store.create(an_absence())
    sky.store.create(a_record(a_latch("gpu-lost"), node=NODE, quiet={"gpu-lost/x": 1e12}))
    sky.store.create(a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY, job="llama"))
    event(sky)
    wish = commands(sky)[0]
    assert (wish.verb, wish.target, dict(wish.args)) == (verb, target, args)
    assert verb in wishes.WISHES or verb in BESIDE
    assert len(said(sky, verb if verb != "restart" else "restart-job")) == 1


@pytest.mark.parametrize("event", [operators.splits, operators.reopens, operators.acknowledges, operators.restarts_job])
def test_what_the_command_line_would_refuse_they_do_not_say(event: Callable[[Sky], None]) -> None:
    sky = a_sky()
    sky.store.create(a_case(Phase.QUEUED, node=NODE, id=f"{NODE}.1", record=None))
    sky.store.create(a_record(node="node-0004"))
    event(sky)
    assert commands(sky) == []


EVERY = [
    operators.pauses_pool, operators.pauses_node, operators.pauses_fleet, operators.opts_out, operators.splits,
    operators.deletes_job, operators.preempts, operators.deletes_recovery, operators.deletes_node_record,
    operators.deletes_command, operators.changes_mind,
]  # fmt: skip


@pytest.mark.parametrize("event", EVERY)
def test_while_the_api_does_not_answer_nobody_can_say_or_delete_anything(event: Callable[[Sky], None]) -> None:
    sky = a_sky()
    sky.world.submit(JobSpec("llama", names(0, 4)))
    sky.store.create(an_absence())
    sky.store.create(a_record(node=NODE))
    sky.store.create(a_recovery(RecoveryPhase.WAITING_FOR_CAPACITY, job="llama"))
    sky.world.services.fail("api", 600.0)
    event(sky)
    assert said(sky, "") == []
    assert not [f for f in sky.world.log if f.kind in ("order", "person")]
    kept = (sky.store.list(Case), sky.store.list(NodeRecord), sky.store.list(Recovery))
    assert [len(found) for found in kept] == [1, 1, 1]
    assert not sky.store.list(Pause)
    assert not commands(sky)


def test_what_nobody_has_ended_by_the_calm_is_ended_then() -> None:
    sky = a_sky()
    for seed in range(6):
        sky.rng.seed(seed)
        for event in (operators.pauses_pool, operators.pauses_node, operators.opts_out, operators.keeps_waiting):
            event(sky)
    operators.stands_in_line(sky)
    assert sky.store.list(Pause)
    assert any(n.opted_out for n in sky.world.nodes.values())
    operators.calm(sky.world, sky.store)
    assert not sky.store.list(Pause)
    assert not any(n.opted_out for n in sky.world.nodes.values())
    assert sky.world.now >= sky.world.people.silent_until
    assert sky.world.waits_s == (0.0, 0.0)


def test_who_pauses_what_is_paused_already_writes_it_over() -> None:
    sky = a_sky()
    operators.pauses_pool(sky)
    sky.world.run_for(10.0)
    operators.pauses_pool(sky)
    assert [stored.value.since for stored in sky.store.list(Pause)] == [sky.world.now]


def test_who_finds_a_pause_that_cannot_be_read_leaves_it_as_it_is_for_hands_are_off_already() -> None:
    sky = a_sky()
    operators.pauses_fleet(sky)
    backup.written_by_a_newer(sky.store, Pause, "fleet")
    before = len(sky.world.log)
    assert not operators.pauses_fleet(sky)
    assert len(sky.world.log) == before
    assert [one.key for one in sky.store.unread()] == ["fleet"]


def test_a_pause_that_cannot_be_read_is_removed_by_who_resumes_also_in_the_calm() -> None:
    sky = a_sky()
    for at, seed in enumerate((1, 2, 3, 4, 5, 6)):
        sky.rng.seed(seed)
        operators.pauses_pool(sky) if at % 2 else operators.pauses_node(sky)
    for stored in sky.store.list(Pause):
        backup.written_by_a_newer(sky.store, Pause, stored.value.scope)
    assert sky.store.unread()
    sky.world.run_for(20_000.0)  # those that were said to last have been resumed
    operators.calm(sky.world, sky.store)
    assert not sky.store.unread()
    assert not sky.store.list(Pause)


def test_a_label_goes_with_the_object_that_carried_it() -> None:
    world = World(1, 4)
    world.people.opt_out(NODE)
    world.people.delete_object(NODE)
    world.run_for(600.0)
    assert world.nodes[NODE].present
    assert not world.nodes[NODE].opted_out


def test_a_command_that_somebody_deletes_before_it_was_read_is_gone_and_the_log_says_so() -> None:
    sky = a_sky()
    sky.store.create(a_case(Phase.QUEUED, node=NODE, id=f"{NODE}.1", record=None))
    operators.deletes_command(sky)
    assert len(commands(sky)) == 1
    sky.world.run_for(60.0)
    assert commands(sky) == []
    assert len(said(sky, "delete-command")) == 1


def test_a_job_that_was_deleted_is_often_submitted_again_at_once_and_is_another_one() -> None:
    """On whatever is free, from its first attempt on; what its namesake lived through is looked up all the same."""
    uids, gone = set[str](), 0
    for seed in range(12):
        sky = a_sky(seed)
        sky.world.submit(JobSpec("llama", names(0, 4)))
        assert operators.deletes_job(sky)
        deleted = sky.world.now
        sky.world.run_for(120.0)
        job = sky.world.jobs["llama"]
        gone += not job.live
        uids.add(job.uid)
        assert job.lived(1, deleted).end == "stopped by owner"
        assert job.attempt == 1
    assert uids == {"job-llama-1", "job-llama-2"}
    assert 0 < gone < 12
