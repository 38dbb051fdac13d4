"""The node's chart on disk: latched verdicts, counters and the kernel log's cursor. Written before anything is told.

Owned by agent/station. `verdicts.json` holds what must survive a power cut; `cursor.json` only saves re-reading lines
in which nothing was found. Verdicts and cursor stand in one file, so that no line is counted twice after a kill. It
must never refuse to start: a chart that cannot be read is moved aside, and that is said.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from sickbay import atomic, wire
from sickbay.agent.verdicts import Verdict, Verdicts
from sickbay.errors import StoreError
from sickbay.model import Finding

log = logging.getLogger(__name__)

MOST_BYTES = 8 << 20
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Chart:
    """All that the agent must not forget."""

    verdicts: Verdicts = field(default_factory=Verdicts)
    boot_id: str = ""
    numbers: int = 0  # of findings: ids are "<boot id>/<n>", and n never goes back within a state folder
    reports: int = 0
    cursor: str = ""  # kernel log: where we are
    born: float = 0.0  # wall time of the first start here
    l2_at: float = 0.0  # wall time of the last level-2 diagnostic
    unreadable: str = ""  # why the last chart was given up, "" if it was not; not kept


@dataclass(slots=True)
class Shelf:
    """Where the chart is kept."""

    folder: Path
    _cursor_written: str = field(default="", init=False)

    @property
    def path(self) -> Path:
        return self.folder / "verdicts.json"

    def load(self, boot_id: str) -> Chart:
        """The chart as it was, or a new one. The cursor is the newer of the two that are kept."""
        chart = self._chart()
        lazy = _cursor_in(atomic.read(self.folder / "cursor.json", 4096) or b"")
        return replace(chart, cursor=_newer(chart.cursor, lazy, boot_id))

    def _chart(self) -> Chart:
        if not self.path.exists():
            return Chart()
        chart = decoded(atomic.read(self.path, MOST_BYTES) or b"")
        if isinstance(chart, str):
            return Chart(unreadable=f"{self._aside()} could not be read ({chart}); latched verdicts start anew")
        return chart

    def _aside(self) -> str:
        try:
            return str(atomic.move_aside(self.path))
        except OSError:
            return str(self.path)

    def save(self, chart: Chart) -> None:
        atomic.write(self.path, _encoded(chart))

    def save_cursor(self, cursor: str) -> None:
        """Nothing was found up to here; losing this costs only reading those lines again."""
        if cursor != self._cursor_written:
            atomic.write(self.folder / "cursor.json", msgspec.json.encode({"cursor": cursor}), sync=False)
            self._cursor_written = cursor


def _newer(chart: str, lazy: str, boot_id: str) -> str:
    """The one of this boot that is further on; "" if neither is of this boot, because then every line is new."""
    here = [cursor for cursor in (chart, lazy) if boot_id and cursor.startswith(f"{boot_id}:")]
    return max(here, key=position, default="")


def position(cursor: str) -> int:
    """A cursor is "<boot id>:<n>", n the record's sequence; journald's is "<boot id>:<microseconds>:<its own>"."""
    number = cursor.split(":", 2)[1] if ":" in cursor else ""
    return int(number) if number.isdecimal() else -1


def _cursor_in(data: bytes) -> str:
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    found = tree.get("cursor", "") if isinstance(tree, dict) else ""
    return found if isinstance(found, str) else ""


def _encoded(chart: Chart) -> bytes:
    tree = {
        "schema": SCHEMA, "boot_id": chart.boot_id, "numbers": chart.numbers, "reports": chart.reports,
        "cursor": chart.cursor, "born": chart.born, "l2_at": chart.l2_at, "silent": 0,
        "latched": [_verdict_out(verdict) for verdict in chart.verdicts.latched],
        "answers": [wire.to_json(finding) for finding in chart.verdicts.answers],
    }  # fmt: skip
    return msgspec.json.encode(tree)


def _verdict_out(verdict: Verdict) -> dict[str, object]:
    return {
        "finding": wire.to_json(verdict.finding), "since": verdict.since, "polls": verdict.polls,
        "believed": verdict.believed,
    }  # fmt: skip


def decoded(data: bytes) -> Chart | str:
    """The chart in these bytes, or why there is none."""
    try:
        return _decoded(data)
    except (StoreError, msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def _decoded(data: bytes) -> Chart:
    tree = msgspec.json.decode(data)
    if not isinstance(tree, dict) or int(tree["schema"]) > SCHEMA:
        raise StoreError("written by a newer Sickbay, or no chart at all")
    latched = tuple(
        Verdict(wire.from_json(Finding, one["finding"]), float(one["since"]), int(one["polls"]), bool(one["believed"]))
        for one in tree["latched"]
    )
    answers = tuple(wire.from_json(Finding, one) for one in tree["answers"])
    return Chart(
        Verdicts(latched, answers), str(tree["boot_id"]), int(tree["numbers"]),
        int(tree["reports"]), str(tree["cursor"]), float(tree["born"]), float(tree["l2_at"]),
    )  # fmt: skip
