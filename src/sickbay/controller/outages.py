"""Do several jobs fail alike at the same time? Then it is not the jobs: a file system, a registry, a fabric is.

Kept in memory by controller/jobs.py, which tells core/recover.py: while it lasts no job spends an attempt on it or is
given up. It decides nothing about any one job.
"""

from __future__ import annotations

from collections import deque

ALIKE_S = 900.0  # seconds in which failures belong together: a stall is noticed up to ten minutes late
LASTS_S = 5_400.0  # after the last of them: longer than the longest time between two tries of one job
JOBS = 3
KEPT = 4096


class Outages:
    def __init__(self) -> None:
        self._failed: deque[tuple[float, str, str]] = deque(maxlen=KEPT)  # watch time, how, job
        self._open: dict[str, float] = {}  # how -> watch time until which it is taken to last
        self._last: dict[str, str] = {}  # job -> how it failed last

    def note(self, job: str, how: str, now: float) -> None:
        while self._failed and now - self._failed[0][0] > ALIKE_S:
            self._failed.popleft()
        self._failed.append((now, how, job))
        self._last[job] = how
        alike = {failed for _, other, failed in self._failed if other == how}
        if len(alike) >= JOBS or self._open.get(how, 0.0) > now:
            self._open[how] = now + LASTS_S

    def forget(self, job: str) -> None:
        """It runs, or has ended."""
        self._last.pop(job, None)

    def of(self, job: str, now: float) -> str:
        """In words, if this job's last failure is one of several alike; "" if it is its own."""
        how = self._last.get(job, "")
        if self._open.get(how, 0.0) <= now:
            return ""
        return f"several jobs fail alike, so it is something that they share ({how})"
