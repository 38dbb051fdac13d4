"""Does it help? Useful GPU-hours under Sickbay against two baselines, cell by cell, paired by seed.

Behind `sickbay sim compare --seeds N`. A cell is a preset of fault rates and a mix of jobs; its days are chosen so that
at least 300 faults strike over its seeds. Each seed is run under all three policies; only differences within a seed are
looked at (sim/paired.py). The rules of the brain were tuned on seeds from TUNING on; those never judge.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from sickbay.errors import UserError
from sickbay.settings import Settings
from sickbay.sim import paired
from sickbay.sim.arms import nobody, originals, ours
from sickbay.sim.faults import rates
from sickbay.sim.workload import SHAPES, Scene

PRESETS = ("llama3", "rsc1", "rsc2", "noisy")
MEASURED = ("llama3", "rsc1", "rsc2")  # noisy is nobody's fleet
MIXES = ("one", "mix", "small")
BASELINES = ("originals", "nobody")

TUNING = 900_000  # the first seed of those on which rules are tuned
FAULTS = 300  # that a cell must have, over its seeds
MARGIN = 1.1  # arrivals are random: aim a little higher
SHORTEST = 7.0  # days: what goes wrong slowly (a suspicion that stays, a queue that grows) needs time to show
NODES = {"llama3": 200, "rsc1": 200, "rsc2": 200, "noisy": 60}
PROGRESS_S = 180.0  # how often jobs tell their steps: most of a quiet run's cost, and only we could gain by more
BAR = -0.005  # of the baseline: the lower end of no cell's interval may be below


@dataclass(frozen=True, slots=True)
class Cell:
    preset: str
    jobs: str

    @property
    def nodes(self) -> int:
        return NODES[self.preset]

    def days(self, seeds: int) -> float:
        """So many that FAULTS strike over these seeds."""
        a_day: float = rates()[self.preset]["per_1000_node_days"] / 1000 * self.nodes * seeds
        return max(SHORTEST, math.ceil(FAULTS * MARGIN / a_day))

    def scene(self, seed: int, seeds: int) -> Scene:
        return Scene(seed, self.nodes, self.days(seeds), self.preset, self.jobs)


@dataclass(frozen=True, slots=True)
class Trial:
    """One seed of a cell under all three policies."""

    cell: Cell
    seed: int
    faults: int  # under our policy: what strikes a node that is down or treated counts nowhere, and arms differ in that
    useful: dict[str, float]  # policy -> GPU-hours
    ettr: dict[str, float]
    seconds: float


@dataclass(frozen=True, slots=True)
class Line:
    """One cell against one baseline: differences in shares of the baseline's useful GPU-hours."""

    cell: Cell
    baseline: str
    faults: int
    useful: float  # ours, mean over the seeds
    theirs: float
    interval: paired.Interval
    verdict: str  # ok | unsure | worse | few faults


@dataclass(frozen=True, slots=True)
class Comparison:
    seeds: tuple[int, ...]
    lines: tuple[Line, ...]
    pooled: dict[str, float]  # baseline -> mean of the measured cells
    trials: tuple[Trial, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        return all(line.verdict == "ok" for line in self.lines) and all(mean > 0 for mean in self.pooled.values())


def cells(presets: Iterable[str] = PRESETS, mixes: Iterable[str] = MIXES) -> list[Cell]:
    found = [Cell(preset, jobs) for preset in presets for jobs in mixes]
    for cell in found:
        if cell.preset not in NODES:
            raise UserError(f"--presets {cell.preset}: there is no such cell; known are {', '.join(PRESETS)}")
        if cell.jobs not in SHAPES:
            raise UserError(f"--mixes {cell.jobs}: there is no such mix of jobs; known are {', '.join(MIXES)}")
    return found


def compare(
    chosen: Sequence[Cell], first: int, seeds: int, jobs: int, settings: Settings,
    tell: Callable[[Trial], None] = lambda trial: None,
) -> Comparison:  # fmt: skip
    """Run every cell on these seeds, `jobs` processes side by side, and judge them together."""
    if seeds < 2:
        raise UserError(f"--seeds {seeds}: at least 2, for one pair says nothing about its own error")
    begun = time.monotonic()
    trials = []
    for trial in _trials(
        [(cell, seed, seeds, settings) for cell in chosen for seed in range(first, first + seeds)], jobs
    ):
        trials.append(trial)
        tell(trial)
    return judge(chosen, trials, time.monotonic() - begun)


def _trials(asked: Sequence[tuple[Cell, int, int, Settings]], jobs: int) -> Iterator[Trial]:
    if jobs <= 1:
        yield from map(_trial, asked)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_trial, asked)


def _trial(asked: tuple[Cell, int, int, Settings]) -> Trial:
    cell, seed, seeds, settings = asked
    scene = cell.scene(seed, seeds)
    reports = (ours(scene, settings, PROGRESS_S), originals(scene), nobody(scene))
    return Trial(
        cell, seed, reports[0].faults, {r.policy: r.useful_gpu_hours for r in reports},
        {r.policy: r.ettr or 0.0 for r in reports}, sum(r.seconds for r in reports),
    )  # fmt: skip


