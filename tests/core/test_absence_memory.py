"""What a leader remembers of nodes that are away together: who is missed, who is back, and on which machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sickbay.core import absence_memory as memories
from sickbay.core.absence_memory import Memory
from sickbay.model import Absence, Node, NodeRecord
from tests.builders import a_ledger, a_node

HOUR, QUIET_S = 3_600.0, 7_200.0
CUT = Absence(("fleet",), "rack=r1", 0.0, 3, 3, ("n1", "n2", "n3"))
NAMES = frozenset(CUT.names)


def nodes(**changed: Any) -> dict[str, Node]:
    return {name: a_node(name, **changed) for name in CUT.names}


def cut() -> Memory:
    return memories.counted(Memory(), CUT.names, nodes(ready=False), 0.0)


def test_a_node_has_been_away_for_as_long_as_its_record_says_and_else_from_now_on() -> None:
    known = NodeRecord("n1", not_ready_since=40.0)
    assert memories.away_since(known, a_ledger(), QUIET_S, 90.0, has_answered=False, went_later=False) == 40.0
    assert (
        memories.away_since(NodeRecord("n1"), a_ledger(), QUIET_S, 90.0, has_answered=False, went_later=False) == 90.0
    )
    assert memories.away_since(None, a_ledger(), QUIET_S, 90.0, has_answered=True, went_later=False) == 90.0


def test_one_that_this_leader_never_saw_ready_may_be_among_those_left_to_people_while_their_time_lasts() -> None:
    left = a_ledger(left_at=50.0)
    assert memories.away_since(None, left, QUIET_S, 90.0, has_answered=False, went_later=False) == 50.0
    assert memories.away_since(None, left, QUIET_S, 90.0, has_answered=True, went_later=False) == 90.0
    assert (
        memories.away_since(None, left, QUIET_S, 50.0 + QUIET_S, has_answered=False, went_later=False) == 50.0 + QUIET_S
    )


@pytest.mark.parametrize(
    ("name", "since", "later"), [("n1", 60.0, True), ("n9", 60.0, False), ("n1", 40.0, False)],
    ids=["named since", "not named", "of the case that was closed"],
)  # fmt: skip
def test_one_that_is_named_as_having_gone_after_that_is_not_left_to_people(
    name: str, since: float, later: bool
) -> None:
    """The next leader took it for one of them, and nobody looked after it (seed 836)."""
    left = a_ledger(left_at=50.0)
    assert memories.went_later(name, replace(CUT, since=since), left) is later
    assert not memories.went_later(name, None, left)
    assert memories.went_later(name, None, replace(left, left_names=("n1",))) is (name != "n1")
    seen = memories.away_since(None, left, QUIET_S, 90.0, has_answered=False, went_later=later)
    assert seen == (90.0 if later else 50.0)


def test_that_its_ranks_are_silent_says_nothing_for_an_hour_after_it_is_back() -> None:
    after = memories.counted(cut(), ["n1", "n2"], nodes(ready=True), 100.0)
    assert memories.excuses(after, "n1", 9 * HOUR)
    assert memories.excuses(after, "n3", 100.0 + HOUR)
    assert not memories.excuses(after, "n3", 101.0 + HOUR)
    assert not memories.excuses(after, "n4", 100.0)
    assert dict(memories.counted(after, ["n1", "n2"], nodes(), 101.0 + HOUR).back) == {}


@pytest.mark.parametrize(("changed", "doubted"), [({}, set()), ({"boot_id": "another"}, NAMES)])
def test_who_is_back_with_another_boot_is_unproved(changed: dict[str, Any], doubted: set[str]) -> None:
    after = memories.counted(cut(), [], nodes(**changed), 100.0)
    assert memories.unproved(cut(), after, nodes(ready=True, **changed)) == doubted
    assert memories.unproved(cut(), after, nodes(ready=False, **changed)) == set()


def test_it_is_the_boot_in_which_it_went_away_that_counts() -> None:
    still = memories.counted(cut(), CUT.names, nodes(ready=False, boot_id="another"), 100.0)
    assert still.boots == cut().boots


def test_who_is_taken_away_held_or_another_machine_has_left_without_being_back() -> None:
    memory = Memory(missed={"n1": "i-n1", "n2": "i-n2", "n3": "i-n3", "n4": "i-n4"})
    there = {**nodes(ready=True), "n3": a_node("n3", instance="i-other")}
    assert memories.left(memory, CUT, ("n2",), there) == 2  # the third and the fourth
    assert memories.left(memory, CUT, ("n2",), nodes(ready=False)) == 3


def test_another_leader_knows_only_the_names_on_record() -> None:
    there = {**nodes(ready=True), "n3": a_node("n3", instance="i-other")}
    assert memories.left(Memory(), CUT, (), there) == 0
    assert memories.left(Memory(), CUT, (), {}) == 3


def test_who_finds_another_count_on_record_than_he_has_written_begins_from_the_names_there() -> None:
    """Somebody had moved the record, and a node that was taken away meanwhile had gone for back (seed 50001778)."""
    memory = Memory(missed={"n1": "i-n1", "n2": "i-n2"}, left=1)
    there = nodes(ready=False)
    assert memories.left(memory, CUT, ("n1", "n2"), there) == 1
    assert memories.left(memory, replace(CUT, left=1, names=("n1", "n2")), ("n1", "n2"), there) == 0
