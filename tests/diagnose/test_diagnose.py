"""How codes change each other's meaning (plan, section 6)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from sickbay.catalog import ANY_STATUS, NvlinkSub
from sickbay.core.diagnose import diagnose
from sickbay.model import Diagnosis, Severity, Status
from tests.diagnose.builders import CATALOG, brief, kernel, of, seen, xid

REMAP = "Row Remapper: New row (0x1) marked for remapping, reset gpu to activate."


def test_a_gpu_off_the_bus_is_one_diagnosis_however_often_it_is_said() -> None:
    lines = [xid(79, "GPU has fallen off the bus."), "[10.1] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."]
    findings = [*kernel(*lines), seen("smi.gpu-lost"), seen("smi.gpu-missing", device="")]
    assert brief(list(diagnose(findings, CATALOG))) == [("gpu-lost", "REBOOT", "now")]


def test_a_double_bit_error_alone_is_reset_now_and_with_its_remap_drained_first() -> None:
    assert brief(of(xid(48, "DBE"))) == [("ecc-double-bit", "RESET", "now")]
    assert brief(of(xid(48, "DBE"), xid(63, REMAP))) == [("ecc-double-bit", "RESET", "checkpoint")]
    assert brief(of(xid(48, "DBE"), xid(95, "Uncontained"))) == [("ecc-uncontained", "RESET", "now")]


def test_a_pending_row_remap_can_wait() -> None:
    assert brief(of(xid(63, REMAP))) == [("row-remap-pending", "RESET", "idle")]


@pytest.mark.parametrize(
    ("text", "fault", "severity"),
    [
        ("Row Remapper Error: (0x2) - All reserved rows for bank are remapped", "row-remap-failed", "REPLACE"),
        ("Row Remapper Error: (0x2) - Row Remapping table is full", "row-remap-failed", "REPLACE"),
        (
            "Row Remapper: (0x2) - Attempting to remap a row that is already pending remapping",
            "row-remap-pending",
            "RESET",
        ),
        ("something new", "row-remap-error", "RESET"),
    ],
)
def test_xid_64_is_read_by_its_text(text: str, fault: str, severity: str) -> None:
    assert [(d.fault, d.severity.name) for d in of(xid(64, text))] == [(fault, severity)]


def recovery(to: str) -> str:
    return xid(154, f"GPU recovery action changed from 0x0 (None) to {to}")


@pytest.mark.parametrize(
    ("to", "fault"),
    [
        ("0x1 (GPU Reset Required)", "reset-required"),
        ("0x1 (PF FLR)", "reset-required"),
        ("0x2 (OS Reboot)", "reboot-required"),
        ("0x2 (None)", "reboot-required"),
        ("0x0 (Node Reboot Required)", "inform"),
    ],
)
def test_xid_154_is_keyed_on_its_hex_code(to: str, fault: str) -> None:
    assert [d.fault for d in of(recovery(to))] == [fault]


def test_xid_154_raises_a_verdict_and_never_lowers_or_clears_one() -> None:
    assert brief(of(xid(95, "Uncontained"), recovery("0x2 (OS Reboot)"))) == [("ecc-uncontained", "REBOOT", "now")]
    for mild in ("0x0 (None)", "0x1 (GPU Reset Required)", "0x4 (Drain and Reset)"):
        assert brief(of(xid(79, "lost"), recovery(mild))) == [("gpu-lost", "REBOOT", "now")]


def test_an_uncontained_error_on_an_a100_without_mig_needs_a_reboot() -> None:
    lines = kernel(xid(95, "Uncontained: FBHUB. RST: Yes, D-RST: No"))
    known = seen("", Status.OK, gpu_model="NVIDIA A100-SXM4-80GB", mig="disabled")
    (told,) = diagnose([*lines, known], CATALOG)
    assert told.severity is Severity.REBOOT
    (with_mig,) = diagnose([*lines, seen("", Status.OK, gpu_model="NVIDIA A100-SXM4-80GB", mig="enabled")], CATALOG)
    assert with_mig.severity is Severity.RESET


def test_contained_errors_that_come_again_within_a_day_do_not_wait_for_idle() -> None:
    line = xid(94, "Contained: SM (0x1). RST: No, D-RST: No")
    assert brief(of(line)) == [("ecc-contained", "RESET", "idle")]
    assert brief(of(line, xid(94, "Contained", at=900.0))) == [("ecc-contained-repeated", "RESET", "checkpoint")]
    now, before, old = kernel(line, at=90_000.0, first=9), kernel(line, at=80_000.0), kernel(line, at=1000.0)
    assert brief(list(diagnose(now, CATALOG, recent=[*before, *now]))) == [
        ("ecc-contained-repeated", "RESET", "checkpoint")
    ]
    assert brief(list(diagnose(now, CATALOG, recent=[*old, *now]))) == [("ecc-contained", "RESET", "idle")]


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_an_application_fault_alone_never_treats_a_node(code: int) -> None:
    lines = [xid(code, "pid=7, name=python3, (GPC 1, TPC 2, SM 0)", at=10.0 * n) for n in range(50)]
    (told,) = of(*lines)
    assert (told.fault, told.severity) == ("application-fault", Severity.MONITOR)


def test_application_faults_of_two_users_on_one_gpu_count_unless_other_gpus_have_them_too() -> None:
    mine, theirs = seen("xid.31", user="ann"), replace(seen("xid.31", user="bob"), id="boot/1")
    (told,) = diagnose([mine], CATALOG, recent=[theirs])
    assert told.fault == "gpu-degrading"
    other = seen("xid.31", device="0000:5e:00", user="ann")
    assert {d.fault for d in diagnose([mine, other], CATALOG, recent=[theirs])} == {"application-fault"}


def test_what_we_cannot_see_is_at_most_a_sick_monitor() -> None:
    for code in (
        "tool.timeout",
        "dcgm.dead",
        "tool.missing",
        "dcgm.DCGM_FR_INTERNAL",
        "never-heard-of",
        "smi.remap-failed",
    ):
        (told,) = diagnose([seen(code, Status.UNKNOWN)], CATALOG)
        assert (told.fault, told.severity) == ("monitor-sick", Severity.MONITOR), code


def test_a_warning_beside_a_pass_is_watched() -> None:
    (told,) = diagnose([seen("dcgm.DCGM_FR_ROW_REMAP_FAILURE", Status.DEGRADED)], CATALOG)
    assert (told.fault, told.severity) == ("inform", Severity.MONITOR)


def test_an_unknown_code_is_watched_and_says_so() -> None:
    (told,) = of(xid(998, "who knows"))
    assert (told.fault, told.severity) == ("inform", Severity.MONITOR)
    assert any("not in the catalog" in why for why in told.because)


def test_an_nvlink_error_is_decoded_by_its_bits() -> None:
    fatal = xid(144, "SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x00000002 0x00000000 0x00000000)")
    harmless = xid(144, "SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000001 0x00000004 0x00000000 0x00000000)")
    assert [d.fault for d in of(fatal)] == ["nvlink-error"]
    assert [d.severity for d in of(harmless)] == [Severity.MONITOR]


def loading(driver: str) -> str:
    return f"[1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu"


def sub(severity: Severity, old: int, new: int) -> NvlinkSub:
    """A row of the decode table: these low bits mean this, to each of the two driver generations."""
    before, after = (f"{'-' * 24}{word:08b}" for word in (old, new))
    return NvlinkSub(145, "RLW_X", before, after, ANY_STATUS, severity, severity > Severity.MONITOR, severity.name)


@pytest.mark.parametrize(
    ("old", "new"), [(Severity.RESET, Severity.MONITOR), (Severity.MONITOR, Severity.RESET)], ids=lambda s: s.name
)
def test_where_the_driver_decides_and_is_unknown_the_milder_reading_is_taken_and_said(
    old: Severity, new: Severity
) -> None:
    """The same word is 0x7 to one generation and to the other; the shipped table has no such word today."""
    table = replace(CATALOG, nvlink5=(sub(old, old=0x7, new=0x8), sub(new, old=0x9, new=0x7)))
    line = xid(145, "RLW_X Fatal XC0 i0 Link 00 (0x00000007 0x00000001 0x0 0x0)")

    def read(*lines: str) -> Diagnosis:
        (told,) = diagnose(kernel(*lines), table)
        return told

    assert read(loading("570.124.06"), line).severity is old
    assert read(loading("590.48.01"), line).severity is new
    unknown = read(line)
    assert unknown.severity is Severity.MONITOR
    assert any("driver version unknown" in why for why in unknown.because)
    milder = read(loading("570.124.06" if old is Severity.MONITOR else "590.48.01"), line)
    assert unknown.confidence < milder.confidence
    assert not any("driver version unknown" in why for why in milder.because)


def test_the_shipped_decode_table_never_leaves_the_reading_to_the_driver() -> None:
    """If a later table does, `driver unknown` becomes a daily matter: then this test says where to look."""
    for row, other in product(CATALOG.nvlink5, repeat=2):
        if (
            row.xid == other.xid
            and row.severity != other.severity
            and set(row.unit.split("/")) & set(other.unit.split("/"))
        ):
            clash = all(
                "-" in bits or bits[0] == bits[1] for bits in zip(row.pattern_v1, other.pattern_v2, strict=True)
            )
            assert not clash, (row, other)


def test_the_worst_comes_first_with_its_quoted_lines() -> None:
    told = of(
        xid(31, "MMU Fault", gpu="01"), xid(79, "lost", gpu="02"), xid(64, "Row Remapping table is full", gpu="03")
    )
    assert [d.severity.name for d in told] == ["REPLACE", "REBOOT", "MONITOR"]
    assert "79, lost" in told[1].because[0]
    assert told[1].place.device == "0000:02:00"


def test_the_order_of_the_findings_does_not_matter() -> None:
    findings = kernel(
        xid(48, "DBE"), xid(63, REMAP), xid(94, "Contained"), xid(45, "Ch 1"), recovery("0x4 (x)"), xid(79, "x", "5e")
    )
    want = brief(list(diagnose(findings, CATALOG)))
    assert brief(list(diagnose(findings[::-1], CATALOG))) == want
    assert want == [("gpu-lost", "REBOOT", "now"), ("ecc-double-bit", "RESET", "checkpoint")]
