"""What the brain does to a fleet whose nodes are cut off: `sickbay sim partitions` plays and judges a row for each cut.

Plays and prints; what a row may show is judged in sim/partitions_bar.py, by the world's truth and never by the
controller's own count. Called by cli/sim.py and tests. Composition only.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from sickbay.errors import UserError
from sickbay.model import JobPhase, Recovery, RecoveryPhase, Verb
from sickbay.settings import Policy, Settings
from sickbay.sim import partitions_bar as bar
from sickbay.sim.checkers.limits import most_of
from sickbay.sim.jobs import JobSpec
from sickbay.sim.run import SimRun
from sickbay.sim.world import World

KINDS = ("control", "data", "both", "power")
SHARES = (0.03, 0.10, 0.40, 1.0)
LENGTHS_S = (120.0, 600.0, 7_200.0, 43_200.0)
LONGEST_S = 30 * 86_400.0
PLACES = ("share", "rack", "pool")
BEFORE_S = 1800.0  # jobs are at work by then
AFTER_S = 6 * 3600.0  # what a cut leads to has happened by then
CALM_S = 2 * 3600.0  # or once every job runs and nothing at all has happened for so long
GANG = 4  # nodes a job
SLICE_S = 600.0  # how often a row says how far it is
LARGE = 512  # nodes: from here on jobs tell their steps less often, which is most of what such a row costs
PROGRESS_S = (60.0, 180.0)
PATIENCE_S = 2.0  # nobody is told how far a row is that takes less
TREATMENTS = (Verb.RESET_GPU, Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE)

Tell = Callable[[float], None]  # how many virtual seconds of a row are played


@dataclass(frozen=True, slots=True)
class Asked:
    """One row, as asked for."""

    nodes: int
    kind: str
    share: float
    length_s: float
    place: str = "share"
    witness: bool = False  # the provider says of a machine that does not answer whether it runs
    seed: int = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One row, as it was played."""

    asked: Asked
    cordons: int
    verbs: Counter[str]  # treatments; nothing was wrong with any node
    restarts: int  # of jobs
    given_up: int
    two_attempts: int
    notices: int  # to operators
    incidents: int
    beyond: tuple[str, ...] = ()  # the bar, in sentences

    @property
    def treated(self) -> int:
        return self.verbs.total()

    def line(self) -> str:
        asked = self.asked
        verbs = "".join(f"{self.verbs[verb.value]:>8}" for verb in TREATMENTS)
        return (
            f"{asked.kind:<8}{asked.share:>5.0%}{asked.length_s / 60:>8g}{self.cordons:>9}{verbs}{self.restarts:>10}"
            f"{self.given_up:>10}{self.two_attempts:>10}{self.notices:>9}{'  beyond' * bool(self.beyond)}"
        )


HEAD = (
    f"{'cut':<8}{'share':>5}{'minutes':>8}{'cordons':>9}{'reset':>8}{'reboot':>8}{'cycle':>8}{'replace':>8}"
    f"{'restarts':>10}{'given up':>10}{'two live':>10}{'notices':>9}"
)


# --- playing ----------------------------------------------------------------------------------------------------------


def play(
    nodes: int, kind: str, share: float, length_s: float, seed: int = 7, *, place: str = "share",
    witness: bool = False, tell: Tell = lambda seconds: None,
) -> Row:  # fmt: skip
    """A healthy fleet, half of it at work; one cut; then calm. No approval is asked for: harm would show."""
    asked = Asked(nodes, kind, share, length_s, place, witness, seed)
    run = _fleet(asked)
    world = run.world
    _pass(run, world.now + BEFORE_S, tell)
    names, back_at = _members(world, asked), world.now + length_s
    world.network.cut(names, kind, for_s=length_s)
    _pass(run, back_at, tell)
    _pass(run, back_at + AFTER_S, tell, _is_calm)
    return _judged(run, asked, names)


def _fleet(asked: Asked) -> SimRun:
    """Where a rack or a pool is cut off, it has the share of the nodes that was asked for."""
    few, nodes = _count(asked), asked.nodes
    own = asked.place == "pool" and few < nodes
    world = World(
        asked.seed, nodes, rack_size=few if asked.place == "rack" else 8, silent_failure=0.0, reboot_hangs=0.0,
        part_returns=0.0, provider_tells=asked.witness, pools={"own": few, "default": nodes - few} if own else None,
    )  # fmt: skip
    settings = Settings(policy=Policy(max_verb="REPLACE", approval=()))
    run = SimRun(world, settings, progress_s=PROGRESS_S[nodes >= LARGE])
    run.add_brain()
    for number, gang in enumerate(_gangs(world)):
        world.submit(JobSpec(f"job-{number:04d}", gang, checkpoint_every=30))
    return run


