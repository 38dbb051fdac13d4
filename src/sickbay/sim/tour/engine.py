"""Real processes behind a simulated job: sim.jobs.RealEngine over the trainer's Gang.

Virtual time says when steps are earned and who is struck; the gang does the steps, really dies and really hangs.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from sickbay.errors import UserError
from sickbay.sim.trainer import Gang, Nursery

SEED = 7  # of the weights: the same for every tour, so that one undisturbed run is the reference for all


def need_numpy() -> None:
    """Say before anything starts what is missing."""
    if find_spec("numpy") is None:
        raise UserError(
            "the training jobs of the demo are real and need numpy, which is not installed; install it with "
            "`pip install 'sickbay[demo]'`, or use `make demo`, which does"
        )


class GangEngine:
    """One job's ranks. Keeps a few words about what really happened, for the report."""

    def __init__(self, workdir: Path, job: str, ranks: int, total_steps: int, every: int, nursery: Nursery) -> None:
        self.gang = Gang(
            workdir, job, ranks, seed=SEED, total_steps=total_steps, checkpoint_every=every, nursery=nursery
        )
        self.killed: list[int] = []
        self.hung: list[int] = []
        self.starts: list[tuple[int, int]] = []  # (attempt, from step)
        self.pids: list[dict[int, int]] = []
        self.exits: list[dict[int, int | None]] = []

    def start(self, attempt: int, from_step: int) -> None:
        self.gang.start(attempt, from_step)
        self.starts.append((attempt, from_step))
        self.pids.append(self.gang.pids())

    def grant(self, steps: int) -> int:
        return self.gang.grant(steps)

    def kill(self, ranks: Sequence[int]) -> None:
        """The struck ranks die; the others, sent into the next step, find out in their all-reduce."""
        self.gang.kill(ranks)
        self.gang.grant(1)
        self.killed += ranks
        self.exits.append(self.gang.exits())

    def hang(self, ranks: Sequence[int]) -> None:
        """The struck ranks stop; the others, sent into the next step, wait for them and log the watchdog's text."""
        fresh = [rank for rank in ranks if rank not in self.hung]
        self.gang.hang(fresh)
        self.gang.grant(1)
        self.hung += fresh
        self.exits.append(self.gang.exits())

    def stop(self) -> None:
        self.gang.stop()

    def checkpoint(self) -> int:
        return self.gang.checkpoint()

    def checkpoints(self) -> list[tuple[int, int]]:
        return list(self.gang.checkpoints())

    def digest(self) -> str:
        return self.gang.digest()


def undisturbed(workdir: Path, ranks: int, total_steps: int, every: int, nursery: Nursery) -> str:
    """The digest of the same training with nothing happening to it."""
    engine = GangEngine(workdir, "undisturbed", ranks, total_steps, every, nursery)
    try:
        engine.start(1, 0)
        reached = engine.gang.grant(total_steps, timeout_s=120.0)
        if reached < total_steps:
            raise UserError(f"the undisturbed training stopped at step {reached} of {total_steps}")
        return engine.digest()
    finally:
        engine.stop()
