"""A Host with an end: all commands of one check together may take so long and no longer.

`runner` puts it before the real host (--timeout, CHECK_TIMEOUT). A check with a limit of its own is not put behind it:
the original's 900 s cut every level-4 diagnostic (originals 002.12 #9).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from sickbay.ports import Completed, Host


class LimitedHost:
    def __init__(self, host: Host, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = host.name
        self._host, self._clock = host, clock
        self._end = clock() + limit_s

    def _left(self) -> float:
        return self._end - self._clock()

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        left = self._left()
        if left <= 0:
            return Completed(None, "", "not started: the check's time was over", timed_out=True)
        return self._host.run(argv, min(timeout_s, left))

    def fetch(
        self, url: str, timeout_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> str | None:
        left = self._left()
        return self._host.fetch(url, min(timeout_s, left), method, headers) if left > 0 else None

    def read(self, path: str) -> str | None:
        return self._host.read(path)

    def names(self, path: str) -> tuple[str, ...] | None:
        return self._host.names(path)

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        return self._host.kernel_lines(cursor)

    def boot_id(self) -> str:
        return self._host.boot_id()
