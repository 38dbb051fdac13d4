"""The nodes of one job should run the same software: what differs is told once, by name, and nothing is done."""

from __future__ import annotations

from dataclasses import replace

from sickbay.core.versions import TOLD_MOST, compare, noted, sentence
from sickbay.model import Job, JobPhase, Recovery, RecoveryPhase
from tests.builders import WALL, a_node
from tests.controller.door import Door, Shift

SAME = {"driver": "580.105.08", "nccl": "2.27.3", "kernel": "6.8.0-1021-aws"}


def gang(**odd: dict[str, str]) -> dict[str, dict[str, str]]:
    """Eight like nodes, but for these."""
    return {f"n{i}": {**SAME, **odd.get(f"n{i}", {})} for i in range(8)}


def a_recovery() -> Recovery:
    return Recovery("llama", RecoveryPhase.RUNNING, 1, 5, 0.0, None)


def test_like_nodes_have_nothing_to_tell() -> None:
    assert compare(gang()) == ()
    assert noted(a_recovery(), (), WALL) == a_recovery()


def test_the_odd_node_is_named_with_its_version_and_the_others() -> None:
    (mismatch,) = compare(gang(n3={"nccl": "2.21.5"}))
    assert sentence(mismatch) == "NCCL: most nodes have 2.27.3, but n3 has 2.21.5"


def test_many_odd_nodes_are_counted_not_listed() -> None:
    nodes = {f"n{i:03d}": {"driver": "580" if i < 60 else "570"} for i in range(100)}
    (mismatch,) = compare(nodes)
    assert sentence(mismatch).endswith("but n060, n061, n062, n063, n064, n065 and 34 more have 570")


def test_a_node_that_does_not_say_differs_in_nothing() -> None:
    assert compare({"n1": {"driver": "580"}, "n2": {}, "n3": {"driver": ""}}) == ()


def test_where_nodes_stand_and_what_they_were_made_from_is_not_compared() -> None:
    assert compare({"n1": {"rack": "a", "image": "x"}, "n2": {"rack": "b", "image": "y"}}) == ()


def test_a_vbios_is_compared_between_boards_of_one_kind() -> None:
    def board(kind: str, vbios: str) -> dict[str, str]:
        return {"instance-type": kind, "vbios": vbios}

    mixed = {"n1": board("p5", "96.1"), "n2": board("p5", "96.1"), "n3": board("p6", "97.0")}
    assert compare(mixed) == ()
    (mismatch,) = compare({**mixed, "n2": board("p5", "96.0"), "n4": board("p5", "96.1")})
    assert mismatch.odd == (("96.0", ("n2",)),)


def test_a_set_is_told_once_an_attempt_and_again_when_it_changes() -> None:
    one, other = compare(gang(n3={"nccl": "2.21"})), compare(gang(n3={"nccl": "2.21"}, n4={"driver": "570"}))
    told = noted(a_recovery(), one, WALL)
    assert len(told.notices) == 1
    assert noted(told, one, WALL + 60) is told
    told = noted(told, other, WALL + 120)
    assert len({n.key for n in told.notices}) == 2
    assert len(noted(replace(told, attempt=2), one, WALL).notices) == 3


def test_a_roll_out_is_not_told_node_by_node() -> None:
    told = a_recovery()
    for i in range(8):
        told = noted(told, compare(gang(**{f"n{j}": {"driver": "590"} for j in range(i)})), WALL)
    assert len(told.notices) == TOLD_MOST


def test_the_message_says_that_nothing_is_done_and_what_a_person_can_do() -> None:
    (notice,) = noted(a_recovery(), compare(gang(n3={"efa": "1.44"}, n4={"efa": "1.30"})), WALL).notices
    assert notice.level == "info"
    assert notice.title == "llama: its nodes run different versions"
    assert "Nothing is done about it." in notice.body
    assert "EFA software: most nodes have 1.30, but n3 has 1.44." in notice.body


# --- in the controller ------------------------------------------------------------------------------------------------


def a_shift(*drivers: str) -> Shift:
    nodes = [a_node(f"n{i}", factors={"driver": d}, jobs=("llama",)) for i, d in enumerate(drivers)]
    names = tuple(node.name for node in nodes)
    return Shift(Door(*nodes, jobs=(Job("llama", names, JobPhase.RUNNING, 1, step=1, step_s=60.0),)))


def told(shift: Shift) -> list[str]:
    return [line for line in shift.said if "different versions" in line]


def lives(shift: Shift, seconds: float) -> None:
    """The job makes its steps, so that nobody calls it stalled."""
    for _ in range(int(seconds // 60)):
        shift.door.shows_job("llama", step=shift.door.jobs["llama"].step + 1)
        shift.passes(60.0)


def test_a_job_that_starts_on_unlike_nodes_is_told_of_and_left_alone() -> None:
    shift = a_shift("580", "580", "570")
    lives(shift, 1_800.0)
    (line,) = told(shift)
    assert "n2 has 570" in line
    assert shift.door.asked == []
    assert not shift.controller.view.cases


def test_a_version_that_a_node_tells_later_is_compared_when_all_had_time_to_speak() -> None:
    shift = a_shift("580", "580", "580")
    lives(shift, 300.0)
    shift.door.shows("n1", factors={"driver": "590"})
    lives(shift, 300.0)
    assert told(shift) == []
    lives(shift, 600.0)
    assert "n1 has 590" in told(shift)[0]


def test_the_next_leader_does_not_tell_it_again() -> None:
    shift = a_shift("580", "580", "570")
    lives(shift, 120.0)
    later = shift.successor()
    lives(later, 1_200.0)
    assert told(later) == []
