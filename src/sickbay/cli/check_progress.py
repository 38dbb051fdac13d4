"""Shows that a long check is alive: on a terminal a line that counts, elsewhere a line each half minute.

`cli/check` turns it from check to check. It writes to standard error only, and ends with the `with` block.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TextIO

from sickbay.cli.words import span

EVERY_S = 30.0  # where nobody watches live
QUIET_S = 1.0  # a terminal hears of a check that takes longer than this


class Ticker:
    def __init__(self, out: TextIO, every_s: float = EVERY_S) -> None:
        self._out = out
        self._live = out.isatty()
        self._every_s = QUIET_S if self._live else every_s
        self._lock = threading.Lock()
        self._name, self._since = "", 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="sickbay-progress", daemon=True)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.turn("")
        self._over.set()
        self._thread.join(1.0)

    def turn(self, name: str) -> None:
        """This check begins; "" when one has ended."""
        with self._lock:
            self._name, self._since = name, time.monotonic()
            if self._live and not name:
                self._write("\r\x1b[K")

    def _tick(self) -> None:
        while not self._over.wait(self._wait_s()):
            with self._lock:
                passed = time.monotonic() - self._since
                if self._name and passed >= min(self._every_s, QUIET_S) * 0.9:
                    self._say(f"{self._name}: {span(passed)} so far")

    def _wait_s(self) -> float:
        """Until the running check has taken a whole number of intervals."""
        with self._lock:
            passed = time.monotonic() - self._since if self._name else 0.0
        return self._every_s - passed % self._every_s

    def _say(self, text: str) -> None:
        self._write(f"\r\x1b[K{text} ..." if self._live else f"sickbay: {text}\n")

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):  # nobody reads any more: the checks go on
            pass
