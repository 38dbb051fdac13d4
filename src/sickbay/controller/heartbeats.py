"""Which agents we have stopped hearing from. A heartbeat is a change of `Node.last_check`, timed by our own watch.

Called by controller/desk.py once a pass. No two machines' clocks are compared: how the agent or the platform counts
time does not matter, only that the number changed while we watched. A silent agent means that we cannot see its node,
never that the node is down: it is told of, and the node is not called good. Cost: one entry per node that has an agent,
looked at once per `heartbeat_s`; nothing here wakes the loop, so silence is noticed by the next pass after it is due.
"""

from __future__ import annotations

import heapq

from sickbay.controller.view import View
from sickbay.core.turn import Now
from sickbay.settings import ControllerSettings

SILENT_LEAST = 3  # fewer are so many single nodes, however small the pool
TOGETHER = 2 / 3  # of heartbeat_s: two of three beats missed


class Heartbeats:
    def __init__(self, view: View, limits: ControllerSettings) -> None:
        self._view, self._limits = view, limits
        self._last: dict[str, float] = {}  # node -> watch time of its last beat; a silent one has none
        self._due: list[tuple[float, str]] = []
        self._queued: set[str] = set()

    def listen(self, now: Now) -> tuple[list[str], list[str]]:
        """(nodes whose agents have fallen silent, nodes whose agents are heard again) since the last pass."""
        back = [name for name in self._view.heard if name in self._view.silent]
        for name in self._view.heard:
            self._last[name] = now.watch
            self._queue(name, now.watch + self._limits.heartbeat_s)
        self._view.heard.clear()
        self._view.silent.difference_update(back)
        late = self._overdue(now.watch)
        late += self._companions(late, now.watch) if late else []
        for name in late:
            del self._last[name]
        self._view.silent.update(late)
        return late, back

    def last(self, name: str) -> float:
        """Watch time of its last beat; before all time for one that was never heard, or is silent."""
        return self._last.get(name, float("-inf"))

    def _queue(self, name: str, at: float) -> None:
        """One entry per node: a beat moves the time, not the entry; it is looked at when its old time has come."""
        if name not in self._queued:
            self._queued.add(name)
            heapq.heappush(self._due, (at, name))

    def _overdue(self, now: float) -> list[str]:
        late = []
        while self._due and self._due[0][0] <= now:
            _, name = heapq.heappop(self._due)
            self._queued.discard(name)
            last = self._last.get(name)
            if name not in self._view.nodes:
                self._last.pop(name, None)
            elif last is not None and last + self._limits.heartbeat_s > now:
                self._queue(name, last + self._limits.heartbeat_s)
            elif last is not None and self._is_excused(name):
                self._queue(name, now + self._limits.heartbeat_s / 3)
            elif last is not None:
                late.append(name)
        return late

    def _is_excused(self, name: str) -> bool:
        """Down by the platform's own word, or in our hands: nothing new is said by its agent being silent, too."""
        return not self._view.nodes[name].ready or name in self._view.cases

    def _companions(self, late: list[str], now: float) -> list[str]:
        """When a pool falls silent its agents are overdue one after the other, over a whole cycle. Told one by one they
        would be hundreds of notices before a tenth of the pool is reached: so look who is on the way there."""
        found: list[str] = []
        for pool in {self._view.nodes[name].pool for name in late}:
            known = [n for n in (*late, *self._view.silent) if self._pool(n) == pool]
            if self._is_large(len(known), pool):
                continue  # it is one notice already
            overdue = now - TOGETHER * self._limits.heartbeat_s
            near = [
                name for name, last in self._last.items()
                if last <= overdue and name not in late and self._pool(name) == pool and not self._is_excused(name)
            ]  # fmt: skip
            found += near if self._is_large(len(known) + len(near), pool) else []
        return sorted(found)

    def _pool(self, name: str) -> str | None:
        node = self._view.nodes.get(name)
        return node.pool if node else None

    def _is_large(self, count: int, pool: str) -> bool:
        return count >= SILENT_LEAST and count > self._limits.silent_share * self._view.members.get(f"pool:{pool}", 0)
