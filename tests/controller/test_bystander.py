"""What we may not touch, gathered: many at once are one message, a few are told one by one, and nobody twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sickbay.core import bystander
from sickbay.model import Case, Command, Finding, JobPhase, Notice, Pause, RankExit, Recovery
from sickbay.stores.memory import MemoryStore
from tests.builders import a_finding, a_job, a_node, a_policy
from tests.controller.door import Door, Shift

HOUR = 3_600.0


def observing(count: int, **policy: Any) -> Shift:
    names = [f"n{n}" for n in range(count)]
    return Shift(Door(*(a_node(n) for n in names)), policy=a_policy(**{"max_verb": "OBSERVE", **policy}))


def falls_ill(shift: Shift, *names: str, code: str = "xid.79") -> None:
    for name in names:
        shift.door.shows(name, findings=(a_finding(code, node=name),))


def untouched(shift: Shift) -> list[Notice]:
    return [n for n in shift.pager.told if n.key.startswith("untouched/")]


def test_a_thousand_nodes_that_fall_ill_at_once_are_one_message_of_bounded_length() -> None:
    shift = observing(1_000)
    falls_ill(shift, *(f"n{n}" for n in range(1_000)))
    shift.passes(6 * HOUR)
    (note,) = untouched(shift)
    assert (note.level, note.title) == ("urgent", "1000 sick nodes: only observed")
    assert len(note.body) < 2_000
    assert "n0: GPU fell off the bus" in note.body
    assert "raise policy.max_verb to REBOOT" in note.body


def test_a_wave_that_rolls_through_a_fleet_is_a_handful_of_messages_an_hour() -> None:
    shift = observing(200)
    for n in range(200):
        falls_ill(shift, f"n{n}")
        shift.passes(30.0)
    shift.passes(HOUR)
    assert len(untouched(shift)) <= 12
    known = shift.controller.view.records
    assert all(any(key.startswith("untouched/") for key in known[f"n{n}"].value.told) for n in range(200))


def test_a_few_are_told_one_by_one_and_the_next_day_is_quiet() -> None:
    shift = observing(3)
    falls_ill(shift, "n0", "n2")
    shift.passes(20 * HOUR)
    assert [n.title.partition(":")[0] for n in untouched(shift)] == ["n0", "n2"]


def test_a_node_that_does_not_answer_and_is_left_alone_because_it_lives_is_told_after_an_hour() -> None:
    """Nobody heard of it for a day: its kubelet was dead, and the job on it ran on."""
    shift = Shift(Door(*(a_node(f"n{n}") for n in range(30))), policy=a_policy()).passes(30.0)
    shift.door.shows("n3", ready=False, machine="running")
    assert untouched(shift.passes(0.9 * HOUR)) == []
    (note,) = untouched(shift.passes(20 * HOUR))
    assert (note.level, note.title) == ("warning", "n3: Node does not answer (alive, and left alone)")
    assert "its provider says that the machine runs and answers" in note.body
    assert "sickbay case approve n3.1 --verb REBOOT" in note.body


def test_a_second_fault_on_the_same_node_is_news() -> None:
    shift = observing(1)
    falls_ill(shift, "n0")
    shift.passes(HOUR)
    other: Finding = a_finding("xid.95", node="n0", n=7)
    shift.door.shows("n0", findings=(a_finding("xid.79", node="n0"), other))
    shift.passes(HOUR)
    assert len(untouched(shift)) == 2


def test_what_is_told_of_a_second_fault_is_that_fault() -> None:
    """The first one was told once more, six minutes later, in the very same words (seed 1)."""
    shift = observing(1)
    falls_ill(shift, "n0")
    shift.passes(HOUR)
    shift.door.shows("n0", findings=(a_finding("xid.79", node="n0"), a_finding("xid.95", node="n0", n=7)))
    first, second = untouched(shift.passes(HOUR))
    assert "fell off the bus" in first.title
    assert "Uncontained memory error" in second.title


def test_what_a_person_lets_go_within_the_minute_is_not_told() -> None:
    shift = observing(1)
    falls_ill(shift, "n0")
    shift.passes(20.0)
    shift.store.create(Command("order-1", "abort", "n0.1", "ann", "I know", shift.clock.now()))
    shift.passes(HOUR)
    assert untouched(shift) == []


def test_a_fault_that_can_wait_is_a_warning() -> None:
    shift = observing(1)
    falls_ill(shift, "n0", code="smi.remap-pending")
    shift.passes(HOUR)
    assert [n.level for n in untouched(shift)] == ["warning"]


def test_work_that_may_not_be_moved_off_a_node_that_cannot_wait_is_told() -> None:
    job = a_job(nodes=("n0",))
    shift = Shift(Door(a_node("n0", jobs=("llama",)), jobs=(job,)), policy=a_policy(max_verb="CORDON"))
    falls_ill(shift, "n0")
    shift.passes(200.0)
    (note,) = untouched(shift)
    assert note.title.endswith("(what runs there is not moved)")
    assert "policy.max_verb is CORDON" in note.body
    assert "llama" in note.body
    assert "Sickbay would: DRAIN, then REBOOT" in note.body


def test_many_jobs_that_die_where_nobody_may_restart_them_are_one_message() -> None:
    jobs = tuple(a_job(id=f"job-{n}", nodes=(f"n{n}",)) for n in range(40))
    nodes = [a_node(f"n{n}", jobs=(f"job-{n}",)) for n in range(40)]
    shift = Shift(Door(*nodes, jobs=jobs), policy=a_policy(max_verb="OBSERVE")).passes(60.0)
    for n in range(40):
        shift.door.shows_job(f"job-{n}", phase=JobPhase.FAILED, exits=(RankExit(0, f"n{n}", 1, ("Traceback",)),))
    shift.passes(3 * HOUR)
    (note,) = untouched(shift)
    assert note.title == "40 jobs are down and not restarted"
    assert "rank 0 on n0 exited with 1" in note.body


def test_each_pause_is_named_with_the_command_that_ends_it() -> None:
    shift = Shift(Door(a_node("n0"), a_node("n1")))
    shift.store.create(Pause("node:n0", "ann", "", shift.clock.now()))
    falls_ill(shift, "n0")
    shift.passes(600.0)
    (note,) = untouched(shift)
    assert "node n0 is paused by ann, without an end" in note.body
    assert "sickbay resume --node n0" in note.body


class Moved(MemoryStore):
    """A store across a network, in which somebody else moves each record once just before it says that people know."""

    frugal = True

    def __init__(self, *, moves: bool) -> None:
        super().__init__()
        self._moves = {Case, Recovery} if moves else set[type[Any]]()

    def commit(self, value: Any, expect: int, epoch: int = 0, consumes: Sequence[str] = ()) -> int:
        if type(value) in self._moves and _is_told(value):
            self._moves.discard(type(value))
            stored = self.get(type(value), value.id if isinstance(value, Case) else value.job)
            assert stored is not None
            super().commit(stored.value, expect, epoch)
        return super().commit(value, expect, epoch, consumes)


def _is_told(value: Any) -> bool:
    if isinstance(value, Recovery):
        return value.left_at is not None
    return any(entry.event == bystander.TOLD for entry in value.journal)


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("dies", [False, True])
def test_what_nobody_may_touch_is_told_once_whoever_leads_and_whoever_writes_meanwhile(moves: bool, dies: bool) -> None:
    """Seeds 43, 63, 151 and 178: after a change of leaders, or where a record had been moved, people heard the same
    words again within minutes."""
    job = a_job(nodes=("n0",))
    door, store = Door(a_node("n0", jobs=("llama",)), a_node("n1"), jobs=(job,)), Moved(moves=moves)
    shift = Shift(door, store, policy=a_policy(max_verb="OBSERVE")).passes(60.0)
    falls_ill(shift, "n0")
    door.shows_job("llama", phase=JobPhase.FAILED, exits=(RankExit(0, "n0", 1, ("Traceback",)),))
    shift.passes(120.0)
    shift = (shift.successor() if dies else shift).passes(0.9 * HOUR)
    assert sorted(note.title.split()[0] for note in untouched(shift)) == ["llama", "n0:"]


@pytest.mark.parametrize(("told", "waits"), [((), 60.0), ((0.0,), 120.0), ((0.0,) * 20, HOUR), ((-HOUR,), 60.0)])
def test_each_message_of_the_last_hour_makes_the_next_wait_twice_as_long(told: tuple[float, ...], waits: float) -> None:
    assert bystander.wait_s(told, 1.0) == waits
