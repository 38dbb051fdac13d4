"""The CSV of nvidia-smi: cells without value, names with units, rows between other lines."""

from __future__ import annotations

import pytest

from sickbay.checks import nvidia_smi, smi_csv


@pytest.mark.parametrize(
    "cell",
    [
        "[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[Insufficient Permissions]", "[GPU requires reset]",
        "[Requested functionality has been deprecated]", "[Not Found]", "[GPU is lost]",
    ],
)  # fmt: skip
def test_a_cell_that_says_it_is_no_value_reads_as_empty(cell: str) -> None:
    assert smi_csv.table(f"index, power.draw [W]\n0, {cell}\n") == [{"index": "0", "power.draw": ""}]


@pytest.mark.parametrize(
    ("cell", "value"),
    [("16", 16.0), ("97 %", 97.0), ("70.89 W", 70.89), ("370 MiB", 370.0), ("16x", 16.0), ("-8 C", -8.0), ("", None),
     ("0x0000000000000001", None), ("many", None), ("9" * 40, None)],
)  # fmt: skip
def test_a_number_is_read_whatever_its_unit(cell: str, value: float | None) -> None:
    assert smi_csv.figure(cell) == value


def test_rows_are_read_with_and_without_header_and_between_other_lines() -> None:
    rows = "Unable to determine the device handle for GPU3: 0000:04:00.0: Unknown Error\n0, P0\n1, P8\n\nrubbish\n"
    assert [row["pstate"] for row in smi_csv.table(rows, ("index", "pstate"))] == ["P0", "P8"]
    assert [row["pstate"] for row in smi_csv.table("index, pstate\n" + rows)] == ["P0", "P8"]


def test_a_query_table_is_judged_as_the_long_form_is() -> None:
    text = (
        "index, pci.bus_id, serial, remapped_rows.pending, gpu_recovery_action, ecc.errors.uncorrected.volatile.total, "
        "clocks_event_reasons.hw_slowdown, clocks_event_reasons.sw_power_cap\n"
        "0, 00000000:10:00.0, 91, No, None, 0, Not Active, Active\n"
        "1, 00000000:11:00.0, 92, Yes, Reset, 2, Not Active, Active\n"
    )
    found = {(sign.code, sign.device, sign.part) for sign in nvidia_smi.signs(text, 2)}
    assert found == {
        ("smi.remap-pending", "0000:11:00", "92"),
        ("smi.recovery-action-reset", "0000:11:00", "92"),
        ("smi.ecc-volatile", "0000:11:00", "92"),
    }


def test_a_list_of_processes_is_no_list_of_gpus() -> None:
    text = "gpu_bus_id, pid, process_name\n00000000:10:00.0, 12, a\n00000000:10:00.0, 13, b\n"
    assert smi_csv.report(text).cards == []


@pytest.mark.parametrize("address", ["0.:0:0", "::", "3b:00", "0000:3b:00.0:1", "[N/A]", "0000:3b:000.0"])
def test_a_damaged_bus_address_names_no_gpu_and_breaks_nothing(address: str) -> None:
    """The first was found by tools/fuzz.py."""
    assert smi_csv.report(f"index, name, pci.bus_id\nx, NVIDIA H100, {address}\n").cards == []
