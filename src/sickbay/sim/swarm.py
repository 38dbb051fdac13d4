"""Swarm faults: doors, clocks and leaders that misbehave, each kind switched on or off by the seed.

Uniform randomness is weak (shared lessons); a random subset of misbehaviours per seed finds more. Used by sim/check.py
only. Everything here wraps a door without changing its meaning: answers may be lost, doubled or late, never false.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from sickbay.errors import NotNow
from sickbay.model import (
    Action,
    Case,
    Change,
    Fleet,
    JobChanged,
    Node,
    NodeChanged,
    NodeDeleted,
    Outcome,
    Recovery,
    Retry,
)
from sickbay.ports import Names, Platform, Store, Stored, Unread, V, Value
from sickbay.sim.world import World

LATEST_S = 120.0  # how late a change is told


class Crash(BaseException):
    """The process dies here. No Exception: what contains errors must not survive its own death."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """Chances of each misbehaviour; 0 when the seed has switched it off, and all 0 in calm mode."""

    lose_request: float = 0.0
    lose_answer: float = 0.0
    double: float = 0.0
    crash_before: float = 0.0
    crash_after: float = 0.0
    crash_commit: float = 0.0
    stale: float = 0.0  # chance that a change is told late
    stale_observe: float = 0.0
    jump: float = 0.0
    pause: float = 0.0
    steal: float = 0.0


def pick(rng: Random) -> Swarm:
    """A random subset of misbehaviours, at random strengths."""

    def maybe(most: float) -> float:
        return rng.choice((0.0, most / 4, most)) if rng.random() < 0.6 else 0.0

    return Swarm(
        lose_request=maybe(0.15), lose_answer=maybe(0.15), double=maybe(0.2), crash_before=maybe(0.03),
        crash_after=maybe(0.03), crash_commit=maybe(0.01), stale=maybe(0.3), stale_observe=maybe(0.5),
        jump=maybe(0.05), pause=maybe(0.05), steal=maybe(0.02),
    )  # fmt: skip


class Mood:
    """The swarm in force now; calm replaces it by nothing."""

    def __init__(self, swarm: Swarm, rng: Random) -> None:
        self.swarm, self.rng = swarm, rng

    def strikes(self, chance: float) -> bool:
        return chance > 0.0 and self.rng.random() < chance

    def calm(self) -> None:
        self.swarm = Swarm()


class SwarmPlatform:
    """Requests and answers get lost, doubled; the process dies before or after a call; views are late or old."""

    def __init__(self, door: Platform, mood: Mood, world: World) -> None:
        self._door, self._mood, self._world = door, mood, world
        self.verbs = door.verbs
        self._old: deque[Fleet] = deque(maxlen=4)
        self._listens: _LateSink | None = None  # whoever began to watch last: he observes next

    def observe(self) -> Fleet:
        """An old fleet, as from a cache that a leader has kept since he led before, or whose API server lags: the watch
        goes on from there, so what changed since is told a little later."""
        fleet = self._door.observe()
        self._old.append(fleet)
        old = self._old[0]
        if not self._mood.strikes(self._mood.swarm.stale_observe) or self._world.now - old.observed_at >= 600:
            return fleet
        if self._listens is not None and old is not fleet:
            at = self._world.now + self._mood.rng.uniform(1.0, LATEST_S)
            for change in self._since(old, fleet):
                self._listens.tell_at(at, change)
        return old

    def _since(self, old: Fleet, fleet: Fleet) -> Iterator[Change]:
        """What a watch from the old one tells, of each object the last."""
        told, there = {n.name: n.version for n in old.nodes}, {n.name for n in fleet.nodes}
        for left in [self._world.nodes[name] for name in told if name not in there]:
            yield NodeDeleted(left.name, left.version, left.gone)
        yield from (NodeChanged(n) for n in fleet.nodes if n.version != told.get(n.name))
        jobs = {j.id: j.version for j in old.jobs}
        yield from (JobChanged(j) for j in fleet.jobs if j.version != jobs.get(j.id))

    def look(self, node: str) -> Node | None:
        return self._door.look(node)

    def ask_after(self, node: str, instance: str) -> None:
        self._door.ask_after(node, instance)

    def watch(self, sink: Callable[[Change], None]) -> Callable[[], None]:
        late = self._listens = _LateSink(sink, self._mood, self._world)
        stop = self._door.watch(late)

        def unwatch() -> None:
            late.stopped = True
            stop()

        return unwatch

    def perform(self, action: Action) -> Outcome:
        mood, swarm = self._mood, self._mood.swarm
        if mood.strikes(swarm.crash_before):
            raise Crash
        if mood.strikes(swarm.lose_request):
            return Retry(5.0, "the request got no answer in time")
        outcome = self._door.perform(action)
        if mood.strikes(swarm.double):
            outcome = self._door.perform(action)
        if mood.strikes(swarm.crash_after):
            raise Crash
        if mood.strikes(swarm.lose_answer):
            return Retry(5.0, "the answer got lost")
        return outcome


class _LateSink:
    """Tells some changes late, in order per object."""

    def __init__(self, sink: Callable[[Change], None], mood: Mood, world: World) -> None:
        self._sink, self._mood, self._world = sink, mood, world
        self._until: dict[str, float] = {}
        self.stopped = False

    def __call__(self, change: Change) -> None:
        late = self._mood.strikes(self._mood.swarm.stale)
        self.tell_at(self._world.now + self._mood.rng.uniform(1.0, LATEST_S) if late else 0.0, change)

    def tell_at(self, at: float, change: Change) -> None:
        """Not before what was held back of the same object."""
        key = _object(change)
        at = max(at, self._until.get(key, 0.0))
        if at <= self._world.now:
            self._sink(change)
            return
        self._until[key] = at
        self._world.at(at, lambda: None if self.stopped else self._sink(change))


def _object(change: Change) -> str:
    if isinstance(change, NodeChanged):
        return change.node.name
    if isinstance(change, NodeDeleted):
        return change.name
    return change.job.id if isinstance(change, JobChanged) else change.job


class SwarmStore:
    """The process dies right after a commit has landed. Writes are dear, as across a network: what may wait does, so
    that a crash finds it unwritten."""

    lanes, frugal = 1, True

    def __init__(self, store: Store, mood: Mood, away: Callable[[], bool] = lambda: False) -> None:
        self._store, self._mood, self._away = store, mood, away

    def _reached(self) -> Store:
        if self._away():
            raise NotNow("the API server does not answer")
        return self._store

    def _after(self) -> None:
        if self._mood.strikes(self._mood.swarm.crash_commit):
            raise Crash

    def get(self, kind: type[V], key: str) -> Stored[V] | None:
        return self._reached().get(kind, key)

    def list(self, kind: type[V]) -> list[Stored[V]]:
        return self._reached().list(kind)

    def unread(self) -> Sequence[Unread]:
        return self._store.unread()

    def create(self, value: Value, epoch: int = 0) -> int:
        version = self._reached().create(value, epoch)
        self._after()
        return version

    def commit(self, value: Value, expect: int, epoch: int, consumes: Sequence[str] = ()) -> int:
        version = self._reached().commit(value, expect, epoch, consumes)
        self._after()
        return version

    def archive(self, value: Case | Recovery, expect: int, epoch: int, consumes: Sequence[str] = ()) -> None:
        self._reached().archive(value, expect, epoch, consumes)
        self._after()

    def delete(self, kind: type[V], key: str) -> None:
        self._reached().delete(kind, key)

    def history(
        self, kind: type[V], *, node: str = "", fault: str = "", since: float = 0.0, limit: int = 100
    ) -> Iterator[V]:
        return self._reached().history(kind, node=node, fault=fault, since=since, limit=limit)

    def last_ended(self, kind: type[V], key: str) -> V | None:
        return self._reached().last_ended(kind, key)

    def prune(self, older_than: float) -> int:
        return self._reached().prune(older_than)

    def missing(self, kind: type[V], keys: Collection[str]) -> Names:
        return self._store.missing(kind, keys)

    def moved(self, kind: type[V], key: str, version: int) -> bool:
        return self._reached().moved(kind, key, version)

    def token(self) -> int:
        return self._reached().token()

    def close(self) -> None:
        self._store.close()


class SwarmClock:
    """Wall time that jumps, and a monotonic clock that leaps when the machine was suspended."""

    def __init__(self, world: World, mood: Mood) -> None:
        self._world, self._mood = world, mood
        self.offset = 0.0
        self.leap = 0.0
        self.leaps: list[float] = []  # when the monotonic clock leapt

    def now(self) -> float:
        return self._world.clock.now() + self.offset

    def monotonic(self) -> float:
        return self._world.clock.monotonic() + self.leap

    def maybe_jump(self) -> None:
        if self._mood.strikes(self._mood.swarm.jump):
            self.offset += self._mood.rng.choice((-7200.0, -60.0, 60.0, 3600.0, 86_400.0))
            leap = self._mood.rng.choice((0.0,) * 8 + (30.0, 4000.0))
            self.leap += leap
            self.leaps += [self._world.now] if leap else []


class Lock:
    """A lock that may be stolen: the one who lost it still believes for a while that it leads."""

    def __init__(self, world: World, mood: Mood) -> None:
        self.world, self.mood = world, mood
        self.holder: SwarmLeader | None = None


class SwarmLeader:
    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._believes_until = 0.0

    def acquire(self) -> bool:
        lock = self._lock
        if lock.holder is self:
            return True
        if lock.holder is None:
            lock.holder = self
            return True
        if self._believes_until > lock.world.now:
            return True
        if lock.mood.strikes(lock.mood.swarm.steal):
            lock.holder._believes_until = lock.world.now + 120.0
            lock.holder = self
            return True
        return False

    def release(self) -> None:
        if self._lock.holder is self:
            self._lock.holder = None
