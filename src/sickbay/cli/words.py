"""How operator commands write: durations, moments, tables and JSON lines. Pure text, no store, no decision.

Names and evidence come from other people's machines: whatever is printed goes through `plain`, so that a log line
cannot drive the terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

from sickbay.core.moment import moment as moment
from sickbay.errors import UserError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
LONGEST_S = 366 * 86_400.0
PIPE_WIDTH = 160  # columns when no terminal says how wide it is


def plain(text: str) -> str:
    """One line without anything that moves a cursor or rings a bell."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def duration(text: str) -> float:
    """ "90s", "30m", "2h", "3d", "1w" or "1h30m" as seconds."""
    total, digits = 0.0, ""
    for char in text.strip().lower():
        if char.isdecimal() and char.isascii():
            digits += char
        elif char in UNITS and digits:
            total, digits = total + int(digits[:9]) * UNITS[char], ""
        else:
            digits = "?"
            break
    if digits or not 0 < total <= LONGEST_S:
        raise UserError(f"{plain(text)!r} is not a length of time; write 90s, 30m, 2h, 3d or 1h30m, at most a year.")
    return total


def span(seconds: float) -> str:
    """A length of time, to two units: "2 h 5 min"."""
    left = max(0, round(seconds))
    parts = []
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if left >= size:
            parts.append(f"{left // size} {name}")
            left %= size
    return " ".join(parts[:2]) or "0 s"


def ago(seconds: float) -> str:
    return f"{span(seconds)} ago"


def print_json(rows: Iterable[object]) -> None:
    for row in rows:
        sys.stdout.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(table)
