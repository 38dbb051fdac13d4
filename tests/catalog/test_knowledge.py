"""The facts we stand by: what the well-known codes lead to, and what must never touch a node."""

from __future__ import annotations

import re
import time

import pytest

from sickbay.catalog import Catalog, Code, load
from sickbay.model import Severity, Verb, When

CATALOG = load()
FIXED_FAULTS = """gpu-lost gpu-lost-silent ecc-uncontained ecc-double-bit ecc-contained ecc-contained-repeated
row-remap-pending row-remap-failed sram-threshold gsp-timeout nvlink-error nvlink-down nvswitch-error pcie-fatal
host-memory-uncorrected rm-init-failed driver-hung gpu-degrading reset-required reboot-required application-fault
monitor-sick configuration inform condemned-part newcomer common-cause node-not-ready job-suspect nic-down nic-fatal"""
FIXED_SIGNS = """smi.gpu-lost smi.gpu-missing smi.remap-pending smi.remap-failed smi.sram-threshold smi.ecc-volatile
smi.retired-pending smi.recovery-action-reset smi.recovery-action-reboot smi.recovery-action-drain smi.driver-hung
smi.persistence-off smi.nvlink-inactive smi.slowdown-hw smi.channel-repair-pending smi.tpc-repair-pending
smi.unrepairable-memory smi.inforom-corrupt kernel.fallen-off-bus kernel.rm-init-failed kernel.pcie-aer-fatal
kernel.pcie-aer-nonfatal kernel.pcie-dpc kernel.edac-uncorrected kernel.mce-fatal kernel.hung-task-nvidia kernel.panic
kernel.nic-fatal dcgm.dead dcgm.missing-tool tool.missing tool.timeout monitor.condemned-part monitor.not-ready
monitor.newcomer monitor.silent-rank monitor.common-cause metrics.row-remap-failure metrics.uncorrectable-remapped"""


def verbs(fault: str) -> list[Verb]:
    return [rung.verb for rung in CATALOG.ladders.get(CATALOG.faults[fault].ladder, ())]


def row(code: str) -> Code:
    found = CATALOG.code(code)
    assert found is not None, code
    return found


def read(code: str, **traits: str) -> Code:
    found = CATALOG.refined(code, traits)
    assert found is not None, code
    return found


@pytest.mark.parametrize("fault", FIXED_FAULTS.split())
def test_every_fault_the_other_parts_name_exists(fault: str) -> None:
    assert fault in CATALOG.faults


@pytest.mark.parametrize("sign", FIXED_SIGNS.split())
def test_every_sign_our_checks_print_has_a_row(sign: str) -> None:
    assert row(sign).code == sign


def test_a_gpu_that_fell_off_the_bus_is_rebooted_then_power_cycled_then_replaced() -> None:
    fault = CATALOG.fault_of("xid.79")
    assert fault is not None
    assert (fault.name, fault.severity, fault.when, fault.cleared_by) == ("gpu-lost", Severity.REBOOT, When.NOW, "boot")
    assert verbs("gpu-lost") == verbs("gpu-lost-silent") == [Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE]


@pytest.mark.parametrize(
    ("code", "fault", "severity", "when"),
    [
        ("xid.63", "row-remap-pending", Severity.RESET, When.IDLE),
        ("xid.94", "ecc-contained", Severity.RESET, When.IDLE),
        ("xid.48", "ecc-double-bit", Severity.RESET, When.NOW),
        ("xid.95", "ecc-uncontained", Severity.RESET, When.NOW),
        ("xid.119", "gsp-timeout", Severity.RESET, When.NOW),
        ("xid.120", "gsp-timeout", Severity.RESET, When.NOW),
        ("xid.74", "nvlink-error", Severity.RESET, When.NOW),
        ("xid.92", "gpu-degrading", Severity.RESET, When.CHECKPOINT),
        ("smi.remap-failed", "row-remap-failed", Severity.REPLACE, When.NOW),
        ("smi.sram-threshold", "sram-threshold", Severity.REPLACE, When.CHECKPOINT),
        ("smi.driver-hung", "driver-hung", Severity.REBOOT, When.IDLE),
        ("kernel.pcie-dpc", "pcie-fatal", Severity.REBOOT, When.NOW),
    ],
)
def test_known_codes_lead_to_their_fault(code: str, fault: str, severity: Severity, when: When) -> None:
    found = CATALOG.faults[row(code).fault]
    assert (found.name, found.severity, found.when) == (fault, severity, when)
    assert found.treats


