"""Decisions a second: what one pass of the controller costs for one touched node, at 100, 1,000 and 10,000 nodes.

Run: python -m benchmarks.decisions [--passes N] [--runs N] [--json]. Ten cases are open and at rest all the while, as
in a bad hour. Cost must follow the change, not the fleet: the bar is 10,000 nodes within 1.5x of 100. Runs are
interleaved and their medians compared, in CPU time, so that a busy machine moves all sizes alike.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from dataclasses import replace

from sickbay.catalog import load
from sickbay.controller.crew import InlineCrew
from sickbay.controller.leader import SoloLeader
from sickbay.controller.loop import Controller
from sickbay.controller.outbox import Outbox
from sickbay.model import Finding, NodeChanged, Place, Severity, Status
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.settings import Limit, Policy, Settings
from sickbay.sim.jobs import JobSpec
from sickbay.sim.mailbox import Mailbox, Slot
from sickbay.sim.world import World
from sickbay.stores.memory import MemoryStore

SIZES = (100, 1_000, 10_000)
OPEN = 10
BAR = 1.5
APART_S = 700.0  # or ten of a kind would be one common cause

# Nodes with a row remap pending are cordoned and wait for their job: open cases that stay open.
HELD = "row_remap_pending_63"


class Bench:
    """A fleet with ten open cases, and a controller that has nothing left to do."""

    def __init__(self, nodes: int) -> None:
        self.world = World(1, nodes)
        self.world.submit(JobSpec("train", tuple(self.world.nodes)[: nodes // 2], managed=False))
        room = Limit(percent=100.0, at_least=nodes)
        free = Policy(
            max_verb="REPLACE", approval=(), max_out=room, max_out_fleet=room, max_out_rack=room, per_window={}
        )
        self.controller = Controller(
            SimulatedPlatform(self.world, progress_s=0.0), MemoryStore(), load(), Settings(policy=free),
            self.world.clock, SoloLeader(), Outbox([Slot(Mailbox(), 1)]), InlineCrew(),
        )  # fmt: skip
        assert self.controller.start()
        for i in range(OPEN):
            self.world.strike(HELD, f"node-{i * 5:04d}")
            self._pass_time(APART_S)
        assert len(self.controller.view.cases) == OPEN, "the bench needs its open cases"
        self.healthy = self.world.nodes[f"node-{nodes - 1:04d}"]
        self.version = 10_000_000

    def _pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds / 10)):
            self.world.run_for(10.0)
            self.controller.turn()

    def touch(self) -> NodeChanged:
        """Something new about one healthy node: its agent says OK under a new id."""
        node = self.controller.view.nodes[self.healthy.name]
        self.version += 1
        fine = Finding(
            f"{node.boot_id}/{self.version}", "agent", "nvidia-smi", Place(node.name), Status.OK, "", "nothing found",
            severity=Severity.NONE, boot_id=node.boot_id, at=self.world.now,
        )  # fmt: skip
        return NodeChanged(replace(node, findings=(fine,), version=self.version))

    def passes(self, count: int) -> float:
        """CPU microseconds for one pass, the mean of `count`."""
        changes = [self.touch() for _ in range(count)]
        begun = time.process_time()
        for change in changes:
            self.controller._receive(change)
            self.controller.turn()
        return (time.process_time() - begun) / count * 1e6


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    benches = {size: Bench(size) for size in SIZES}
    gc.freeze()  # a fleet in memory is not garbage; looking through it would measure the collector
    took: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(args.runs):
        for size, bench in benches.items():
            took[size].append(bench.passes(args.passes))
    base = statistics.median(took[SIZES[0]])
    rows = [
        {"nodes": size, "open_cases": OPEN, "us_per_decision": round(us, 1), "decisions_per_s": round(1e6 / us),
         "times_100_nodes": round(us / base, 2), "met": us / base <= BAR}
        for size, us in ((size, statistics.median(took[size])) for size in SIZES)
    ]  # fmt: skip
    for row in rows:
        print(json.dumps(row) if args.json else "  ".join(f"{key} {value}" for key, value in row.items()))
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
