"""A simulated fleet that runs by itself in real time, or so many times faster: for trying the controller process.

One thread lets the world's time pass; every question waits its turn behind one lock, for a World is not made for two
threads. Composed by controller/app.py. Nothing here survives the process: the fleet is new at every start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sickbay.model import Action, Change, Fleet, Node, Outcome
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.ports import EvidenceStore
from sickbay.sim.world import World

TICK_S = 0.05  # real seconds between two looks at the clock


class PacedClock:
    """Wall time as it is; what is measured runs as fast as the fleet does."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic() * self.speed


class PacedFleet:
    """ports.Platform onto a world that goes on whether anybody looks or not."""

    def __init__(self, world: World, clock: PacedClock, evidence: EvidenceStore | None = None) -> None:
        self.world, self._clock = world, clock
        self._door = SimulatedPlatform(world, evidence=evidence)
        self.verbs = self._door.verbs
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        self._thread.start()

    def observe(self) -> Fleet:
        with self._lock:
            return self._door.observe()

    def look(self, node: str) -> Node | None:
        with self._lock:
            return self._door.look(node)

    def ask_after(self, node: str, instance: str) -> None:
        with self._lock:
            self._door.ask_after(node, instance)

    def watch(self, sink: Callable[[Change], None]) -> Callable[[], None]:
        with self._lock:
            stop = self._door.watch(sink)

        def unwatch() -> None:
            with self._lock:
                stop()

        return unwatch

    def perform(self, action: Action) -> Outcome:
        with self._lock:
            return self._door.perform(action)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        begun, start = self._clock.monotonic(), self.world.now
        while not self._stop.wait(TICK_S):
            with self._lock:
                self.world.run_until(start + self._clock.monotonic() - begun)
