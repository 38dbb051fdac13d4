"""dcgmi diag: both formats; skipped is not passed; the tool's own trouble is not the GPU's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sickbay.checks import dcgm_diag
from sickbay.checks.dcgm_errors import errors
from sickbay.checks.signs import Ask, Reading
from sickbay.model import Status
from tests.checks import samples
from tests.checks.hosts import MISSING, TIMED_OUT, printed

PASS = {"entity_group": "GPU", "entity_id": 0, "status": "Pass"}


def result(*hardware: dict[str, Any], root: str = "DCGM Diagnostic", software: str = "Pass") -> str:
    tests = [{"name": "memory", "results": list(hardware)}]
    deployment = {"category": "Deployment", "tests": [{"name": "software", "results": [{"status": software}]}]}
    return json.dumps({root: {"test_categories": [deployment, {"category": "Hardware", "tests": tests}]}})


def failed(error: int | None, severity: int = 2, gpu: int = 3, text: str = "bad") -> dict[str, Any]:
    warning = {"warning": text, "error_severity": severity, "error_category": 10}
    if error is not None:
        warning["error_id"] = error
    return {"entity_group": "GPU", "entity_id": gpu, "status": "Fail", "warnings": [warning]}


@pytest.mark.parametrize("root", ["DCGM Diagnostic", "DCGM GPU Diagnostic"])
@pytest.mark.parametrize("noise", ["", "Warning: { not json }\nSuccessfully ran diagnostic for group.\n"])
def test_a_pass_is_quiet_in_both_formats_and_behind_noise(root: str, noise: str) -> None:
    assert dcgm_diag.signs(noise + result(PASS, root=root)) == []


def test_a_failure_carries_its_name_and_its_gpu() -> None:
    (sign,) = dcgm_diag.signs(result(PASS, failed(80)))
    assert (sign.code, sign.traits["index"], sign.status) == ("dcgm.DCGM_FR_ROW_REMAP_FAILURE", "3", None)


def test_a_failed_hardware_test_without_a_name_is_still_a_failure() -> None:
    (sign,) = dcgm_diag.signs(result(failed(None)))
    assert (sign.code, sign.status) == ("dcgm.test-failed", None)


def test_persistence_mode_is_configuration() -> None:
    (sign,) = dcgm_diag.signs(result(PASS, failed(29, severity=5)))
    assert (sign.code, sign.status) == ("dcgm.DCGM_FR_PERSISTENCE_MODE", Status.DEGRADED)


@pytest.mark.parametrize("error", [22, 25, 44, 51, 56, 66, 67])
def test_trouble_of_the_tool_or_an_occupied_gpu_is_unknown(error: int) -> None:
    assert {sign.status for sign in dcgm_diag.signs(result(PASS, failed(error)))} == {Status.UNKNOWN}


def test_skipped_tests_are_not_passed_tests() -> None:
    (sign,) = dcgm_diag.signs(result({"status": "Skip"}))
    assert (sign.code, sign.status) == ("dcgm.no-hardware-test", Status.UNKNOWN)


def test_a_runtime_error_is_unknown() -> None:
    (sign,) = dcgm_diag.signs(json.dumps({"DCGM Diagnostic": {"runtime_error": "cannot start"}}))
    assert sign.status is Status.UNKNOWN


def test_no_tool_no_answer_and_a_dead_engine_are_unknown() -> None:
    dead = printed("", 1, "Error: unable to establish a connection to the specified host: localhost")
    cases = {
        "dcgm.missing-tool": MISSING,
        "tool.timeout": TIMED_OUT,
        "dcgm.dead": dead,
        "dcgm.unreadable": printed("?", 226),
    }
    for code, done in cases.items():
        (sign,) = dcgm_diag.judge(Reading(done), Ask())
        assert (sign.code, sign.status) == (code, Status.UNKNOWN)


@pytest.mark.parametrize(
    "text", ['{"DCGM Diagnostic": null}', '{"DCGM Diagnostic": {"test_categories": [null, {"tests": [null]}]}}']
)
def test_holes_in_the_document_are_survived_and_are_not_a_pass(text: str) -> None:
    assert [sign.status for sign in dcgm_diag.signs(text)] == [Status.UNKNOWN]


def test_no_recorded_result_condemns_a_gpu() -> None:
    files = [*(samples.folder() / "dcgm").glob("diag*.json"), *(samples.folder() / "dcgm/virtualclient").glob("*Diag*")]
    assert len(files) >= 9
    for file in files:
        for sign in dcgm_diag.signs(file.read_text()):
            assert sign.status in (Status.UNKNOWN, Status.DEGRADED), (file.name, sign)


def test_every_error_number_has_one_name_and_blind_ones_never_treat() -> None:
    known = errors()
    assert sorted(known.names) == list(range(1, 112))
    assert known.names[80] == "DCGM_FR_ROW_REMAP_FAILURE"
    assert not known.blind & known.settings
    assert {"DCGM_FR_INTERNAL", "DCGM_FR_GRAPHICS_PROCESSES"} <= known.blind
    assert "DCGM_FR_PERSISTENCE_MODE" in known.settings
