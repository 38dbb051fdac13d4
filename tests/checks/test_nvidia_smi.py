"""nvidia-smi: lost GPUs in all spellings, pending repairs, and never OK without having seen anything."""

from __future__ import annotations

import pytest

from sickbay.checks import nvidia_smi
from sickbay.model import Status
from tests.checks import samples

HEAD = "==============NVSMI LOG==============\n\nDriver Version : 590.48.01\n\nAttached GPUs : {n}\n"
GPU = """GPU 00000000:{bus}:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : {persistence}
    MIG Mode
        Current                           : Disabled
    Serial Number                         : 165372{bus}
    GPU UUID                              : GPU-{bus}
    GPU Recovery Action                   : {recovery}
    Clocks Event Reasons
        Idle                              : Active
        SW Power Cap                      : Active
        HW Slowdown                       : {slow}
            HW Thermal Slowdown           : {slow}
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity     : 0
            DRAM Uncorrectable            : {dbe}
        Aggregate
            DRAM Uncorrectable            : 7
            SRAM Threshold Exceeded       : {sram}
        Channel Repair Pending            : No
        TPC Repair Pending                : No
        Unrepairable Memory               : No
    Retired Pages
        Pending Page Blacklist            : N/A
    Remapped Rows
        Pending                           : {pending}
        Remapping Failure Occurred        : {failed}
"""
WELL = {
    "persistence": "Enabled", "recovery": "None", "slow": "Not Active", "dbe": "0", "sram": "No", "pending": "No",
    "failed": "No",
}  # fmt: skip


def text(*cards: dict[str, str], attached: int | None = None) -> str:
    shown = (GPU.format(**WELL | {"bus": f"{n + 16:02X}"} | card) for n, card in enumerate(cards))
    return HEAD.format(n=attached or len(cards)) + "".join(shown)


def codes(said: str, expected: int | None = None) -> list[tuple[str, str]]:
    return [(sign.code, sign.device) for sign in nvidia_smi.signs(said, expected)]


def test_eight_healthy_gpus_have_nothing_to_say() -> None:
    assert codes(text(*[{}] * 8), 8) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"pending": "Yes"}, "smi.remap-pending"),
        ({"failed": "Yes"}, "smi.remap-failed"),
        ({"sram": "Yes"}, "smi.sram-threshold"),
        ({"dbe": "3"}, "smi.ecc-volatile"),
        ({"slow": "Active"}, "smi.slowdown-hw"),
        ({"recovery": "Reset"}, "smi.recovery-action-reset"),
        ({"recovery": "Reboot"}, "smi.recovery-action-reboot"),
        ({"recovery": "Drain P2P"}, "smi.recovery-action-drain"),
        ({"recovery": "Drain and Reset"}, "smi.recovery-action-drain"),
        ({"persistence": "Disabled"}, "smi.persistence-off"),
    ],
)
def test_what_one_gpu_asks_for_is_found_on_that_gpu(change: dict[str, str], code: str) -> None:
    assert codes(text({}, change, {})) == [(code, "0000:11:00")]


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("Unable to determine the device handle for gpu 0000:08:00.0: Unknown Error", "0000:08:00"),
        ("Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.  Reboot the system", "0000:05:00"),
        ("Unable to determine the device handle for GPU0000:25:00.0: Unknown Error", "0000:25:00"),
        ("Unable to determine the device handle for GPU3: 0000:5F:00.0: Not Found", "0000:5f:00"),
        ("Unable to determine the device handle for GPU2: Unknown Error", ""),
    ],
)
def test_a_lost_gpu_is_known_in_all_five_spellings(line: str, device: str) -> None:
    assert codes(line) == [("smi.gpu-lost", device)]
    assert codes(text({}, {}, attached=2) + line, 3) == [("smi.gpu-lost", device)]


def test_fewer_gpus_than_the_profile_says_are_missing() -> None:
    assert codes(text(*[{}] * 7, attached=7), 8) == [("smi.gpu-missing", "")]
    assert codes("No devices were found", 8) == [("smi.gpu-missing", "")]


@pytest.mark.parametrize(
    "said",
    [
        "",
        "\x00\x01garbage",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.288",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure",
        "<nvidia_smi_log><gpu id='x'>",
    ],
)
def test_a_tool_that_shows_nothing_is_unknown_and_not_well(said: str) -> None:
    assert [sign.status for sign in nvidia_smi.signs(said, 8)] == [Status.UNKNOWN]


def test_the_inventory_keeps_the_numbers_of_the_gpus_that_answer() -> None:
    said = "Unable to determine the device handle for GPU1: 0000:04:00.0: Unknown Error\n" + text({}, {})
    gpus = nvidia_smi.inventory(said)
    assert [(gpu.index, gpu.pci, gpu.serial) for gpu in gpus] == [
        (0, "0000:10:00", "16537210"),
        (2, "0000:11:00", "16537211"),
    ]


def test_xml_and_text_say_the_same() -> None:
    xml = """<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd"><nvidia_smi_log>
    <driver_version>550.1</driver_version><attached_gpus>1</attached_gpus><gpu id="00000000:3B:00.0">
    <product_name>NVIDIA A100-SXM4-80GB</product_name><uuid>GPU-1</uuid><serial>99</serial>
    <mig_mode><current_mig>Disabled</current_mig></mig_mode>
    <clocks_event_reasons><clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
    <clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown></clocks_event_reasons>
    <ecc_errors><volatile><dram_uncorrectable>2</dram_uncorrectable></volatile></ecc_errors>
    <remapped_rows><remapped_row_pending>Yes</remapped_row_pending>
    <remapped_row_failure>Yes</remapped_row_failure></remapped_rows></gpu></nvidia_smi_log>"""
    found = nvidia_smi.signs(xml)
    assert sorted(sign.code for sign in found) == [
        "smi.ecc-volatile", "smi.remap-failed", "smi.remap-pending", "smi.slowdown-hw",
    ]  # fmt: skip
    assert {sign.device for sign in found} == {"0000:3b:00"}
    assert found[0].traits == {"gpu_model": "NVIDIA A100-SXM4-80GB", "driver": "550.1", "mig": "disabled"}


def test_recorded_healthy_outputs_are_quiet_and_recorded_failures_are_not() -> None:
    smi = samples.folder() / "smi"
    healthy = [*smi.glob("nvidia-*__q.txt"), *smi.glob("bugreport*"), *(smi / "xml").glob("*.xml")]
    assert len(healthy) > 30
    for file in healthy:
        said = file.read_text(errors="replace")
        assert nvidia_smi.inventory(said), file.name
        assert {code for code, _ in codes(said)} <= {"smi.persistence-off"}, file.name
    for row in samples.rows("smi/failures.jsonl"):
        assert nvidia_smi.signs(row["text"]), row
