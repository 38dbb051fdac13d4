"""How fast is the kernel-log scan? Millions of lines a second, by prefix and by what the log is full of.

Run: python -m benchmarks.kernel_log_scan [--lines N] [--runs N] [--json]. Bar: at least 1 million lines a second on one
core for a healthy log and for a flood alike (plan, section 10), by the median of the runs, not the best. Time is this
process's own CPU time; beside it stands the ratio to a bare count of the same bytes' lines in the same run, which a
busy machine changes less. The last rows are the agent's path: 100,000 /dev/kmsg records through the check in 0.3 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from sickbay.checks import kernel_log
from sickbay.checks.kernel_scan import scan
from sickbay.checks.signs import Ask, Reading
from sickbay.ports import Completed
from tests.checks.floods import BODIES, PREFIXES, flood

BAR = 1_000_000
AGENT_BAR_S = 0.3
BLOCK = 1 << 20
LOGGERS = ("syslog", "journal short-iso", "dmesg", "dmesg -T", "kmsg", "dmesg --decode iso")
HEALTHY = (
    "IPv6: ADDRCONF(NETDEV_CHANGE): cali%x: link becomes ready",
    "EXT4-fs (nvme%xn1p2): mounted filesystem with ordered data mode. Quota mode: none.",
    "nvidia-nvswitch2: open (major=%x)",
    "perf: interrupt took too long (%x > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
    "pcieport 0000:00:03.0: AER: Correctable error message received from 0000:00:%x",
    "audit: type=1400 audit(1577128176.121:%x): apparmor=STATUS operation=profile_load",
)


def healthy(logger: str, count: int) -> list[str]:
    before = PREFIXES[logger]
    return [
        before(i // 40 + 3, i * 499 % 1_000_000, i + 10_000) + HEALTHY[i % len(HEALTHY)] % (i * 7919 % 1_000_003)
        for i in range(count)
    ]


def spent(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def bare(blocks: Sequence[bytes]) -> int:
    return sum(block.count(b"\n") for block in blocks)


def measure(logger: str, log: str, lines: list[str], runs: int) -> dict[str, Any]:
    raw = ("\n".join(lines) + "\n").encode()
    blocks = [raw[at : at + BLOCK] for at in range(0, len(raw), BLOCK)]
    pairs = [(spent(lambda: bare(blocks)), spent(lambda: scan(blocks))) for _ in range(runs)]
    counted, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    rate = len(lines) / ours
    return {
        "logger": logger,
        "log": log,
        "lines_per_s": round(rate),
        "times_a_bare_line_count": round(ours / counted, 1),
        "met": rate >= BAR,
    }


def agent(body: str, runs: int) -> dict[str, Any]:
    reading = Reading(Completed(0, "", ""), tuple(flood("kmsg", body, 100_000)))
    took = statistics.median(spent(lambda: kernel_log.judge(reading, Ask())) for _ in range(runs))
    return {"logger": "agent", "log": body, "seconds": round(took, 3), "met": took <= AGENT_BAR_S}


def show(row: dict[str, Any]) -> str:
    figure = f"{row['seconds']:.3f} s" if "seconds" in row else f"{row['lines_per_s'] / 1e6:5.2f} M lines/s"
    ratio = f"  {row['times_a_bare_line_count']:5.1f} x a bare count" if "lines_per_s" in row else ""
    return f"{row['logger']:20} {row['log']:8} {figure}{ratio}{'' if row['met'] else '  BELOW THE BAR'}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    met = True
    for logger in LOGGERS:
        for log in ("healthy", *BODIES):
            lines = healthy(logger, args.lines) if log == "healthy" else flood(logger, log, args.lines)
            row = measure(logger, log, lines, args.runs)
            met &= row["met"]
            print(json.dumps(row) if args.json else show(row), flush=True)
    for log in BODIES:
        row = agent(log, args.runs)
        met &= row["met"]
        print(json.dumps(row) if args.json else show(row), flush=True)
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
