"""One simulated run under each of the policies that are compared: Sickbay, the originals, and nobody at all.

`sickbay sim run` and `compare` call these with a Scene; each returns a Report. Composition only: nothing decides here.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sickbay.model import Case, Recovery
from sickbay.platforms.simulated.platform import SimulatedPlatform
from sickbay.settings import Policy, Settings
from sickbay.sim.nobody import Nobody
from sickbay.sim.originals import REQUEUE_S, Originals
from sickbay.sim.report import Report, report
from sickbay.sim.run import SimRun
from sickbay.sim.workload import DAY, Scene, Staff, build

SLOW_S = 2.0  # a run that takes longer says how far it is
SLICES = 200  # of a run, between two words about progress
EVERYTHING = 10_000_000


def settings_of(policy: Path | None) -> Settings:
    """The file's settings, its variables left out: a run depends on nothing but what was typed."""
    if policy is None:
        return Settings(policy=Policy(max_verb="REPLACE", approval=()))
    from sickbay.settings_load import load

    return load(policy, {}).settings


def ours(scene: Scene, settings: Settings, progress_s: float = 60.0) -> Report:
    """The real brain in virtual time. `progress_s`: how often jobs tell their steps."""
    world, arrivals = build(scene)
    sim = SimRun(world, settings, progress_s=progress_s)
    staff = Staff(world, lambda job: sim.store.get(Recovery, job) is None)
    turns = [0]
    sim.on_turn.append(lambda: turns.__setitem__(0, turns[0] + 1))
    sim.add_brain()
    seconds = _pass_time(scene, sim.run_until, world.now, "Sickbay")
    ended = [*sim.store.history(Case, limit=EVERYTHING)]
    still_open = [stored.value for stored in sim.store.list(Case)]
    return report(
        scene, "sickbay", world, staff, arrivals.struck, seconds, ended=ended, still_open=still_open, turns=turns[0]
    )


def originals(scene: Scene) -> Report:
    """The originals' monitor and a job operator in the same world."""
    world, arrivals = build(scene, requeue_s=REQUEUE_S)
    Originals(world, SimulatedPlatform(world, progress_s=0.0))
    staff = Staff(world, lambda job: False)  # the operator never gives up
    seconds = _pass_time(scene, world.run_until, world.now, "originals")
    return report(scene, "originals", world, staff, arrivals.struck, seconds)


def nobody(scene: Scene) -> Report:
    """A job operator and nothing else in the same world: a node is out when it is dead, or when a person takes it."""
    world, arrivals = build(scene, requeue_s=REQUEUE_S)
    Nobody(world)
    staff = Staff(world, lambda job: False)
    seconds = _pass_time(scene, world.run_until, world.now, "nobody")
    return report(scene, "nobody", world, staff, arrivals.struck, seconds)


def _pass_time(scene: Scene, run_until: Callable[[float], None], start: float, who: str) -> float:
    """Let the days pass; a run that takes longer than a moment says on stderr how far it is."""
    gc.freeze()  # the world stays to the end: looking through it again and again for garbage took a quarter of a run
    gc.set_threshold(200_000, 20, 100)
    begun = said = time.monotonic()
    alone = multiprocessing.parent_process() is None  # one of many side by side says nothing
    for part in range(1, SLICES + 1):
        run_until(start + scene.days * DAY * part / SLICES)
        now = time.monotonic()
        if alone and now - begun > SLOW_S and now - said > 1.0:
            said = now
            print(f"{who}: day {scene.days * part / SLICES:.1f} of {scene.days:g}", file=sys.stderr)
    return time.monotonic() - begun
