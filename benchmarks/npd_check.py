"""What one call of `sickbay npd-check` costs, beside a Python that starts and does nothing.

Run: python -m benchmarks.npd_check [--calls N] [--json]. node-problem-detector makes such a call on every node, every
minute. The two are interleaved, so that a busy machine slows both. Bar (issue 2): 100 ms at the 99th percentile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

P99_MS = 100.0
VERDICT = {
    "schema": 1,
    "node": "gpu-17",
    "status": "fail",
    "severity": "REBOOT",
    "reason": "a GPU is lost",
    "gpus": True,
}


def took_ms(argv: list[str], code: int) -> float:
    begun = time.perf_counter()
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, check=False)
    spent = (time.perf_counter() - begun) * 1e3
    if done.returncode != code:
        raise SystemExit(f"{argv[-3:]} ended with {done.returncode}, not {code}")
    return spent


def measure(calls: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        fresh = {**VERDICT, "boot_id": boot, "at": time.time(), "expires_at": time.time() + 3600}
        (Path(folder) / "verdict.json").write_text(json.dumps(fresh))
        asked = [str(Path(sys.executable).parent / "sickbay"), "npd-check", "--state-dir", folder]
        pairs = [(took_ms(asked, 1), took_ms([sys.executable, "-c", "pass"], 0)) for _ in range(calls)]
    ours, bare = (sorted(column) for column in zip(*pairs, strict=True))
    middle, last = calls // 2, max(0, int(calls * 0.99) - 1)
    return {"median_ms": ours[middle], "p99_ms": ours[last], "bare_python_ms": bare[middle]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args.calls)
    row = {name: round(value, 1) for name, value in found.items()}
    row["times_a_bare_python"] = round(found["median_ms"] / found["bare_python_ms"], 2)
    print(json.dumps(row) if args.json else "  ".join(f"{name} {value}" for name, value in row.items()))
    return 0 if found["p99_ms"] <= P99_MS else 1


if __name__ == "__main__":
    sys.exit(main())
