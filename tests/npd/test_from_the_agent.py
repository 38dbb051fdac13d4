"""From what a node prints to what node-problem-detector hears: the agent's own parts, its verdict file, our plug-in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sickbay.agent import verdict_file
from sickbay.agent.chart import Shelf
from sickbay.agent.report import Self
from sickbay.agent.station import Station
from sickbay.agent.verdicts import NodeVerdict
from sickbay.catalog import load
from sickbay.checks import kernel_log
from sickbay.checks.kernel_scan import scan_lines
from sickbay.checks.run import run
from sickbay.checks.signs import Sign, Stamp, finding
from sickbay.cli import npd_check
from sickbay.model import Finding, Place, Report, Status
from tests.checks.hosts import TIMED_OUT, SpokenHost

from .verdicts import ask

BOOT = npd_check.boot_id()
CATALOG = load()
XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1122, name=python, GPU has fallen off the bus."
Capture = pytest.CaptureFixture[str]


def agent(folder: Path) -> Station:
    """The agent's middle, which writes the verdict file and tells nobody else."""

    def tell(report: Report, verdict: NodeVerdict) -> None:
        verdict_file.write(folder, report, verdict, gpus=True, lasts_s=900)

    return Station(Shelf(folder), Self("gpu-17"), BOOT, CATALOG, tell)


def passed(station: Station) -> Finding:
    number = next(station.numbers())
    return Finding(
        f"{BOOT}/{number}", "agent", "nvidia-smi", Place("gpu-17"), Status.OK, "", "8 GPUs are well", boot_id=BOOT
    )


def hear(station: Station, *lines: str) -> None:
    station.kernel(kernel_log.signs(scan_lines(lines)), "1")


def found(station: Station, sign: Sign) -> None:
    """One cycle in which nvidia-smi's check made this sign."""
    station.cycle([finding(sign, CATALOG, Stamp("nvidia-smi", "gpu-17", BOOT), next(station.numbers()))])


def poll(station: Station, host: SpokenHost, names: Sequence[str] = ("nvidia-smi",)) -> None:
    station.cycle(run(host, names, CATALOG, at=1.0, sequence=station.numbers()))


def test_a_well_node_is_well(tmp_path: Path, capsys: Capture) -> None:
    station = agent(tmp_path)
    station.cycle([passed(station)])
    said = ask(tmp_path, capsys)
    assert (said.code, said.line) == (npd_check.OK, "1 checks pass")


def test_a_node_nobody_has_looked_at_is_unknown(tmp_path: Path, capsys: Capture) -> None:
    agent(tmp_path).cycle([])
    said = ask(tmp_path, capsys)
    assert (said.code, said.line) == (npd_check.UNKNOWN, "cannot tell: the GPUs have not been looked at yet")


@pytest.mark.parametrize("xid", [79, 48, 95, 64, 119])
def test_an_xid_is_a_problem_at_once(xid: int, tmp_path: Path, capsys: Capture) -> None:
    """originals 003.5 #6: only nvidia-smi's exit code and the number of GPUs counted; the kernel log was not read."""
    station = agent(tmp_path)
    station.cycle([passed(station)])
    hear(station, XID_79.replace(": 79,", f": {xid},"))
    said = ask(tmp_path, capsys)
    assert said.code == npd_check.NONOK
    assert len(said.line) <= 80


@pytest.mark.parametrize("code", ["smi.remap-failed", "smi.sram-threshold", "smi.ecc-volatile", "smi.gpu-lost"])
def test_what_a_gpu_says_of_its_memory_is_a_problem(code: str, tmp_path: Path, capsys: Capture) -> None:
    """originals 003.5 #6: no ECC, no NVLink; eight GPUs with a dying one among them were "GPU Count match"."""
    station = agent(tmp_path)
    found(station, Sign(code, "GPU 3 says so", device="0000:3b:00"))
    said = ask(tmp_path, capsys)
    assert (said.code, said.line) == (npd_check.NONOK, "GPU 3 says so")


def test_what_is_only_watched_is_no_problem(tmp_path: Path, capsys: Capture) -> None:
    """originals 002.12 #7: a warning kept nodes from being used. Its text is kept, and the node in service."""
    station = agent(tmp_path)
    found(station, Sign("smi.persistence-off", "persistence mode is off on GPU 3", device="0000:3b:00"))
    said = ask(tmp_path, capsys)
    assert (said.code, said.line) == (npd_check.OK, "persistence mode is off on GPU 3")


def test_an_nvidia_smi_that_nothing_can_end_becomes_a_problem_and_not_unknown_for_ever(
    tmp_path: Path, capsys: Capture
) -> None:
    """originals 003.5 #5: the commonest failure, a tool that hangs, hit the time limit and was never acted upon. It is
    believed at the third poll; one that could be ended is only slow, and stays unknown."""
    station, host = agent(tmp_path), SpokenHost(answers={"nvidia-smi": replace(TIMED_OUT, stuck=True)}, boot=BOOT)
    codes = []
    for _ in range(3):
        poll(station, host)
        codes.append(ask(tmp_path, capsys).code)
    assert codes == [npd_check.OK, npd_check.OK, npd_check.NONOK]


def test_a_good_look_alone_does_not_bring_a_node_back(tmp_path: Path, capsys: Capture) -> None:
    """originals 003.5 #9: one count that matched again, and the node was uncordoned without a test."""
    station = agent(tmp_path)
    hear(station, XID_79)
    station.cycle([passed(station)])
    assert ask(tmp_path, capsys).code == npd_check.NONOK


def test_an_agent_that_is_restarted_does_not_bring_a_node_back(tmp_path: Path, capsys: Capture) -> None:
    """originals 002.12 #6: a stopped agent removed its mark. Here the verdict outlives it, and the next one knows."""
    station = agent(tmp_path)
    hear(station, XID_79)
    station.close()
    assert ask(tmp_path, capsys).code == npd_check.NONOK
    again = agent(tmp_path)
    again.cycle([passed(again)])
    assert ask(tmp_path, capsys).code == npd_check.NONOK


def test_the_agent_and_the_plug_in_mean_the_same_file_and_length() -> None:
    assert (verdict_file.FILE, verdict_file.MOST_REASON) == (npd_check.FILE, npd_check.MOST)
