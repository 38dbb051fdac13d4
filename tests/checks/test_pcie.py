"""PCIe: lanes, speed under load only, and error counters that grow."""

from __future__ import annotations

import pytest

from sickbay.catalog import load
from sickbay.checks import pcie
from sickbay.checks.series import Series
from sickbay.checks.signs import Ask, Sign, severity_of
from sickbay.model import Severity, Status
from tests.checks.hosts import TIMED_OUT, SpokenHost, printed

HEAD = ", ".join(pcie.FIELDS).replace("utilization.gpu", "utilization.gpu [%]")
WELL = {"pstate": "P0", "load": "0 %", "width": "16", "gen": "5"}
AER = "Undefined 0\nDLP 0\nSDES 0\nTLP 0\nTOTAL_ERR_{kind} {count}\n"


def csv(*gpus: dict[str, str]) -> str:
    rows = [HEAD]
    for n, change in enumerate(gpus):
        gpu = WELL | change
        rows.append(
            f"00000000:{16 + n:02X}:00.0, 99{n}, {gpu['pstate']}, {gpu['load']}, {gpu['width']}, 16, {gpu['gen']}, 5"
        )
    return "\n".join(rows) + "\n"


def look(text: str, files: dict[str, str] | None = None, ask: Ask | None = None) -> list[Sign]:
    ask = ask or Ask()
    reading = pcie.collect(SpokenHost({"nvidia-smi": printed(text)}, files=files or {}), ask)
    ask.series.add(ask.at, pcie.samples(reading))
    return pcie.judge(reading, ask)


def test_full_links_have_nothing_to_say() -> None:
    assert look(csv(*[{}] * 8)) == []


def test_missing_lanes_are_found_on_their_gpu() -> None:
    (sign,) = look(csv({}, {"width": "8"}, {}))
    assert (sign.code, sign.device, sign.part) == ("pcie.width", "0000:11:00", "991")
    assert sign.reason == "0000:11:00 has 8 of 16 PCIe lanes"


def test_lanes_folded_in_deep_idle_and_machines_built_narrow_are_no_findings() -> None:
    assert look(csv({}, {"width": "8", "pstate": "P8"})) == []
    assert look(csv(*[{"width": "8"}] * 4)) == []


def test_speed_counts_under_load_only() -> None:
    assert look(csv({"gen": "1"}, {})) == []
    (sign,) = look(csv({"gen": "1", "load": "97 %"}, {}))
    assert sign.reason == "the PCIe link of 0000:10:00 runs at generation 1 of 5 under load"


def test_no_link_finding_costs_a_node() -> None:
    for code in ("pcie.width", "pcie.speed", "pcie.aer-nonfatal"):
        assert severity_of(code, {}, load()) is Severity.MONITOR


def aer(fatal: int, nonfatal: int = 0) -> dict[str, str]:
    at = "/sys/bus/pci/devices/0000:10:00.0/aer_dev_"
    return {
        at + "fatal": AER.format(kind="FATAL", count=fatal),
        at + "nonfatal": AER.format(kind="NONFATAL", count=nonfatal),
    }


def test_error_counters_tell_only_by_growing() -> None:
    series = Series()
    assert look(csv({}), aer(7, 3), Ask(series=series, at=0.0)) == []
    assert look(csv({}), aer(7, 3), Ask(series=series, at=300.0)) == []
    found = look(csv({}), aer(8, 5), Ask(series=series, at=600.0))
    assert [(s.code, s.reason) for s in found] == [
        ("pcie.aer-fatal", "1 new fatal PCIe error(s) on 0000:10:00 since the last look"),
        ("pcie.aer-nonfatal", "2 new nonfatal PCIe error(s) on 0000:10:00 since the last look"),
    ]
    assert look(csv({}), aer(0), Ask(series=series, at=900.0)) == []  # a reset started them anew


def test_a_lost_gpu_in_front_of_the_rows_does_not_hide_the_others() -> None:
    lost = "Unable to determine the device handle for GPU0000:25:00.0: GPU is lost.  Reboot the system\n"
    assert [sign.code for sign in look(lost + csv({"width": "4"}, {}))] == ["pcie.width"]


@pytest.mark.parametrize("cell", ["[N/A]", "[Unknown Error]", "[Not Supported]", "[Insufficient Permissions]", "N/A"])
def test_a_cell_without_value_is_no_finding(cell: str) -> None:
    assert look(csv({"width": cell, "load": cell, "gen": cell}, {})) == []


def test_nothing_to_read_is_unknown() -> None:
    assert [s.status for s in look('Field "pcie.link.gen.max" is not a valid field to query.')] == [Status.UNKNOWN]
    reading = pcie.collect(SpokenHost({"nvidia-smi": TIMED_OUT}), Ask())
    assert [s.status for s in pcie.judge(reading, Ask())] == [Status.UNKNOWN]
