"""Is this process well? /healthz, /readyz and /livez answer from here; controller/app.py says what it is doing.

Times are monotonic. Written by the thread that makes the passes, read by whoever asks; it holds no lock and must never
wait. /livez is for a probe that restarts: it fails only when the loop hangs, for a restart heals neither a store nor an
API server that does not answer, and a controller in back-off is away when they are back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LATE_PERIODS = 5  # of controller.period_s without the pass that was due
START_S = 180.0  # to take the lead and read everything
STALE_S = 300.0  # of a watch; a quiet API server speaks every minute

Answer = tuple[int, bytes]


class Vitals:
    def __init__(
        self, period_s: float, watch_age: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._period_s, self._watch_age, self._monotonic = period_s, watch_age, monotonic
        self.state = "starting"  # starting | leading | standing by | failing
        self._why = ""
        self._since = self._moved = monotonic()  # of the last good pass or look; of anything at all
        self._within, self._moves_within = START_S, START_S

    # -- said by the process

    def begins(self) -> None:
        """To take the lead and read everything, which takes a while on a large fleet."""
        self._move(START_S)
        self._within = max(self._within, START_S)

    def passed(self, sleeps_s: float) -> None:
        """A pass is done; the next one follows within this time."""
        self._well("leading", sleeps_s + LATE_PERIODS * self._period_s)

    def stood_by(self) -> None:
        self._well("standing by", LATE_PERIODS * self._period_s)

    def failed(self, why: str, again_s: float) -> None:
        """A pass broke; it is tried again soon. That is not a pass: /healthz says so when it goes on."""
        self.state, self._why = "failing", why
        self._move(again_s + START_S)

    def _well(self, state: str, within_s: float) -> None:
        self.state, self._why = state, ""
        self._since, self._within = self._monotonic(), within_s
        self._move(within_s)

    def _move(self, within_s: float) -> None:
        self._moved, self._moves_within = self._monotonic(), within_s

    # -- asked from outside

    def pages(self) -> dict[str, Callable[[], Answer]]:
        return {"/healthz": self.health, "/readyz": self.ready, "/livez": self.alive}

    def watch_age_s(self) -> float | None:
        """None: this platform is not watched over a network, or we do not watch now."""
        return self._watch_age() if self._watch_age is not None and self.state == "leading" else None

    def health(self) -> Answer:
        quiet, age = self._monotonic() - self._since, self.watch_age_s()
        if quiet > self._within:
            because = f": {self._why}" if self._why else ""
            return 503, f"no pass was completed for {quiet:.0f} s{because}\n".encode()
        if age is not None and age > STALE_S:
            return 503, f"the API server has said nothing of nodes or pods for {age:.0f} s\n".encode()
        return 200, f"{self.state}\n".encode()

    def ready(self) -> Answer:
        if self.state in ("leading", "standing by"):
            return 200, f"{self.state}\n".encode()
        return 503, (f"{self.state}: {self._why}" if self._why else self.state).encode() + b"\n"

    def alive(self) -> Answer:
        quiet = self._monotonic() - self._moved
        if quiet > self._moves_within:
            return 503, f"the loop has not moved for {quiet:.0f} s\n".encode()
        return 200, f"{self.state}\n".encode()
