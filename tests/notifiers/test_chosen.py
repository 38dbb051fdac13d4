"""Which notifiers the settings make."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sickbay.controller.sites import RealClock, Site, open_notifiers
from sickbay.errors import UserError
from sickbay.model import Notice
from sickbay.notifiers import notifiers_of
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.settings import NotifySettings, Settings
from sickbay.sim.world import World
from tests.notifiers.far_ends import Receiver


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


def test_a_receiver_is_told_which_machine_a_node_is(receiver: Receiver) -> None:
    """originals 000.7: instance_id."""
    site = Site(SimulatedPlatform(World(1, 1)), RealClock(), instance={"gpu-17": "i-0abc"}.__getitem__)
    settings = replace(Settings(), notify=NotifySettings(webhook_url=receiver.url))
    (webhook,) = [one for one in open_notifiers(settings, site) if one.name == "webhook"]
    webhook.send(Notice("gpu-17.3/4", "urgent", "gpu-17 needs a person", "XID 79: off the bus", "gpu-17.3", 1.8e9))
    assert json.loads(receiver.posted[0].body)["instance_id"] == "i-0abc"
