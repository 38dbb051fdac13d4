"""Which notifiers the settings make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sickbay.errors import UserError
from sickbay.notifiers import notifiers_of
from sickbay.settings import NotifySettings, Settings


def names(notify: NotifySettings) -> list[str]:
    return [one.name for one in notifiers_of(replace(Settings(), notify=notify))]


def test_the_log_is_always_there() -> None:
    assert names(NotifySettings()) == ["log"]


def test_each_one_that_is_named_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    addresses = tmp_path / "addresses"
    addresses.write_text("json://127.0.0.1/\n")
    notify = NotifySettings(
        webhook_url="https://x.example.com/hook", sns_topic_arn="arn:aws:sns:us-west-2:123456789012:t",
        apprise_file=str(addresses),
    )  # fmt: skip
    assert names(notify) == ["log", "webhook", "sns", "apprise-1"]


def test_a_mistake_is_said_before_anything_runs() -> None:
    with pytest.raises(UserError, match="webhook_url"):
        names(NotifySettings(webhook_url="x"))
