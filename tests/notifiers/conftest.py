"""Every notifier we ship, behind one fixture. A new one adds a line: how to build it on a far end that can break."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from sickbay.notifiers.apprise import apprise_notifiers
from sickbay.notifiers.log import LogNotifier
from sickbay.notifiers.sns import SnsNotifier
from sickbay.notifiers.webhook import WebhookNotifier
from sickbay.ports import Notifier
from tests.moto import Front
from tests.notifiers.far_ends import Receiver, Topic, receiving


class FarEnd(Protocol):
    """What a notifier's other side received, and a switch that breaks it."""

    broken: bool

    @property
    def received(self) -> list[str]: ...


@dataclass
class Lines:
    received: list[str] = field(default_factory=list)
    broken: bool = False

    def write(self, text: str) -> None:
        if self.broken:
            raise OSError("no space left on device")
        self.received.append(text)


@dataclass
class Pair:
    notifier: Notifier
    far: FarEnd


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def topic(amazon: Front) -> Topic:
    return Topic(amazon, f"t-{secrets.token_hex(4)}")


def _log(_: pytest.FixtureRequest) -> Pair:
    far = Lines()
    return Pair(LogNotifier(far.write), far)


def _webhook(request: pytest.FixtureRequest) -> Pair:
    far: Receiver = request.getfixturevalue("receiver")
    return Pair(WebhookNotifier(far.url, "c1"), far)


def _apprise(request: pytest.FixtureRequest) -> Pair:
    far: Receiver = request.getfixturevalue("receiver")
    file: Path = request.getfixturevalue("tmp_path") / "addresses"
    file.write_text(f"# the chat of those on call\njson://127.0.0.1:{far.port}/hook\n")
    return Pair(apprise_notifiers(str(file), "c1")[0], far)


def _sns(request: pytest.FixtureRequest) -> Pair:
    far: Topic = request.getfixturevalue("topic")
    return Pair(SnsNotifier(far.arn, "c1", client=far.client), far)


NOTIFIERS = {"log": _log, "webhook": _webhook, "apprise": _apprise, "sns": _sns}  # events: tests/kubernetes


@pytest.fixture(params=sorted(NOTIFIERS))
def pair(request: pytest.FixtureRequest) -> Pair:
    return NOTIFIERS[request.param](request)


@pytest.fixture
def notifier(pair: Pair) -> Notifier:
    return pair.notifier


@pytest.fixture
def far(pair: Pair) -> FarEnd:
    return pair.far
