"""What earlier polls measured, one Series per check, across restarts: for rates, flaps and "how long already".

agent/collector hands each check its own and saves them after a cycle. Numbers only; losing them costs a few cycles of
history and no verdict, so the file is written without waiting for the disk.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from sickbay import atomic
from sickbay.checks.series import FIGURES, POINTS, Series

log = logging.getLogger(__name__)

FILE = "series.json"
MOST_BYTES = 32 << 20


class Memory:
    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._by_check: dict[str, Series] = {}
        self._boot = ""

    def load(self, boot_id: str) -> None:
        """Counters start anew with a boot, and Series knows that; so a new boot keeps the history."""
        self._boot = boot_id
        data = atomic.read(self._path, MOST_BYTES)
        if not data:
            return
        try:
            kept = msgspec.json.decode(data, type=dict[str, dict[str, list[tuple[float, float]]]])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("%s cannot be read and starts anew: %s", self._path, error)
            return
        for check, points in list(kept.items())[:256]:
            bounded = {name: rows[-POINTS:] for name, rows in list(points.items())[:FIGURES]}
            self._by_check[check] = Series(bounded)

    def of(self, check: str) -> Series:
        return self._by_check.setdefault(check, Series())

    def save(self) -> None:
        used = {check: series.points for check, series in self._by_check.items() if series.points}
        if not used:
            return
        try:
            atomic.write(self._path, msgspec.json.encode(used), sync=False)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)
