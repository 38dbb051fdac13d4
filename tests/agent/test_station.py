"""Where findings meet the disk and the publishers: saved before told, once, and never forgotten by a restart."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay import wire
from sickbay.agent.chart import _cursor_in, decoded
from sickbay.agent.ear import Ear
from sickbay.model import Finding, Gpu, Place, Status
from tests.agent.builders import (
    BOOT,
    GPU,
    NODE,
    WALL,
    XID_13,
    XID_79,
    Heard,
    Moments,
    a_finding,
    a_station,
    blind,
    passed,
)
from tests.fuzzing import EXAMPLES

LOST = Ear().hear([XID_79 % 1], 0.0)
WATCHED = Ear().hear([XID_13 % 1], 0.0)


def test_an_xid_is_told_at_once_with_the_serial_of_its_gpu(tmp_path: Path) -> None:
    heard = Heard()
    station = a_station(tmp_path, heard, gpus=(Gpu("GPU-1", "1650923000001", GPU, 0),))
    station.kernel(LOST, f"{BOOT}:1")
    (finding,) = heard.reports[-1].findings
    assert (finding.code, finding.part, finding.id) == ("xid.79", "1650923000001", f"{BOOT}/1")
    assert heard.verdicts[-1].status == "fail"


def test_what_is_told_is_on_disk_already(tmp_path: Path) -> None:
    seen: list[str] = []
    station = a_station(tmp_path)
    station._tell = lambda report, verdict: seen.append((tmp_path / "verdicts.json").read_text())
    station.kernel(LOST, f"{BOOT}:1")
    assert "xid.79" in seen[0]
    assert f"{BOOT}:1" in seen[0]


def test_after_a_kill_verdicts_cursor_and_numbers_go_on(tmp_path: Path) -> None:
    a_station(tmp_path).kernel(LOST, f"{BOOT}:41")  # and then it is killed: nothing is closed
    heard = Heard()
    station = a_station(tmp_path, heard)
    assert station.chart.cursor == f"{BOOT}:41"
    assert station.verdict.status == "fail"
    station.kernel(WATCHED, f"{BOOT}:42")
    assert heard.reports[-1].sequence == 2
    assert sorted(finding.id for finding in heard.reports[-1].findings) == [f"{BOOT}/1", f"{BOOT}/2"]


def test_stopping_clears_nothing(tmp_path: Path) -> None:
    """originals 002.12 #6: SIGTERM removed the unhealthy taint."""
    station = a_station(tmp_path)
    station.kernel(LOST, f"{BOOT}:1")
    station.close()
    assert a_station(tmp_path).verdict.status == "fail"


def test_repeats_are_counted_and_told_once_a_second(tmp_path: Path) -> None:
    heard, clock = Heard(), Moments()
    station = a_station(tmp_path, heard, clock=clock)
    for n in range(1, 101):
        station.kernel(WATCHED, f"{BOOT}:{n}")
    assert len(heard.reports) == 1
    assert 0 < (station.due_s() or 0.0) <= 1.0
    clock.pass_(1.0)
    station.flush()
    assert [report.findings[0].count for report in heard.reports] == [1, 100]


def test_repeats_that_were_not_saved_are_read_again_and_not_counted_twice(tmp_path: Path) -> None:
    station = a_station(tmp_path)
    station.kernel(WATCHED, f"{BOOT}:1")
    station.kernel(WATCHED, f"{BOOT}:2")  # counted in memory only; then the kill
    again = a_station(tmp_path)
    assert again.chart.cursor == f"{BOOT}:1"
    again.kernel(WATCHED, f"{BOOT}:2")
    assert again.chart.verdicts.latched[0].finding.count == 2


def test_lines_without_a_finding_move_the_cursor_and_cost_one_small_write_a_second(tmp_path: Path) -> None:
    clock = Moments()
    station = a_station(tmp_path, clock=clock)
    for n in range(1, 50):
        station.kernel([], f"{BOOT}:{n}")
        station.flush()
    first = (tmp_path / "cursor.json").read_text()
    assert not (tmp_path / "verdicts.json").exists()
    clock.pass_(1.0)
    station.flush()
    assert (json.loads(first)["cursor"], a_station(tmp_path).chart.cursor) == (f"{BOOT}:1", f"{BOOT}:49")


