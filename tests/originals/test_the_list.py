"""Pages that promise behaviour (the originals' mistakes, a peer's complaints) name tests; each of those is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def rows_of(page: str) -> list[str]:
    return [line for line in (DOCS / page).read_text().splitlines() if re.match(r"\| \d+ \|", line)]


MISTAKES, COMPLAINTS = rows_of("originals-bugs.md"), rows_of("peers-complaints.md")


def test_every_entry_is_there() -> None:
    assert [int(row.split("|")[1]) for row in MISTAKES] == [*range(1, 15), *range(1, 17), *range(1, 15)]
    assert [int(row.split("|")[1]) for row in COMPLAINTS] == [*range(1, 13)]


@pytest.mark.parametrize("row", MISTAKES + COMPLAINTS, ids=lambda row: row[:40])
def test_each_entry_names_a_test_that_exists(row: str) -> None:
    shown = row.split("|")[4]
    files = [DOCS / link for link in re.findall(r"\]\(([^)]+)\)", shown)]
    assert files
    text = "".join(file.read_text() for file in files)
    assert [name for name in re.findall(r"`(test_\w+)`", shown) if f"def {name}(" not in text] == []
