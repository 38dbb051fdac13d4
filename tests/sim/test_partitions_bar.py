"""The bar of `sickbay sim partitions`, both ways: what it lets pass, and what it says of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from sickbay.sim.partitions_bar import Cut, beyond, by_incident, read
from sickbay.sim.world import Fact

LONE = ("a", "b")
MANY = ("a", "b", "c")


def fact(t: float, kind: str, node: str = "", **detail: Any) -> Fact:
    return Fact(t, kind, node, detail)


def treat(t: float, node: str = "a", verb: str = "REBOOT", *, ready: bool = False) -> Fact:
    return fact(t, "treat-start", node, verb=verb, ready=ready)


def cut_off(t: float, what: str = "control", nodes: str = "a,b") -> Fact:
    return fact(t, "cut", what=what, nodes=nodes)


def back(t: float, what: str = "control", nodes: str = "a,b") -> Fact:
    return fact(t, "mended", what=what, nodes=nodes)


def said(cut: Cut, *facts: Fact, at_once: int = 5, given_up: tuple[str, ...] = (), notices: Any = None) -> str:
    return "; ".join(beyond(read(facts, cut), cut, at_once, given_up, notices or {}))


def test_nobody_is_treated_who_is_away_with_many() -> None:
    assert "REBOOT of a, with nothing wrong: away with many others" in said(Cut("both", MANY), treat(1.0))
    assert said(Cut("both", LONE), treat(1.0)) == ""


def test_two_nodes_are_many_only_where_they_are_all_of_their_pool() -> None:
    assert Cut("both", LONE, "pool").many
    assert not Cut("both", ("a",), "pool").many
    assert not Cut("both", LONE, "rack").many
    assert Cut("both", LONE, "rack").incidents == LONE
    assert Cut("both", MANY).incidents == ("",)


def test_who_is_away_alone_gets_a_reboot_and_no_more() -> None:
    harsh = said(Cut("both", LONE), treat(1.0, verb="POWER_CYCLE"), treat(2.0, "b", "POWER_CYCLE"))
    assert harsh == "POWER_CYCLE of a, b, with nothing wrong: away alone, which allows a REBOOT and no more"


def test_who_has_no_power_and_is_away_alone_gets_what_its_ladder_has_until_the_power_is_back() -> None:
    cut = Cut("power", LONE)
    assert said(cut, cut_off(0.0, "power"), treat(1.0, verb="REPLACE")) == ""
    assert "REPLACE of a" in said(cut, cut_off(0.0, "power"), back(1.0, "power"), treat(2.0, verb="REPLACE"))
    assert "REPLACE of a" in said(cut, cut_off(0.0, "power"), fact(1.0, "joined", "a"), treat(2.0, verb="REPLACE"))
    assert "away with many" in said(Cut("power", MANY), cut_off(0.0, "power", "a,b,c"), treat(1.0))


def test_nobody_is_treated_who_is_ready() -> None:
    assert "REBOOT of a, with nothing wrong: it was ready" in said(Cut("data", MANY), treat(1.0, ready=True))
    assert "it was ready" in said(Cut("control", LONE), treat(1.0, ready=True))


def test_nobody_is_treated_of_whom_the_provider_says_that_it_runs() -> None:
    cut = Cut("both", LONE, told=True)
    assert "its provider said that it runs" in said(cut, cut_off(0.0, "both"), treat(1.0))
    power = Cut("power", LONE, told=True)
    assert said(power, cut_off(0.0, "power"), treat(1.0)) == ""
    assert said(power, cut_off(0.0, "power"), back(600.0, "power"), treat(660.0)) == ""  # nobody has asked yet
    assert "its provider said" in said(power, cut_off(0.0, "power"), back(600.0, "power"), treat(720.0))


def test_nobody_is_treated_whose_ranks_make_steps() -> None:
    cut, begun = Cut("control", LONE), fact(0.0, "place", job="j", attempt=1, nodes="a,c")
    assert "j, which had ranks on it, made steps" in said(cut, begun, treat(1.0))
    assert said(cut, begun, fact(0.5, "job-end", job="j"), treat(1.0)) == ""
    orphans = fact(0.6, "orphans", job="j", attempt=1, nodes="a", writes=True)
    ended = fact(0.5, "job-end", job="j")
    assert "made steps" in said(cut, begun, orphans, treat(1.0))
    assert said(cut, begun, ended, fact(0.6, "orphans", job="j", nodes="a", writes=False), treat(1.0)) == ""
    assert said(Cut("both", LONE), begun, treat(1.0)) == ""  # without their peers they make none


def test_at_most_at_once_are_treated_at_the_same_time() -> None:
    both = (treat(1.0), treat(2.0, "b"))
    assert said(Cut("both", LONE), *both, at_once=2) == ""
    assert "2 nodes were treated at the same time; at_once allows 1" in said(Cut("both", LONE), *both, at_once=1)
    after = (treat(1.0), fact(2.0, "treat-end", "a"), treat(3.0, "b"))
    assert said(Cut("both", LONE), *after, at_once=1) == ""


def test_nobody_is_cordoned_who_is_away_with_many() -> None:
    assert "a cordoned while away with many others" in said(Cut("both", MANY), fact(1.0, "cordon", "a"))
    assert said(Cut("both", LONE), fact(1.0, "cordon", "a")) == ""


def test_no_job_is_given_up_and_none_lives_twice() -> None:
    twice = fact(1.0, "two-attempts", job="j")
    words = said(Cut("data", MANY), twice, twice, given_up=("k", "l", "m", "n"))
    assert "k, l, m and 1 more given up" in words
    assert "j (2 times) started beside ranks" in words


@pytest.mark.parametrize(("cut", "told"), [(Cut("both", MANY), {"": 6}), (Cut("both", LONE), {"a": 4, "b": 4})])
def test_notices_are_counted_by_incident(cut: Cut, told: dict[str, int]) -> None:
    keys = ("a.1/2", "a.1/9", "b.1/2", "b.1/9", "crowd/1", "crowd/2")
    assert by_incident(keys, cut) == told


def test_operators_get_three_notices_an_incident_at_most() -> None:
    assert said(Cut("both", LONE), notices={"a": 3, "b": 3}) == ""
    assert "operators got 4 notices about b; at most 3 an incident" in said(Cut("both", LONE), notices={"a": 3, "b": 4})
    assert "operators got 4 notices; at most 3" in said(Cut("both", MANY), notices={"": 4})
