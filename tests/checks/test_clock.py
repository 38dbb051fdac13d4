"""clock: agrees with its time server, does not, or nobody can say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import clock
from sickbay.checks.run import run
from sickbay.checks.signs import Ask, Reading
from sickbay.model import Finding, Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed
from tests.fuzzing import EXAMPLES


def tracking(offset: str = "0.000002310", leap: str = "Normal") -> Completed:
    return printed(
        f"A9FEA97B,169.254.169.123,4,1731718800.1,{offset},0.000001,0.00001,-12.1,0.001,0.1,0.0004,0.0002,16.2,{leap}\n"
    )


def looked(
    chrony: Completed = MISSING, systemd: Completed = MISSING, uptime_s: float = 9e4
) -> tuple[list[Finding], SpokenHost]:
    host = SpokenHost({"chronyc": chrony, "timedatectl": systemd})
    return run(host, ["clock"], load(), at=0.0, ask=Ask(uptime_s=uptime_s)), host


def test_a_clock_that_agrees_is_well_and_systemd_is_not_asked() -> None:
    found, host = looked(tracking())
    assert [f.status for f in found] == [Status.OK]
    assert len(host.asked) == 1


@pytest.mark.parametrize("offset", ["0.2", "-0.2"])
def test_a_clock_that_is_off_is_a_setting_and_treats_no_node(offset: str) -> None:
    (found,), _ = looked(tracking(offset))
    assert (found.code, found.severity) == ("clock.skew", Severity.MONITOR)
    assert found.reason == "the clock is off by 0.2 s from its time server"


def test_an_old_chrony_that_does_not_name_its_server_is_read_too() -> None:
    old = printed(tracking("0.2").stdout.replace("169.254.169.123,", ""))
    assert [f.code for f in looked(old)[0]] == ["clock.skew"]


def test_a_time_service_without_a_server_is_said() -> None:
    (found,), _ = looked(tracking(leap="Not synchronised"))
    assert found.code == "clock.unsynchronised"


def test_a_boot_of_a_minute_ago_is_only_watched() -> None:
    (found,), _ = looked(tracking("3.5"), uptime_s=60.0)
    assert found.status is Status.DEGRADED


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("NTP=yes\nNTPSynchronized=yes\n", Status.OK),
        ("NTP=no\nNTPSynchronized=yes\n", Status.OK),
        ("NTP=yes\nNTPSynchronized=no\n", Status.DEGRADED),
        ("NTP=no\nNTPSynchronized=no\n", Status.UNKNOWN),
        ("", Status.UNKNOWN),
    ],
)
def test_without_chrony_systemd_is_asked(text: str, status: Status) -> None:
    found, _ = looked(printed("506 Cannot talk to daemon\n", 1), printed(text))
    assert [f.status for f in found] == [status]


@pytest.mark.parametrize("nothing", [MISSING, TIMED_OUT])
def test_a_node_without_either_is_one_unknown(nothing: Completed) -> None:
    found, _ = looked(nothing, nothing)
    assert [(f.status, f.severity) for f in found] == [(Status.UNKNOWN, Severity.NONE)]


@given(st.text(alphabet="0123456789,.-eEnaifNormal \n=yes", max_size=160))
@settings(max_examples=EXAMPLES, deadline=None)
def test_fuzz_any_answer_is_judged(text: str) -> None:
    reading = Reading(printed(text), outputs={"timedatectl": printed(text)})
    clock.samples(reading)
    assert all(sign.reason for sign in clock.judge(reading, Ask()))
