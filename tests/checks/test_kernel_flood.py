"""A flood costs a counter, and is counted exactly as if every line had been read."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.checks import kernel_log
from sickbay.checks.kernel_scan import Scan, scan
from sickbay.checks.signs import Ask, Reading
from sickbay.ports import Completed
from tests.checks.floods import BODIES, FOREIGN, OTHERS, PREFIXES, flood

EXAMPLES = int(os.environ.get("SICKBAY_FUZZ", "200"))


def one_by_one(lines: list[str], rows: list[Any]) -> Scan:
    """The same log a line at a time: too little in each block to be folded."""
    return scan([f"{line}\n".encode() for line in lines], lambda n, hit: rows.append((n, hit.named.code)))


def at_once(lines: list[str], rows: list[Any]) -> Scan:
    return scan(["\n".join(lines).encode()], lambda n, hit: rows.append((n, hit.named.code)))


def counted(found: Scan) -> dict[Any, Any]:
    return {key: (hit.count, hit.events, hit.line, hit.first, hit.last) for key, hit in found.hits.items()}


def same(lines: list[str]) -> None:
    slow_rows: list[Any] = []
    fast_rows: list[Any] = []
    slow, fast = one_by_one(lines, slow_rows), at_once(lines, fast_rows)
    assert counted(fast) == counted(slow)
    assert (fast.foreign, fast.lines, fast.node) == (slow.foreign, slow.lines, slow.node)
    assert fast_rows == slow_rows
    for key, hit in fast.hits.items():
        assert hit.sites <= slow.hits[key].sites
        assert (len(hit.sites) == 1) == (len(slow.hits[key].sites) == 1)
        assert hit.named.traits.get("fatal") == slow.hits[key].named.traits.get("fatal")


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("body", BODIES)
def test_a_flood_is_counted_as_if_every_line_had_been_read(prefix: str, body: str) -> None:
    same(flood(prefix, body, 120, per_second=40))


def mixture(seed: int) -> list[str]:
    """One logger, some lines without their prefix, some quoted; a clock that goes on, stands and leaps."""
    r = random.Random(seed)
    ours = [PREFIXES[r.choice(sorted(PREFIXES))], *r.choice(([], [PREFIXES["bare"]]))]
    writers = [*ours, *r.choice(([], [FOREIGN[r.choice(sorted(FOREIGN))]]))]
    few = r.choices([*BODIES.values(), *OTHERS.values()], k=r.randint(1, 4))
    second, lines = r.choice([0, 7, 96, 9_990, 99_990]), []
    for n in range(r.randint(20, 90)):
        second += r.choice([0, 0, 0, 0, 1, 4, 5, 6, 900])
        lines.append(r.choice(writers)(second, n * 4999 % 1_000_000, n * 7) + r.choice(few)(n))
    return lines


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**32))
def test_fuzz_any_mixture_is_counted_as_if_every_line_had_been_read(seed: int) -> None:
    same(mixture(seed))


@settings(max_examples=EXAMPLES)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.sampled_from(["dmesg", "kmsg", "syslog"]))
def test_fuzz_reboots_within_a_block_begin_new_events(lives: list[int], prefix: str) -> None:
    seconds = [second for life in lives for second in range(3, life + 23)]
    same([PREFIXES[prefix](s, 17, 1000 + n) + BODIES["xid 95"](0) for n, s in enumerate(seconds)])


def test_a_flood_at_one_place_says_one_place_and_a_single_other_line_is_not_lost() -> None:
    def line(i: int, tpc: int) -> str:
        where = f"Graphics SM Warp Exception on (GPC 3, TPC {tpc}, SM 1): Out Of Range Address"
        return f"[  100.{i:06d}] NVRM: Xid (PCI:0000:0b:00): 13, pid=77, name=python3, {where}"

    lines = [line(i, 1) for i in range(3000)]
    (hit,) = at_once(lines, []).hits.values()
    assert hit.sites == {"3/1"}
    lines[1717] = line(1717, 2)
    (hit,) = at_once(lines, []).hits.values()
    assert hit.sites == {"3/1", "3/2"}


def test_what_stands_between_the_lines_of_a_flood_is_read() -> None:
    lines = flood("dmesg", "xid 119", 900)
    for n in range(0, 900, 3):
        lines.insert(n, f"[    3.{n:06d}] NVRM: GPU0 RPC history (CPU -> GSP):")
    lines.insert(600, "[    3.000600] NVRM: The NVIDIA GPU 0000:b3:00.0")
    lines.insert(601, "               NVRM: (PCI ID: 10de:26b5) installed in this system has")
    lines.insert(602, "               NVRM: fallen off the bus and is not responding to commands.")
    lines.insert(700, "[    3.000700] EDAC MC0: 1 UE memory read error on CPU_SrcID#0")
    found = at_once(lines, [])
    codes = {hit.named.code for hit in found.hits.values()}
    assert codes == {"xid.119", "kernel.fallen-off-bus", "kernel.edac-uncorrected"}
    assert sum(hit.count for hit in found.hits.values() if hit.named.code == "xid.119") == 900


@pytest.mark.parametrize("body", BODIES)
def test_the_agent_reads_a_hundred_thousand_records_without_falling_behind(body: str) -> None:
    """The bar is 0.3 s; the machine that runs the tests may be busy, so this allows for a slow one."""
    reading = Reading(Completed(0, "", ""), tuple(flood("kmsg", body, 20_000)))
    begin = time.process_time()
    told = kernel_log.judge(reading, Ask())
    spent = time.process_time() - begin
    assert sum(sign.count for sign in told) == 20_000
    assert spent < 0.3, f"{spent:.3f} s for 20,000 records"
