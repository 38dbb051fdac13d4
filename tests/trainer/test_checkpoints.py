"""What counts as a checkpoint, and who may write one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sickbay.errors import AlreadyExists, UserError
from sickbay.sim.trainer import DamagedCheckpoint, Gang, layout
from tests.trainer.conftest import MakeGang

Spoil = Callable[[Path], object]


def no_marker(saved: Path) -> None:
    (saved / "COMPLETE").unlink()


def no_shard(saved: Path) -> None:
    (saved / "shard-1.npz").unlink()


def torn_shard(saved: Path) -> None:
    shard = saved / "shard-2.npz"
    shard.write_bytes(shard.read_bytes()[:-1])


def torn_marker(saved: Path) -> None:
    (saved / "COMPLETE").write_bytes(b'{"step": 10, "shards": {"shard-0.npz"')


def run_to(gang: Gang, step: int) -> Gang:
    gang.start(1, None)
    assert gang.grant(step) == step
    return gang


def test_a_checkpoint_has_every_shard_and_the_marker(make_gang: MakeGang) -> None:
    gang = run_to(make_gang(), 12)
    names = sorted(path.name for path in (gang.jobdir / "step-000010.attempt-1").iterdir())
    assert names == ["COMPLETE", "shard-0.npz", "shard-1.npz", "shard-2.npz"]
    assert gang.checkpoints() == [(10, 1)]


@pytest.mark.parametrize("spoil", [no_marker, no_shard, torn_shard, torn_marker])
def test_an_incomplete_checkpoint_is_never_resumed_from(left_at_25: Gang, spoil: Spoil) -> None:
    gang = left_at_25
    spoil(gang.jobdir / "step-000020.attempt-1")
    assert gang.checkpoints() == [(10, 1)]
    with pytest.raises(UserError, match="no complete checkpoint at step 20; complete: 10"):
        gang.start(2, 20)


def test_a_new_attempt_clears_away_what_an_older_one_left_half_written(left_at_25: Gang) -> None:
    gang = left_at_25
    no_marker(gang.jobdir / "step-000020.attempt-1")
    gang.start(2, 10)
    assert gang.step == 10
    assert [path.name for path in gang.jobdir.glob("step-*")] == ["step-000010.attempt-1"]


def test_a_shard_with_one_flipped_byte_is_refused_before_the_attempt_begins(left_at_25: Gang) -> None:
    gang = left_at_25
    shard = gang.jobdir / "step-000010.attempt-1" / "shard-2.npz"
    data = bytearray(shard.read_bytes())
    data[200] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DamagedCheckpoint, match=r"shard-2\.npz"):
        gang.start(2, 10)
    assert layout.newest_attempt(gang.jobdir) == 1


def test_a_rank_that_cannot_save_leaves_no_marker(make_gang: MakeGang) -> None:
    gang = make_gang()
    (gang.jobdir / "step-000020.attempt-1" / "shard-1.npz").mkdir(parents=True)  # its rename must fail
    gang.start(1, None)
    assert gang.grant(30) < 20
    assert (gang.jobdir / "step-000020.attempt-1" / "shard-0.npz").exists()
    assert gang.checkpoints() == [(10, 1)]


def test_a_checkpoint_that_is_asked_for_is_taken_where_the_ranks_are(make_gang: MakeGang) -> None:
    gang, calm = run_to(make_gang(), 4), run_to(make_gang("calm"), 30)
    assert gang.checkpoint() == 4
    assert gang.checkpoint() == 4
    gang.stop()
    gang.start(2, 4)
    assert gang.checkpoint() == 4
    assert gang.grant(30) == 30
    assert gang.checkpoints() == [(4, 1), (10, 2), (20, 2), (30, 2)]
    assert gang.digest() == calm.digest()


def test_a_gang_with_a_hung_or_a_dead_rank_cannot_save(make_gang: MakeGang) -> None:
    gang = make_gang()
    assert gang.checkpoint() == 0
    run_to(gang, 12)
    gang.hang([1])
    assert gang.checkpoint() == 10
    gang.kill([1])
    assert gang.checkpoint() == 10
    assert gang.checkpoints() == [(10, 1)]


def test_the_last_step_is_always_saved(make_gang: MakeGang) -> None:
    gang = run_to(make_gang(total_steps=13), 13)
    assert gang.checkpoints() == [(10, 1), (13, 1)]
    assert gang.exits() == {0: 0, 1: 0, 2: 0}


def test_only_the_newest_checkpoints_are_kept(make_gang: MakeGang) -> None:
    gang = run_to(make_gang(checkpoint_every=2, keep=3), 20)
    assert gang.checkpoints() == [(16, 1), (18, 1), (20, 1)]
    assert len(list(gang.jobdir.glob("step-*"))) == 3


def test_an_attempt_begins_once(make_gang: MakeGang) -> None:
    first, second = run_to(make_gang(), 12), make_gang()
    with pytest.raises(AlreadyExists):
        second.start(1, None)
    second.start(2, 10)
    assert first.alive() == second.alive() == {0: True, 1: True, 2: True}


def test_an_attempt_older_than_the_newest_never_begins(make_gang: MakeGang) -> None:
    gang = make_gang()
    gang.start(5, None)
    gang.stop()
    with pytest.raises(AlreadyExists, match="start attempt 6 instead"):
        gang.start(3, None)


def test_an_old_attempt_that_wakes_up_can_complete_nothing_and_disturb_nobody(make_gang: MakeGang) -> None:
    calm = run_to(make_gang("calm"), 30)
    old, new = run_to(make_gang(), 12), make_gang()
    old.hang([0, 1, 2])
    new.start(2, 10)
    new.grant(5)

    old.wake([0, 1, 2])
    assert old.grant(18) == 19
    assert set(old.exits().values()) <= {71, 1}
    assert any("fenced: attempt 2" in line for rank in range(3) for line in old.logs(rank))

    assert new.checkpoints() == [(10, 1)]
    assert new.grant(30) == 30
    assert new.checkpoints() == [(10, 1), (20, 2), (30, 2)]
    assert new.digest() == calm.digest()


def test_a_marker_written_by_an_old_attempt_behind_the_fence_does_not_count(left_at_25: Gang) -> None:
    """The gap between its check and its write: it slept there while the new attempt began."""
    gang = left_at_25
    late = gang.jobdir / "step-000020.attempt-1"
    marker = (late / "COMPLETE").read_bytes()
    (late / "COMPLETE").unlink()
    shards = {path.name: path.read_bytes() for path in late.iterdir()}
    gang.start(2, 10)
    late.mkdir(exist_ok=True)
    for name, data in {**shards, "COMPLETE": marker}.items():
        (late / name).write_bytes(data)
    assert layout.is_complete(gang.jobdir, (20, 1))
    assert gang.checkpoints() == [(10, 1)]


def test_after_a_restart_from_an_older_checkpoint_the_newer_ones_stay_distrusted(left_at_25: Gang) -> None:
    gang = left_at_25
    assert gang.checkpoints() == [(10, 1), (20, 1)]
    gang.start(2, 10)
    gang.grant(2)
    gang.stop()
    assert gang.checkpoints() == [(10, 1)]


def test_a_checkpoint_of_another_number_of_ranks_is_refused(make_gang: MakeGang, left_at_25: Gang) -> None:
    with pytest.raises(UserError, match="saved by 3 ranks"):
        make_gang(ranks=2).start(2, 10)


def test_weights_before_the_first_checkpoint_are_refused_in_words(make_gang: MakeGang) -> None:
    with pytest.raises(UserError, match="no complete checkpoint yet"):
        make_gang().weights()


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 101])
def test_a_name_that_could_leave_the_folder_is_no_name_for_a_job(make_gang: MakeGang, name: str) -> None:
    with pytest.raises(UserError):
        make_gang(name)
