"""`python -m benchmarks.kubernetes`: every bar of this folder, each in a process of its own. Called by the Makefile."""

from __future__ import annotations

import subprocess
import sys
import time

PARTS = ("latency", "storm", "costs", "draining", "writes")


def main(wanted: list[str]) -> int:
    missed = []
    for name in wanted or PARTS:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        code = subprocess.run([sys.executable, "-m", f"benchmarks.kubernetes.{name}"], check=False).returncode
        print(f"   {'done' if code == 0 else f'exit code {code}'} in {time.monotonic() - began:.0f} s\n", flush=True)
        missed += [name] if code else []
    print(f"bars missed: {', '.join(missed)}" if missed else "all bars reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
