"""Virtual gang jobs: attempts, ranks, hangs, exits, checkpoints, and what of their work survives. The World runs them.

The same job can be run by real processes: give it an `engine` (sim/trainer builds one). Virtual time then says when
steps are earned and the engine does them; who dies, and when, is decided here: the trace is the same either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sickbay.model import Checkpoint, JobPhase, RankExit
from sickbay.sim.progress import Pace
from sickbay.sim.tails import tail

KEPT_CHECKPOINTS = 16
KEPT_EXITS = 64  # a 16,384-rank job says enough with these

LIVE = frozenset({JobPhase.RUNNING, JobPhase.PENDING})


class RealEngine(Protocol):
    """A gang of real processes. Every method returns within seconds; ranks are numbers."""

    def start(self, attempt: int, from_step: int) -> None: ...

    def grant(self, steps: int) -> int:
        """Let every rank do this many more steps; returns the step reached."""

    def kill(self, ranks: Sequence[int]) -> None: ...

    def hang(self, ranks: Sequence[int]) -> None: ...

    def stop(self) -> None: ...

    def checkpoint(self) -> int: ...

    def checkpoints(self) -> list[tuple[int, int]]: ...


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What was submitted. A step of 10 s, a checkpoint every 30 min, 5 min to start (papers.md 3b: dt, u0)."""

    id: str
    nodes: tuple[str, ...]
    total_steps: int = 10_000_000
    step_s: float = 10.0
    checkpoint_every: int = 180
    write_s: float = 0.0
    init_s: float = 300.0
    ranks_per_node: int = 8
    watchdog_s: float = 240.0
    owner: str = "research"
    managed: bool = True
    bug_at_step: int = -1  # a traceback whenever this step is reached
    bug: str = ""  # or what this kind of fault does to the first of its nodes
    first_step: int = 0
    requeue_s: float | None = None  # the platform itself restarts it after this long (for the originals' policy)
    pool: str = ""  # the pool its pods ask for; "": any
    fenced: bool = False  # it declares that its checkpoints are kept apart by attempt
    gpus_per_node: int = 0  # 0: whole nodes; else so many of each, and others may have the rest
    told_by: str = "storage"  # how its steps are seen: through shared storage, or by its "pods" (not while cut off)


@dataclass(slots=True)
class Attempt:
    """One life of the gang, for the accounts."""

    n: int
    nodes: tuple[str, ...]
    from_step: int
    started: float
    ended: float | None = None
    reached: int = 0
    end: str = ""  # why it ended
    user_code: bool = False
    wrong_from: int | None = None  # from this step on its numbers are wrong; None: they are right


@dataclass(slots=True)
class Orphans:
    """Ranks of an attempt that the platform has given up and cannot reach. They live on; a gang that is out of reach as
    a whole goes on making steps and writing, one that has lost peers waits for them for ever (`pace` is None)."""

    attempt: int
    nodes: list[str]
    pace: Pace | None


