"""The settings that seeds are played with: a third are the defaults, every two keys meet, every end is drawn."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from itertools import combinations

import pytest

from sickbay.settings import ControllerSettings, Limit, Policy, Settings
from sickbay.settings_rules import ACTS, hints, range_of
from sickbay.sim import drawn

ROUND = len(drawn.meetings()) * 3 // 2 + 2  # seeds in which every meeting takes place
KEYS = [f"{table}.{f.name}" for table, group in drawn.GROUPS.items() for f in dataclasses.fields(group)]


def test_every_key_has_a_row_or_a_reason() -> None:
    assert sorted(KEYS) == sorted({*drawn.VALUES, *drawn.NOT_DRAWN})


@pytest.mark.parametrize("key", sorted(drawn.VALUES))
def test_the_ends_of_each_documented_range_are_drawn(key: str) -> None:
    table, _, name = key.partition(".")
    group = drawn.GROUPS[table]
    hint, rule = hints(group)[name], f"{group.__name__}.{name}"
    values = (*drawn.VALUES[key], *drawn.LONG.get(key, ()))
    if hint is bool:
        assert set(values) == {True, False}
    elif hint in (int, float):
        assert set(range_of(rule, hint) or ()) <= set(values)
    elif hint is Limit:
        assert "100%" in values
        assert {"0%", 0} & set(values)


def test_every_verb_is_drawn_for_approval_and_for_a_window_of_none() -> None:
    assert all([verb] in drawn.VALUES["policy.approval"] for verb in ACTS)
    assert all({verb: 0} in drawn.VALUES["policy.per_window"] for verb in ACTS)


def test_every_two_keys_meet_within_some_hundred_seeds() -> None:
    met = {frozenset(pair) for row in drawn.meetings() for pair in combinations(row, 2)}
    assert met == {frozenset(pair) for pair in combinations(sorted(drawn.VALUES), 2)}
    assert ROUND < 600


@pytest.mark.parametrize("first", [0, 50_000_000])
def test_every_value_is_drawn_within_two_rounds(first: int) -> None:
    said = {words for seed in range(first, first + 2 * ROUND) for words in drawn.draw(seed).words}
    plain = {words.removeprefix("pool.default.") for words in said}
    wanted = {f"{key} = {drawn.text(value)}" for key, values in drawn.VALUES.items() for value in values}
    spared = {f"{key} = {value}" for key, value in drawn.SPARED}
    assert wanted - spared - plain == set()


def test_a_third_of_the_seeds_change_nothing_but_how_far_we_may_go() -> None:
    for seed in range(0, 90, 3):
        settings = drawn.draw(seed).settings
        assert settings == Settings(policy=Policy(max_verb=settings.policy.max_verb))


def test_up_to_four_keys_are_changed_and_some_of_them_for_one_pool_only() -> None:
    pools: dict[str, int] = defaultdict(int)
    for seed in range(1, 300, 3):
        words = drawn.draw(seed, ("a", "b")).words
        for word in words:
            if word.startswith("pool."):
                pools[word.split(".")[1]] += 1
    assert min(pools["a"], pools["b"]) > 10


def test_what_is_changed_for_one_pool_is_changed_there_and_nowhere_else() -> None:
    seed = next(s for s in range(1, 999) if drawn.draw(s, ("a", "b")).settings.pools)
    settings = drawn.draw(seed, ("a", "b")).settings
    assert any(policy != settings.policy for policy in settings.pools.values())


def test_what_is_drawn_is_shown_as_a_settings_file_would_have_it() -> None:
    assert drawn.text({"REBOOT": 0}) == "{ REBOOT = 0 }"
    assert drawn.text(["DRAIN"]) == '["DRAIN"]'
    assert drawn.text(False) == "false"


def test_the_very_long_ends_are_drawn_for_a_soak_only() -> None:
    year = f"= {drawn.YEAR_S}"
    waits = [key for key in drawn.LONG if drawn.LONG[key] == (drawn.YEAR_S,)]
    brief = {w for seed in range(2 * ROUND) for w in drawn.draw(seed).words}
    soaked = {w for seed in range(3 * ROUND) for w in drawn.draw(seed, soak=True).words}
    assert not any(f"{key} {year}" in brief for key in waits)
    assert all(any(w.endswith(f"{key} {year}") for w in soaked) for key in waits)


def test_the_calm_is_as_long_as_a_case_needs_for_all_its_deadlines() -> None:
    brisk = Settings(policy=Policy(waiting_s=3600.0, queued_s=3600.0, quiet_s=0.0))
    assert drawn.calm_s(brisk) < 12 * 3600.0 < drawn.calm_s(Settings())
    assert drawn.calm_s(Settings()) == drawn.LONGEST_CALM_S < 48 * 3600.0 < drawn.calm_s(Settings(), soak=True)


def test_a_soak_with_twenty_passes_a_second_sits_out_no_more_than_other_seeds() -> None:
    """Sixty hours of them took more than four minutes a seed (100168)."""
    quick = Settings(controller=ControllerSettings(idle_period_s=0.05))
    assert drawn.calm_s(quick, soak=True) == drawn.calm_s(quick) == drawn.LONGEST_CALM_S