@pytest.mark.parametrize("xid", [8, 13, 31, 32, 39, 43, 45, 68, 69, 80, 137])
def test_application_faults_never_treat_a_node(xid: int) -> None:
    fault = CATALOG.faults[row(f"xid.{xid}").fault]
    assert (fault.kind, fault.treats, fault.ladder) == ("application", False, "")


@pytest.mark.parametrize(
    ("digit", "fault"),
    [
        ("0x0", "inform"),
        ("0x1", "reset-required"),
        ("0x2", "reboot-required"),
        ("0x3", "reset-required"),
        ("0x4", "reset-required"),
        ("2", "reboot-required"),
        ("0x00000002", "reboot-required"),
        ("0x9", "inform"),
    ],
)
def test_xid_154_is_read_by_its_hex_code(digit: str, fault: str) -> None:
    assert read("xid.154", hex=digit).fault == fault


def test_xid_154_is_not_read_by_its_words() -> None:
    assert (
        read("xid.154", text="GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)").fault
        == "inform"
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Row Remapper Error: (0x0000000000ab12cd) - All reserved rows for bank are remapped", "row-remap-failed"),
        ("Row Remapper Error: (0x0000000000ab12cd) - Row Remapping table is full", "row-remap-failed"),
        ("Dynamic Page Retirement: Fatal error, unable to retire page (0x00000000000a1b2c).", "row-remap-failed"),
        (
            "Row Remapper: (0x00000000001) - Attempting to remap a row that is already pending remapping",
            "row-remap-pending",
        ),
        ("DRAM Retirement failed due to no spare for retirement at 0x0000000000004321", "row-remap-failed"),
        ("DRAM Retirement failed due to full inforom object at 0x0000000000004321", "row-remap-failed"),
        ("DRAM Retirement failed due to a reason we have not met at 0x0000000000004321", "row-remap-error"),
        ("Row Remapper Error: (0x0000000000ab12cd) - Internal driver error", "row-remap-error"),
        ("something no driver has said so far", "row-remap-error"),
    ],
)
def test_xid_64_is_read_by_its_text_and_milder_when_that_is_strange(text: str, fault: str) -> None:
    assert read("xid.64", text=text).fault == fault


def test_an_uncontained_error_reboots_an_a100_without_mig_and_resets_the_rest() -> None:
    assert read("xid.95", gpu_model="NVIDIA A100-SXM4-80GB", mig="Disabled").severity is Severity.REBOOT
    assert read("xid.95", gpu_model="NVIDIA A100-SXM4-80GB", mig="Enabled").severity is None
    assert read("xid.95", gpu_model="NVIDIA H100 80GB HBM3", mig="Disabled").severity is None
    assert read("xid.95").severity is None


@pytest.mark.parametrize("xid", range(144, 151))
def test_nvlink5_events_treat_only_when_the_line_says_fatal(xid: int) -> None:
    assert read(f"xid.{xid}", text="UNIT Nonfatal XC0 i0 Link 02 (0x0 0x0)").fault == "inform"
    assert read(f"xid.{xid}", text="UNIT Non-fatal XC0 i0 Link 02 (0x0 0x0)").fault == "inform"
    assert read(f"xid.{xid}", text="UNIT  Fatal   XC0 i0 Link 02 (0x0 0x0)").fault == "nvlink-error"


