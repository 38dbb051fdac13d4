"""Hardware slowdown: six polls in ten minutes, or most of the time by the driver's count. Never for a power cap."""

from __future__ import annotations

import pytest

from sickbay.checks import gpu_slowdown, nvidia_smi
from sickbay.checks.series import Series
from sickbay.checks.signs import Ask, Reading, Sign
from sickbay.model import Status
from sickbay.ports import Completed
from tests.checks.hosts import TIMED_OUT, SpokenHost
from tests.checks.test_nvidia_smi import text as whole

GPU = """GPU 00000000:3B:00.0
    Clocks Event Reasons
        Idle                              : {idle}
        Applications Clocks Setting       : {set}
        SW Power Cap                      : {cap}
        HW Slowdown                       : {hw}
            HW Thermal Slowdown           : {thermal}
            HW Power Brake Slowdown       : {brake}
        SW Thermal Slowdown               : {sw}
    Clocks Event Reasons Counters
        SW Power Capping                  : 999999999 us
        HW Thermal Slowdown               : {us} us
        HW Power Braking                  : 0 us
"""
QUIET = dict.fromkeys(("idle", "set", "cap", "hw", "thermal", "brake", "sw"), "Not Active") | {"us": "0"}


def said(**changed: str) -> str:
    return GPU.format(**QUIET | changed)


def polls(*texts: str, every: float = 60.0) -> list[Sign]:
    series, signs = Series(), list[Sign]()
    for n, text in enumerate(texts):
        reading, at = Reading(Completed(0, text, "")), every * n
        series.add(at, gpu_slowdown.samples(reading))
        signs = gpu_slowdown.judge(reading, Ask(series=series, at=at))
    return signs


@pytest.mark.parametrize("reason", ["hw", "thermal", "brake"])
def test_six_polls_in_ten_minutes_are_believed_and_five_are_not(reason: str) -> None:
    slow = said(**{reason: "Active"})
    assert polls(*[slow] * 5) == []
    (sign,) = polls(*[slow] * 6)
    assert (sign.code, sign.device, sign.status) == ("smi.slowdown-hw", "0000:3b:00", None)
    assert sign.reason.startswith("the hardware slowed 0000:3b:00 down in 6 looks within 10 minutes")


def test_six_polls_in_an_hour_are_not() -> None:
    assert polls(*[said(hw="Active")] * 6, every=600.0) == []


@pytest.mark.parametrize("reason", ["idle", "set", "cap", "sw"])
def test_what_a_healthy_gpu_does_is_never_a_finding(reason: str) -> None:
    normal = said(**{reason: "Active"})
    assert polls(*[normal] * 20) == []
    assert [sign.code for sign in nvidia_smi.signs(normal)] == []


def test_where_the_driver_counts_the_slowed_time_two_looks_five_minutes_apart_are_enough() -> None:
    (sign,) = polls(said(us="0"), said(us="200000000"), every=300.0)
    assert sign.reason == "the hardware slowed 0000:3b:00 down for 67% of the last 10 minutes"
    assert polls(said(us="0"), said(us="100000000"), every=300.0) == []
    assert polls(said(us="0"), said(us="50000000"), every=60.0) == []  # a minute is too short to tell


def test_slowed_time_of_the_past_is_no_finding() -> None:
    assert polls(*[said(us="7200000000")] * 3, every=300.0) == []


def test_where_polls_are_counted_the_instant_in_check_0_is_not_a_finding_of_its_own() -> None:
    slow = whole({"slow": "Active"})
    series = Series()
    reading = Reading(Completed(0, slow, ""))
    assert [s.code for s in nvidia_smi.judge(reading, Ask(expected_gpus=1, series=series))] == ["smi.slowdown-hw"]
    series.add(0.0, gpu_slowdown.samples(reading))
    assert nvidia_smi.judge(reading, Ask(expected_gpus=1, series=series)) == []


def test_a_single_look_of_a_suite_only_watches() -> None:
    reading = Reading(Completed(0, whole({"slow": "Active"}), ""))
    (sign,) = nvidia_smi.judge(reading, Ask(expected_gpus=1, suite="lightweight"))
    assert sign.status is Status.DEGRADED


def test_no_answer_is_unknown() -> None:
    reading = gpu_slowdown.collect(SpokenHost({"nvidia-smi": TIMED_OUT}), Ask())
    assert [sign.status for sign in gpu_slowdown.judge(reading, Ask())] == [Status.UNKNOWN]
