"""Whatever strikes it, the training ends with the weights of an undisturbed run."""

from __future__ import annotations

from sickbay.sim.trainer import Gang
from tests.trainer.conftest import MakeGang

SHAPE = {"ranks": 4, "total_steps": 80, "checkpoint_every": 10}


def trained(gang: Gang) -> Gang:
    gang.start(1, None)
    assert gang.grant(gang.total_steps) == gang.total_steps
    return gang


def test_struck_by_kill_and_hang_the_final_weights_are_those_of_an_undisturbed_run(make_gang: MakeGang) -> None:
    calm = trained(make_gang("calm", **SHAPE))
    struck = make_gang("struck", **SHAPE)

    struck.start(1, None)
    assert struck.grant(37) == 37
    struck.kill([2])
    assert struck.grant(20) == 37
    assert not any(struck.alive().values())
    struck.stop()

    newest = struck.checkpoints()[-1]
    assert newest == (30, 1)
    struck.start(2, newest[0])
    assert struck.grant(31) == 61
    struck.hang([1])
    assert struck.grant(20) == 61
    assert all(struck.alive().values())
    struck.stop()

    older = struck.checkpoints()[-3]
    assert older == (40, 2)
    struck.start(3, older[0])
    assert struck.grant(80) == 80

    assert struck.exits() == {0: 0, 1: 0, 2: 0, 3: 0}
    assert struck.weights() == calm.weights()
    assert struck.digest() == calm.digest()


def test_losing_rank_0_changes_nothing_either(make_gang: MakeGang) -> None:
    calm, struck = trained(make_gang("calm")), make_gang("struck")
    struck.start(1, None)
    struck.grant(15)
    struck.kill([0])
    assert struck.grant(5) == 15
    struck.stop()
    struck.start(2, 10)
    struck.grant(30)
    assert struck.digest() == calm.digest()


def test_steps_granted_one_by_one_train_like_steps_granted_at_once(make_gang: MakeGang) -> None:
    at_once, singly = trained(make_gang("at-once", step_work=3)), make_gang("singly", step_work=3)
    singly.start(1, None)
    assert [singly.grant(1) for _ in range(30)] == list(range(1, 31))
    assert singly.digest() == at_once.digest()


def test_another_seed_and_another_step_give_other_weights(make_gang: MakeGang) -> None:
    digests = {
        trained(make_gang("a", ranks=2)).digest(),
        trained(make_gang("b", ranks=2, seed=8)).digest(),
        trained(make_gang("c", ranks=2, total_steps=29)).digest(),
    }
    assert len(digests) == 3


def test_the_loss_really_falls(make_gang: MakeGang) -> None:
    gang = trained(make_gang(ranks=2, total_steps=120, checkpoint_every=5))
    losses = [float(line.split()[-1]) for line in gang.logs(0) if " loss " in line]
    assert sum(losses[-5:]) < sum(losses[:5]) / 4


def test_the_same_strikes_leave_the_same_logs_and_exits(make_gang: MakeGang) -> None:
    def story(job: str) -> list[object]:
        gang = make_gang(job, ranks=4)
        gang.start(1, None)
        gang.grant(12)
        gang.hang([3])
        gang.grant(5)
        gang.kill([1, 3])
        told: list[object] = [gang.step, gang.exits(), gang.checkpoints()]
        gang.stop()
        return told + [gang.logs(rank) for rank in range(4)]

    assert story("one") == story("two")