def test_a_switch_error_is_judged_by_the_word_on_its_line() -> None:
    assert read("sxid.20034", text="Fatal, Link 30 LTSSM Fault Up").fault == "nvswitch-error"
    assert read("sxid.20034", text="Non-fatal, Link 30 LTSSM Fault Up").fault == "inform"
    assert read("sxid.20034", text="Data {0x50610002, 0x10100030}").fault == "inform"
    assert read("sxid.12020", text="Non-fatal, Link 46").fault == "nvswitch-error"  # always fatal


@pytest.mark.parametrize("xid", [0, 1, 2, 51, 56, 81, 125, 142, 162, 165, 167, 169, 171, 173, 176])
def test_unused_blank_and_ask_support_codes_are_noted_and_never_treated(xid: int) -> None:
    fault = CATALOG.faults[row(f"xid.{xid}").fault]
    assert (fault.name, fault.severity, fault.treats) == ("inform", Severity.MONITOR, False)


def test_a_code_without_a_row_has_no_fault() -> None:
    assert CATALOG.code("xid.9999") is None
    assert CATALOG.fault_of("xid.9999") is None
    assert CATALOG.refined("xid.9999", {"text": "Fatal"}) is None


def test_a_link_that_is_down_right_after_boot_reboots_nobody() -> None:
    fault = CATALOG.fault_of("dcgm.DCGM_FR_NVLINK_DOWN")
    assert fault is not None
    assert (fault.name, fault.severity, fault.confirm) == ("nvlink-down", Severity.RESET, 3)
    assert fault.settle_s >= 180


@pytest.mark.parametrize(
    "name", ["PERSISTENCE_MODE", "ECC_DISABLED", "MEMORY_ALLOC", "HOSTENGINE_CONN", "TEST_SKIPPED"]
)
def test_settings_and_broken_instruments_treat_no_node(name: str) -> None:
    fault = CATALOG.fault_of(f"dcgm.DCGM_FR_{name}")
    assert fault is not None
    assert fault.kind in ("configuration", "instrument")
    assert not fault.treats


def test_every_variant_pattern_compiles_and_no_variant_shadows_another_code() -> None:
    for code in CATALOG.codes.values():
        for variant in code.variants:
            assert CATALOG.codes[f"{code.code}.{variant.name}"] == variant.code
            for pattern in variant.traits.values():
                re.compile(pattern)


def test_a_verify_only_fault_has_checks_and_no_rung() -> None:
    for name in ("newcomer", "job-suspect"):
        fault = CATALOG.faults[name]
        assert fault.treats
        assert (fault.ladder, fault.verify_with) == ("", ("nvidia-smi", "dcgm-l2"))


def test_every_profile_names_its_gpus_and_times() -> None:
    assert CATALOG.profiles["p5.48xlarge"].efas == 32
    for profile in CATALOG.profiles.values():
        assert profile.gpus >= 1
        assert 0 < profile.reboot_s <= profile.power_cycle_s <= profile.replace_s


def test_a_profile_says_how_long_a_rung_may_take_there() -> None:
    reset, reboot, replace = CATALOG.ladders["reset-reboot-replace"]
    dgx = CATALOG.profiles["dgx-h100"]
    assert (dgx.timeout_s(reset), dgx.timeout_s(reboot), dgx.timeout_s(replace)) == (1020, 1800, 86400)


def test_loading_twice_gives_the_same_catalog() -> None:
    assert load() is load()


def test_loading_is_quick_enough_for_a_command_line() -> None:
    def once() -> float:
        load.cache_clear()
        start = time.process_time()
        load()
        return time.process_time() - start

    try:
        assert min(once() for _ in range(5)) < 0.150  # 0.04 s measured; the bar leaves room for a slow machine
    finally:
        load.cache_clear()


def test_a_catalog_is_a_value() -> None:
    other: Catalog = CATALOG.with_overrides({"xid.94": "REBOOT"})
    assert row("xid.94").severity is None
    assert other.codes["xid.94"].severity is Severity.REBOOT
