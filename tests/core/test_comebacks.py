"""What was sent away and is back: who decides about the next REPLACE."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sickbay.core import comebacks, phases
from sickbay.model import NodeRecord, Past, Phase, Verb
from tests.builders import a_case, a_diagnosis, a_policy

DAY = 86_400.0
POLICY = a_policy(approval=())


def why(record: NodeRecord, returned: frozenset[str] = frozenset(), now: float = DAY) -> str:
    case = a_case(diagnoses=(replace(a_diagnosis(), part="S1"),))
    return comebacks.why_not_again(record, case, returned, POLICY, now)


def test_a_node_that_was_replaced_twice_is_for_a_person_whatever_machine_stands_there() -> None:
    assert why(NodeRecord("n1", replaced={"n1.1": 0.0})) == ""
    assert "n1 was replaced 2 times within 7 days (n1.1, n1.2)" in why(
        NodeRecord("n1", replaced={"n1.1": 0.0, "n1.2": 1.0})
    )


def test_what_is_long_ago_does_not_count() -> None:
    assert why(NodeRecord("n1", replaced={"n1.1": 0.0, "n1.2": 1.0}), now=30 * DAY) == ""


def test_a_part_that_came_back_twice_is_for_a_person_on_any_node() -> None:
    assert why(NodeRecord("n1")) == ""
    assert why(NodeRecord("n1"), frozenset({"S1"})).startswith("GPU S1 was sent away, came back")


def test_the_same_machine_after_its_replacement_is_for_a_person() -> None:
    past = Past("n1.1", "gpu-lost", "S1", Verb.REPLACE, "RESOLVED", False, 0.0, 0.0)
    assert "the same machine i-n1 is back" in why(NodeRecord("n1", past=(past,), replaced={"n1.1": 0.0}))


def test_a_replacement_is_counted_once_however_often_its_case_is_closed() -> None:
    case = replace(a_case(), phase=Phase.RESOLVED, rungs_tried=(Verb.REPLACE,))
    once = comebacks.note(NodeRecord("n1"), case, 5.0)
    assert comebacks.note(once, case, 6.0).replaced.keys() == {case.id}
    assert comebacks.note(NodeRecord("n1"), replace(case, phase=Phase.DISMISSED), 5.0).replaced == {}


@pytest.mark.parametrize("approval", [(), ("REPLACE",)])
def test_a_person_who_is_asked_each_time_hears_that_another_replacement_brings_no_better_part(approval: Any) -> None:
    """Asked for the plain word he gave it fourteen times: a provider handed the same part back each time (seed 32)."""
    case, record = a_case(), NodeRecord("n1", replaced={"n1.1": 0.0, "n1.2": 1.0})
    ctx = SimpleNamespace(policy=a_policy(approval=approval), now=SimpleNamespace(watch=DAY))
    turn = cast(Any, SimpleNamespace(ctx=ctx, record=record, s=SimpleNamespace(returned=frozenset(), came_sick=0)))
    assert "would bring no better part" in phases._for_a_person(turn, case, Verb.REPLACE)
    approved = replace(case, approved=(Verb.REPLACE,))
    assert phases._for_a_person(turn, approved, Verb.REPLACE) == ""
