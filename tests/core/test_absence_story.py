"""One incident of nodes that go away together, also when they come and go: what people are told, and when."""

from __future__ import annotations

from dataclasses import replace

from sickbay.core.absence_story import (
    UNTOLD,
    Story,
    again,
    goes_on,
    goes_on_in,
    has_returned,
    is_another,
    is_cut_short,
    news,
    next_news,
    over_at,
    read,
    written,
)
from sickbay.model import Absence, NodeRecord, Past

HOUR, DAY = 3_600.0, 86_400.0
NEVER = float("-inf")
BEGAN = Story(100.0, most=8)


def past(ended: float, end: str = "RESOLVED") -> tuple[Past, ...]:
    return (Past("absence.1", "nodes-absent", "", None, end, False, ended, 0.0),)


def test_it_is_read_as_it_was_written_beside_what_else_was_told() -> None:
    record = NodeRecord("absence", told={"recurring": 5.0})
    kept = written(record, Story(100.0, 3, 8, 0))
    assert read(kept) == Story(100.0, 3, 8, 0)
    assert read(record) is None
    assert written(kept, None) == record


def test_after_the_beginning_people_hear_of_it_after_an_hour_and_then_once_a_day() -> None:
    assert news(BEGAN, 100.0 + HOUR - 1) == UNTOLD
    assert news(BEGAN, next_news(BEGAN)) == 0
    told = replace(BEGAN, day=0)
    assert news(told, 100.0 + DAY - 1) == UNTOLD
    assert news(told, next_news(told)) == 1
    assert news(replace(BEGAN, day=1), 100.0 + 1.5 * DAY) == UNTOLD


def test_a_first_word_that_comes_days_late_is_that_of_its_day_and_the_next_follows_a_day_later() -> None:
    """It was taken for that of the first hour, and the next was due in the past: nobody heard of it for days."""
    late = Story(0.0)
    assert news(late, 2.5 * DAY) == 2
    assert next_news(replace(late, day=2)) == 3 * DAY


def test_when_they_go_away_for_the_third_time_people_hear_it_at_once() -> None:
    twice = again(BEGAN, 8)
    assert news(twice, 200.0) == UNTOLD
    assert news(again(twice, 8), 200.0) == 0
    assert news(replace(again(twice, 8), day=0), 300.0) == UNTOLD


def test_who_goes_away_within_an_hour_goes_on_with_it() -> None:
    assert goes_on(BEGAN, past(1_000.0), NEVER, 1_000.0 + HOUR)
    assert not goes_on(BEGAN, past(1_000.0), NEVER, 1_001.0 + HOUR)
    assert not goes_on(None, past(1_000.0), NEVER, 1_001.0)


def test_who_goes_away_after_people_closed_it_is_told_of_anew() -> None:
    """It rested with a person whom nobody had told (seed 811)."""
    assert not goes_on(BEGAN, past(1_000.0, "DISMISSED"), NEVER, 1_001.0)


def test_a_story_of_which_no_case_was_ever_written_is_begun_anew() -> None:
    assert not goes_on(BEGAN, past(50.0), NEVER, 200.0)
    assert over_at(BEGAN, past(50.0), NEVER) is None


def test_it_is_over_an_hour_after_its_last_case_unless_people_closed_that() -> None:
    assert over_at(BEGAN, past(1_000.0), NEVER) == 1_000.0 + HOUR
    assert over_at(BEGAN, past(1_000.0, "DISMISSED"), NEVER) is None
    assert over_at(BEGAN, (), 1_000.0) == 1_000.0 + HOUR
    assert over_at(None, past(1_000.0), NEVER) is None


def test_who_is_back_and_goes_away_before_the_case_has_ended_has_returned_too() -> None:
    away = Absence(("fleet",), "nothing", 0.0, 3, 3)
    assert has_returned(replace(away, all_back=50.0), away)
    assert not has_returned(away, away)


def test_a_story_whose_last_case_neither_ended_nor_is_open_was_cut_short_by_somebody_who_deleted_it() -> None:
    """While nobody led: the next leader took those still away for lone nodes, and rebooted one (seed 520)."""
    begun = written(NodeRecord("absence", last_n=1), BEGAN)
    assert is_cut_short(begun, 500.0)
    assert not is_cut_short(replace(begun, past=past(500.0)), 600.0)
    again = written(replace(begun, past=past(500.0), last_n=2), replace(BEGAN, opened=800.0))
    assert is_cut_short(again, 900.0)
    assert not is_cut_short(written(begun, None), 500.0)


def test_a_case_that_its_leader_did_not_live_to_write_was_deleted_by_nobody() -> None:
    """Its nodes were left to people who had heard of nothing (seed 1239)."""
    assert not is_cut_short(written(NodeRecord("absence", last_n=1), BEGAN), 130.0)
    goes_on = replace(written(NodeRecord("absence"), replace(BEGAN, opened=800.0)), past=past(500.0), last_n=2)
    assert not is_cut_short(goes_on, 830.0)


def stood(mostly_back: float | None, all_back: float | None = None, count: int = 0) -> Absence:
    return Absence(("fleet",), "rack=r1", 100.0, count, 8, mostly_back=mostly_back, all_back=all_back)


AWAY = stood(None, count=4)


def test_those_who_go_away_in_a_case_that_stood_for_an_hour_after_most_were_back_are_told_of_anew() -> None:
    for before in (stood(1_000.0, 1_500.0), stood(1_500.0, count=1)):
        assert not is_another(before, AWAY, 1_500.0 + HOUR)
        assert is_another(before, AWAY, 1_501.0 + HOUR)
        assert goes_on_in(BEGAN, before, AWAY, 1_501.0 + HOUR) == Story(1_501.0 + HOUR, most=8)


def test_those_who_go_away_in_it_sooner_have_come_back_and_gone_again() -> None:
    for before in (stood(1_000.0, 1_500.0), stood(1_500.0, count=1)):
        assert goes_on_in(BEGAN, before, AWAY, 1_500.0 + HOUR).times == 2


def test_nothing_new_is_told_of_a_case_in_which_nobody_goes_away() -> None:
    back = stood(1_000.0, 1_500.0)
    assert goes_on_in(BEGAN, back, back, 1_500.0 + 5 * HOUR) == BEGAN
    assert goes_on_in(BEGAN, AWAY, AWAY, 1_500.0 + 5 * HOUR) == BEGAN
