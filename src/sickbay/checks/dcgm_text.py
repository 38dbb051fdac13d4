"""The tables that dcgmi prints for people: rows of a name and a cell, as results of tests.

`dcgm_diag` reads a diagnostic without -j with it, `dcgm_health` a health report. Formats: dcgmi's own (Diag.cpp,
DcgmiOutput.cpp) of DCGM 3 ("Fail - GPU: 0", cells cut after 45 characters) and 4 ("GPU0: Fail"). Pure; it must never
raise, whatever was pasted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST_ROWS = 20_000
CELL = 45  # characters after which dcgmi cuts a cell of a diagnostic, in the middle of a word
MOST_CELLS = 64  # of one warning


@dataclass(frozen=True, slots=True)
class Row:
    left: str  # as printed, so that its indentation can be read
    right: str


@dataclass(slots=True)
class Note:
    """A warning, of one GPU or ("") of nobody knows which, as the cells it is printed in."""

    gpu: str
    cells: list[str]

    def text(self) -> str:
        """One line. dcgmi cuts hard, so a full cell goes on without a space."""
        whole = "".join(cell.rstrip() + ("" if len(cell.rstrip()) >= CELL else " ") for cell in self.cells)
        return " ".join(whole.split())


@dataclass(slots=True)
class Test:
    """One test of a diagnostic: what it says of which GPU ("" = all of them), and its warnings."""

    name: str
    category: str
    results: list[tuple[str, str]] = field(default_factory=list)  # (status, GPU)
    notes: list[Note] = field(default_factory=list)


_ROW = re.compile(r"^\s*\|(?P<left>[^|]*)\|(?P<right>.*?)\|?\s*$")
_SECTION = re.compile(r"^\s*[|+]-{2,}\s{1,4}(?P<name>[A-Za-z][\w /]{0,40}?)\s{1,4}-{2,}")
_STATUS = re.compile(
    r"^(?P<status>Pass|Fail|Skip|Warn)\w*(?:\s*-\s*(?:All|GPUs?:\s*(?P<gpus>[\d, ]+)))?\s*$", re.IGNORECASE
)
_ENTITY = re.compile(r"^GPU\s?(?P<gpu>\d{1,4}):\s*(?P<status>Pass|Fail|Skip|Warn)", re.IGNORECASE)
_NOTE = re.compile(r"^(?P<kind>Warning|Error|Info)s?(?::?\s*GPU\s?(?P<gpu>\d{1,4}))?\s*:?$", re.IGNORECASE)
_GPU = re.compile(r"\bGPU (\d{1,4})\b")


def rows(text: str) -> Iterator[Row | str]:
    """Each row of two cells, and the name of each section."""
    for number, line in enumerate(text.splitlines()):
        if number >= MOST_ROWS:
            return
        line = line[:1_000]
        if section := _SECTION.match(line):
            yield section["name"].strip()
        elif row := _ROW.match(line):
            yield Row(row["left"], row["right"])


def tests(text: str) -> list[Test]:
    """The tests of a diagnostic's table, in order. None if there is no such table."""
    reader = _Reader()
    for row in rows(text):
        if isinstance(row, str):
            reader.section(row)
        else:
            reader.row(row.left.strip(), row.right[1:] if row.right.startswith(" ") else row.right)
    return reader.found


class _Reader:
    """Where in the table we are: which section, which test, and whether a warning's text goes on."""

    def __init__(self) -> None:
        self.found: list[Test] = []
        self._category = ""
        self._test: Test | None = None
        self._open: Note | None = None  # the warning being read
        self._in_note = False

    def section(self, name: str) -> None:
        self._category, self._test, self._in_note = name, None, False

    def row(self, left: str, cell: str) -> None:
        if self._category.lower() == "metadata":
            return
        if note := _NOTE.match(left):
            self._note(note["kind"].lower(), note["gpu"] or "", cell)
        elif left and (status := _status(cell)):
            self._test, self._in_note = Test(left[:80], self._category, status), False
            self.found.append(self._test)
        elif left:
            self._test, self._in_note = None, False  # a header, or something else that has no status
        else:
            self._more(cell)

    def _note(self, kind: str, gpu: str, cell: str) -> None:
        self._in_note, self._open = True, None
        if kind == "info":
            return
        if self._test is None:  # DCGM 3: an error of a whole section stops the run; a warning has lost its test
            status = "fail" if kind == "error" else "warn"
            self._test = Test(self._category or "diagnostic", self._category, [(status, "")])
            self.found.append(self._test)
        self._open = Note(gpu, [cell])
        self._test.notes.append(self._open)

    def _more(self, cell: str) -> None:
        if self._in_note:
            if self._open is not None and len(self._open.cells) < MOST_CELLS:
                self._open.cells.append(cell)
        elif self._test is not None:
            self._test.results += _status(cell)


def _status(cell: str) -> list[tuple[str, str]]:
    """[(status, GPU)] of a cell that is nothing but a status."""
    words = cell.strip()
    if entity := _ENTITY.match(words):
        return [(entity["status"].lower(), entity["gpu"])]
    found = _STATUS.match(words)
    if found is None:
        return []
    gpus = [gpu.strip() for gpu in (found["gpus"] or "").split(",") if gpu.strip().isdecimal()][:64]
    return [(found["status"].lower(), gpu) for gpu in gpus] or [(found["status"].lower(), "")]


def gpu_of(text: str) -> str:
    """The GPU a message begins to speak of, "" if of none."""
    found = _GPU.search(text[:400])
    return found.group(1) if found else ""
