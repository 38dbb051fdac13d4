"""The original agent's worst mistakes (docs/originals-bugs.md) against ours: what is latched, what is read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sickbay.agent.knowledge import Knowledge, Overheard
from sickbay.agent.reload import Config
from sickbay.agent.report import Self
from sickbay.agent.schedule import l2_due
from sickbay.agent.station import Station
from sickbay.checks import kernel_log
from sickbay.checks.kernel_scan import scan_lines
from sickbay.checks.signs import Sign, Stamp, finding
from sickbay.model import Finding, Place, Status
from sickbay.ports import Completed
from sickbay.settings import AgentSettings
from sickbay.suite.exclusive import busy
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed
from tests.npd.test_from_the_agent import BOOT, CATALOG, XID_79, agent, hear

HOUR = 3600.0
SIX_HOURS = 6 * HOUR


def said_by(station: Station, check: str, sign: Sign) -> Finding:
    return finding(sign, CATALOG, Stamp(check, "gpu-17", BOOT), next(station.numbers()))


def good(station: Station, check: str) -> Finding:
    number = next(station.numbers())
    return Finding(f"{BOOT}/{number}", "agent", check, Place("gpu-17"), Status.OK, "", "well", boot_id=BOOT)


def test_a_failed_diagnostic_outlives_the_cycles_that_do_not_run_it(tmp_path: Path) -> None:
    """originals 002.12 #5: results were wiped each cycle, so a level-2 failure was gone after five minutes."""
    station = agent(tmp_path)
    station.cycle([said_by(station, "dcgm-l2", Sign("dcgm.test-failed", "memory test failed", device="0000:3b:00"))])
    for _ in range(5):
        station.cycle([good(station, "nvidia-smi")])
    assert (station.verdict.status, station.verdict.reason) == ("fail", "memory test failed")


def test_the_nodes_label_names_the_type_where_the_metadata_is_out_of_reach(tmp_path: Path) -> None:
    """originals 002.12 #3: the label's type never reached the checks, and 5 of 8 GPUs passed."""
    knowledge = Knowledge(tmp_path, Overheard(SpokenHost()), CATALOG)
    knowledge.look(AgentSettings())
    assert (knowledge.type, knowledge.profile) == ("", None)
    knowledge.told("p5.48xlarge", "i-0abc")
    assert knowledge.stale  # so the next cycle looks again, and not the twelfth
    knowledge.look(AgentSettings())
    assert (knowledge.type, knowledge.why, knowledge.stale) == ("p5.48xlarge", "label of the node", False)
    assert knowledge.profile is not None
    assert knowledge.profile.gpus == 8
    assert knowledge.who(Self("gpu-17")).instance == "i-0abc"


def test_no_diagnostic_runs_at_an_agents_start() -> None:
    """originals 002.12 #8: level 2 ran on the first cycle of every node, into whatever was training there."""
    for node in (f"gpu-{n}" for n in range(200)):
        assert not l2_due(node, born=1000.0, last=0.0, interval_s=SIX_HOURS, wall=1000.0 + HOUR)
        assert l2_due(node, born=1000.0, last=0.0, interval_s=SIX_HOURS, wall=1000.0 + SIX_HOURS)


@pytest.mark.parametrize("answer", [printed("1122, python\n"), MISSING, TIMED_OUT, printed("", 9)])
def test_a_node_in_use_or_one_that_does_not_say_is_not_idle(answer: Completed) -> None:
    """originals 002.12 #8: ... and every six hours, whatever ran there."""
    host = SpokenHost(answers={"nvidia-smi": answer})
    assert busy(host)
    assert not busy(SpokenHost(answers={"nvidia-smi": printed("")}))


def test_a_gpu_that_was_reset_is_not_failed_by_its_old_line(tmp_path: Path) -> None:
    """originals 002.12 #13: the log was read by its last lines, so an old Xid kept failing a node after the reset."""
    station = agent(tmp_path)
    station.cycle([good(station, "nvidia-smi")])
    hear(station, XID_79.replace(": 79,", ": 95,"))
    assert station.verdict.status == "fail"
    station.reset(["0000:3b:00"])
    station.cycle([good(station, "nvidia-smi")])
    assert station.verdict.status == "pass"


def test_noise_in_the_log_does_not_heal_a_node(tmp_path: Path) -> None:
    """originals 002.12 #13: enough other lines, and the Xid was out of sight."""
    station = agent(tmp_path)
    hear(station, XID_79)
    hear(station, *(f"usb 1-1: new high-speed USB device number {n}" for n in range(10_000)))
    assert station.verdict.status == "fail"


def test_an_xid_is_known_by_its_place_in_the_line_and_laid_to_one_gpu() -> None:
    """originals 002.12 #13: "pid=15412" and the words of a reset were taken for Xid 154."""
    line = "NVRM: Xid (PCI:0000:3b:00): 13, pid=15412, name=python, Graphics Exception, GPU Reset Required"
    (sign,) = kernel_log.signs(scan_lines([line]))
    assert (sign.code, sign.device) == ("xid.13", "0000:3b:00")


def test_an_edited_configmap_is_read_again_and_a_bad_edit_changes_nothing(tmp_path: Path) -> None:
    """originals 002.12 #15: "picked up next cycle" was untrue: environment and subPath never change."""
    key = tmp_path / "CHECK_INTERVAL"
    key.write_text("300\n")
    config = Config(str(tmp_path), environ={})
    key.write_text("120\n")
    assert config.refresh()
    assert config.settings.agent.check_interval_s == 120.0
    key.write_text("soon\n")
    assert not config.refresh()
    assert config.settings.agent.check_interval_s == 120.0
    assert "CHECK_INTERVAL" in config.trouble
