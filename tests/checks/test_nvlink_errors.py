"""NVLink error counters: growth is a finding, history is not, and a counter that is full is said to be."""

from __future__ import annotations

import pytest

from sickbay.catalog import load
from sickbay.checks import nvlink, nvlink_errors
from sickbay.checks.series import Series
from sickbay.checks.signs import Ask, Reading, Sign
from sickbay.model import Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import SpokenHost, printed

LINE = "\t Link {link}: {kind} Errors: {count}"


def output(*gpus: dict[tuple[int, str], int], kinds: tuple[str, ...] = ("Replay", "Recovery", "CRC")) -> str:
    rows = []
    for index, counts in enumerate(gpus):
        rows.append(f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: GPU-{index:08d})")
        rows += [
            LINE.format(link=link, kind=kind, count=counts.get((link, kind), 0)) for link in range(18) for kind in kinds
        ]
    return "\n".join(rows) + "\n"


def polls(*texts: str, uptime_s: float = 90_000.0) -> list[Sign]:
    """What the last of these polls says, five minutes apart."""
    series, signs = Series(), list[Sign]()
    for n, text in enumerate(texts):
        reading, at = Reading(Completed(0, text, "")), 300.0 * n
        series.add(at, nvlink_errors.samples(reading))
        signs = nvlink_errors.judge(reading, Ask(series=series, at=at, uptime_s=uptime_s))
    return signs


def test_counts_of_the_past_are_no_finding() -> None:
    """Originals 002.6: any sum above zero warned for ever."""
    old = output({(3, "Replay"): 4_000, (3, "CRC"): 120})
    assert polls(old) == []
    assert polls(old, old, old) == []


def test_growth_is_found_on_its_gpu_with_the_link_quoted() -> None:
    (sign,) = polls(output({}, {(7, "Replay"): 10}), output({}, {(7, "Replay"): 60}))
    assert (sign.code, sign.traits["index"], sign.status) == ("smi.nvlink-errors", "1", None)
    assert sign.reason == "50 more packets sent again on the NVLinks of GPU 1 since the last look"
    assert sign.evidence == ("GPU 1: Link 7: replay errors: 60",)


def test_one_burst_is_a_finding_once_so_that_three_in_a_row_means_three_times_growing() -> None:
    before, after = output({}), output({(0, "CRC"): 900})
    assert [sign.code for sign in polls(before, after)] == ["smi.nvlink-errors"]
    assert polls(before, after, after) == []
    catalog = load()
    assert catalog.faults[catalog.codes["smi.nvlink-errors"].fault].confirm == 3


def test_a_few_errors_are_no_growth_and_a_counter_that_starts_anew_has_not_grown() -> None:
    assert polls(output({}), output({(0, "CRC"): 4})) == []
    assert polls(output({(0, "CRC"): 900}), output({(0, "CRC"): 30})) == []


def test_a_full_counter_is_watched_because_nothing_can_be_read_from_it() -> None:
    (sign,) = polls(output({(0, "CRC"): 65_535}))
    assert sign.status is Status.DEGRADED
    assert sign.reason == "the check-sum counter of a link of GPU 0 is full, so growth can no longer be seen"


def test_after_a_boot_growth_is_only_watched() -> None:
    (sign,) = polls(output({}), output({(0, "Recovery"): 50}), uptime_s=60)
    assert sign.status is Status.DEGRADED


def test_the_two_check_sums_of_newer_drivers_are_one_count_and_links_without_a_heading_are_gpu_0() -> None:
    text = "\t Link 0: Replay Errors: 0\n\t Link 0: CRC Flit Errors: 3\n\t Link 0: CRC Data Errors: 4\n"
    (gpu,) = nvlink.counters(text)
    assert (gpu.index, gpu.total("crc"), gpu.total("replay")) == (0, 7, 0)


@pytest.mark.parametrize("said", ["", "Device does not have or support Nvlink", "garbage\x00"])
def test_a_gpu_without_links_is_no_finding(said: str) -> None:
    assert polls(said) == []


def test_the_output_is_kept_under_the_originals_name() -> None:
    reading = nvlink_errors.collect(SpokenHost({"nvidia-smi nvlink -e": printed(output({}))}), Ask())
    assert nvlink_errors.keeps(reading) == {"nvlink-errors.txt": output({})}


def test_growth_costs_a_reset_when_idle_and_never_more() -> None:
    assert load().faults["nvlink-degraded"].severity is Severity.RESET
