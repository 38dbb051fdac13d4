"""The endless show behind `sickbay demo`: a fleet, jobs submitted again when they end, faults that keep arriving.

cli/live.py paces and draws it. Unlike the tour nothing is fixed here but the seed and the first hour: repairs fail as
often as the published rates say, and a person approves replacements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sickbay.evidence.folder import FolderEvidence
from sickbay.model import Case, JobPhase, Recovery
from sickbay.ports import Value
from sickbay.sim.arrivals import FaultArrivals
from sickbay.sim.jobs import JobSpec, SimJob
from sickbay.sim.run import SimRun
from sickbay.sim.tour.engine import GangEngine
from sickbay.sim.tour.stage import MIDNIGHT, SETTINGS, Stage, clock, sentence
from sickbay.sim.trainer import Nursery
from sickbay.sim.world import World
from sickbay.stores.sqlite import SqliteStore

ARRIVALS = 10.0  # times the "noisy" preset: a fault every eleven virtual minutes among 64 nodes
RESUBMIT_S = 600.0
KEPT_LINES = 500


@dataclass(frozen=True, slots=True)
class Line:
    """One journal entry, as the view shows it."""

    at: float
    who: str
    text: str
    phase: str

    def plain(self) -> str:
        return f"{clock(self.at)} {self.who}: {self.text}"


class TellingStore(SqliteStore):
    """The embedded store, which also remembers the newest journal lines in the order in which they were written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, synchronous="NORMAL")
        self.lines: deque[Line] = deque(maxlen=KEPT_LINES)
        self.told = self.ended = 0
        self._counted: dict[str, int] = {}

    def create(self, value: Value, epoch: int = 0) -> int:
        version = super().create(value, epoch)
        self._hear(value)
        return version

    def commit(self, value: Value, expect: int, epoch: int, consumes: Sequence[str] = ()) -> int:
        version = super().commit(value, expect, epoch, consumes)
        self._hear(value)
        return version

    def archive(self, value: Case | Recovery, expect: int, epoch: int, consumes: Sequence[str] = ()) -> None:
        super().archive(value, expect, epoch, consumes)
        self._hear(value)
        self.ended += isinstance(value, Case)

    def _hear(self, value: Value) -> None:
        if not isinstance(value, Case | Recovery):
            return
        key, who = (value.id, value.factor or value.node) if isinstance(value, Case) else (value.job, value.job)
        written = len(value.journal) + value.dropped_entries
        fresh = written - self._counted.get(key, 0)
        self._counted[key] = written
        for entry in value.journal[max(0, len(value.journal) - fresh) :] if fresh > 0 else ():
            self.told += 1
            self.lines.append(
                Line(entry.at, who, sentence(entry, who).replace(f"{self.path.parent}/", ""), entry.phase)
            )


class Show:
    """One running show. `advance` lets virtual time pass; everything else is for looking."""

    def __init__(self, seed: int, workdir: Path, nursery: Nursery, start: float = MIDNIGHT) -> None:
        self.world = World(seed, 60, spares=4, start=start)
        self.store = TellingStore(workdir / "db")
        self.run = SimRun(self.world, SETTINGS, store=self.store, evidence=FolderEvidence(workdir / "evidence"))
        self.run.add_brain()
        self.workdir, self._nursery = workdir, nursery
        self.engines: dict[str, GangEngine] = {}
        self._rounds: dict[str, int] = {}
        stage = Stage(self.world, self.run, workdir)
        stage.employ_approver()
        self._begin()

    def advance(self, seconds: float) -> None:
        self.run.run_for(seconds)

    def close(self) -> None:
        for engine in self.engines.values():
            engine.stop()
        self.store.close()

    # -- looking

    def cases(self) -> list[Case]:
        """Open cases, the newest last."""
        return sorted((s.value for s in self.store.list(Case)), key=lambda c: (c.opened_at, c.id))

    def recoveries(self) -> dict[str, Recovery]:
        return {s.value.job: s.value for s in self.store.list(Recovery)}

    def jobs(self) -> list[SimJob]:
        """The newest round of each job."""
        return [self.world.jobs[name] for name in self._names() if name in self.world.jobs]

    def ettr(self) -> float | None:
        """Over all jobs so far, weighted by nodes; None before any time has passed."""
        rows = [(a, len(self.world.jobs[a.job].nodes)) for a in self.world.accounts()]
        wall = sum(a.wall_s * n for a, n in rows)
        return sum(a.productive_s * n for a, n in rows) / wall if wall else None

    # -- what happens

    def _begin(self) -> None:
        for name, count in (("pretrain", 16), ("vision", 8), ("speech", 4), ("ranking", 8)):
            self._submit(name, count, real=False)
        for name in ("real-a", "real-b"):
            self._submit(name, 4, real=True)
        self._stage_first_hour()
        FaultArrivals("noisy", ARRIVALS).start(self.world)

    def _stage_first_hour(self) -> None:
        """So that something is to be seen at once, whatever the seed: kind, job, which of its nodes, minute."""
        for kind, job, index, minute in (
            ("gpu_lost_79", "vision", 2, 8.0),
            ("ecc_uncontained_95", "speech", 1, 14.0),
            ("job_hang", "real-a", 1, 22.0),
            ("row_remap_pending_63", "pretrain", 5, 25.0),
            ("app_fault_13_31", "ranking", 0, 32.0),
            ("gpu_lost_79", "real-b", 3, 40.0),
        ):
            self.world.after(minute * 60, lambda k=kind, j=job, i=index: self._strike(k, j, i))  # type: ignore[misc]

    def _strike(self, kind: str, name: str, index: int) -> None:
        job = self.world.jobs[self._name(name)]
        if job.live:
            self.world.strike(kind, job.nodes[index])

    def _names(self) -> list[str]:
        return [self._name(base) for base in self._rounds]

    def _name(self, base: str) -> str:
        n = self._rounds.get(base, 1)
        return base if n == 1 else f"{base}-{n}"

    def _submit(self, base: str, count: int, *, real: bool) -> None:
        """A scheduler of few words: the first idle nodes that are open for work; later, if there are not enough."""
        free = [n.name for n in self.world.nodes.values() if n.serving() and not n.job and not n.stuck]
        if len(free) < count:
            self.world.after(RESUBMIT_S, lambda: self._submit(base, count, real=real))
            return
        self._rounds[base] = self._rounds.get(base, 0) + 1
        name, nodes = self._name(base), tuple(free[:count])
        if real:
            self.engines[name] = GangEngine(self.workdir / "jobs", name, count, 240, 20, self._nursery)
            spec = JobSpec(name, nodes, total_steps=240, step_s=30.0, checkpoint_every=20, ranks_per_node=1)
        else:
            spec = JobSpec(name, nodes, total_steps=4000)
        self.world.submit(spec, self.engines.get(name))
        self.world.after(60.0, lambda: self._watch(base, name, count, real))

    def _watch(self, base: str, name: str, count: int, real: bool) -> None:
        """When a job is over for good its owner submits the next one."""
        job = self.world.jobs[name]
        given_up = not job.live and self.store.get(Recovery, name) is None
        if job.phase is JobPhase.SUCCEEDED or given_up:
            if name in self.engines:
                self.engines[name].stop()
            self.world.after(RESUBMIT_S, lambda: self._submit(base, count, real=real))
        else:
            self.world.after(60.0, lambda: self._watch(base, name, count, real))
