"""Mutants: one rule of the brain or of a door removed at a time. One that no proof notices is a hole in the proofs.

`run_mutants` is behind `sickbay sim mutants`. Each mutant lives in a forked process: the patched modules are judged
first by the seeds (world-side checkers), then, where the seeds are blind by nature, by tests of core and
controller and the scenarios. Mutants of time and of sending must die by the seeds: nothing else looks at the truth.
A mutant with `only` must be seen by that checker and by no other. A seed that is bad without any mutant kills nobody:
it is played again unpatched, and left out. What killed each one last (shown.toml) is tried before all else.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import multiprocessing
import signal
import time
import tomllib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

TREE = Path(__file__).parents[4]
SHOWN = Path(__file__).with_name("shown.toml")
HEAD = "# What killed each mutant last: a seed, or a test. Tried first. Written by `sickbay sim mutants --remember`.\n"
SEED_S = 90  # a seed takes about one second; a mutant that goes round in circles is caught too
FIRST = 8  # seeds that are tried before the tests
MUTANTS: tuple[Mutant, ...] = (*BRAIN, *CONSENT, *COMPANY, *HARM)


@dataclass(frozen=True, slots=True)
class Fate:
    name: str
    killed_by: str  # "" when it survived
    took_s: float
    seed: int = -1  # that killed it
    test: str = ""  # that did


def shown() -> dict[str, int | str]:
    """Mutant -> the seed or the test that killed it last. Only where to look first: it proves nothing by itself."""
    return tomllib.loads(SHOWN.read_text()) if SHOWN.exists() else {}


def remember(fates: Iterable[Fate]) -> None:
    known = shown() | {fate.name: fate.test or fate.seed for fate in fates if fate.killed_by}
    rows = [f"{json.dumps(m.name)} = {json.dumps(known[m.name])}\n" for m in MUTANTS if m.name in known]
    SHOWN.write_text(HEAD + "".join(rows))


def _try(number: int, seeds: int, spoilt: frozenset[int] = frozenset()) -> Fate:
    """Runs in a process of its own: what it patches, it takes with it. What killed it last, a few seeds, then the
    tests, which are quicker than all seeds, then those."""
    mutant, began = MUTANTS[number], time.monotonic()
    known = shown().get(mutant.name, "")
    mutant.patch()
    signal.signal(signal.SIGALRM, _too_long)
    first = [known] if isinstance(known, int) else []
    ahead = [seed for seed in dict.fromkeys((*first, *_seeds(mutant, seeds))) if seed not in spoilt]
    by_tests = not (mutant.seeds_only or mutant.only)
    if by_tests and isinstance(known, str) and (fate := _by_tests(mutant, _the_test(known), began)):
        return fate
    if fate := _by_seeds(mutant, ahead[:FIRST] if by_tests else ahead, began):
        return fate
    if by_tests and (fate := _by_tests(mutant, _judges(), began)):
        return fate
    rest = _by_seeds(mutant, ahead[FIRST:], began) if by_tests else None
    return rest or Fate(mutant.name, "", time.monotonic() - began)


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


class FirstFailure:
    """A plugin of pytest: which test failed first."""

    def __init__(self) -> None:
        self.test = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.test = self.test or (report.nodeid if report.failed else "")

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)


def _the_test(known: str) -> list[str]:
    return [str(TREE / known)] if known and (TREE / known.split("::")[0]).is_file() else []


def _judges() -> list[str]:
    tests = TREE / "tests"
    scenarios = sorted(map(str, (tests / "sim").glob("test_scenarios_*.py")))
    return [str(tests / "core"), str(tests / "controller"), *scenarios] if tests.is_dir() else []


def _by_tests(mutant: Mutant, judges: list[str], began: float) -> Fate | None:
    import pytest

    if not judges:
        return None
    seen, said = FirstFailure(), io.StringIO()
    asked = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "--rootdir", str(TREE)]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main([*asked, *judges], plugins=[seen])
    if code != pytest.ExitCode.TESTS_FAILED and not seen.test:
        return None  # all passed, or there is no test of that name any more
    return Fate(mutant.name, f"tests: {seen.test}", time.monotonic() - began, test=seen.test)


def _honest(pool: Pool, number: int, seeds: int, fate: Fate) -> Fate:
    """Tried again without each seed that was bad by itself."""
    spoilt = set[int]()
    while fate.seed >= 0 and pool.apply(_is_bad, (fate.seed,)):
        print(f"seed {fate.seed} is bad without any mutant: it is left out")
        spoilt.add(fate.seed)
        fate = pool.apply(_try, (number, seeds, frozenset(spoilt)))
    return fate


def run_mutants(seeds: int, processes: int, named: str = "", *, keep: bool = False) -> int:
    """Try every mutant, or those whose name or whose own checker holds this word; 0 if each one dies."""
    began, fates = time.monotonic(), list[Fate]()
    chosen = [n for n, mutant in enumerate(MUTANTS) if named in mutant.name or named in mutant.only]
    if not chosen:
        raise UserError(f"--only {named}: no mutant's name, and no checker that one is for, holds the word")
    context = multiprocessing.get_context("fork")
    logging.getLogger("sickbay").addHandler(logging.NullHandler())  # what a simulated controller warns of is no news
    with context.Pool(processes, maxtasksperchild=1) as pool, context.Pool(1, maxtasksperchild=1) as plain:
        for done, (n, first) in enumerate(pool.imap_unordered(partial(_numbered, seeds), chosen), 1):
            fate = _honest(plain, n, seeds, first)  # beside the others: behind them it would be asked at the very end
            word = "killed  " if fate.killed_by else "SURVIVED"
            print(f"{done}/{len(chosen)} {word} {fate.name} ({fate.took_s:.0f} s)  {fate.killed_by[:140]}", flush=True)
            fates.append(fate)
            if keep:
                remember([fate])
    survived = [fate.name for fate in fates if not fate.killed_by]
    took = time.monotonic() - began
    print(f"{len(chosen)} mutants, {len(chosen) - len(survived)} killed, {len(survived)} survived, {took:.0f} s")
    return 1 if survived else 0
