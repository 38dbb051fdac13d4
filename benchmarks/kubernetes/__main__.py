"""`python -m benchmarks.kubernetes`: every bar of this folder, each in a process of its own. Called by the Makefile.

Whoever kills this process ends the benchmark under way with it, and that one its cluster, controllers and agents.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from testbed.processes import Processes

PARTS = ("latency", "storm", "costs", "draining", "writes")


def main(wanted: list[str]) -> int:
    missed, children = [], Processes(Path())
    for name in wanted or PARTS:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        argv = [sys.executable, "-m", f"benchmarks.kubernetes.{name}"]
        code = subprocess.run(argv, check=False, process_group=children.group).returncode
        print(f"   {'done' if code == 0 else f'exit code {code}'} in {time.monotonic() - began:.0f} s\n", flush=True)
        missed += [name] if code else []
    children.close()
    print(f"bars missed: {', '.join(missed)}" if missed else "all bars reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
