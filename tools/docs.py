"""Write the pages that are made from the code: `python tools/docs.py`, or `make docs`.

Called by people, and by tests/test_docs.py, which compares `pages()` with what is committed. It invents nothing: phases
come from core/machine.py, settings from settings.py, runbooks from the catalog.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from sickbay import settings_doc
from sickbay.catalog import load, runbooks
from sickbay.core.machine import TABLE

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- made from core/machine.py: begin -->", "<!-- made from core/machine.py: end -->"


def pages() -> dict[Path, str]:
    """Every page that is made from the code, as it should stand in the repository."""
    cases, folder = ROOT / "docs" / "cases.md", ROOT / "docs" / "runbooks"
    books = {folder / name: text for name, text in runbooks.pages(load()).items()}
    return {cases: _cases(cases.read_text()), ROOT / "docs" / "settings.md": settings_doc.page(), **books}


def _cases(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join([before + BEGIN, "", "| phase | goes to |", "|---|---|", *_rows(), "", END]) + after


def _rows() -> Iterator[str]:
    for phase, row in TABLE.items():
        by_target: dict[str, list[str]] = {}
        for event, target in row.items():
            by_target.setdefault(target.value, []).append(event.value)
        moves = [f"{', '.join(events)} → {target}" for target, events in by_target.items()]
        yield f"| {phase.value} | {'; '.join(moves) or 'the end'} |"


def main() -> None:
    runbooks.write(load(), ROOT / "docs" / "runbooks")  # removes pages of faults that are gone, too
    for path, text in pages().items():
        path.write_text(text)
    sys.stdout.write(f"wrote {len(pages())} pages\n")


if __name__ == "__main__":
    main()
