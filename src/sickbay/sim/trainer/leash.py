"""The rank's end of its line to the Gang: how far it may run, what is asked of it, and its heartbeat.

Called by rank.py and star.py. A rank without its Gang has no reason to live: when the line closes, it ends here.
It must never let a rank run past its grant.
"""

from __future__ import annotations

import os
import select
from dataclasses import dataclass

from sickbay.sim.trainer.lines import Lines

ORPHANED = 70  # exit code of a rank whose Gang is gone


@dataclass(frozen=True, slots=True)
class Waiting:
    """A rank that is blocked in a collective: for whom, and in what."""

    peer: int
    op: str
    seq: int
    numel: int


def say(line: str) -> None:
    """One line of the rank's log (its stdout)."""
    os.write(1, line.encode() + b"\n")


class Leash:
    def __init__(self, lines: Lines, rank: int, granted: int) -> None:
        self.lines, self.rank, self.granted = lines, rank, granted
        self.save_asked = False

    def beat(self, step: int) -> None:
        """The heartbeat: this rank has finished this step, and what belongs to it is on disk."""
        if not self.lines.send(f"step {step}"):
            os._exit(ORPHANED)

    def may_go_on(self, step: int) -> bool:
        """Wait at this step boundary until a next step is granted; False when a checkpoint is wanted here first."""
        poll = select.poll()
        poll.register(self.lines, select.POLLIN)
        while step >= self.granted and not self.save_asked:
            poll.poll()
            self.serve(None)
        asked, self.save_asked = self.save_asked, False
        return not asked

    def saved(self, step: int) -> None:
        self.lines.send(f"saved {step}")

    def serve(self, waiting: Waiting | None) -> None:
        """Read what the Gang says and do it. Call when the line is readable."""
        heard = self.lines.receive()
        if heard is None:
            os._exit(ORPHANED)
        for line in heard:
            self._obey(line.split(), waiting)

    def _obey(self, words: list[str], waiting: Waiting | None) -> None:
        match words:
            case ["grant", limit]:
                self.granted = max(self.granted, int(limit))
            case ["save"]:
                self.save_asked = True
            case ["probe"] if waiting:
                self.lines.send(f"waiting {waiting.peer}")
            case ["expire", limit_ms] if waiting:
                self.watchdog(waiting, int(limit_ms), int(limit_ms) + 1 + self.rank)
                self.lines.send("expired")

    def watchdog(self, waiting: Waiting, limit_ms: int, ran_ms: int) -> None:
        """In the form of PyTorch's watchdog (ProcessGroupNCCL.cpp), which people and our job-log check look for."""
        work = (
            f"WorkNCCL(SeqNum={waiting.seq}, OpType={waiting.op}, NumelIn={waiting.numel}, "
            f"NumelOut={waiting.numel}, Timeout(ms)={limit_ms})"
        )
        head = f"[rank{self.rank}]:[E ProcessGroupNCCL.cpp:607] [Rank {self.rank}] Watchdog caught"
        say(f"{head} collective operation timeout: {work} ran for {ran_ms} milliseconds before timing out.")