def test_a_new_boot_starts_the_log_anew_and_keeps_the_numbers(tmp_path: Path) -> None:
    a_station(tmp_path).kernel(LOST, f"{BOOT}:41")
    station = a_station(tmp_path, boot="boot-b")
    assert station.chart.cursor == ""
    assert station.chart.numbers == 1
    station.cycle([], uptime_s=10.0)
    assert station.verdict.status == "fail"  # not settled yet
    station.cycle([passed("nvidia-smi", 9, boot_id="boot-b")], uptime_s=1_000.0)
    assert station.verdict.status == "pass"


def test_a_damaged_chart_is_moved_aside_and_said(tmp_path: Path) -> None:
    (tmp_path / "verdicts.json").write_text('{"schema": 1, "latched": [')
    station = a_station(tmp_path)
    assert "verdicts.json.unreadable" in station.chart.unreadable
    assert (tmp_path / "verdicts.json.unreadable").exists()
    station.kernel(LOST, f"{BOOT}:1")
    assert not a_station(tmp_path).chart.unreadable


def test_a_disk_that_refuses_does_not_keep_the_news(tmp_path: Path) -> None:
    heard = Heard()
    station = a_station(tmp_path / "gone", heard)
    station.kernel(LOST, f"{BOOT}:1")
    assert heard.codes() == ["xid.79"]
    assert station.save_errors == 1


def test_three_cycles_in_which_the_gpu_tool_cannot_be_killed_are_a_hung_driver(tmp_path: Path) -> None:
    """originals 003.5 #5"""
    heard = Heard()
    station = a_station(tmp_path, heard)
    for n in range(3):
        station.cycle([a_finding("smi.driver-hung", 10 + n, check="nvidia-smi")])
    assert heard.codes() == ["smi.driver-hung"]
    assert [verdict.status for verdict in heard.verdicts][-1] == "fail"


def test_a_gpu_tool_that_is_slow_and_could_be_killed_says_nothing_about_the_driver(tmp_path: Path) -> None:
    heard = Heard()
    station = a_station(tmp_path, heard)
    for n in range(9):
        station.cycle([blind("nvidia-smi", 10 + n)])
    assert heard.codes() == ["tool.timeout"]
    assert {verdict.status for verdict in heard.verdicts} == {"unknown"}


def test_a_cycle_is_a_heartbeat_even_when_nothing_changed(tmp_path: Path) -> None:
    heard = Heard()
    station = a_station(tmp_path, heard)
    for n in range(3):
        station.cycle([passed("nvidia-smi", n + 1)])
    assert [report.sequence for report in heard.reports] == [1, 2, 3]


def test_in_the_middle_of_a_boots_first_cycle_no_check_is_told_to_have_passed_in_it(tmp_path: Path) -> None:
    """By one answer of this boot the controller knows that the whole suite was run in it (core/proved.py)."""
    a_station(tmp_path).cycle([passed("nvidia-smi", 1), passed("topology", 2)])
    heard, again = Heard(), "another-boot"
    station = a_station(tmp_path, heard, boot=again)
    lost = a_finding("smi.gpu-lost", 3, check="nvidia-smi", boot_id=again)
    station.glimpse([lost])
    station.glimpse([passed("topology", 4, boot_id=again)])
    assert {f.boot_id for f in heard.reports[-1].findings if f.status is Status.OK} == {BOOT}
    station.cycle([lost, passed("topology", 4, boot_id=again)])
    assert {f.boot_id for f in heard.reports[-1].findings} == {again}


def test_a_report_stays_below_what_the_ingest_takes(tmp_path: Path) -> None:
    heard = Heard()
    station = a_station(tmp_path, heard)
    noisy = [
        Finding(
            f"{BOOT}/{n}", "agent", "nvidia-smi", Place(NODE, GPU), Status.FAILED, f"made.up-{n}", "x" * 9_000,
            evidence=("y" * 9_000,) * 9, boot_id=BOOT, at=WALL, traits={str(k): "z" * 9_000 for k in range(99)},
        )
        for n in range(1, 90)
    ]  # fmt: skip
    station.cycle(noisy)
    assert len(wire.encode(heard.reports[-1])) < 256 << 10
    assert heard.reports[-1].findings


@settings(max_examples=EXAMPLES)
@given(st.one_of(st.binary(max_size=300), st.text(max_size=200).map(str.encode), st.just(b'{"schema":1}')))
def test_fuzz_no_content_of_the_state_folder_stops_an_agent(data: bytes) -> None:
    assert isinstance(decoded(data), str)
    assert isinstance(_cursor_in(data), str)
