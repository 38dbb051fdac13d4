"""What the brain does to a fleet whose nodes are cut off: `sickbay sim partitions` prints a row for each cut.

Judged by the world's truth (World.log), never by the controller's own count. Composition only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from sickbay.model import Recovery, RecoveryPhase
from sickbay.settings import Policy, Settings
from sickbay.sim.jobs import JobSpec
from sickbay.sim.run import SimRun
from sickbay.sim.world import World

KINDS = ("control", "data", "both", "power")
SHARES = (0.03, 0.10, 0.40, 1.0)
LENGTHS_S = (120.0, 600.0, 7_200.0, 43_200.0)
AFTER_S = 6 * 3600.0  # what a cut leads to has happened by then
GANG = 4  # nodes a job


@dataclass(frozen=True, slots=True)
class Row:
    nodes: int
    kind: str
    share: float
    length_s: float
    cordons: int
    treated: int  # treatments of nodes that nothing was wrong with: all of them
    restarts: int  # of jobs
    given_up: int
    two_attempts: int
    notices: int  # to operators

    def line(self) -> str:
        return (
            f"{self.nodes:>5}  {self.kind:<8} {self.share:>5.0%} {self.length_s / 60:>6.0f} min  {self.cordons:>7} "
            f"{self.treated:>10} {self.restarts:>9} {self.given_up:>9} {self.two_attempts:>13} {self.notices:>8}"
        )


HEAD = "nodes  cut      share   length   cordons  treatments  restarts  given up  two attempts  notices"


def rows(nodes: int, seed: int = 7) -> Iterator[Row]:
    for kind, share, length_s in product(KINDS, SHARES, LENGTHS_S):
        yield play(nodes, kind, share, length_s, seed)


def play(nodes: int, kind: str, share: float, length_s: float, seed: int = 7) -> Row:
    """A healthy fleet, half of it at work; one cut; then calm. No approval is asked for: harm would show."""
    world = World(seed, nodes, rack_size=8, silent_failure=0.0, reboot_hangs=0.0, part_returns=0.0)
    run = SimRun(world, Settings(policy=Policy(max_verb="REPLACE", approval=())))
    run.add_brain()
    names = sorted(world.nodes)
    for first in range(0, nodes // 2 - GANG + 1, GANG):
        world.submit(JobSpec(f"job-{first // GANG:04d}", tuple(names[first : first + GANG]), checkpoint_every=30))
    run.run_for(1800.0)
    world.network.cut(world.network.share(share), kind, for_s=length_s)
    run.run_for(length_s + AFTER_S)
    return _counted(run, nodes, kind, share, length_s)


def _counted(run: SimRun, nodes: int, kind: str, share: float, length_s: float) -> Row:
    log = run.world.log
    facts = {what: sum(f.kind == what for f in log) for what in ("cordon", "treat-start", "two-attempts")}
    restarts = sum(f.kind == "place" and int(f.detail["attempt"]) > 1 for f in log)
    ended = run.store.history(Recovery, limit=10_000)
    given_up = sum(r.phase is RecoveryPhase.FAILED for r in ended)
    owners = tuple(run.world.jobs)
    told = [n for n in run.mailbox.notices if not n.key.startswith(owners)]
    return Row(nodes, kind, share, length_s, facts["cordon"], facts["treat-start"], restarts, given_up,
               facts["two-attempts"], len(told))  # fmt: skip