# --- judging ----------------------------------------------------------------------------------------------------------


def judge(chosen: Sequence[Cell], trials: Sequence[Trial], seconds: float = 0.0) -> Comparison:
    """All cells against both baselines are one family for Holm: the more is looked at, the surer each must be."""
    asked = [(cell, baseline) for cell in chosen for baseline in BASELINES]
    shares = [differences(cell, baseline, trials) for cell, baseline in asked]
    judged = paired.holm(shares, BAR)
    lines = tuple(
        _line(cell, baseline, trials, interval, shown)
        for (cell, baseline), (interval, shown) in zip(asked, judged, strict=True)
    )
    seeds = tuple(sorted({trial.seed for trial in trials}))
    return Comparison(seeds, lines, _pooled(lines), tuple(trials), seconds)


def differences(cell: Cell, baseline: str, trials: Sequence[Trial]) -> list[float]:
    """Ours minus theirs, seed by seed, in shares of what the baseline makes on average."""
    pairs = [(t.useful["sickbay"], t.useful[baseline]) for t in trials if t.cell == cell]
    whole = paired.mean([theirs for _, theirs in pairs])
    return [(mine - theirs) / whole for mine, theirs in pairs]


def _line(cell: Cell, baseline: str, trials: Sequence[Trial], interval: paired.Interval, shown: bool) -> Line:
    here = [t for t in trials if t.cell == cell]
    faults = sum(t.faults for t in here)
    mine, theirs = (paired.mean([t.useful[who] for t in here]) for who in ("sickbay", baseline))
    return Line(cell, baseline, faults, mine, theirs, interval, _verdict(faults, interval, shown))


def _verdict(faults: int, interval: paired.Interval, shown: bool) -> str:
    if faults < FAULTS:
        return "few faults"
    if shown:
        return "ok"
    return "worse" if interval.mean < BAR else "unsure"


def _pooled(lines: Sequence[Line]) -> dict[str, float]:
    """The mean over the measured cells, each cell counted once; without any of them there is none."""
    pooled = {}
    for baseline in BASELINES:
        means = [ln.interval.mean for ln in lines if ln.baseline == baseline and ln.cell.preset in MEASURED]
        if means:
            pooled[baseline] = paired.mean(means)
    return pooled


# --- words ------------------------------------------------------------------------------------------------------------


def rows(found: Comparison) -> list[str]:
    """The table for people, and the bar in words."""
    first, last = found.seeds[0], found.seeds[-1]
    head = (
        f"{'preset':<8}{'jobs':<7}{'nodes':>6}{'days':>6}{'faults':>8}  {'against':<11}{'ours GPU-h':>12}{'theirs':>12}"
    )
    lines = [
        f"Useful GPU-hours of seeds {first} to {last}, each run under three policies ({found.seconds:.0f} s)",
        "",
        f"{head}{'mean':>9}{'low':>9}{'high':>9}  verdict",
    ]
    lines += [_row(line, len(found.seeds)) for line in found.lines]
    lines += [""] + [
        f"pooled over the measured presets, against {baseline}: {mean:+.2%}" for baseline, mean in found.pooled.items()
    ]
    lines.append(
        f"The bar {'holds' if found.holds else 'does not hold'} (no interval, 95 % for all cells together after Holm, "
        f"may reach below {BAR:+.1%}; the pooled means must be above 0)."
    )
    if last >= TUNING:
        lines.append(f"Seeds from {TUNING:,} on were used to tune the rules: this is no judgement.")
    return lines


def _row(line: Line, seeds: int) -> str:
    cell, got = line.cell, line.interval
    left = f"{cell.preset:<8}{cell.jobs:<7}{cell.nodes:>6}{cell.days(seeds):>6.0f}{line.faults:>8}  {line.baseline:<11}"
    shares = "".join(f"{share:>+9.2%}" for share in (got.mean, got.low, got.high))
    return f"{left}{line.useful:>12,.0f}{line.theirs:>12,.0f}{shares}  {line.verdict}"


def as_json(found: Comparison) -> str:
    return json.dumps(as_dict(found), indent=2)


def as_dict(found: Comparison) -> dict[str, Any]:
    seeds = len(found.seeds)
    return {
        "seeds": list(found.seeds),
        "holds": found.holds,
        "bar": BAR,
        "pooled": found.pooled,
        "seconds": round(found.seconds, 1),
        "cells": [_cell(line, seeds) for line in found.lines],
        "trials": [
            {"preset": t.cell.preset, "jobs": t.cell.jobs, "seed": t.seed, "faults": t.faults, "useful": t.useful,
             "ettr": t.ettr}
            for t in found.trials
        ],
    }  # fmt: skip


def _cell(line: Line, seeds: int) -> dict[str, Any]:
    got = line.interval
    return {
        "preset": line.cell.preset, "jobs": line.cell.jobs, "nodes": line.cell.nodes, "days": line.cell.days(seeds),
        "faults": line.faults, "against": line.baseline, "useful": line.useful, "theirs": line.theirs,
        "mean": got.mean, "low": got.low, "high": got.high, "level": got.level, "verdict": line.verdict,
    }  # fmt: skip
