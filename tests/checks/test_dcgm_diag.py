"""dcgmi diag: both formats; skipped is not passed; the tool's own trouble is not the GPU's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from sickbay.checks import dcgm_diag
from sickbay.checks.dcgm_errors import errors, exits
from sickbay.checks.signs import Ask, Reading
from sickbay.model import Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed

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
    """originals 002.12 #4: documents with only a runtime_error are its PASS."""
    (sign,) = dcgm_diag.signs(json.dumps({"DCGM Diagnostic": {"runtime_error": "cannot start"}}))
    assert sign.status is Status.UNKNOWN


def test_no_tool_no_answer_and_a_dead_engine_are_unknown() -> None:
    dead = printed("", 1, "Error: unable to establish a connection to the specified host: localhost")
    cases = {
        "dcgm.missing-tool": MISSING,
        "dcgm.timeout": TIMED_OUT,
        "dcgm.dead": dead,
        "dcgm.unreadable": printed("?", 226),
    }
    for code, done in cases.items():
        (sign,) = dcgm_diag.judge(Reading(done), Ask())
        assert (sign.code, sign.status) == (code, Status.UNKNOWN)


@pytest.mark.parametrize("code", [226, 205, 217, 1])
def test_all_tests_passed_and_an_exit_code_that_says_otherwise_is_not_a_pass(code: int) -> None:
    """originals 002.12 #4: dcgmi's exit code is not ignored."""
    (sign,) = dcgm_diag.judge(Reading(printed(result(PASS), code)), Ask())
    assert (sign.code, sign.status) == ("dcgm.exit-code", Status.UNKNOWN)
    assert f"exit code {code}" in sign.reason


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (226, "DCGM_ST_NVVS_ERROR: the diagnostic ran and reports an error"),
        (217, "DCGM_ST_DIAG_ALREADY_RUNNING: another diagnostic is running"),
        (204, "DCGM_ST_NVVS_BINARY_NOT_FOUND: the diagnostic program is not installed"),
        (77, "exit code 77)"),
    ],
)
def test_an_exit_code_is_named(code: int, words: str) -> None:
    (sign,) = dcgm_diag.judge(Reading(printed("?", code)), Ask())
    assert (sign.code, sign.status) == ("dcgm.unreadable", Status.UNKNOWN)
    assert words in sign.reason


def test_exit_codes_are_the_low_bytes_of_dcgms_negative_results() -> None:
    assert {code for code in exits() if not 128 < code < 256} == set()
    assert exits()[256 - 30].name == "DCGM_ST_NVVS_ERROR"
    assert exits()[256 - 21].engine


def test_an_order_to_isolate_without_a_readable_result_is_only_watched() -> None:
    (sign,) = dcgm_diag.judge(Reading(printed("", 205)), Ask())
    assert (sign.code, sign.status) == ("dcgm.test-failed", Status.DEGRADED)


def test_a_runtime_error_does_not_hide_what_a_test_found() -> None:
    document = json.loads(result(PASS, failed(80)))
    document["DCGM Diagnostic"]["runtime_error"] = "interrupted"
    assert [s.code for s in dcgm_diag.signs(json.dumps(document))] == ["dcgm.DCGM_FR_ROW_REMAP_FAILURE", "tool.failed"]


def test_a_failed_summary_without_results_is_a_failure() -> None:
    tests = [{"name": "memory", "results": [], "test_summary": {"status": "Fail"}}]
    document = {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}}
    (sign,) = dcgm_diag.signs(json.dumps(document))
    assert (sign.code, sign.status) == ("dcgm.test-failed", None)


def test_a_failure_carries_the_serial_that_dcgm_says() -> None:
    document = json.loads(result(PASS, failed(52)))
    entities = [{"entity_id": 3, "device_id": "2330", "serial_num": "1650001"}]
    document["entity_groups"] = [{"entity_group": "GPU", "entity_group_id": 1, "entities": entities}]
    (sign,) = dcgm_diag.signs(json.dumps(document))
    assert sign.part == "1650001"


def test_dcgm_4_failures_are_seen() -> None:
    """originals 002.12 #4: the root key of DCGM 4 is known, and gpu ids are read from entity_id."""
    signs = dcgm_diag.signs(result(failed(52, gpu=0), failed(4, gpu=1), root="DCGM Diagnostic"))
    assert [(s.code.removeprefix("dcgm.DCGM_FR_"), s.traits["index"]) for s in signs] == [
        ("FAULTY_MEMORY", "0"),
        ("VOLATILE_DBE_DETECTED", "1"),
    ]


def test_the_raw_answer_is_kept() -> None:
    (name, text), *_ = dcgm_diag.keeps_l2(Reading(printed("{}"))).items()
    assert (name, text) == ("dcgm-l2-raw.json", "{}")


def test_the_time_limit_is_the_callers() -> None:
    host = Timed({"dcgmi": printed(result(PASS))})
    dcgm_diag.collect_l2(host, Ask(options={"dcgm-timeout-s": "120"}))
    dcgm_diag.collect_l2(host, Ask(options={"dcgm-timeout-s": "soon"}))
    assert [limit for name, limit in host.limits if "diag" in name] == [120.0, 900.0]


class Timed(SpokenHost):
    limits: ClassVar[list[tuple[str, float]]] = []

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        self.limits.append((" ".join(argv), timeout_s))
        return super().run(argv, timeout_s)


@pytest.mark.parametrize(
    "text", ['{"DCGM Diagnostic": null}', '{"DCGM Diagnostic": {"test_categories": [null, {"tests": [null]}]}}']
)
def test_holes_in_the_document_are_survived_and_are_not_a_pass(text: str) -> None:
    """originals 002.12 #4: null entries crash its parser, and a document without tests is its PASS."""
    assert [sign.status for sign in dcgm_diag.signs(text)] == [Status.UNKNOWN]


def test_every_error_number_has_one_name_and_blind_ones_never_treat() -> None:
    known = errors()
    assert sorted(known.names) == list(range(1, 112))
    assert known.names[80] == "DCGM_FR_ROW_REMAP_FAILURE"
    assert not known.blind & known.settings
    assert {"DCGM_FR_INTERNAL", "DCGM_FR_GRAPHICS_PROCESSES"} <= known.blind
    assert "DCGM_FR_PERSISTENCE_MODE" in known.settings
