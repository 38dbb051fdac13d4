"""A job's owner writes a pattern, and the controller runs it: whatever it is, nobody else waits for it."""

from __future__ import annotations

import time

import pytest

from sickbay.platforms.kubernetes.gangs import patterns

NASTY = (
    r"(?:a|a)*b(\d+)", r"(?:(?:a+)b?)+c", r".*.*.*.*=(\d+)", r"(a+)+$", r"(a*)*b", r"(\d+)*x", r"(a|a)*$",
    r".*.*=(\d+)",
    r"\d*\d*\d*x", r"\w+[a-z]+\S+(\d+)=", "a?" * 40 + "b", "(?:a|a)" * 25 + "b", r"(?:(?:aa?)?a?){1,30}(\d+)",
)  # fmt: skip
NO_PATTERNS = ("(" * 50, "[", "a" * 201, r"(a)\1(\d+)", r"(?=a)(\d+)", "(?P<n>", "\\")


@pytest.mark.parametrize("pattern", [*NASTY, *NO_PATTERNS])
def test_a_pattern_that_could_take_for_ever_or_is_none_is_not_used(pattern: str) -> None:
    with pytest.raises(patterns.TooDear, match="is not used"):
        list(patterns.found(("a" * 400,), pattern))


@pytest.mark.parametrize(
    ("pattern", "line", "step"),
    [
        (r"step=(\d+)", "step=140 loss=2.0", 140),
        (r"step[ =:]+(\d+)", "step : 140", 140),
        (r".*step[ =:]+(\d+)", "[rank0] 12:00:01 step=7", 7),
        (r"(?i)iter(?:ation)?\s*[:=]?\s*(\d+)", "Iteration: 12", 12),
        (r"iteration\s+(\d+)/\s*\d+ \|", " iteration      500/  10000 | loss", 500),
        (r'"step":\s*(\d+)', '{"loss": 2.1, "step": 9}', 9),
        (r"(?:step|iter)\w*[= ](\d+)", "iterations 4", 4),
        (r"[^=]*=\s*(\d+)", "x = 3", 3),
        (r"\bstep\b.*?(\d+)", "step of many: 8", 8),
        (r"\d+", "at 15", 15),
    ],
)
def test_patterns_as_trainers_need_them_are_used(pattern: str, line: str, step: int) -> None:
    assert list(patterns.found(("warming up", line), pattern)) == [step]


WORST = ("a" * 400, "ab" * 200, "1b1a" * 100, "1a" * 200)


@pytest.mark.parametrize("pattern", [r".*?\w*?=", r"[ab].?\w.*\d{0,9}a+\d+=", r".(?:\w{0,9}|a*)[ab]*\d="])
def test_the_dearest_patterns_that_are_used_take_a_moment_for_a_line(pattern: str) -> None:
    search = patterns.compiled(pattern)
    began = time.thread_time()
    for line in WORST:
        search.search.search(line[: search.line])
    assert time.thread_time() - began < 3.0


def test_a_pattern_whose_time_is_up_is_left_and_never_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "BUDGET_S", -1.0)
    monkeypatch.setattr(patterns, "_slow", type(patterns._slow)())
    with pytest.raises(patterns.TooDear, match="took too long on these lines"):
        list(patterns.found(WORST, r".*=(\d+)"))
    monkeypatch.undo()
    monkeypatch.setitem(patterns._slow, r".*=(\d+)", None)
    with pytest.raises(patterns.TooDear, match="once took too long"):
        list(patterns.found((), r".*=(\d+)"))
