"""A sick instrument, a code nobody knows: one message for all nodes that show it, and a remark on each one's record."""

from __future__ import annotations

import pytest

from sickbay.core import explain
from sickbay.model import NodeRecord, Notice
from tests.builders import a_finding, a_node
from tests.controller.door import Door, Pager, Shift

HOUR = 3_600.0
STRANGE = "vendor.NEVER_HEARD_OF"


def strange(shift: Shift, *names: str) -> Shift:
    for name in names:
        shift.door.shows(name, findings=(a_finding(STRANGE, node=name, reason=f"{name} says something strange"),))
    return shift


def fleet(count: int, pager: Pager | None = None) -> Shift:
    return Shift(Door(*(a_node(f"n{n:03}") for n in range(1, count + 1))), pager=pager)


def remarks(shift: Shift) -> list[Notice]:
    return [notice for notice in shift.pager.told if STRANGE in notice.title]


def told_of(shift: Shift) -> set[str]:
    """Nodes whose records say that people know, and what they are still owed."""
    records = [stored.value for stored in shift.store.list(NodeRecord)]
    assert not [notice for record in records for notice in record.notices]
    return {record.node for record in records if STRANGE in record.told}


def test_one_remark_about_many_nodes_is_one_message_and_on_each_ones_record() -> None:
    shift = fleet(120)
    strange(shift, *sorted(shift.door.nodes)).passes(HOUR)
    (notice,) = remarks(shift)
    assert notice.title == f"120 nodes: {STRANGE}"
    assert notice.level == "warning"
    assert "n001, n002, " in notice.body
    assert "n020 and 100 more" in notice.body
    assert "n001 says something strange" in notice.body
    assert "stay in service" in notice.body
    assert told_of(shift) == set(shift.door.nodes)


def test_what_one_node_shows_alone_is_told_in_its_own_words() -> None:
    shift = strange(fleet(3), "n002").passes(600.0)
    (notice,) = remarks(shift)
    assert notice.title == f"n002: {STRANGE}"
    assert notice.body.startswith("n002 says something strange. The node stays in service.")


def test_what_spreads_over_a_cycle_of_the_agents_is_a_handful_of_messages() -> None:
    shift = fleet(120)
    for name in sorted(shift.door.nodes):
        strange(shift, name).passes(2.5)
    shift.passes(HOUR)
    assert 1 <= len(remarks(shift)) <= 4
    assert told_of(shift) == set(shift.door.nodes)


def test_remarks_of_two_kinds_are_told_apart() -> None:
    shift = strange(fleet(4), "n001", "n002")
    for name in ("n003", "n004"):
        shift.door.shows(name, findings=(a_finding("vendor.ANOTHER", node=name),))
    shift.passes(HOUR)
    assert {n.title for n in shift.pager.told} == {f"2 nodes: {STRANGE}", "2 nodes: vendor.ANOTHER"}


def test_what_was_not_delivered_is_told_by_the_next_leader_and_no_node_is_forgotten() -> None:
    shift = strange(fleet(5, Pager(up=False)), "n001", "n002", "n003").passes(600.0)
    after = shift.successor()
    after.pager.up = True
    after.passes(HOUR)
    (notice,) = remarks(after)
    assert "n001, n002, n003" in notice.body
    assert told_of(after) == {"n001", "n002", "n003"}


def test_each_remark_is_in_the_log_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    strange(fleet(30), "n001", "n029").passes(600.0)
    lines = [record.getMessage() for record in caplog.records if "remark" in record.getMessage()]
    assert [line.partition(" ")[0] for line in lines] == ["node=n001", "node=n029"]
    assert "n029 says something strange" in lines[1]


def refused(node: str, why: str) -> Notice:
    body = f"{node} is in the hands of a person: {why}.\nIt is asked for again every minute."
    return Notice(f"{node}.1/3", "urgent", f"{node}: lost", body, f"{node}.1", alike="asked-again/CORDON")


def test_different_refusals_of_one_verb_are_each_quoted_once_in_their_one_message() -> None:
    many = [refused(f"n{n:02}", "a right is missing") for n in range(30)] + [refused("n40", "it carries a mark of x.1")]
    notice = explain.alike(many)
    assert (notice.title, notice.case, notice.level) == ("31 nodes cannot be closed for new work", "", "urgent")
    assert notice.body.count("a right is missing") == 1
    assert "n40 is in the hands of a person: it carries a mark of x.1." in notice.body
    assert "n00.1, n01.1, " in notice.body
    assert "n19.1 and 11 more." in notice.body


def test_one_refusal_alone_keeps_its_words_and_its_case() -> None:
    assert explain.alike([refused("n1", "a right is missing")]) == refused("n1", "a right is missing")
