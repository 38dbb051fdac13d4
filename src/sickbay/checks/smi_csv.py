"""Reads what `nvidia-smi --query-gpu=... --format=csv` and `--query-compute-apps=...` print, with or without header.

`checks/pcie` and `checks/gpu_processes` use it. Rows of the GPUs that answer follow lines about those that do not, so
a line that is no row is passed over. Cells that say they are no value ("[N/A]", "[Unknown Error]", ...) read as "".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sickbay.checks.smi_text import known

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
