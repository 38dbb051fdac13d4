"""The fleet, the jobs and the people of one simulated run: the same for every policy that is compared on it.

`sickbay sim run` and `compare` build their worlds here. The people follow rules that look only at the world, never at
who is in charge of it, so that a policy that needs them more often pays for it and shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sickbay.errors import UserError
from sickbay.model import JobPhase, Severity, Status
from sickbay.sim.arrivals import FaultArrivals, presets
from sickbay.sim.hardware import SimNode
from sickbay.sim.jobs import JobSpec, SimJob
from sickbay.sim.world import EPOCH, World

DAY = 86_400.0
MOST_NODES, MOST_DAYS = 20_000, 1_000.0

# Shares of the fleet per job; what is left over is spare. RSC-1: most GPU-time is in large jobs (papers.md 3).
SHAPES: dict[str, tuple[float, ...]] = {
    "one": (0.90,),
    "mix": (0.45, 0.15, 0.10, 0.05, 0.05, 0.03, 0.03, 0.02, 0.02),
    "small": (0.02,) * 45,
    "none": (),
}

OWNER_S = 1_800.0  # until an owner who was told has mended and resubmitted a job that was given up
PATIENCE_S = 7_200.0  # without a new checkpoint, then the on-call person looks at the job's nodes (Minder: over 30 min)
LOSS_S = 4 * 3600.0  # until an owner sees in the loss that the numbers are wrong (assumed; within the checkpoints kept)
OUT_S = DAY  # a node out for this long is exchanged by hand (SuperBench: 62 % of incidents end on the same day)
EXCHANGE_S = 1_800.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What is simulated. Everything that follows is drawn from the seed."""

    seed: int = 0
    nodes: int = 256
    days: float = 7.0
    preset: str = "llama3"
    jobs: str = "one"
    scale: float = 1.0  # times the preset's rate

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MOST_NODES:
            raise UserError(f"--nodes {self.nodes}: from 1 to {MOST_NODES:,} nodes can be simulated")
        if not 0 < self.days <= MOST_DAYS:
            raise UserError(f"--days {self.days:g}: more than 0 and at most {MOST_DAYS:,.0f} days can be simulated")
        if self.preset not in presets():
            raise UserError(f"--preset {self.preset}: there is no such preset; known are {', '.join(presets())}")
        if self.jobs not in SHAPES:
            raise UserError(f"--jobs {self.jobs}: there is no such mix of jobs; known are {', '.join(SHAPES)}")
        if not 0 <= self.scale <= 1_000:
            raise UserError(f"--scale {self.scale:g}: from 0 to 1,000 times the preset's rate")

    @property
    def node_days(self) -> float:
        return self.nodes * self.days


def build(
    scene: Scene, *, requeue_s: float | None = None, start: float = EPOCH
) -> tuple[World, FaultArrivals]:  # fmt: skip
    """A world with its jobs placed and faults arriving. `requeue_s`: a job operator restarts what fails, by itself."""
    world = World(scene.seed, scene.nodes, start=start)
    free = list(world.nodes)
    for number, share in enumerate(SHAPES[scene.jobs]):
        size = int(scene.nodes * share)
        gang, free = tuple(free[:size]), free[size:]
        if gang:
            world.submit(JobSpec(f"train-{number}", gang, owner=f"team-{number}", requeue_s=requeue_s))
    arrivals = FaultArrivals(scene.preset, scene.scale)
    if arrivals.per_node_s:
        arrivals.start(world)
    return world, arrivals


def looks_broken(node: SimNode) -> bool:
    """What a person at the console sees: a node that is away, tools that fail or hang, a kernel log that names a
    fault. Never the truth."""
    if not node.ready:
        return True
    return any(
        (f.status is Status.FAILED and f.severity >= Severity.RESET)
        or (f.status is Status.UNKNOWN and f.check == "nvidia-smi")
        for f in node.findings.values()
    )  # fmt: skip


class Staff:
    """Owners who resubmit what was given up, and an on-call person who exchanges what nobody else could mend."""

    def __init__(self, world: World, is_given_up: Callable[[str], bool]) -> None:
        self.world, self._is_given_up = world, is_given_up
        self.resubmitted = self.called = self.exchanged = self.rolled_back = 0
        self._saved: dict[str, tuple[int, float]] = {}  # job -> newest checkpoint, and since when
        world.after(600.0, self._round)
        world.after(3_600.0, self._rounds_of_nodes)

    def _round(self) -> None:
        for job in self.world.jobs.values():
            self._look_at(job)
        self.world.after(600.0, self._round)

    def _look_at(self, job: SimJob) -> None:
        now, last = self.world.now, job.attempts[-1]
        if job.phase in (JobPhase.SUCCEEDED, JobPhase.GONE):
            return
        if not job.live and last.ended is not None and now - last.ended >= OWNER_S and self._is_given_up(job.id):
            self.resubmitted += self.world.gangs.resubmit(job)
            return
        job.settle(now)
        if job.live and job.corrupt_from is not None and now - job.corrupt_from >= LOSS_S:
            self._roll_back(job, job.corrupt_from)
            return
        newest = job.newest_checkpoint()
        step = newest.step if newest else -1
        known, since = self._saved.get(job.id, (-2, now))
        if step != known or last.user_code:
            self._saved[job.id] = (step, now)
        elif now - since >= PATIENCE_S:
            self._saved[job.id] = (step, now)
            self._call(job)

    def _call(self, job: SimJob) -> None:
        """The person exchanges what the tools call broken on the job's nodes, whoever else has marked it. What hides
        from the tools hides from people too, and a line of last week's fault misleads them as it would anybody."""
        world = self.world
        self.called += 1
        world.note("person", "", act="look-at-job", job=job.id, by="on-call")
        for name in job.nodes:
            node = world.nodes[name]
            if not node.treating and looks_broken(node):
                self._exchange(name)
        if job.live and job.pace.frozen_at is not None:
            world.gangs.stop(job, "on-call", JobPhase.FAILED)

    def _roll_back(self, job: SimJob, since: float) -> None:
        """The loss went wrong at that time: the owner throws away what was saved after it, has the job's nodes burnt in
        and exchanges those that the diagnostic names. What it misses is found the next time, or the time after."""
        world = self.world
        self.rolled_back += 1
        world.note("person", "", act="roll-back", job=job.id, by=job.spec.owner)
        world.gangs.stop(job, job.spec.owner, JobPhase.FAILED)
        job.checkpoints = [c for c in job.checkpoints if c.at <= since]
        for name in job.nodes:
            if any(f.status is Status.FAILED for f in world.agents.examine(world.nodes[name], ("dcgm-l4",))):
                self._exchange(name)

    def _rounds_of_nodes(self) -> None:
        world = self.world
        for name, node in world.nodes.items():
            if node.out_since is not None and world.now - node.out_since >= OUT_S and not node.treating:
                self._exchange(name)
        world.after(3_600.0, self._rounds_of_nodes)

    def _exchange(self, name: str) -> None:
        node = self.world.nodes[name]
        if not node.gone:
            self.exchanged += 1
            self.world.people.terminate(name, by="on-call", successor_after_s=EXCHANGE_S)
