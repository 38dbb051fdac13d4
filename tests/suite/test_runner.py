"""Running a suite: order, limits, exclusivity, and looking again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sickbay.catalog import load
from sickbay.checks.signs import Ask
from sickbay.ports import Completed
from sickbay.suite.limit import LimitedHost
from sickbay.suite.result import CheckResult
from sickbay.suite.runner import Manner, plan, run_suite
from sickbay.suite.table import Suite, suite
from tests.checks.hosts import SpokenHost, printed
from tests.suite.builders import BLIND, LOST, NARROW, WARM, WHOSE, Scripted, registered, statuses, suite_of


def ran(monkeypatch: pytest.MonkeyPatch, what: Suite, *scripted: Scripted, **manner: object) -> list[CheckResult]:
    quick = Manner(sleep=lambda _: None, **manner)  # type: ignore[arg-type]
    with registered(monkeypatch, *scripted):
        return run_suite(SpokenHost(), what, load(), ask=Ask(at=5.0), whose=WHOSE, manner=quick)


def test_fail_fast_ends_the_numbered_checks_and_not_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c, extra = Scripted("a"), Scripted("b", [LOST]), Scripted("c"), Scripted("extra")
    results = ran(monkeypatch, suite_of(a, b, c, fail_fast=True, then=[extra]), a, b, c, extra)
    assert statuses(results) == [("a", "PASS"), ("b", "FAIL"), ("extra", "PASS")]
    assert c.asked == 0


def test_a_warning_or_a_blind_check_does_not_end_a_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = Scripted("a", [WARM]), Scripted("b", [BLIND]), Scripted("c")
    assert statuses(ran(monkeypatch, suite_of(a, b, c, fail_fast=True), a, b, c)) == [
        ("a", "WARN"), ("b", "SKIP"), ("c", "PASS"),
    ]  # fmt: skip


def test_an_intensive_suite_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = Scripted("a", [LOST]), Scripted("b")
    assert statuses(ran(monkeypatch, suite_of(a, b), a, b)) == [("a", "FAIL"), ("b", "PASS")]
    assert not suite("intensive").fail_fast


def test_a_deep_check_is_not_run_on_a_node_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """originals 002.12 #8 and #15: level 2 ran on busy nodes, and alone no check asked."""
    deep, light = Scripted("deep", [LOST], deep=True), Scripted("light")
    results = ran(monkeypatch, suite_of(deep, light), deep, light, refusal=lambda: "2 processes on the GPUs")
    assert statuses(results) == [("deep", "SKIP"), ("light", "PASS")]
    assert "2 processes on the GPUs" in results[0].details
    assert not results[0].unknown
    assert deep.asked == 0


def test_idleness_is_asked_anew_before_each_deep_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may have come meanwhile: the first one took an hour."""
    answers = iter(["", "1 process on the GPUs"])
    one, two = Scripted("one", deep=True), Scripted("two", deep=True)
    results = ran(monkeypatch, suite_of(one, two), one, two, refusal=lambda: next(answers))
    assert statuses(results) == [("one", "PASS"), ("two", "SKIP")]


def test_what_needs_three_looks_is_looked_at_three_times_and_then_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Scripted("links", [NARROW])
    (one,) = ran(monkeypatch, suite_of(links), links)
    assert (one.status, one.severity) == ("FAIL", "RESET")
    assert links.asked == 3


def test_what_is_gone_at_the_second_look_is_only_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Scripted("links", [NARROW], [])
    (one,) = ran(monkeypatch, suite_of(links), links)
    assert (one.status, one.severity) == ("WARN", "MONITOR")
    assert "seen in 1 of 3 looks" in one.details
    assert links.asked == 2


def test_a_plain_fault_is_believed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Scripted("lost", [LOST])
    (one,) = ran(monkeypatch, suite_of(lost), lost)
    assert (one.status, lost.asked) == ("FAIL", 1)


def test_a_check_with_a_limit_of_its_own_is_cut_by_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """originals 002.12 #9: CHECK_TIMEOUT (900 s) cut every level-4 diagnostic (9000 s)."""
    own, other = Scripted("own", own_limit_s=9000.0), Scripted("other")
    ran(monkeypatch, suite_of(own, other), own, other, limit_s=1.0)
    assert not isinstance(own.hosts[0], LimitedHost)
    assert isinstance(other.hosts[0], LimitedHost)


def test_the_plan_names_each_limit() -> None:
    limits = {check.name: limit for check, limit in plan(suite("quarantine"), 60.0)}
    assert limits["dcgm-l4"] == 9000.0
    assert limits["nvidia-smi"] == 60.0


class Slow(SpokenHost):
    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        self.asked.append(f"{timeout_s:g}")
        return printed("")


def test_the_commands_of_one_check_share_its_time() -> None:
    """originals 002.12 #11"""
    now = 0.0
    host = Slow()
    limited = LimitedHost(host, 10.0, lambda: now)
    limited.run(("a",), 900.0)
    now = 7.0
    limited.run(("b",), 900.0)
    limited.run(("c",), 1.0)
    now = 10.0
    assert limited.run(("d",), 5.0).timed_out
    assert limited.fetch("http://x", 5.0) is None
    assert host.asked == ["10", "3", "1"]


def test_results_come_as_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    a, b = Scripted("a"), Scripted("b")
    ran(monkeypatch, suite_of(a, b), a, b, progress=lambda name, ended: seen.append(f"{name} {bool(ended)}"))
    assert seen == ["a False", "a True", "b False", "b True"]
