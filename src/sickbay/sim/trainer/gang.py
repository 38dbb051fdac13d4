"""All ranks of one training job, from the outside: start, grant steps, strike, look, stop.

Called by the simulated platform and the demo in virtual time, and by __main__.py in real time. Between grants every
rank waits at a step boundary, so what a strike hits does not depend on the machine's speed. Not thread-safe.
It must never leave a process, a socket or a file descriptor behind after stop().
"""

from __future__ import annotations

import hashlib
import re
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from sickbay.errors import SickbayError, UserError
from sickbay.sim.trainer import layout
from sickbay.sim.trainer.crew import Crew
from sickbay.sim.trainer.lines import Lines
from sickbay.sim.trainer.member import Member
from sickbay.sim.trainer.nursery import Nursery
from sickbay.sim.trainer.spec import Spec

if TYPE_CHECKING:
    from sickbay.sim.trainer.mlp import State

START_S = 60.0
SETTLE_S = 20.0
WATCHDOG_S = 600.0  # PyTorch's default for NCCL; in virtual time grant() says when it is over
LOG_TAIL = 64 * 1024

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


class Gang:
    def __init__(
        self,
        workdir: Path,
        job: str,
        ranks: int,
        *,
        seed: int,
        total_steps: int,
        checkpoint_every: int,
        step_work: int = 1,
        raise_at: tuple[int, int] | None = None,
        keep: int = 16,
        watchdog_s: float = WATCHDOG_S,
        say_time_out: bool = True,
        nursery: Nursery | None = None,
    ) -> None:
        """`raise_at`: (rank, step) of a bug in the user's code. `say_time_out`: grant() lets those that wait log it."""
        if not _NAME.match(job):
            raise UserError(f"{job!r} cannot be a job's name here: use letters, digits, dot, dash and underscore")
        if min(ranks, total_steps, checkpoint_every, step_work, keep) < 1 or seed < 0:
            raise UserError(
                "ranks, steps, checkpoint interval, step work and kept checkpoints are 1 or more, the seed 0 or more"
            )
        self.job, self.ranks, self.seed, self.total_steps = job, ranks, seed, total_steps
        self.checkpoint_every, self.step_work, self.keep = checkpoint_every, step_work, keep
        self.raise_at, self.watchdog_s, self.say_time_out = raise_at, watchdog_s, say_time_out
        self.attempt, self.jobdir = 0, workdir.resolve() / job
        self._nursery, self._owns_nursery = nursery or Nursery(), nursery is None
        self._crew = Crew(self._nursery, [], 0, total_steps)

    def __enter__(self) -> Gang:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    # --- life

    def start(self, attempt: int, from_step: int | None) -> None:
        """Spawn every rank, at this checkpoint (None or 0: the seeded weights). Returns when all have met.

        AlreadyExists if this attempt or a newer one has begun; UserError if there is no such complete checkpoint.
        """
        if any(self.alive().values()):
            raise UserError(f"attempt {self.attempt} of {self.job} still runs: stop it before attempt {attempt} starts")
        first = from_step or 0
        resume = self._resume(first)
        (self.jobdir / "logs").mkdir(parents=True, exist_ok=True)
        layout.begin_attempt(self.jobdir, attempt, first)
        self.attempt, self._crew = attempt, Crew(self._nursery, [], first, self.total_steps)
        try:
            self._spawn(resume, first)
            self._meet()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every rank, also stopped ones. Exit codes and logs can still be read."""
        self._crew.end(self._crew.living(), signal.SIGKILL)
        if self._owns_nursery:
            self._nursery.close()

    # --- progress

    def grant(self, steps: int, timeout_s: float = 20.0) -> int:
        """Let the ranks run this many steps more; the step that all have reached when they have, or cannot.

        Returns at once when every rank is done, dead, stopped by us, or waits for one that is. Those that wait log
        the watchdog's text: in virtual time its minutes are over.
        """
        crew = self._crew
        crew.granted = max(crew.granted, min(self.step + steps, self.total_steps))
        for member in crew.members:
            member.waits.clear()
            crew.grant(member)
        crew.settle(timeout_s)
        if self.say_time_out:
            self.expire()
        return self.step

    def checkpoint(self, timeout_s: float = SETTLE_S) -> int:
        """Save at the step boundary where the ranks are now; the step of the newest complete checkpoint, 0 if none.

        A gang with a dead or hung rank cannot save, as in life: the answer is then an older step.
        """
        crew = self._crew
        if crew.idle() and self.step and self.step not in {step for step, _ in self.checkpoints()}:
            for member in crew.members:
                member.lines.send("save")
            self._await(lambda member: member.saved == member.step, crew.members, timeout_s)
        return max((step for step, _ in self.checkpoints()), default=0)

    @property
    def step(self) -> int:
        """The step that every rank has finished."""
        return min((member.step for member in self._crew.members), default=0)

    def heartbeats(self) -> dict[int, int]:
        """The last step each rank said it finished."""
        return {member.rank: member.step for member in self._crew.members}

    # --- strikes

    def kill(self, ranks: Sequence[int]) -> None:
        """SIGKILL: they are dead when this returns; the others find out in their all-reduce, those in it at once."""
        self._crew.end(self._living(ranks), signal.SIGKILL)
        self._crew.settle(SETTLE_S)

    def hang(self, ranks: Sequence[int]) -> None:
        """SIGSTOP: they have stopped when this returns; the others wait for them."""
        self._crew.freeze(self._living(ranks))

    def wake(self, ranks: Sequence[int]) -> None:
        """SIGCONT: they go on where they stopped, up to what has been granted; returns when they have."""
        self._crew.thaw(self._living(ranks))
        for member in self._crew.members:
            self._crew.grant(member)
        self._crew.settle(SETTLE_S)

    def expire(self, limit_ms: int = int(WATCHDOG_S * 1000), *, abort: bool = False) -> None:
        """The watchdog's time is over for ranks that wait for a stopped one: they log it once and, if asked, abort."""
        stuck = [member for member in self._crew.members if self._crew.stuck(member)]
        asked = [member for member in stuck if not member.has_expired() and member.lines.send(f"expire {limit_ms}")]
        self._await(Member.has_expired, asked, SETTLE_S)
        if abort:
            self._crew.end(stuck, signal.SIGABRT)

    # --- looking

    def alive(self) -> dict[int, bool]:
        """A hung rank is alive. Dead ones are noticed here, too."""
        self._crew.hear(0)
        return {member.rank: not member.gone for member in self._crew.members}

    def exits(self) -> dict[int, int | None]:
        """None: still there. Negative: by that signal."""
        self._crew.hear(0)
        return {member.rank: member.code for member in self._crew.members}

    def pids(self) -> dict[int, int]:
        return {member.rank: member.pid for member in self._crew.members if not member.gone}

    def logs(self, rank: int, lines: int = 200) -> list[str]:
        """The tail of this attempt's log of this rank."""
        try:
            with open(layout.log_path(self.jobdir, self.attempt, rank), "rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - LOG_TAIL))
                return file.read(LOG_TAIL).decode(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            return []

    def checkpoints(self) -> list[layout.Saved]:
        """(step, attempt) of the complete ones that may be resumed from, oldest first."""
        return layout.lineage(self.jobdir)

    def weights(self) -> bytes:
        """The weights of the newest complete checkpoint; the last step always makes one."""
        return self._newest_state()[1].weights.tobytes()

    def digest(self) -> str:
        """Of step, weights and momentum: equal if and only if the training is at the same point, bit for bit."""
        step, state = self._newest_state()
        return hashlib.sha256(b"%d:" % step + state.weights.tobytes() + state.velocity.tobytes()).hexdigest()

    # --- inside

    def _newest_state(self) -> tuple[int, State]:
        from sickbay.sim.trainer.shards import load_state  # numpy: only when somebody wants the numbers

        saved = self.checkpoints()
        if not saved:
            raise UserError(f"job {self.job} has no complete checkpoint yet")
        return saved[-1][0], load_state(self.jobdir / layout.saved_name(saved[-1]))

    def _resume(self, from_step: int) -> str:
        """The directory to start from, read through once: a damaged one is refused before anything has begun."""
        if not from_step:
            return ""
        saved = self.checkpoints()
        chosen = [row for row in saved if row[0] == from_step]
        if not chosen:
            steps = ", ".join(str(step) for step, _ in saved) or "none"
            raise UserError(f"job {self.job} has no complete checkpoint at step {from_step}; complete: {steps}")
        name = layout.saved_name(chosen[-1])
        found = len(layout.read_shards(self.jobdir / name))
        if found != self.ranks:
            raise UserError(f"{name} was saved by {found} ranks; this gang has {self.ranks}")
        return name

    def _spawn(self, resume: str, from_step: int) -> None:
        token = secrets.token_hex(32)
        with socket.create_server(("127.0.0.1", 0), backlog=self.ranks + 8) as listener:
            for rank in range(self.ranks):
                spec = self._spec(rank, resume, from_step, listener.getsockname()[1], token)
                self._fork(spec, listener if rank == 0 else None)

    def _fork(self, spec: Spec, listener: socket.socket | None) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            fds = [theirs.fileno(), *([listener.fileno()] if listener else [])]
            try:
                pid = self._nursery.fork(spec, fds)
            except BaseException:
                ours.close()
                raise
        self._crew.members.append(Member(spec.rank, pid, Lines(ours), spec.from_step))

    def _spec(self, rank: int, resume: str, from_step: int, port: int, token: str) -> Spec:
        raise_at = self.raise_at[1] if self.raise_at and self.raise_at[0] == rank else 0
        return Spec(
            jobdir=str(self.jobdir),
            job=self.job,
            rank=rank,
            ranks=self.ranks,
            attempt=self.attempt,
            seed=self.seed,
            total_steps=self.total_steps,
            checkpoint_every=self.checkpoint_every,
            step_work=self.step_work,
            keep=self.keep,
            resume=resume,
            from_step=from_step,
            raise_at=raise_at,
            port=port,
            token=token,
            watchdog_s=self.watchdog_s,
        )

    def _meet(self) -> None:
        deadline = time.monotonic() + START_S
        members = self._crew.members
        while not all(m.up for m in members) and not any(m.gone for m in members) and time.monotonic() < deadline:
            self._crew.hear(0.5)
        for member in sorted(members, key=lambda member: not member.gone):  # a dead one explains more
            if member.gone or not member.up:
                tail = " / ".join(self.logs(member.rank, 3)) or "it said nothing"
                raise SickbayError(f"rank {member.rank} of {self.job} did not come up: {tail}")

    def _await(self, done: Callable[[Member], bool], members: list[Member], timeout_s: float) -> None:
        """Until each has done it, or one is gone."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not all(map(done, members)) and not any(m.gone for m in members):
            self._crew.hear(0.05)

    def _living(self, ranks: Sequence[int]) -> list[Member]:
        if unknown := [rank for rank in ranks if not 0 <= rank < self.ranks]:
            raise UserError(f"job {self.job} has ranks 0 to {self.ranks - 1}, not {unknown}")
        return [member for member in self._crew.living() if member.rank in ranks]
