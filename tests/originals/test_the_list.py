"""docs/originals-bugs.md names a test for each entry, and each test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "originals-bugs.md"
ROWS = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]


def test_every_entry_is_there() -> None:
    assert [int(row.split("|")[1]) for row in ROWS] == [*range(1, 15), *range(1, 17), *range(1, 15)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[:40])
def test_each_entry_names_a_test_that_exists(row: str) -> None:
    shown = row.split("|")[4]
    files = [PAGE.parent / link for link in re.findall(r"\]\(([^)]+)\)", shown)]
    assert files
    text = "".join(file.read_text() for file in files)
    assert [name for name in re.findall(r"`(test_\w+)`", shown) if f"def {name}(" not in text] == []