def _gangs(world: World) -> Iterator[tuple[str, ...]]:
    """Half of each pool; a gang lives in one."""
    for pool in sorted({node.pool for node in world.nodes.values()}):
        names = sorted(node.name for node in world.nodes.values() if node.pool == pool)
        for first in range(0, max(len(names) // 2, min(GANG, len(names))) - GANG + 1, GANG):
            yield tuple(names[first : first + GANG])


def _count(asked: Asked) -> int:
    return max(1, round(asked.share * asked.nodes))


def _members(world: World, asked: Asked) -> list[str]:
    first = world.nodes[min(world.nodes)]
    if asked.place == "rack":
        return world.network.rack(first.rack)
    if asked.place == "pool":
        return [n.name for n in world.nodes.values() if n.pool == first.pool]
    return world.network.share(asked.share)


def _pass(run: SimRun, until: float, tell: Tell, over: Callable[[World], bool] = lambda world: False) -> None:
    """Let time pass, a slice at a time, until it is over."""
    while run.world.now < until and not over(run.world):
        run.run_until(min(until, run.world.now + SLICE_S))
        tell(run.world.now - run.world.clock.start)


def _is_calm(world: World) -> bool:
    return world.now - world.log[-1].t >= CALM_S and all(job.live for job in world.jobs.values())


def _judged(run: SimRun, asked: Asked, names: Sequence[str]) -> Row:
    world = run.world
    cut = bar.Cut(asked.kind, tuple(names), asked.place, told=asked.witness)
    seen, given_up = bar.read(world.log, cut), _given_up(run)
    told = bar.by_incident((n.key for n in run.mailbox.notices if not n.key.startswith(tuple(world.jobs))), cut)
    pool = sum(node.pool == world.nodes[names[0]].pool for node in world.nodes.values())
    most = most_of(run.settings.policy.at_once, pool)
    return Row(
        asked, len(seen.cordons), Counter(each.verb for each in seen.treated), seen.restarts, len(given_up),
        len(seen.two_attempts), sum(told.values()), len(cut.incidents), bar.beyond(seen, cut, most, given_up, told),
    )  # fmt: skip


def _given_up(run: SimRun) -> list[str]:
    """Jobs that nobody runs any more, and those that somebody else had to take up."""
    failed = {r.job for r in run.store.history(Recovery, limit=10_000) if r.phase is RecoveryPhase.FAILED}
    idle = {job.id for job in run.world.jobs.values() if not job.live and job.phase is not JobPhase.SUCCEEDED}
    return sorted(failed | idle)


# --- the table --------------------------------------------------------------------------------------------------------


def chosen(
    nodes: int, kinds: str = "", shares: str = "", lengths: str = "", place: str = "share", *, witness: bool = False
) -> list[Asked]:
    """The rows that were asked for, all of them if nothing was said: percent and minutes, with commas."""
    if place not in PLACES:
        raise UserError(f"--place {place}: there is no such place; known are {', '.join(PLACES)}")
    percent = _numbers("--share", shares, SHARES, 0.01, 1.0)
    minutes = _numbers("--length", lengths, LENGTHS_S, 60.0, LONGEST_S)
    rows = product(_kinds(kinds), percent, minutes)
    return [Asked(nodes, kind, share, length_s, place, witness) for kind, share, length_s in rows]


def _kinds(said: str) -> Sequence[str]:
    for kind in said.split(",") if said else ():
        if kind not in KINDS:
            raise UserError(f"--kind {kind}: there is no such cut; known are {', '.join(KINDS)}")
    return said.split(",") if said else KINDS


def _numbers(option: str, said: str, default: Sequence[float], unit: float, most: float) -> Sequence[float]:
    try:
        found = [float(word) * unit for word in said.split(",")] if said else [*default]
    except ValueError:
        raise UserError(f"{option} {said}: numbers with commas between them, as in {option} 3,40") from None
    if not all(0 < number <= most for number in found):
        raise UserError(f"{option} {said}: more than 0 and at most {most / unit:g}")
    return found


def table(rows: Sequence[Asked]) -> int:
    """Play them, print a line for each and what is beyond the bar; 0 if nothing is."""
    logging.getLogger("sickbay").addHandler(logging.NullHandler())  # what a simulated controller warns of is no news
    begun, bad = time.monotonic(), 0
    print(_title(rows[0]), HEAD, sep="\n\n", flush=True)
    for n, asked in enumerate(rows, 1):
        row = play(
            asked.nodes, asked.kind, asked.share, asked.length_s, asked.seed, place=asked.place,
            witness=asked.witness, tell=_teller(n, len(rows)),
        )  # fmt: skip
        bad += bool(row.beyond)
        print(row.line(), *(f"    {words}." for words in row.beyond), sep="\n", flush=True)
    print(f"\n{len(rows)} rows, {bad} beyond the bar, {time.monotonic() - begun:.0f} s")
    return 1 if bad else 0


def _title(asked: Asked) -> str:
    what = {"share": "so many, anywhere,", "rack": "one rack of so many", "pool": "one pool of so many"}[asked.place]
    who = "the provider tells who runs" if asked.witness else "the provider tells nothing"
    return f"{asked.nodes:,} nodes, all well; {what} cut off; {who}."


def _teller(n: int, rows: int) -> Tell:
    """Says every two seconds how far it is, to who looks on."""
    last = time.monotonic()

    def tell(seconds: float) -> None:
        nonlocal last
        if time.monotonic() - last > PATIENCE_S:
            last = time.monotonic()
            print(f"\rrow {n} of {rows}, hour {seconds / 3600:.1f}", end="\r", file=sys.stderr, flush=True)

    return tell
