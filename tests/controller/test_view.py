"""What the controller knows in memory: newest wins, indexes follow changes, wishes to be woken are kept in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.controller.view import View
from sickbay.model import (
    Fleet,
    JobChanged,
    JobPhase,
    Node,
    NodeChanged,
    NodeDeleted,
    Pause,
    Progress,
)
from sickbay.ports import Stored
from tests.builders import a_case, a_finding, a_gpu, a_job, a_node


def seeing(*nodes: Node) -> View:
    view = View()
    view.replace_all(Fleet(nodes, (), 0.0))
    view.touched_nodes.clear()
    return view


def test_ranks_are_left_on_nodes_that_do_not_answer_and_are_shown_with_their_job() -> None:
    dead = [a_node("n1", ready=False, jobs=("llama",)), a_node("n2", ready=False, stuck=("llama",))]
    view = seeing(*dead, a_node("n3", ready=False, jobs=("other",)), a_node("n4", stuck=("llama",)))
    assert [*view.left_on("llama")] == ["n1", "n2"]


# --- newest wins ------------------------------------------------------------------------------------------------------


def test_a_look_older_than_what_we_know_is_ignored() -> None:
    view = seeing(a_node(version=5))
    view.apply(NodeChanged(a_node(version=4, cordoned=True)))
    assert not view.nodes["n1"].cordoned
    assert not view.touched_nodes


def test_a_look_of_the_same_version_is_taken() -> None:
    view = seeing(a_node(version=5))
    view.apply(NodeChanged(a_node(version=5, cordoned=True)))
    assert view.nodes["n1"].cordoned


def test_a_deletion_older_than_what_we_know_is_ignored() -> None:
    view = seeing(a_node(version=5))
    view.apply(NodeDeleted("n1", 4, gone=True))
    assert "n1" in view.nodes


def test_a_late_look_does_not_bring_a_deleted_node_back() -> None:
    view = seeing(a_node(version=5))
    view.apply(NodeDeleted("n1", 6, gone=True))
    for _ in range(2):
        view.apply(NodeChanged(a_node(version=5)))
    assert "n1" not in view.nodes
    assert "n1" in view.gone
    view.apply(NodeChanged(a_node(version=7, uid="uid-2")))
    assert "n1" in view.nodes
    assert "n1" not in view.gone


def test_a_deleted_object_is_not_a_gone_machine() -> None:
    view = seeing(a_node(version=5))
    view.apply(NodeDeleted("n1", 6, gone=False))
    assert "n1" not in view.nodes
    assert "n1" not in view.gone
    assert "n1" in view.touched_nodes


def test_a_resync_forgets_what_is_not_there_any_more() -> None:
    view = seeing(a_node("n1"), a_node("n2"))
    view.jobs["llama"] = a_job()
    view.replace_all(Fleet((a_node("n2"),), (), 1.0))
    assert set(view.nodes) == {"n2"}
    assert "llama" not in view.jobs
    assert {"n1"} <= set(view.touched_nodes)
    assert "llama" in view.touched_jobs


def test_an_older_state_of_a_job_is_ignored() -> None:
    view = View()
    view.apply(JobChanged(a_job(version=5)))
    view.apply(JobChanged(a_job(JobPhase.FAILED, version=4)))
    assert view.jobs["llama"].phase is JobPhase.RUNNING


def test_a_step_that_is_told_later_counts_also_when_it_is_lower_and_a_late_word_does_not() -> None:
    view = View()
    view.apply(JobChanged(a_job(step=100)))
    view.apply(Progress("llama", 0, 120, 5.0))
    view.apply(Progress("llama", 0, 119, 4.0))
    view.apply(Progress("stranger", 0, 1, 6.0))
    assert (view.jobs["llama"].step, view.jobs["llama"].step_at) == (120, 5.0)
    view.apply(Progress("llama", 0, 110, 6.0))  # its launcher has restarted it in place
    assert (view.jobs["llama"].step, view.jobs["llama"].step_at) == (110, 6.0)


def test_that_a_jobs_steps_cannot_be_read_is_known_and_is_no_step() -> None:
    view = View()
    view.apply(JobChanged(a_job(step=100)))
    view.touched_jobs.clear()
    view.apply(Progress("llama", 0, 0, 5.0, unread="no route to host"))
    assert (view.jobs["llama"].step, view.jobs["llama"].unread) == (100, "no route to host")
    assert list(view.touched_jobs) == ["llama"]
    view.apply(Progress("llama", 0, 100, 6.0))
    assert view.jobs["llama"].unread == ""


# --- indexes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "free", "down"),
    [
        ({}, True, False),
        ({"jobs": ("llama",)}, False, False),
        ({"ready": False}, False, True),
        ({"cordoned": True}, False, True),
        ({"gate": True}, False, True),
        ({"gone": True}, False, False),
    ],
)
def test_free_and_down_are_what_the_node_shows(shown: dict[str, Any], free: bool, down: bool) -> None:
    view = seeing(a_node(**shown))
    assert ("n1" in view.free) is free
    assert ("n1" in view.down["pool:default"]) is down


def test_a_node_that_becomes_free_wakes_the_jobs_that_wait() -> None:
    view = seeing(a_node(jobs=("llama",), version=1))
    view.waiting_jobs.add("mixtral")
    view.apply(NodeChanged(a_node(version=2)))
    assert "mixtral" in view.touched_jobs


def test_a_job_that_changes_phase_wakes_the_cases_on_its_nodes() -> None:
    view = seeing(a_node("n1"), a_node("n2"))
    view.cases["n1"] = Stored(a_case(), 1, 1)
    view.apply(JobChanged(a_job()))
    assert list(view.touched_nodes) == ["n1"]


looks = st.builds(
    lambda name, ready, cordoned, rack, pool, driver, version: a_node(
        name, ready=ready, cordoned=cordoned, rack=rack, pool=pool, factors={"driver": driver}, version=version
    ),
    st.sampled_from(("n1", "n2", "n3")),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("", "r1", "r2")),
    st.sampled_from(("a", "b")),
    st.sampled_from(("570", "580")),
    st.integers(1, 20),
)


@given(st.lists(looks | st.sampled_from(("n1", "n2", "n3")), max_size=30))
def test_the_indexes_are_what_a_recount_of_the_nodes_gives(changes: list[Node | str]) -> None:
    view = View()
    for change in changes:
        if isinstance(change, str):
            view.apply(NodeDeleted(change, 99, gone=False))
            view._deleted.clear()
        else:
            view.apply(NodeChanged(change))
    fresh = View()
    fresh.replace_all(Fleet(tuple(view.nodes.values()), (), 0.0))
    assert {k: n for k, n in view.members.items() if n} == dict(fresh.members)
    assert {k: s for k, s in view.down.items() if s} == {k: s for k, s in fresh.down.items() if s}
    assert view.free == fresh.free


def test_a_node_that_moves_to_another_pool_is_counted_there_only() -> None:
    view = seeing(a_node(version=1, pool="a", cordoned=True))
    view.apply(NodeChanged(a_node(version=2, pool="b", cordoned=True)))
    assert view.members["pool:a"] == 0
    assert not view.down["pool:a"]
    assert view.down["pool:b"] == {"n1"}


# --- being woken ------------------------------------------------------------------------------------------------------


def test_what_is_due_is_touched_and_what_is_not_waits() -> None:
    view = View()
    view.due("node", "n1", 10.0)
    view.due("job", "llama", 20.0)
    view.touch_due(15.0)
    assert (list(view.touched_nodes), list(view.touched_jobs)) == (["n1"], [])
    assert view.next_due() == 20.0


def test_the_newest_wish_counts() -> None:
    view = View()
    view.due("node", "n1", 10.0)
    view.due("node", "n1", 30.0)
    view.touch_due(20.0)
    assert not view.touched_nodes
    assert view.next_due() == 30.0


def test_a_second_look_is_no_deadline_and_a_deadline_before_it_is_one() -> None:
    view = View()
    view.due("node", "n1", 10.0, second_look=True)
    assert view.looks_again_next()
    view.due("node", "n2", 5.0)
    assert not view.looks_again_next()
    view.due("node", "n1", 4.0)
    assert not view.looks_again_next()


def test_a_wish_can_be_taken_back() -> None:
    view = View()
    view.due("node", "n1", 10.0)
    view.due("node", "n1", None)
    view.touch_due(20.0)
    assert not view.touched_nodes
    assert view.next_due() is None


# --- pauses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["fleet", "pool:default", "node:n1"])
def test_a_pause_says_who_and_why_in_its_scope(scope: str) -> None:
    view = seeing(a_node())
    view.pauses = {scope: Pause(scope, "ann", "power work", 0.0)}
    assert view.paused(view.nodes["n1"], "n1", 5.0) == f"{scope} is paused by ann: power work"
    assert view.paused(a_node("n2", pool="other"), "n2", 5.0) == ("" if scope != "fleet" else view.paused(None, "x", 5))


def test_a_pause_of_a_pool_holds_for_a_node_of_it_whose_object_somebody_has_just_deleted() -> None:
    view = seeing(a_node())
    view.cases = {"n1": Stored(a_case(node="n1", pool="default"), 1, 1)}
    view.pauses = {"pool:default": Pause("pool:default", "ann", "power work", 0.0)}
    assert view.paused(None, "n1", 5.0) == "pool:default is paused by ann: power work"
    assert view.paused(None, "n2", 5.0) == ""


def test_a_pause_of_a_pool_holds_for_a_job_whose_first_node_is_not_there() -> None:
    view = seeing(a_node("n2"))
    view.pauses = {"pool:default": Pause("pool:default", "ann", "power work", 0.0)}
    assert view.pause_over_job(("n1", "n2"), 5.0) is view.pauses["pool:default"]
    assert view.pause_over_job(("n1",), 5.0) is None


def test_a_pause_ends_at_its_time() -> None:
    view = View()
    pause = Pause("fleet", "ann", "", 0.0, until=100.0)
    view.pauses = {"fleet": pause}
    assert view.paused(None, "n1", 99.0) == "fleet is paused by ann"
    assert view.paused(None, "n1", 100.0) == ""
    view.pauses = {"fleet": replace(pause, until=None)}
    assert view.paused(None, "n1", 1e12)


# --- who gets a turn --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shown",
    [
        {"findings": (a_finding(),)}, {"ready": False}, {"boot_id": "boot-b"}, {"cordoned": True}, {"mark": "n1.1"},
        {"gate": True}, {"gone": True}, {"opted_out": True}, {"uid": "uid-2"}, {"instance": "i-2"},
        {"gpus": (a_gpu("S9"),)},
    ],
    ids=lambda shown: next(iter(shown)),
)  # fmt: skip
def test_what_a_decision_could_see_gets_the_node_a_turn(shown: dict[str, Any]) -> None:
    view = seeing(a_node(version=1))
    view.apply(NodeChanged(a_node(version=2, **shown)))
    assert "n1" in view.touched_nodes


def test_work_that_lands_on_a_healthy_node_is_no_reason_for_a_turn_but_on_a_sick_one_it_is() -> None:
    view = seeing(a_node("n1", version=1), a_node("n2", version=1))
    view.cases["n2"] = Stored(a_case(node="n2"), 1, 1)
    for name in ("n1", "n2"):
        view.apply(NodeChanged(a_node(name, version=2, jobs=("llama",))))
    assert list(view.touched_nodes) == ["n2"]
