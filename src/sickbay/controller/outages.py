"""Do several jobs fail alike at the same time? Then it is not the jobs: a file system, a registry, a fabric is.

Kept in memory by controller/jobs.py, which tells core/recover.py: while it lasts no job spends an attempt on it or is
given up. It decides nothing about any one job.
"""

from __future__ import annotations

from collections import deque

ALIKE_S = 900.0  # seconds in which failures belong together: a stall is noticed up to ten minutes late
JOBS = 3
KEPT = 4096


class Outages:
    def __init__(self) -> None:
        self._failed: deque[tuple[float, str, str]] = deque(maxlen=KEPT)  # watch time, how, job

    def note(self, job: str, how: str, now: float) -> None:
        self._failed.append((now, how, job))

    def of(self, job: str, now: float) -> str:
        """In words, if this job's last failure is one of several alike; "" if it is its own."""
        while self._failed and now - self._failed[0][0] > ALIKE_S:
            self._failed.popleft()
        for how in {how for _, how, failed in self._failed if failed == job}:
            alike = {failed for _, other, failed in self._failed if other == how}
            if len(alike) >= JOBS:
                return f"{len(alike)} jobs failed alike within {ALIKE_S / 60:.0f} minutes ({how})"
        return ""
