"""Every recorded output of DCGM and its neighbours, each with the verdict its content deserves.

A file or a piece of one that is not listed here fails. The samples themselves are never part of this repository.
"""

from __future__ import annotations

import pytest

from sickbay.catalog import load
from sickbay.checks import dcgm_metrics, dcgm_output
from sickbay.checks.recognise import kind_of
from sickbay.checks.signs import Sign, Stamp, finding
from sickbay.model import Severity
from tests.checks import samples

NOT_RUN = ("dcgm.no-hardware-test", "UNKNOWN", "NONE")
PERSISTENCE = ("dcgm.DCGM_FR_PERSISTENCE_MODE", "DEGRADED", "MONITOR")
NO_ECC = ("dcgm.DCGM_FR_ECC_DISABLED", "DEGRADED", "MONITOR")
Verdict = set[tuple[str, str, str]]  # (code, status, severity) of each finding
WELL: Verdict = set()

# What `sickbay diagnose --kind dcgm` says of each.
DCGM: dict[str, Verdict] = {
    "dcgm_diag_schema.v4.json": {NOT_RUN},  # a schema is no result
    "diag.v3.gcm.diag_fail_output.json": {PERSISTENCE, ("dcgm.DCGM_FR_BAD_CUDA_ENV", "DEGRADED", "MONITOR"), NOT_RUN},
    "diag.v3.gcm.diag_pass_output.json": {NOT_RUN},
    "diag.v3.gcm.diag_warn_output.json": {PERSISTENCE, NOT_RUN},
    "diag.v3.nvidia.PER_GPU_JSON.json": {
        NO_ECC, ("dcgm.DCGM_FR_INTERNAL", "UNKNOWN", "NONE"), ("dcgm.DCGM_FR_TEST_DISABLED", "UNKNOWN", "NONE"),
        ("dcgm.DCGM_FR_STRESS_LEVEL", "DEGRADED", "MONITOR"),  # by DCGM's own severity: it can still work
    },
    "diag.v4.healthy-with-persistence-warning.aks.json": {PERSISTENCE},
    "diag.v4.persistence-config-fail.hyperpod.json": {PERSISTENCE, NOT_RUN},
    "diag.v4.sku-skip.gb10.json": {NOT_RUN},
    "fabricmanager.gpud.log": {("sxid.12028", "FAILED", "REBOOT")},
    "health.v4.healthy.json": WELL,  # though that GPU was stuck: "Healthy" clears nothing
    "nvlink.e.json": {("metrics.nvlink-errors", "DEGRADED", "MONITOR")},
    "virtualclient/DCGMIDiag_r1_results.json": {NOT_RUN},
    "virtualclient/DCGMIDiag_r2_results.json": WELL,
    "virtualclient/DCGMIDiag_r3_results.json": WELL,
    "virtualclient/DCGMIDiscoveryResults.txt": WELL,
    "virtualclient/DCGMIDmonResults.txt": WELL,
    "virtualclient/DCGMIFieldGroupsResults.txt": WELL,
    "virtualclient/DCGMIGroupResults.txt": WELL,
    "virtualclient/DCGMIHealthCheckResults.json": WELL,
    "virtualclient/DCGMIIncorrectresults.json": {("dcgm.DCGM_FR_CANNOT_OPEN_LIB", "UNKNOWN", "NONE")},
    "virtualclient/DCGMIModulesResults.txt": WELL,
    "virtualclient/DCGMIProftesterResults.txt": WELL,
}  # fmt: skip
# Text files with several samples, each under a line "##### what it is".
PIECES: dict[str, dict[str, Verdict]] = {
    "diag.text.samples.txt": {
        "DCGM 4.4.2 -r 2 pass": WELL,
        "DCGM 3.1.8 -r 1 with Deployment Fail": {PERSISTENCE, NOT_RUN},
        "DCGM 3.x -r 2 partial Fail on one GPU": {("dcgm.DCGM_FR_THERMAL_VIOLATIONS_TS", "FAILED", "RESET")},
        "DCGM 3.x -r 3: Deployment error": {("dcgm.DCGM_FR_PENDING_ROW_REMAP", "FAILED", "RESET"), NOT_RUN},
        "DCGM 3.x -r 3 stress fail": {("dcgm.DCGM_FR_TARGET_POWER", "DEGRADED", "MONITOR")},
        "DCGM 3.0.4: tests beyond level 1 skipped": {NOT_RUN},
        "DCGM 4.2.3 multi GPU header": {NOT_RUN},
        "exit code 226": {("dcgm.unreadable", "UNKNOWN", "NONE")},
    },
    "health.text.samples.txt": {
        "dcgmi health -c, failure: A100 PCIe": {("dcgm.DCGM_FR_NVLINK_DOWN", "DEGRADED", "MONITOR")},
        "dcgmi health -s a": WELL,
        "dcgmi dmon -c 1 -e 230": {("xid.120", "FAILED", "RESET")},
        "nv-hostengine.log WARN thermal": {("dcgm.DCGM_FR_CLOCK_THROTTLE_THERMAL", "DEGRADED", "MONITOR")},
        "health watches not enabled": {("dcgm.watches-off", "UNKNOWN", "NONE")},
    },
}
# What the reader of metrics says of each. Lists of fields (csv, names) hold no metric at all.
NO_METRICS: Verdict = {("tool.unreadable", "UNKNOWN", "NONE")}
METRICS: dict[str, Verdict] = {
    "prom/datadog.dcgm_tests_docker_serve_metrics": WELL,
    "prom/datadog.dcgm_tests_fixtures_label_remap.txt": WELL,
    "prom/datadog.dcgm_tests_fixtures_metrics.txt": WELL,
    "prom/dcgm-exporter.dcp-metrics-included.csv": NO_METRICS,
    "prom/dcgm-exporter.default-counters.csv": NO_METRICS,
    "prom/netdata.all_fields_nonlabel.txt": NO_METRICS,
    "prom/netdata.dcgm-exporter-netdata.csv": NO_METRICS,
    "prom/netdata.metrics_valid.prom": {
        ("xid.31", "DEGRADED", "MONITOR"), ("metrics.row-remap-failure", "FAILED", "REPLACE"),
    },
    "prom/recorded.snippets.prom": WELL,
}  # fmt: skip