@dataclass(slots=True)
class SimJob:
    spec: JobSpec
    submitted: float
    nodes: tuple[str, ...]
    pace: Pace
    phase: JobPhase = JobPhase.RUNNING
    attempt: int = 1
    attempts: list[Attempt] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    hung: set[int] = field(default_factory=set)
    silent: tuple[int, ...] = ()
    exits: tuple[RankExit, ...] = ()
    stopped_by: str = ""
    corrupt_from: float | None = None  # checkpoints complete after this time hold wrong numbers
    corrupted: bool = False  # the present lineage began from such a checkpoint
    lost_steps: int = 0
    rank_nodes: tuple[str, ...] = ()
    version: int = 0
    life: int = 0  # changes whenever a planned ending (completion, bug, watchdog) is no longer valid
    engine: RealEngine | None = None
    granted: int = 0
    told_step: int = -1
    buggy_until: float = 0.0  # its program has a bug until its owner has mended it
    told_at: float = 0.0
    orphans: list[Orphans] = field(default_factory=list)
    waits_for: str = ""  # a shared thing for which all its ranks wait: storage
    cut_at: float | None = None  # when a cut in the data network stopped it
    excused_s: float = 0.0  # not eligible to run: its owner was mending it, or somebody had suspended it
    uid: str = ""  # of its object: another one each time that its owner submits it, the same over restarts
    earlier: tuple[Attempt, ...] = ()  # of those that its owner had submitted under this name before

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def moves(self) -> bool:
        """It makes steps, by the truth: none of its ranks is dead or hangs."""
        return self.live and self.pace.frozen_at is None

    @property
    def live(self) -> bool:
        return self.phase in LIVE

    def lived(self, n: int, at: float) -> Attempt:
        """The attempt of this number that was there at that time: each job of the name counts from one."""
        named = (a for a in (*self.earlier, *self.attempts) if a.n == n and a.started <= at)
        return next(a for a in named if a.ended is None or a.ended >= at)

    def step(self, now: float) -> int:
        return min(self.pace.step(now), self.spec.total_steps)

    @property
    def still_writes(self) -> bool:
        """Given up, and yet a whole gang of it makes steps where nobody reaches it."""
        return bool(self._writers())

    def _writers(self) -> list[Orphans]:
        """Ranks that were given up and write what counts: until a later attempt has begun."""
        return [o for o in self.orphans if o.pace is not None and o.attempt == self.attempt and not self.live]

    def last_step(self, now: float) -> tuple[int, float]:
        """The newest step that anybody can see, and when it was finished: by ranks given up too."""
        paces = [self.pace, *(o.pace for o in self._writers() if o.pace is not None)]
        newest = max(paces, key=lambda pace: pace.step(now))
        return min(newest.step(now), self.spec.total_steps), newest.step_time(now)

    def ranks_on(self, node: str) -> list[int]:
        per = self.spec.ranks_per_node
        return [i * per + r for i, name in enumerate(self.nodes) if name == node for r in range(per)]

    def settle(self, now: float) -> None:
        """Write down the checkpoints that virtual time has completed; have the engine do the steps that were earned."""
        newest = max((c.step for c in self.checkpoints if c.attempt == self.attempt), default=self.pace.from_step)
        for step, at in self.pace.checkpoints(newest, now):
            if step > self.spec.total_steps:
                break
            self._grant_to(step)
            if self.engine:
                self.engine.checkpoint()
            self.checkpoints.append(Checkpoint(step, at, self.attempt))
        self._settle_orphans(now)
        del self.checkpoints[:-KEPT_CHECKPOINTS]
        self._grant_to(self.step(now))

    def _settle_orphans(self, now: float) -> None:
        """What ranks that were given up have written counts until a later attempt has begun."""
        for orphans in self._writers():
            newest = self.checkpoints[-1].step if self.checkpoints else self.spec.first_step
            written = orphans.pace.checkpoints(newest, now) if orphans.pace else ()
            self.checkpoints += [Checkpoint(step, at, orphans.attempt) for step, at in written]

    def begin(self, now: float, attempt: int, from_step: int, nodes: tuple[str, ...]) -> None:
        """A new attempt, all ranks, from a checkpoint."""
        spec = self.spec
        kept = [c for c in self.checkpoints if c.step <= from_step]
        base = next((c for c in reversed(kept) if c.step == from_step), None)
        self.corrupted = bool(base and self.corrupt_from is not None and base.at > self.corrupt_from)
        if not self.corrupted:
            self.corrupt_from = None
        self.lost_steps += max(0, (self.attempts[-1].reached if self.attempts else from_step) - from_step)
        self.checkpoints = kept  # newer ones belong to a future that will not happen
        self.pace = Pace(spec.step_s, spec.checkpoint_every, spec.write_s, from_step, anchor=now + spec.init_s)
        self.nodes, self.attempt, self.phase = nodes, attempt, JobPhase.RUNNING
        self.rank_nodes = tuple(node for node in nodes for _ in range(spec.ranks_per_node))
        self.hung, self.silent, self.exits, self.stopped_by = set(), (), (), ""
        wrong = from_step if self.corrupted else None
        self.attempts.append(Attempt(attempt, nodes, from_step, now, reached=from_step, wrong_from=wrong))
        self.life += 1
        self.cut_at, self.waits_for = None, ""
        self.granted = from_step
        if self.engine:
            self.engine.start(attempt, from_step)

    def finish(self, now: float, phase: JobPhase, why: str, *, user_code: bool = False) -> None:
        """The attempt is over, however it ended."""
        self.settle(now)
        self.pace.freeze(now)
        last = self.attempts[-1]
        last.ended, last.reached, last.end, last.user_code = now, self.step(now), why, user_code
        self.phase = phase
        self.life += 1
        if self.engine and phase is not JobPhase.SUCCEEDED:
            self.engine.stop()

    def hang(self, now: float, ranks: Iterable[int]) -> None:
        self.settle(now)
        self.pace.freeze(now)
        self.hung.update(ranks)
        self.life += 1
        if self.engine:
            self.engine.hang(sorted(self.hung))

    def corrupt(self, now: float) -> None:
        """From now on wrong numbers come out, and into every checkpoint; nothing says so."""
        last = self.attempts[-1]
        self.corrupt_from = now if self.corrupt_from is None else self.corrupt_from
        last.wrong_from = self.step(now) if last.wrong_from is None else last.wrong_from

    def kill(self, now: float, ranks: Sequence[int]) -> None:
        """These ranks die now; the others notice a little later (the World then calls `finish`)."""
        self.settle(now)
        self.pace.freeze(now)
        self.life += 1
        if self.engine:
            self.engine.kill(ranks)

    def exits_of(self, culprits: Sequence[int], tail_name: str, code: int = 1) -> tuple[RankExit, ...]:
        """The culprits with their own last words, then the others, who only say that a peer went away."""
        first = [RankExit(r, self.rank_nodes[r], code, tail(tail_name, r)) for r in culprits[:KEPT_EXITS]]
        guilty = set(culprits)
        bystanders = [r for r in range(len(self.rank_nodes)) if r not in guilty][: max(0, KEPT_EXITS - len(first))]
        return (*first, *(RankExit(r, self.rank_nodes[r], 1, tail("nccl_peer", r)) for r in bystanders))

    def watchdog_exits(self) -> tuple[RankExit, ...]:
        """All ranks but the silent ones have logged a time-out; none has ended yet."""
        timeout = int(self.spec.watchdog_s * 1000)
        values = {
            "seq": self.pace.step(self.pace.frozen_at or 0.0) * 4 + 1,
            "timeout_ms": timeout,
            "ran_ms": timeout + 37,
        }
        quiet = set(self.silent)
        loud = [r for r in range(len(self.rank_nodes)) if r not in quiet][: KEPT_EXITS - len(self.silent)]
        said = [RankExit(r, self.rank_nodes[r], None, tail("watchdog", r, **values)) for r in loud]
        return (*(RankExit(r, self.rank_nodes[r], None) for r in self.silent[:KEPT_EXITS]), *said)

    def newest_checkpoint(self) -> Checkpoint | None:
        return self.checkpoints[-1] if self.checkpoints else None

    def _grant_to(self, step: int) -> None:
        if self.engine and step > self.granted and not self.hung:
            self.granted = self.engine.grant(step - self.granted)
