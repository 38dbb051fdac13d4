"""`sickbay nodes` and `sickbay why`: the fleet at a glance, and one story."""

from __future__ import annotations

import json
import time

from sickbay.model import Command, Doubt, Latch, NodeRecord, Pause, Phase, Place, Severity

from .builders import XID_79, Bay, a_case, a_ledger, a_recovery

DOUBT = Doubt("S1", strikes=1, why="two relapses")


def a_latch(node: str) -> Latch:
    place = Place(node, "0000:3b:00")
    return Latch("gpu-lost", "xid.79", place, "b/1", "b", 0.0, 0.0, Severity.REBOOT, because=(XID_79,))


def test_each_node_has_its_state(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3", Phase.DRAINING), NodeRecord("gpu-1"), NodeRecord("gpu-2", doubts=(DOUBT,)))
    bay.put(NodeRecord("gpu-3", latched=(a_latch("gpu-3"),)))
    rows = [json.loads(line) for line in bay.run("nodes", "--json").out.splitlines()]
    assert [(row["node"], row["state"]) for row in rows] == [
        ("gpu-1", "well"),
        ("gpu-17", "DRAINING"),
        ("gpu-2", "suspect"),
        ("gpu-3", "latched"),
    ]


def test_a_node_that_the_controller_leaves_alone_by_an_error_of_its_own_is_not_called_well(bay: Bay) -> None:
    bay.put(NodeRecord("gpu-1"), a_ledger(time.time(), unattended={"node gpu-1": "KeyError: 'x'", "job j": "no"}))
    (row,) = [json.loads(line) for line in bay.run("nodes", "--json").out.splitlines()]
    assert (row["node"], row["state"]) == ("gpu-1", "unattended")
    assert "unattended: KeyError: 'x'; nothing is done about it, see the controller's log" in bay.run("nodes").out


def test_a_node_with_a_mark_that_has_no_record_is_listed_as_that(bay: Bay) -> None:
    bay.put(NodeRecord("gpu-1"), a_ledger(time.time(), strays={"gpu-1": "gpu-1.4", "gpu-2": "gpu-2.1"}))
    rows = [json.loads(line) for line in bay.run("nodes", "--json").out.splitlines()]
    assert [(row["node"], row["state"], row["stray"]) for row in rows] == [
        ("gpu-1", "stray", "gpu-1.4"),
        ("gpu-2", "stray", "gpu-2.1"),
    ]
    said = bay.run("nodes").out
    assert "carries our mark of gpu-2.1, of which there is no record: if it still stands in a minute" in said


def test_what_remembers_the_cases_about_something_shared_is_no_node_and_a_paused_name_is_not_called_well(
    bay: Bay,
) -> None:
    bay.put(NodeRecord("driver=580.105.08"), NodeRecord("absence"), Pause("node:gpu-77", "eve", "typo", 1.0))
    rows = [json.loads(line) for line in bay.run("nodes", "--json").out.splitlines()]
    assert [(row["node"], row["state"]) for row in rows] == [("gpu-77", "unknown")]


def test_the_head_says_what_stops_the_whole_fleet(bay: Bay) -> None:
    bay.put(a_ledger(time.time(), breaker="5 cases escalated within an hour"), Pause("fleet", "eve", "power work", 1.0))
    bay.put(Pause("pool:old", "eve", "over", 1.0, until=2.0))
    said = bay.run("nodes").out
    assert "The breaker is open" in said
    assert "Paused: fleet, until somebody resumes it, by eve: power work" in said
    assert "pool:old" not in said


def test_why_tells_the_story_of_a_node(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3", Phase.DRAINING), NodeRecord("gpu-17", doubts=(DOUBT,)))
    bay.end(a_case("gpu-17.2", Phase.RESOLVED))
    said = bay.run("why", "gpu-17").out
    assert "Node gpu-17: DRAINING, case gpu-17.3." in said
    assert "two relapses" in said
    assert said.index("gpu-17.3") < said.index("gpu-17.2")
    assert XID_79 in said


def test_an_open_case_carries_what_is_remembered_of_its_node(bay: Bay) -> None:
    bay.put(a_case("gpu-17.3", Phase.DRAINING, record=NodeRecord("gpu-17", doubts=(DOUBT,))), NodeRecord("gpu-17"))
    assert "suspicion: GPU S1 of gpu-17: two relapses; over after 48 more hours of good work" in bay.run("nodes").out
    said = bay.run("why", "gpu-17").out
    assert "Under suspicion, and taken last for managed jobs: GPU S1 of gpu-17: two relapses" in said
    assert "sickbay node acknowledge gpu-17" in said


def test_a_person_who_knows_better_ends_a_suspicion(bay: Bay) -> None:
    bay.put(NodeRecord("gpu-2", doubts=(DOUBT,)), NodeRecord("gpu-1"))
    said = bay.run("node", "acknowledge", "gpu-2", "--why", "the riser was changed")
    assert "No longer held against gpu-2: GPU S1 of gpu-2: two relapses" in said.out
    wishes = [(c.verb, c.target, c.why) for c in bay.all(Command)]
    assert wishes == [("acknowledge", "gpu-2", "the riser was changed")]
    assert "Nothing is held against node gpu-1" in bay.run("node", "acknowledge", "gpu-1").err


def test_why_tells_the_story_of_a_job_and_of_the_case_that_hurt_it(bay: Bay) -> None:
    bay.put(a_recovery("llama"), a_case("gpu-17.3", jobs_hurt=("llama",)))
    said = bay.run("why", "llama").out
    assert "Job llama: STALLED" in said
    assert "rank 3 is silent" in said
    assert "gpu-17.3" in said


def test_a_healthy_node_with_a_latched_verdict_says_so(bay: Bay) -> None:
    bay.put(NodeRecord("gpu-3", latched=(a_latch("gpu-3"),)))
    said = bay.run("why", "gpu-3").out
    assert "no open case" in said
    assert XID_79 in said


def test_an_unknown_name_is_answered_with_the_nearest(bay: Bay) -> None:
    bay.put(a_recovery("llama-70b"), NodeRecord("gpu-3"))
    said = bay.run("why", "lama-70b")
    assert said.code == 2
    assert "llama-70b" in said.err


def in_peace(now: float) -> NodeRecord:
    """A GPU was lost, a person opened the node again, and the quiet time runs for an hour yet."""
    return NodeRecord("gpu-3", latched=(a_latch("gpu-3"),), quiet={"gpu-lost|b|0000:3b:00": 4_600.0})


def test_a_node_that_was_left_in_peace_says_until_when_and_how_to_end_it(bay: Bay) -> None:
    bay.put(a_ledger(time.time(), watch_time=1_000.0), in_peace(time.time()))
    assert "left in peace until 20" in bay.run("nodes").out.replace("\n", " ")
    said = bay.run("why", "gpu-3").out
    assert "It opens no case until 20" in said
    assert "sickbay case reopen gpu-3" in said


def test_a_person_asks_for_a_case_before_the_quiet_time_is_over(bay: Bay) -> None:
    bay.put(a_ledger(time.time(), watch_time=1_000.0), in_peace(time.time()))
    said = bay.run("case", "reopen", "gpu-3", "--why", "it is real")
    assert "A case about gpu-lost on gpu-3 is opened." in said.out
    assert [(c.verb, c.target, c.why) for c in bay.all(Command)] == [("reopen", "gpu-3", "it is real")]


def test_a_node_that_nothing_is_held_against_cannot_be_reopened(bay: Bay) -> None:
    bay.put(NodeRecord("gpu-1"))
    said = bay.run("case", "reopen", "gpu-1")
    assert said.code != 0
    assert "Nothing is held against node gpu-1" in said.err
