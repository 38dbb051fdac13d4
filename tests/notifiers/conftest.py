"""Every notifier we ship, behind one fixture. A new one adds a line: how to build it on a far end that can break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from sickbay.notifiers.log import LogNotifier
from sickbay.ports import Notifier


@dataclass
class FarEnd:
    """What a notifier's other side received, and a switch that breaks it."""

    received: list[str] = field(default_factory=list)
    broken: bool = False

    def write(self, text: str) -> None:
        if self.broken:
            raise OSError("no space left on device")
        self.received.append(text)


NOTIFIERS: dict[str, Callable[[FarEnd], Notifier]] = {"log": lambda far: LogNotifier(far.write)}


@pytest.fixture
def far() -> FarEnd:
    return FarEnd()


@pytest.fixture(params=sorted(NOTIFIERS))
def notifier(request: pytest.FixtureRequest, far: FarEnd) -> Notifier:
    return NOTIFIERS[request.param](far)
