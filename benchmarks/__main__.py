"""`python -m benchmarks [NAME ...]`: run each benchmark's `main()` in a process of its own, in order of name.

A process each, so that one benchmark's garbage and caches do not weigh on the next. Called by `make bench`. It measures
nothing itself: each benchmark prints its own table of ratios and exits non-zero when its bar is not reached.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def names() -> list[str]:
    """Every benchmark: a file here that is not the package's own."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def run(name: str) -> bool:
    print(f"== {name}", flush=True)
    begun = time.monotonic()
    code = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=HERE.parent, check=False).returncode
    print(f"   {'done' if code == 0 else f'exit code {code}'} in {time.monotonic() - begun:.1f} s\n", flush=True)
    return code == 0


def main(wanted: list[str]) -> int:
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        print(f"No benchmark {', '.join(unknown)}; there are: {', '.join(names())}", file=sys.stderr)
        return 2
    missed = [name for name in wanted or names() if not run(name)]
    print(f"bars missed: {', '.join(missed)}" if missed else "all bars reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
