"""DCGM's background watches: they add findings and never take one away."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sickbay.catalog import load
from sickbay.checks import dcgm_health
from sickbay.checks.signs import Ask, Sign
from sickbay.model import Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed

P5, G6 = load().profiles["p5.48xlarge"], load().profiles["g6.48xlarge"]
LINK = "GPU 0's NvLink link 0 is currently down"


def report(system: str = "", message: str = "", health: str = "Failure", gpu: str = "0", **more: Any) -> str:
    body: dict[str, Any] = {"Overall Health": {"value": health if system else "Healthy"}}
    if system:
        watch = {system: {"value": health, "overflow": [message]}}
        body["GPU"] = {"children": {gpu: {"value": health, "children": {"Errors": {"children": watch}}}}}
    return json.dumps({"body": body | more, "header": ["Health Monitor Report"]})


def judged(answer: Completed, ask: Ask | None = None, cards: str = "") -> list[Sign]:
    host = SpokenHost({"dcgmi health -c": answer, "dcgmi health -s": printed("set"), "nvidia-smi -L": printed(cards)})
    ask = ask or Ask(profile=P5)
    return dcgm_health.judge(dcgm_health.collect(host, ask), ask)


def seen(signs: list[Sign]) -> list[tuple[str, Status | None]]:
    return [(s.code.removeprefix("dcgm.DCGM_FR_"), s.status) for s in signs]


def test_healthy_is_quiet() -> None:
    assert judged(printed(report())) == []


def test_healthy_clears_nothing() -> None:
    """DCGM issue 263: healthy by its watches while a GPU waits for a reset."""
    assert not [fault.name for fault in load().faults.values() if fault.cleared_by == "pass:dcgm-health"]


@pytest.mark.parametrize(
    ("system", "message", "expected"),
    [
        ("Memory system", "Detected 2 volatile double-bit ECC error(s) in GPU 0.", ("VOLATILE_DBE_DETECTED", None)),
        (
            "Memory system",
            "GPU 0 had uncorrectable memory errors and row remapping failed.",
            ("ROW_REMAP_FAILURE", None),
        ),
        ("NVLINK system", LINK, ("NVLINK_DOWN", None)),
        ("SM system", "something nobody has heard of", ("dcgm.health-incident", Status.DEGRADED)),
        ("Memory system", "Could not query field X for GPU 0", ("dcgm.health-incident", Status.DEGRADED)),
    ],
)
def test_a_failure_is_named_by_its_words(system: str, message: str, expected: tuple[str, Status | None]) -> None:
    (sign,) = judged(printed(report(system, message)))
    assert seen([sign]) == [expected]
    assert sign.traits["index"] == "0"
    assert system in sign.reason


def test_a_warning_is_only_watched() -> None:
    text = report("Thermal system", "Detected clocks event due to thermal violation in GPU 0.", "Warning")
    assert [s.status for s in judged(printed(text))] == [Status.DEGRADED]


def test_links_that_a_card_does_not_have_are_no_fault() -> None:
    """NVSentinel pull request 1481: PCIe cards without a bridge."""
    answer = printed(report("NVLINK system", LINK))
    assert judged(answer, Ask(profile=G6)) == []
    assert judged(answer, Ask(), cards="GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-1)\n") == []
    assert judged(answer, Ask(), cards="GPU 0: NVIDIA H100 PCIe (UUID: GPU-1)\n") == []


def test_links_of_another_card_are_still_looked_at() -> None:
    cards = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nGPU 1: NVIDIA H100 PCIe (UUID: GPU-2)\n"
    assert seen(judged(printed(report("NVLINK system", LINK)), cards=cards)) == [("NVLINK_DOWN", None)]


def test_links_are_only_watched_after_a_boot_and_on_nodes_of_unknown_type() -> None:
    """NVSentinel issue 1701: 214 of 288 nodes restarted for links that were still training."""
    answer = printed(report("NVLINK system", LINK))
    for ask in (Ask(profile=P5, uptime_s=60.0), Ask()):
        assert seen(judged(answer, ask)) == [("NVLINK_DOWN", Status.DEGRADED)]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (MISSING, "dcgm.missing-tool"),
        (TIMED_OUT, "dcgm.timeout"),
        (replace(TIMED_OUT, stuck=True), "tool.timeout"),
        (printed("", 235, "Error: unable to establish a connection to the specified host: localhost"), "dcgm.dead"),
        (printed("Error: Health watches not enabled. Please enable watches. \n", 253), "dcgm.watches-off"),
        (printed("?"), "dcgm.unreadable"),
        (printed("{}"), "dcgm.unreadable"),
        (printed("", 253, "Error: Unable to check health watches"), "dcgm.unreadable"),
    ],
)
def test_a_sick_tool_is_unknown(answer: Completed, code: str) -> None:
    assert [(s.code, s.status) for s in judged(answer)] == [(code, Status.UNKNOWN)]


def test_watches_that_are_off_are_switched_on() -> None:
    host = SpokenHost({"dcgmi": printed("Error: Health watches not enabled.", 253)})
    dcgm_health.collect(host, Ask())
    assert host.asked == ["dcgmi health -c -j", "dcgmi health -s a"]


def test_an_unhealthy_report_without_details_still_says_something() -> None:
    text = json.dumps({"body": {"Overall Health": {"value": "Failure"}}})
    assert seen(judged(printed(text))) == [("dcgm.health-incident", Status.DEGRADED)]


def test_a_switch_is_not_taken_for_a_gpu() -> None:
    watch = {"children": {"NVLINK system": {"value": "Failure", "overflow": ["NVSwitch 1's NvLink 4 is down."]}}}
    text = report("", "", NvSwitch={"children": {"1": {"value": "Failure", "children": {"Errors": watch}}}})
    (sign,) = judged(printed(text))
    assert (sign.code, sign.traits.get("index", "")) == ("dcgm.DCGM_FR_NVSWITCH_NVLINK_DOWN", "")


def test_the_engine_is_asked_cheaply() -> None:
    assert dcgm_health.engine(SpokenHost({"dcgmi": printed("8 GPUs found.")})) == []
    assert dcgm_health.engine(SpokenHost({"dcgmi": TIMED_OUT})) == []
    assert [s.code for s in dcgm_health.engine(SpokenHost())] == ["dcgm.missing-tool"]
    assert [s.code for s in dcgm_health.engine(SpokenHost({"dcgmi": printed("", 235)}))] == ["dcgm.dead"]
