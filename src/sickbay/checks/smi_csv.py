"""Reads what `nvidia-smi --query-gpu=... --format=csv` and `--query-compute-apps=...` print, with or without header.

`checks/pcie` and `checks/gpu_processes` use `table`; `report` turns a --query-gpu table into what `-q` would have said,
for `checks/nvidia_smi`. Rows of the GPUs that answer follow lines about those that do not, so a line that is no row is
passed over. Cells that say they are no value ("[N/A]", "[Unknown Error]", ...) read as "".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sickbay.checks.kernel_lines import device
from sickbay.checks.smi_text import Card, Report, known

MOST_ROWS = 4096
_NAME = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*(?: \[[^\]]{1,8}\])?")
_UNIT = re.compile(r" \[[^\]]*\]$")
_NUMBER = re.compile(r"(-?\d{1,15}(?:\.\d{1,9})?)(?: ?(?:%|x|W|C|us|MiB|KiB|MHz))?")

Row = dict[str, str]


def table(text: str, fields: Sequence[str] = ()) -> list[Row]:
    """`fields`: what was asked for, where there is no header. Names lose their unit: "utilization.gpu [%]"."""
    names, rows = list(fields), list[Row]()
    for line in text.splitlines():
        if len(rows) >= MOST_ROWS:
            break
        cells = [cell.strip() for cell in line[:65_536].split(",")]
        if not names:
            names = _header(cells)
        elif (whole := _fitted(cells, names)) is not None:
            rows.append({name: known(cell)[:400] for name, cell in zip(names, whole, strict=True)})
    return rows


def _header(cells: list[str]) -> list[str]:
    if len(cells) < 2 or not all(_NAME.fullmatch(cell) for cell in cells):
        return []
    return [_UNIT.sub("", cell) for cell in cells]


def _fitted(cells: list[str], names: list[str]) -> list[str] | None:
    """The cells of a row, or None if it is none. Only a process may have commas in its name: nothing is quoted."""
    extra = len(cells) - len(names)
    if extra == 0:
        return cells
    if extra < 0 or "process_name" not in names:
        return None
    at = names.index("process_name")
    return [*cells[:at], ", ".join(cells[at : at + extra + 1]), *cells[at + extra + 1 :]]


def figure(cell: str) -> float | None:
    """A cell's number, whatever unit follows it; None if it is none."""
    found = _NUMBER.fullmatch(cell)
    return float(found[1]) if found else None


# Fields of --query-gpu -> where `-q` prints the same. Totals only where parts would be counted twice.
_FIELDS = {
    "name": "product_name",
    "gpu_name": "product_name",
    "serial": "serial_number",
    "gpu_serial": "serial_number",
    "uuid": "gpu_uuid",
    "gpu_uuid": "gpu_uuid",
    "persistence_mode": "persistence_mode",
    "mig.mode.current": "mig_mode/current",
    "gpu_recovery_action": "gpu_recovery_action",
    "inforom.checksum_validation": "inforom_checksum_validation",
    "ecc.mode.current": "ecc_mode/current",
    "ecc.errors.uncorrected.volatile.total": "ecc_errors/volatile/uncorrectable",
    "ecc.errors.uncorrected.aggregate.total": "ecc_errors/aggregate/uncorrectable",
    "ecc.errors.corrected.volatile.dram": "ecc_errors/volatile/dram_correctable",
    "ecc.errors.corrected.volatile.sram": "ecc_errors/volatile/sram_correctable",
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": "ecc_errors/aggregate/sram_threshold_exceeded",
    "retired_pages.single_bit_ecc.count": "retired_pages/single_bit_ecc",
    "retired_pages.sbe": "retired_pages/single_bit_ecc",
    "retired_pages.double_bit.count": "retired_pages/double_bit_ecc",
    "retired_pages.dbe": "retired_pages/double_bit_ecc",
    "retired_pages.pending": "retired_pages/pending_page_blacklist",
    "remapped_rows.pending": "remapped_rows/pending",
    "remapped_rows.failure": "remapped_rows/remapping_failure_occurred",
    "temperature.gpu": "temperature/gpu_current_temp",
    "utilization.gpu": "utilization/gpu",
    "memory.used": "fb_memory_usage/used",
    "power.draw": "gpu_power_readings/average_power_draw",
    "pstate": "performance_state",
    "fabric.state": "fabric/state",
    "fabric.status": "fabric/status",
    "clocks_event_reasons.hw_slowdown": "clocks_event_reasons/hw_slowdown",
    "clocks_event_reasons.hw_thermal_slowdown": "clocks_event_reasons/hw_thermal_slowdown",
    "clocks_event_reasons.hw_power_brake_slowdown": "clocks_event_reasons/hw_power_brake_slowdown",
    "clocks_throttle_reasons.hw_slowdown": "clocks_event_reasons/hw_slowdown",
    "clocks_throttle_reasons.hw_thermal_slowdown": "clocks_event_reasons/hw_thermal_slowdown",
    "clocks_throttle_reasons.hw_power_brake_slowdown": "clocks_event_reasons/hw_power_brake_slowdown",
}


def report(text: str, fields: Sequence[str] = ()) -> Report:
    """A --query-gpu table as a Report; without cards if it is none."""
    rows = [row for row in table(text, fields) if "pid" not in row and _names_gpu(row)]
    driver = next((row["driver_version"] for row in rows if row.get("driver_version")), "")
    cards = [Card(_device(row), {_FIELDS[name]: cell for name, cell in row.items() if name in _FIELDS}) for row in rows]
    return Report(driver=driver, cards=cards)


def _names_gpu(row: Row) -> bool:
    return bool(_device(row)) or row.get("index", "").isdecimal()


def _device(row: Row) -> str:
    address = row.get("pci.bus_id") or row.get("gpu_bus_id") or ""
    return device(address) if is_address(address) else ""


_BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?")


def is_address(text: str) -> bool:
    return _BUS_ID.fullmatch(text.strip()) is not None
