"""The original suite's worst mistakes (docs/originals-bugs.md), one by one, against ours: results and limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sickbay.catalog import load
from sickbay.checks import BY_NAME
from sickbay.checks.run import run
from sickbay.checks.signs import Ask
from sickbay.model import Finding, Place, Severity, Status
from sickbay.suite import folder
from sickbay.suite.exclusive import refusal
from sickbay.suite.result import CheckResult, Whose, result
from sickbay.suite.runner import Manner, limit_of, run_suite
from sickbay.suite.table import single
from tests.checks.hosts import SpokenHost, printed
from tests.checks.test_nvidia_smi import text

WHOSE = Whose("gpu-17", "p5.48xlarge", 1_700_000_000.0)
XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1122, name=python, GPU has fallen off the bus."


def found(status: Status, severity: Severity, reason: str) -> Finding:
    return Finding("boot-a/1", "agent", "nvidia-smi", Place("gpu-17"), status, "x", reason, severity=severity)


LOST = found(Status.FAILED, Severity.REBOOT, "GPU 3 is lost")
PERSISTENCE = found(Status.DEGRADED, Severity.MONITOR, "persistence mode is off")
FINE = found(Status.OK, Severity.NONE, "nothing found")


def came_to(*findings: Finding) -> CheckResult:
    return result(WHOSE, "nvidia-smi", "0-nvidia-smi", findings, 1.0)


@pytest.mark.parametrize("order", [(LOST, PERSISTENCE, FINE), (FINE, LOST, PERSISTENCE), (PERSISTENCE, FINE, LOST)])
def test_a_check_keeps_its_worst_finding_whatever_comes_after(order: tuple[Finding, ...]) -> None:
    """originals 002.12 #1: Xid 79 and then "persistence mode disabled" ended as WARN/MONITOR."""
    kept = came_to(*order)
    assert (kept.status, kept.severity) == ("FAIL", "REBOOT")
    assert "GPU 3 is lost" in kept.details
    assert "persistence mode is off" in kept.details


def test_a_warning_is_not_erased_by_a_pass() -> None:
    """originals 002.12 #1: Xid 13 ended as PASS."""
    assert (came_to(PERSISTENCE, FINE).status, came_to(PERSISTENCE, FINE).severity) == ("WARN", "MONITOR")


def test_a_lost_gpu_and_a_setting_in_one_run_of_the_real_checks() -> None:
    """originals 002.12 #1, from what the machine prints to the result."""
    host = SpokenHost(answers={"nvidia-smi -q": printed(text({"persistence": "Disabled"}))}, lines=[XID_79])
    results = run_suite(host, single(["0", "kernel-log"]), load(), ask=Ask(), whose=WHOSE, manner=Manner(again_s=0))
    assert [(one.check, one.status) for one in results] == [("0-nvidia-smi", "WARN"), ("kernel-log", "FAIL")]


def test_a_healthy_check_has_no_severity() -> None:
    """originals 002.12 #2: healthy nodes were labelled with severity SKIP."""
    assert (came_to(FINE).status, came_to(FINE).severity) == ("PASS", "")


@pytest.mark.parametrize("outer_s", [1.0, 900.0])
def test_no_outer_limit_cuts_a_level_4_diagnostic(outer_s: float) -> None:
    """originals 002.12 #9: CHECK_TIMEOUT also wrapped check 4, which was killed at 15 minutes, always."""
    assert limit_of(BY_NAME["dcgm-l4"], outer_s) == 9000.0
    assert limit_of(BY_NAME["nvidia-smi"], outer_s) == outer_s


def test_a_deep_check_asked_for_alone_needs_the_node_as_much_as_a_suite_does(tmp_path: Path) -> None:
    """originals 002.12 #15: a single check did not ask whether the node is free."""
    busy = SpokenHost(answers={"nvidia-smi --query-compute-apps=pid,process_name": printed("1122, python\n")})

    def why() -> str:
        return refusal(busy, mode="standalone", state_dir=str(tmp_path), now=0.0)

    (said,) = run_suite(busy, single(["4"]), load(), ask=Ask(), whose=WHOSE, manner=Manner(refusal=why))
    assert (said.status, said.details) == ("SKIP", "not run: 1 process on the GPUs (python)")
    assert not any(command.startswith("dcgmi") for command in busy.asked)


def test_what_a_machine_prints_cannot_break_the_json(tmp_path: Path) -> None:
    """originals 002.12 #15: JSON was put together as text, unescaped."""
    nasty = found(Status.FAILED, Severity.RESET, 'GPU "3" said \\ and\nmore }, {')
    folder.write(tmp_path, "check-0.json", came_to(nasty).document())
    assert json.loads((tmp_path / "check-0.json").read_text())["details"] == nasty.reason


def test_rows_of_a_modern_gpu_are_looked_at() -> None:
    """originals 002.12 #12: Ampere and later remap rows; the original looked at retired pages only."""
    for change, code in (({"pending": "Yes"}, "smi.remap-pending"), ({"failed": "Yes"}, "smi.remap-failed")):
        host = SpokenHost(answers={"nvidia-smi -q": printed(text({}, change))})
        codes = [one.code for one in run(host, ["nvidia-smi"], load(), at=0.0, expected_gpus=2)]
        assert code in codes
