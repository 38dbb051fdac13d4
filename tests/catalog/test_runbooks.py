"""The committed runbooks are what the catalog makes today, one page for each fault."""

from __future__ import annotations

from pathlib import Path

from sickbay.catalog import load
from sickbay.catalog.runbooks import GENERATED, main, pages, write
from tests.catalog.shared import ROOT

COMMITTED = ROOT / "docs" / "runbooks"


def test_the_committed_pages_equal_what_the_catalog_makes() -> None:
    made = pages(load())
    committed = {path.name: path.read_text(encoding="utf-8") for path in COMMITTED.glob("*.md")}
    stale = sorted(name for name in made.keys() | committed.keys() if made.get(name) != committed.get(name))
    assert stale == [], "run: python -m sickbay.catalog.runbooks docs/runbooks"


def test_a_page_names_codes_ladder_clearing_and_sources() -> None:
    page = pages(load())["gpu-lost.md"]
    for words in ("`xid.79`", "REBOOT (up to 30 min)", "cleared by a boot", "## What a person does", "## Sources"):
        assert words in page


def test_every_fault_is_in_the_index() -> None:
    index = pages(load())["README.md"]
    assert [name for name in load().faults if f"({name}.md)" not in index] == []


def test_a_table_row_cannot_be_broken_by_its_text() -> None:
    for name, page in pages(load()).items():
        for line in page.splitlines():
            if line.startswith("| `"):
                assert line.count("|") == 5, f"{name}: {line}"


def test_writing_removes_pages_of_faults_that_are_gone_and_leaves_other_files(tmp_path: Path) -> None:
    (tmp_path / "old-fault.md").write_text(f"# Old\n\n{GENERATED}\n", encoding="utf-8")
    (tmp_path / "by-hand.md").write_text("# Ours\n", encoding="utf-8")
    write(load(), tmp_path)
    assert not (tmp_path / "old-fault.md").exists()
    assert (tmp_path / "by-hand.md").exists()


def test_the_command_says_how_it_is_used() -> None:
    assert main([]) == 2