def text_of(name: str) -> str:
    return (samples.folder() / "dcgm" / name).read_text("utf-8", "replace")


def verdict(signs: list[Sign]) -> Verdict:
    found = [finding(sign, load(), Stamp("dcgm-l2", "n"), n) for n, sign in enumerate(signs)]
    return {(f.code, f.status.value, f.severity.name) for f in found}


def test_every_sample_is_listed() -> None:
    base = samples.folder() / "dcgm"
    files = {str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()}
    assert files == {*DCGM, *PIECES, *METRICS}


@pytest.mark.parametrize("name", DCGM)
def test_a_recorded_output_is_judged_as_its_content_says(name: str) -> None:
    assert verdict(dcgm_output.signs(text_of(name))) == DCGM[name]


@pytest.mark.parametrize("name", PIECES)
def test_each_piece_of_a_file_of_samples_is_judged_as_its_content_says(name: str) -> None:
    pieces = [piece for piece in text_of(name).split("##### ") if piece.strip()]
    assert len(pieces) == len(PIECES[name])
    for piece in pieces:
        (title,) = [title for title in PIECES[name] if piece.startswith(title)]
        assert verdict(dcgm_output.signs(piece.partition("\n")[2])) == PIECES[name][title], title


@pytest.mark.parametrize("name", METRICS)
def test_recorded_metrics_are_judged_as_their_content_says(name: str) -> None:
    assert verdict(dcgm_metrics.signs(text_of(name))) == METRICS[name]


def test_no_sample_of_dcgmi_condemns_a_part() -> None:
    every = [*DCGM.values(), *(v for pieces in PIECES.values() for v in pieces.values())]
    assert Severity.REPLACE.name not in {severity for found in every for _, _, severity in found}


@pytest.mark.parametrize("name", [name for name in DCGM if "schema" not in name])
def test_a_recorded_output_is_recognised(name: str) -> None:
    assert kind_of(text_of(name)) == "dcgm"
