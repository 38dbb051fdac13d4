"""How fast is the kernel-log scan? Prints lines per second and the ratio to a bare line count of the same file, same
run.

Run: python benchmarks/kernel_log_scan.py [--lines N] [--runs N] [--json]. Bar: at least 1 million lines a second on
one core, for a healthy log and for a flood alike (plan, section 10). Median of interleaved runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sickbay.checks.kernel_scan import scan

BAR = 1_000_000
BLOCK = 1 << 20

HEALTHY = (
    "IPv6: ADDRCONF(NETDEV_CHANGE): cali%x: link becomes ready",
    "EXT4-fs (nvme%xn1p2): mounted filesystem with ordered data mode. Quota mode: none.",
    "nvidia-nvswitch2: open (major=%x)",
    "perf: interrupt took too long (%x > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
    "pcieport 0000:00:03.0: AER: Correctable error message received from 0000:00:%x",
    "audit: type=1400 audit(1577128176.121:%x): apparmor=STATUS operation=profile_load",
)
FLOOD = "NVRM: Xid (PCI:0000:%02x:00): 13, pid=%d, name=python3, Graphics Exception: ESR 0x504648=0x%x 0x504650=0x20"


def healthy(count: int) -> Iterator[str]:
    for i in range(count):
        yield f"{_prefix(i, 40)}{HEALTHY[i % len(HEALTHY)] % (i * 7919 % 1_000_003)}\n"


def flood(count: int) -> Iterator[str]:
    for i in range(count):
        yield f"{_prefix(i, 2000)}{FLOOD % (i % 8 * 16 + 11, i % 9973, i)}\n"


def _prefix(i: int, per_second: int) -> str:
    second = i // per_second
    clock = f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"Nov 22 {clock} gpu-node-a kernel: [{94555 + second}.{i % 1_000_000:06d}] "


def blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block


def count_lines(path: Path) -> int:
    return sum(block.count(b"\n") for block in blocks(path))


def scan_file(path: Path) -> int:
    return scan(blocks(path)).lines


def timed(work: Callable[[Path], int], path: Path) -> float:
    begin = time.process_time()  # one core's time: what else runs on the machine does not count
    work(path)
    return time.process_time() - begin


def measure(name: str, lines: Iterator[str], count: int, runs: int, folder: Path) -> dict[str, float | str | bool]:
    path = folder / name
    with path.open("w") as file:
        file.writelines(lines)
    pairs = [(timed(count_lines, path), timed(scan_file, path)) for _ in range(runs)]
    bare, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    best = min(pair[1] for pair in pairs)
    return {
        "log": name,
        "lines_per_s": round(count / ours),
        "best_lines_per_s": round(count / best),
        "times_a_bare_line_count": round(ours / bare, 1),
        "met": count / best >= BAR,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            measure("healthy", healthy(args.lines), args.lines, args.runs, Path(folder)),
            measure("flood", flood(args.lines), args.lines, args.runs, Path(folder)),
        ]
    for row in rows:
        print(json.dumps(row) if args.json else "  ".join(f"{key} {value}" for key, value in row.items()))
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
