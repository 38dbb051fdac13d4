"""What a check comes to in the original suite's words."""

from __future__ import annotations

import json

import pytest

from sickbay.model import Finding, Severity, Status
from sickbay.suite.result import CheckResult, exit_code, failures, measures, overall, result, skipped, summary
from tests.suite.builders import WHOSE, found

OK = found(Status.OK, reason="c: nothing found")
WATCH = found(Status.DEGRADED, Severity.MONITOR, "persistence mode is off")
REBOOT = found(Status.FAILED, Severity.REBOOT, "GPU lost")
REPLACE = found(Status.FAILED, Severity.REPLACE, "remap failed")
BLIND = found(Status.UNKNOWN, reason="no tool")


def of(*findings: Finding) -> CheckResult:
    return result(WHOSE, "nvidia-smi", "0-nvidia-smi", findings, 1.5)


@pytest.mark.parametrize(
    ("findings", "status", "severity", "unknown"),
    [
        ((OK,), "PASS", "", False),
        ((OK, WATCH), "WARN", "MONITOR", False),
        ((WATCH, REBOOT), "FAIL", "REBOOT", False),
        ((REPLACE, WATCH, REBOOT), "FAIL", "ISOLATE", False),
        ((BLIND,), "SKIP", "", True),
        ((OK, BLIND), "SKIP", "", True),
        ((BLIND, WATCH), "WARN", "MONITOR", True),
        ((BLIND, REBOOT), "FAIL", "REBOOT", True),
        ((), "SKIP", "", False),
    ],
)
def test_the_worst_finding_decides(findings: tuple[Finding, ...], status: str, severity: str, unknown: bool) -> None:
    one = of(*findings)
    assert (one.status, one.severity, one.unknown) == (status, severity, unknown)


def test_a_later_warning_does_not_erase_a_failure() -> None:
    """originals 002.12 #1: Xid 79 and then "persistence mode disabled" ended as WARN/MONITOR."""
    for order in ((REBOOT, WATCH), (WATCH, REBOOT), (REBOOT, OK), (OK, REBOOT, WATCH, OK)):
        assert (of(*order).status, of(*order).severity) == ("FAIL", "REBOOT")
        assert of(*order).details.startswith("GPU lost")


def test_a_weaker_failure_does_not_erase_a_stronger_one() -> None:
    """originals 002.12 #1: an ECC failure (RESET) overwrote an Xid failure (ISOLATE)."""
    assert of(REPLACE, found(Status.FAILED, Severity.RESET)).severity == "ISOLATE"


def test_a_pass_has_no_severity() -> None:
    """originals 002.12 #2: healthy nodes were labelled pass:SKIP."""
    assert of(OK).document()["severity"] == ""
    assert summary(WHOSE, "s", 1, [of(OK)], "d")["severity"] == ""


def test_the_document_has_the_original_fields_first() -> None:
    """originals 002.1"""
    document = of(REPLACE).document()
    original = ["timestamp", "hostname", "instance_type", "check", "status", "details", "severity"]
    assert list(document)[:7] == original
    assert document["timestamp"] == "2023-11-14T22:13:20Z"
    assert document["check"] == "0-nvidia-smi"
    assert document["severity"] == "ISOLATE"
    assert document["findings"][0]["severity"] == "REPLACE"  # our own nouns keep our word


def test_whatever_a_tool_printed_is_valid_json() -> None:
    """originals 002.12 #15: result files were written by heredoc, unescaped."""
    nasty = 'quote " backslash \\ newline \n nul \x00 \ud800'
    text = json.dumps(of(found(Status.FAILED, Severity.RESET, nasty)).document())
    assert json.loads(text)["details"] == nasty


def test_the_summary_has_the_original_fields_first() -> None:
    made = summary(WHOSE, "lightweight", 5, [of(REBOOT), of(OK)], "folder")
    names = [
        "timestamp", "hostname", "instance_type", "suite", "total_checks", "completed_checks", "failures", "status",
        "results_dir",
    ]  # fmt: skip
    assert list(made)[:9] == names
    assert (made["total_checks"], made["completed_checks"], made["failures"], made["status"]) == (5, 2, 1, "FAIL")


def test_the_exit_code_is_the_number_of_failed_checks() -> None:
    assert exit_code([of(REBOOT), of(OK), of(REPLACE)]) == 2
    assert exit_code([of(OK), of(WATCH)]) == 0
    assert exit_code([of(REBOOT)] * 500) == 123
    assert failures([of(REBOOT), of(WATCH)]) == 1


def test_what_could_not_look_is_no_pass_but_drains_nobody() -> None:
    blind = [of(OK), of(BLIND), of(WATCH)]
    assert overall(blind) == "UNKNOWN"
    assert exit_code(blind) == 124
    assert exit_code(blind, lenient=True) == 0
    assert exit_code([*blind, of(REBOOT)], lenient=True) == 1


def test_a_check_left_out_on_purpose_is_not_unknown_and_nothing_at_all_is_no_pass() -> None:
    left_out = skipped(WHOSE, "dcgm-l2", "1-dcgm-diag-l2", "the GPUs are in use")
    assert overall([of(OK), left_out]) == "PASS"
    assert overall([left_out]) == "UNKNOWN"
    assert overall([]) == "UNKNOWN"


def test_measures_are_the_figures_in_the_traits() -> None:
    traits = {"measure.busbw": "440.5", "measure.bad": "n/a", "measure.inf": "inf", "other": "7"}
    assert measures([found(Status.OK, traits=traits)]) == {"busbw": 440.5}


def test_details_are_bounded() -> None:
    assert len(of(found(Status.FAILED, Severity.RESET, "x" * 9_000)).details) == 2_000
