"""A record that nobody can read is shown as what it is; no command fails over it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sickbay.model import Ledger, NodeRecord, Part, Pause, Phase

from .builders import Bay, a_case, a_recovery


@pytest.mark.parametrize("value", [NodeRecord("gpu-17"), a_case("gpu-17.3")], ids=lambda value: type(value).__name__)
def test_the_ward_list_shows_its_node_as_unreadable_beside_the_others(bay: Bay, value: Any) -> None:
    bay.spoil(value)
    bay.put(a_case("gpu-2.1", Phase.DRAINING))
    rows = [json.loads(line) for line in bay.run("nodes", "--json").out.splitlines()]
    assert [(row["node"], row["state"]) for row in rows] == [("gpu-17", "unreadable"), ("gpu-2", "DRAINING")]
    said = bay.run("nodes").out
    assert f"Cannot be read: {type(value).__name__}" in said
    assert "written by a newer Sickbay" in said
    assert "delete from records" in said


@pytest.mark.parametrize(
    "value", [Ledger(epoch=1), Part("S1"), Pause("fleet", "ann", "", 0.0)], ids=lambda v: type(v).__name__
)
def test_whatever_cannot_be_read_is_named_in_the_head_of_the_list(bay: Bay, value: Any) -> None:
    bay.spoil(value)
    said = bay.run("nodes")
    assert said.code == 0
    assert f"Cannot be read: {type(value).__name__}" in said.out


def test_the_list_of_cases_shows_it_as_unreadable(bay: Bay) -> None:
    bay.spoil(a_case("gpu-17.3"))
    bay.put(a_case("gpu-2.1"))
    said = bay.run("cases").out
    assert "gpu-17.3" in said
    assert "unreadable" in said
    assert "gpu-2.1" in said


def test_a_case_that_cannot_be_read_is_shown_as_that(bay: Bay) -> None:
    bay.spoil(a_case("gpu-17.3"))
    said = bay.run("case", "show", "gpu-17.3")
    assert said.code == 2
    assert "cannot be read, so it is left alone" in said.err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpu-17", NodeRecord("gpu-17")),
        ("gpu-17", a_case("gpu-17.3")),
        ("gpu-17.3", a_case("gpu-17.3")),
        ("llama", a_recovery()),
    ],
)
def test_why_says_that_nothing_happens_because_it_cannot_be_read(bay: Bay, name: str, value: Any) -> None:
    bay.spoil(value)
    said = bay.run("why", name)
    assert said.code == 0
    assert f"{name} is left alone" in said.out


def test_a_pause_over_one_that_cannot_be_read_says_that_hands_are_off_and_resume_removes_it(bay: Bay) -> None:
    bay.spoil(Pause("node:gpu-17", "ann", "", 0.0))
    said = bay.run("pause", "--node", "gpu-17")
    assert said.code == 2
    assert "hands are off already" in said.err
    assert "Resumed: node gpu-17" in bay.run("resume", "--node", "gpu-17").out
    assert "Cannot be read" not in bay.run("nodes").out
