"""The one message about a full limit: who waits, who fills it, what to do and when there is news. Words are product."""

from __future__ import annotations

from sickbay.core.crowd import RENEW_S, Full, Told, Waiter, is_news, notice, told
from sickbay.model import Notice


def waiting(count: int, *, urgent: int = 0) -> list[Waiter]:
    return [Waiter(f"n{n:02}.1", f"n{n:02}", n >= count - urgent) for n in range(count)]


def full(**changed: object) -> Full:
    values: dict[str, object] = {"scope": "pool:a100", "setting": "max_out", "most": 2, "out": ("x1", "x2")}
    return Full(**{**values, **changed})  # type: ignore[arg-type]


def said(count: int = 3, *, urgent: int = 0, **limit: object) -> Notice:
    return notice(full(**limit), waiting(count, urgent=urgent), 10.0, 20.0)


def before(count: int, *, urgent: int = 0) -> Told:
    return told(waiting(count, urgent=urgent), 0.0)


def after(count: int, hours: float, *, urgent: int = 0) -> Told:
    return told(waiting(count, urgent=urgent), hours * RENEW_S)


def test_it_is_urgent_as_soon_as_one_of_them_cannot_wait() -> None:
    assert said().level == "warning"
    assert said(urgent=1).level == "urgent"


def test_it_counts_eighty_and_names_twenty_those_that_cannot_wait_first() -> None:
    note = said(80, urgent=1)
    assert note.title == "pool:a100: no more nodes may be taken out, 80 sick nodes wait"
    first = note.body.splitlines()[0]
    assert first.startswith("80 sick nodes stay in service and may fail the jobs there, 1 of them with a fault that")
    assert ": n79, n00, n01, " in first
    assert first.endswith(" and 60 more.")


def test_one_node_that_waits_is_told_in_the_singular() -> None:
    assert said(1).title.endswith("1 sick node waits")


def test_it_names_who_fills_the_limit_and_the_setting_to_raise() -> None:
    body = said().body
    assert "2 of at most 2 nodes of pool:a100 are out (policy.max_out): x1, x2." in body
    assert "raise policy.max_out" in body


def test_cases_that_wait_for_a_person_and_keep_places_are_named_with_what_to_type() -> None:
    body = said(stuck=("x1.3",)).body
    assert "Waiting for a person, and keeping places: x1.3." in body
    assert "sickbay case retry" in body
    assert "abort" in body
    assert "The others give their places back" in body


def test_nodes_that_are_out_by_somebody_elses_doing_are_to_be_returned() -> None:
    body = said(others=("x1", "x2")).body
    assert "x1, x2. Those that are well: return them to service." in body
    assert "The others" not in body


def test_nodes_that_are_away_with_many_are_said_to_be() -> None:
    assert "Away together with many, one case is about what they share: x1, x2." in said(away=("x1", "x2")).body


def test_a_limit_of_none_says_so() -> None:
    assert "No node of pool:a100 may be taken out: policy.max_out allows none." in said(most=0, out=()).body


def test_the_first_word_is_news_and_the_same_crowd_an_hour_later_is_not() -> None:
    assert is_news(None, after(3, 0))
    assert not is_news(before(3), after(3, 1))


def test_a_quarter_more_is_news_but_only_after_an_hour() -> None:
    assert not is_news(before(8), after(10, 0.9))
    assert not is_news(before(8), after(9, 1))
    assert is_news(before(8), after(10, 1))


def test_fewer_that_wait_are_no_news() -> None:
    assert not is_news(before(80), after(20, 1))


def test_the_first_fault_that_cannot_wait_is_told_at_once_and_the_next_after_an_hour() -> None:
    assert is_news(before(8), after(8, 0.1, urgent=1))
    assert not is_news(before(8, urgent=1), after(8, 0.1, urgent=2))
    assert is_news(before(8, urgent=1), after(8, 1, urgent=2))


def test_a_crowd_that_stays_is_told_once_a_day() -> None:
    assert not is_news(before(8), after(8, 23))
    assert is_news(before(8), after(8, 24))
