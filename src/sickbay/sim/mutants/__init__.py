"""Mutants: one rule of the brain or of a door removed at a time. One that no proof notices is a hole in the proofs.

`run_mutants` is behind `sickbay sim mutants`. Each mutant lives in a forked process: the patched modules are judged
first by the seeds (world-side checkers), then, where the seeds are blind by nature, by tests of core and
controller and the scenarios. Mutants of time and of sending must die by the seeds: nothing else looks at the truth.
A mutant with `only` must be seen by that checker and by no other. A seed that is bad without any mutant kills nobody:
it is played again unpatched, and left out.
"""

from __future__ import annotations

import contextlib
import io
import logging
import multiprocessing
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sickbay.errors import UserError
from sickbay.sim.drawn import draw
from sickbay.sim.mutants.brain import BRAIN
from sickbay.sim.mutants.company import COMPANY
from sickbay.sim.mutants.consent import CONSENT
from sickbay.sim.mutants.harm import HARM
from sickbay.sim.mutants.patch import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.pool import Pool

    from sickbay.sim.check import Verdict

SEED_S = 90  # a seed takes about one second; a mutant that goes round in circles is caught too
FIRST = 8  # seeds that are tried before the tests
MUTANTS: tuple[Mutant, ...] = (*BRAIN, *CONSENT, *COMPANY, *HARM)


@dataclass(frozen=True, slots=True)
class Fate:
    name: str
    killed_by: str  # "" when it survived
    took_s: float
    seed: int = -1  # that killed it


def _try(number: int, seeds: int, spoilt: frozenset[int] = frozenset()) -> Fate:
    """Runs in a process of its own: what it patches, it takes with it. A few seeds, then the tests, which are quicker
    than all seeds, then those."""
    mutant, began = MUTANTS[number], time.monotonic()
    mutant.patch()
    signal.signal(signal.SIGALRM, _too_long)
    ahead = [seed for seed in _seeds(mutant, seeds) if seed not in spoilt]
    by_tests = not (mutant.seeds_only or mutant.only)
    if fate := _by_seeds(mutant, ahead[:FIRST] if by_tests else ahead, began):
        return fate
    by = _by_tests() if by_tests else ""
    rest = None if by or not by_tests else _by_seeds(mutant, ahead[FIRST:], began)
    return rest or Fate(mutant.name, by, time.monotonic() - began)


def _by_seeds(mutant: Mutant, seeds: Iterable[int], began: float) -> Fate | None:
    from sickbay.sim.check import play

    for seed in seeds:
        signal.alarm(SEED_S)
        verdict = play(seed)
        signal.alarm(0)
        if verdict.violations:
            return Fate(mutant.name, _killed_by(mutant, seed, verdict), time.monotonic() - began, seed)
    return None


def _numbered(seeds: int, number: int) -> tuple[int, Fate]:
    return number, _try(number, seeds)


def _is_bad(seed: int) -> bool:
    """Without any mutant."""
    from sickbay.sim.check import play

    return bool(play(seed).violations)


def _seeds(mutant: Mutant, count: int) -> list[int]:
    """Those that draw the setting it takes, then any."""
    fit = [seed for seed in range(1500) if any(mutant.drawn in words for words in draw(seed).words)]
    return list(dict.fromkeys((*(fit if mutant.drawn else ()), *range(count))))[:count]


def _killed_by(mutant: Mutant, seed: int, verdict: Verdict) -> str:
    """ "" when another checker than its own saw it: then that one proves nothing that the others do not."""
    if mutant.only and set(verdict.by) != {mutant.only}:
        return ""
    return f"{mutant.only or verdict.by[0] or 'an exception'}, seed {seed}: {verdict.violations[0]}"


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"the seed did not end within {SEED_S} s: the brain goes round in circles")


def _by_tests() -> str:
    tests = Path(__file__).parents[4] / "tests"
    if not tests.is_dir():
        return ""
    judges = [
        str(tests / "core"),
        str(tests / "controller"),
        *sorted(map(str, (tests / "sim").glob("test_scenarios_*.py"))),
    ]
    import pytest

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", *judges])
    failed = [line for line in said.getvalue().splitlines() if line.startswith(("FAILED", "ERROR"))]
    # The summary comes last: what the failed test logged may begin with ERROR too.
    return f"tests: {failed[-1] if failed else said.getvalue()[-200:]}" if code != 0 else ""


def _honest(pool: Pool, number: int, seeds: int, fate: Fate) -> Fate:
    """Tried again without each seed that was bad by itself."""
    spoilt = set[int]()
    while fate.seed >= 0 and pool.apply(_is_bad, (fate.seed,)):
        print(f"seed {fate.seed} is bad without any mutant: it is left out")
        spoilt.add(fate.seed)
        fate = pool.apply(_try, (number, seeds, frozenset(spoilt)))
    return fate


def run_mutants(seeds: int, processes: int, named: str = "") -> int:
    """Try every mutant, or those whose name or whose own checker holds this word; 0 if each one dies."""
    began, survivors = time.monotonic(), []
    chosen = [n for n, mutant in enumerate(MUTANTS) if named in mutant.name or named in mutant.only]
    if not chosen:
        raise UserError(f"--only {named}: no mutant's name, and no checker that one is for, holds the word")
    context = multiprocessing.get_context("fork")
    logging.getLogger("sickbay").addHandler(logging.NullHandler())  # what a simulated controller warns of is no news
    with context.Pool(processes, maxtasksperchild=1) as pool:
        for done, (n, first) in enumerate(pool.imap_unordered(partial(_numbered, seeds), chosen), 1):
            fate = _honest(pool, n, seeds, first)
            word = "killed  " if fate.killed_by else "SURVIVED"
            print(f"{done}/{len(chosen)} {word} {fate.name} ({fate.took_s:.0f} s)  {fate.killed_by[:140]}", flush=True)
            survivors += [] if fate.killed_by else [fate.name]
    took = time.monotonic() - began
    print(f"{len(chosen)} mutants, {len(chosen) - len(survivors)} killed, {len(survivors)} survived, {took:.0f} s")
    return 1 if survivors else 0
