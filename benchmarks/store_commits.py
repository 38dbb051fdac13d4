"""Store commits a second, as ratios to a bare SQLite upsert of the same bytes in the same run. Called by `make bench`.

Medians of interleaved rounds, so that a busy machine slows all rows alike. The bar: a commit with its compare-and-set,
epoch, encoding and counter costs at most a small multiple of the bare write of the same durability.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sickbay import wire
from sickbay.model import Case, Diagnosis, Entry, Phase, Place, Plan, Rung, Severity, Verb, When
from sickbay.ports import Store
from sickbay.stores.memory import MemoryStore
from sickbay.stores.sqlite import SqliteStore

Write = Callable[[int], None]
ROUNDS = 5
AGAINST = {"memory": "bare sqlite NORMAL", "sqlite NORMAL": "bare sqlite NORMAL", "sqlite FULL": "bare sqlite FULL"}
BARS = {"memory": 0.5, "sqlite NORMAL": 0.07, "sqlite FULL": 0.2}  # half of what a busy two-core machine showed


def a_case() -> Case:
    """As large as most cases get: two diagnoses, a plan, a dozen entries."""
    sick = Diagnosis("gpu-lost", Place("n1", "0000:3b:00"), Severity.REBOOT, When.NOW, 0.95, ("NVRM: Xid 79",) * 3, 0.0)
    plan = Plan((Rung(Verb.REBOOT, 900.0), Rung(Verb.POWER_CYCLE, 1200.0)), ("nvidia-smi", "dcgm-l2"))
    journal = tuple(
        Entry(step, "DONE", 1.0, "sickbay", "the node answered with its full GPU count") for step in range(12)
    )
    case = Case("n1.1", "n1", "uid", "default", (sick, sick), plan, Phase.WAITING, 1, 0.0, 0.0, None)
    return replace(case, journal=journal)


def through(store: Store) -> Write:
    case = a_case()
    version = store.create(case, epoch=1)

    def write(number: int) -> None:
        nonlocal version
        version = store.commit(replace(case, step=number), version, epoch=1)

    return write


def bare(path: Path, synchronous: str) -> Write:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("pragma journal_mode = wal")
    db.execute(f"pragma synchronous = {synchronous}")
    db.execute("create table records (key text primary key, version integer, body blob)")
    body = wire.encode(a_case())

    def write(number: int) -> None:
        db.execute("insert or replace into records values ('n1.1', ?, ?)", (number, body))

    return write


def rate(write: Write, seconds: float) -> float:
    began, number = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(20):
            number += 1
            write(number)
    return number / (time.perf_counter() - began)


def measure(folder: Path, seconds: float) -> dict[str, float]:
    rows: dict[str, Write] = {"memory": through(MemoryStore())}
    for mode in ("NORMAL", "FULL"):
        rows[f"bare sqlite {mode}"] = bare(folder / f"bare-{mode}.db", mode)
        rows[f"sqlite {mode}"] = through(SqliteStore(folder / f"store-{mode}.db", synchronous=mode))
    rounds = [{name: rate(write, seconds) for name, write in rows.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(one[name] for one in rounds) for name in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="per row and round")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rates = measure(Path(folder), asked.seconds)
    ratios = {name: rates[name] / rates[base] for name, base in AGAINST.items()}
    if asked.json:
        print(json.dumps({"commits_per_s": rates, "ratio_to_bare": ratios, "bars": BARS}))
    else:
        _print(rates, ratios)
    return int(any(ratios[name] < bar for name, bar in BARS.items()))


def _print(rates: dict[str, float], ratios: dict[str, float]) -> None:
    for name, commits in rates.items():
        ratio = f"{ratios[name]:6.2f} x {AGAINST[name]} (bar {BARS[name]:g})" if name in ratios else ""
        print(f"store commits  {name:<20} {commits:>10,.0f}/s  {ratio}")


if __name__ == "__main__":
    sys.exit(main())
