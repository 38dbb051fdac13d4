"""What holds for every test: no setting of this machine leaks in, and a slow machine is not a failure."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# No deadline per example: the machine may be shared. Randomness comes from pytest-randomly's printed seed.
# On CI the examples are the same each time; a new counterexample is looked for by people and by `make soak`.
settings.register_profile(
    "sickbay", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=os.environ.get("CI") == "true"
)
settings.load_profile("sickbay")

pytest_plugins = ("tests.moto",)  # the fixtures moto_server and amazon

OURS_TO_KEEP = {"SICKBAY_SHARED", "SICKBAY_FUZZ", "SICKBAY_SOAK"}  # these steer the tests themselves


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("SICKBAY_") and name not in OURS_TO_KEEP:
            monkeypatch.delenv(name)


@pytest.fixture
def own_log() -> Iterator[None]:
    """For tests that set up the log as a process does: afterwards it is as it was."""
    ours = logging.getLogger("sickbay")
    before = (ours.handlers, ours.propagate, ours.level)
    yield
    ours.handlers, ours.propagate = before[0], before[1]
    ours.setLevel(before[2])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What could not be tested on this machine is said aloud, each reason once."""
    reasons = {
        str(report.longrepr[2])
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    }
    for reason in sorted(reasons):
        if "NOT TESTED" in reason:
            terminalreporter.write_line(reason.removeprefix("Skipped: "), red=True, bold=True)
