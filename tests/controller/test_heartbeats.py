"""An agent that is no longer heard: told of once, never acted on, and its node not called good until it speaks."""

from __future__ import annotations

from sickbay.controller.heartbeats import Heartbeats
from sickbay.controller.view import View
from sickbay.core.turn import Now
from sickbay.model import NodeDeleted, Notice, Status
from sickbay.settings import ControllerSettings
from tests.builders import WALL, a_finding, a_node
from tests.controller.door import Door, Shift
from tests.sim.ward import Ward, names

SILENT = "node-0005"


def fleet(count: int) -> Door:
    return Door(*(a_node(f"n{i}", last_check=1.0) for i in range(count)))


def beats(shift: Shift, seconds: float, *but: str) -> None:
    """Time passes; every agent but these is heard each five minutes."""
    for _ in range(int(seconds // 300)):
        for name in shift.door.nodes:
            if name not in but:
                shift.door.shows(name, last_check=shift.clock.wall)
        shift.passes(300.0)


def told(shift: Shift) -> list[str]:
    return [line for line in shift.said if "said nothing" in line or "instruments are silent" in line]


def test_three_missed_beats_are_one_notice_and_no_case() -> None:
    shift = Shift(fleet(20))
    beats(shift, 7_200.0, "n3")
    (line,) = told(shift)
    assert "The agent of n3 has said nothing for 15 minutes: we cannot see this node" in line
    assert "The node stays in service." in line
    assert shift.controller.view.silent == {"n3"}
    assert not shift.controller.view.cases
    assert shift.door.asked == []


def test_the_first_beat_ends_it() -> None:
    shift = Shift(fleet(20))
    beats(shift, 1_800.0, "n3")
    assert shift.controller.view.silent == {"n3"}
    beats(shift, 300.0)
    assert shift.controller.view.silent == set()


def test_a_node_that_never_had_an_agent_is_not_missed() -> None:
    shift = Shift(Door(a_node("n1")))
    shift.passes(7_200.0)
    assert told(shift) == []


def test_only_the_change_counts_whatever_the_agents_clock_says() -> None:
    shift = Shift(Door(a_node("n1", last_check=9e12)))
    for n in range(20):  # an agent whose clock runs backwards
        shift.door.shows("n1", last_check=9e12 - n)
        shift.passes(300.0)
    assert told(shift) == []


def test_a_controller_that_was_away_misses_nobody() -> None:
    """Watch time: a gap in which we did not look is nobody's silence."""
    shift = Shift(fleet(3))
    beats(shift, 600.0)
    shift.clock.passes(86_400.0)
    shift.passes(120.0)
    assert told(shift) == []
    later = shift.successor()
    later.passes(600.0)
    assert told(later) == []


def test_nodes_that_are_deleted_while_silent_make_no_pool_silent() -> None:
    shift = Shift(fleet(40))
    gone = [f"n{i}" for i in range(30, 38)]
    beats(shift, 1_200.0, *gone[:2])
    for name in gone:  # scaled in, one after the other, each silent before it goes
        shift.door.shows(name, findings=(a_finding("", status=Status.UNKNOWN, node=name),))
        shift.passes(1.0)
        version = shift.door.nodes.pop(name).version
        shift.door.tell(NodeDeleted(name, version + 1, gone=True))
        shift.passes(1.0)
    beats(shift, 1_800.0, "n3")
    lines = told(shift)
    assert not any("instruments are silent" in line for line in lines)
    assert any("The agent of n3 has said nothing" in line for line in lines)


def test_a_pool_that_falls_silent_is_one_notice_although_its_agents_are_overdue_one_by_one() -> None:
    shift = Shift(fleet(40))
    for i in range(40):  # the last beats, spread over a cycle
        shift.door.shows(f"n{i}", last_check=shift.clock.wall)
        shift.passes(7.5)
    shift.passes(3_600.0)
    (line,) = told(shift)
    assert "pool default: instruments are silent" in line
    assert len(shift.controller.view.silent) == 40
    assert shift.controller.records.ledger.seats == ()


def test_a_node_that_is_down_or_in_our_hands_is_not_told_of_twice() -> None:
    door = fleet(20)
    shift = Shift(door)
    door.shows("n3", ready=False)
    beats(shift, 1_800.0, "n3")
    assert told(shift) == []


def test_what_cannot_be_seen_is_not_good_enough_for_a_restart() -> None:
    shift = Shift(fleet(20))
    jobs = shift.controller._jobs
    beats(shift, 1_800.0, "n3")
    now = Now(shift.controller._watch, WALL)
    assert not jobs._is_good("n3", {"default"}, now)
    assert jobs._is_good("n4", {"default"}, now)


def test_a_deleted_node_is_forgotten() -> None:
    view = View()
    heartbeats = Heartbeats(view, ControllerSettings())
    view.put_node(a_node(last_check=1.0))
    heartbeats.listen(Now(0.0, WALL))
    view._forget("n1")
    assert heartbeats.listen(Now(5_000.0, WALL)) == ([], [])
    assert not heartbeats._last
    assert not heartbeats._due


def test_beats_cost_no_entries() -> None:
    view = View()
    heartbeats = Heartbeats(view, ControllerSettings())
    for n in range(1, 1_000):
        view.put_node(a_node(last_check=float(n)))
        assert heartbeats.listen(Now(n * 10.0, WALL)) == ([], [])
    assert len(heartbeats._due) == 1


def test_a_simulated_agent_that_dies_is_told_of_and_its_node_left_in_peace() -> None:
    ward = Ward(20, heartbeats=True)
    ward.passes(1_200.0)
    node = ward.world.nodes[SILENT]
    ward.world.agents.silence(node)
    ward.passes(3_600.0)
    about = [n for n in notices(ward) if SILENT in n.title]
    assert len(about) == 1
    assert "has said nothing for 15 minutes" in about[0].body
    assert ward.treatments() == []
    assert all(ward.case(name) is None for name in names(0, 20))
    ward.world.agents.wake(node, node.boot_id)
    ward.passes(600.0)
    assert ward.run.leader is not None
    assert ward.run.leader.view.silent == set()
    ward.ends_well()


def notices(ward: Ward) -> list[Notice]:
    return list(ward.run.mailbox.notices)
