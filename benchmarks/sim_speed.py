"""How many simulated node-days pass in a second with the real brain in the loop? And the Llama 3 run of 54 days?

Run: python -m benchmarks.sim_speed [--full | --days N] [--json]. Bar: the Llama 3 run (2,048 nodes) in at most 60 s on
one core (plan, section 10). Without --full eight of its days are run and the whole is scaled up from them. Seconds are
CPU time of this process; each row is also a ratio to a fixed Python loop of the same moment, as a busy machine slows
both.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

from sickbay.sim.arms import ours, settings_of
from sickbay.sim.workload import Scene

BAR_S = 60.0
LLAMA = Scene(seed=1, nodes=2_048, days=54.0, preset="llama3", jobs="one")
LOOP = 2_000_000


def loop_s() -> float:
    """CPU seconds for a fixed amount of plain Python, for the ratio."""
    begun = time.process_time()
    total = 0
    for i in range(LOOP):
        total += i & 7
    return time.process_time() - begun


def measure(name: str, scene: Scene) -> dict[str, float | str]:
    before, begun, wall = loop_s(), time.process_time(), time.perf_counter()
    result = ours(scene, settings_of(None))
    cpu, passed = time.process_time() - begun, time.perf_counter() - wall
    yardstick = (before + loop_s()) / 2
    return {
        "run": name,
        "node_days": scene.node_days,
        "faults": result.faults,
        "turns": result.turns or 0,
        "cpu_s": round(cpu, 2),
        "wall_s": round(passed, 2),
        "node_days_per_cpu_s": round(scene.node_days / cpu),
        "loops_per_1000_node_days": round(cpu / yardstick / scene.node_days * 1000, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="all 54 days of the Llama 3 run")
    parser.add_argument("--days", type=float, default=8.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    days = LLAMA.days if args.full else args.days
    rows = [
        measure("256 nodes, 7 days", Scene(1, 256, 7.0, "llama3", "mix")),
        measure("64 noisy nodes, 2 days", Scene(1, 64, 2.0, "noisy", "mix")),
        measure(f"Llama 3, {days:g} of 54 days", replace(LLAMA, days=days)),
    ]
    made = float(measure("", replace(LLAMA, days=0.001))["cpu_s"])  # making the fleet is paid once, not per day
    whole = made + (float(rows[-1]["cpu_s"]) - made) * LLAMA.days / days
    rows[-1]["whole_run_cpu_s"] = round(whole, 1)
    rows[-1]["times_the_bar"] = round(whole / BAR_S, 2)
    for row in rows:
        print(json.dumps(row) if args.json else "  ".join(f"{key} {value}" for key, value in row.items()))
    return 0 if whole <= BAR_S else 1


if __name__ == "__main__":
    raise SystemExit(main())
