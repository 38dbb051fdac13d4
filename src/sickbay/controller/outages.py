"""Keeps in memory how jobs failed lately; core/outages.py says which of that is shared.

Kept by controller/jobs.py, which tells core/recover.py: while it lasts no job spends an attempt on it or is given up.
"""

from __future__ import annotations

from sickbay.core import outages as core


class Outages:
    def __init__(self) -> None:
        self._known = core.Failures()

    def note(self, job: str, how: str, now: float) -> None:
        self._known = core.noted(self._known, core.Failure(now, how, job))

    def forget(self, job: str) -> None:
        """It runs, or has ended."""
        self._known = core.forgotten(self._known, job)

    def of(self, job: str, now: float) -> str:
        return core.of_several(self._known, job, now)
