"""What an agent costs a node: memory, a core between cycles, a flood of kernel lines, and how soon an XID is told.

Run: python -m benchmarks.agent [--idle-s N] [--lines N] [--json]. The agent is a real process on a simulated node with
every light check; beside it stands a Python process that does nothing. Bars (issue 2): at most 45 MB after an hour of
cycles (run one after the other on a fake clock), 0.2 % of a core between cycles, 100,000 lines in less than a second of
the follower's own time without growth, kernel line to HTTP within 50 ms at the 99th percentile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from tests.agent.running import Running

RSS_MB, CORE_SHARE, FLOOD_S, P99_MS = 45.0, 0.002, 1.0, 50.0
FLOOD = 100_000
CYCLES_OF_AN_HOUR = 12
XID = "NVRM: Xid (PCI:0000:{bus:02x}:00): 79, pid=1, name=python, GPU has fallen off the bus."

# An hour of cycles on a fake clock, in a process of its own, then its resident memory before and after a flood.
HOUR = """
import json, sys, tempfile, time
from pathlib import Path
from sickbay.agent.ear import Ear
from sickbay.agent.kmsg import KmsgSource
from sickbay.agent import metrics
from sickbay.agent.process import Agent, Options
from sickbay.agent.reload import Config
from sickbay.sim.host import SimHost
from sickbay.sim.world import World

def rss():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

world = World(1, 1)
host = SimHost(world, next(iter(world.nodes.values())))
with tempfile.TemporaryDirectory() as folder:
    agent = Agent(Config("", {"SICKBAY_AGENT__STATE_DIR": folder, "SICKBAY_AGENT__PUBLISHERS": "textfile",
        "SICKBAY_AGENT__TEXTFILE_DIR": folder, "SICKBAY_AGENT__INSTANCE_TYPE": "p5.48xlarge"}), host)
    for lane in agent.lanes:
        lane.start()
    at = time.time()
    agent.collector.wall = lambda: at
    for _ in range(int(sys.argv[1])):
        agent.collector.cycle()
        at += 300.0
        world.run_for(300.0)
    hour = rss()
    xid = b"3,%d,%d,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=%d, name=python, Graphics SM Warp Exception"

    def flood(first, count):
        lines = iter(xid % (n, n * 7, n) for n in range(first, first + count))
        def ring(handle, most):
            try:
                return next(lines)
            except StopIteration:
                raise BlockingIOError from None
        begun = time.process_time()
        agent.follower._take(KmsgSource("/dev/null", "boot", f"boot:{first - 1}", first=0, read=ring))
        agent.station.flush(now=True)
        return time.process_time() - begun

    count = int(sys.argv[2])
    flood_s, after = flood(1, count), rss()
    for again in range(1, 4):
        flood(1 + again * count, count)
    latched = agent.station.chart.verdicts.latched
    print(json.dumps({"rss_mb": hour, "after_flood_mb": after, "after_four_mb": rss(), "flood_s": flood_s,
                      "count": sum(v.finding.count for v in latched if v.finding.code == "xid.13") // 4}))
"""


def hour(cycles: int, lines: int) -> dict[str, float]:
    argv = [sys.executable, "-c", HOUR, str(cycles), str(lines)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    return dict(json.loads(done.stdout))


def nothing() -> float:
    """Resident MB of a Python that only sleeps."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    found = resident(child.pid)
    child.kill()
    child.wait()
    child.stdout.close()
    return found


def resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def core_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Ingest:
    """Takes reports and notes when each new XID came."""

    def __init__(self) -> None:
        self.came: dict[str, float] = {}
        self.news = threading.Condition()
        self.server = HTTPServer(("127.0.0.1", 0), self._page())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def _page(ingest) -> type[BaseHTTPRequestHandler]:
        class Page(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                at = time.perf_counter()
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                with ingest.news:
                    for finding in json.loads(body)["findings"]:
                        ingest.came.setdefault(f"{finding['code']} {finding['place']['device']} {finding['check']}", at)
                    ingest.news.notify_all()

            def log_message(self, format: str, *args: Any) -> None: ...

        return Page

    def wait(self, key: str) -> float:
        with self.news:
            assert self.news.wait_for(lambda: key in self.came, 60.0), f"{key} never came"
            return self.came[key]


def latencies(agent: Running, ingest: Ingest, samples: int) -> list[float]:
    """Milliseconds from a kernel line to its report at the server, one new GPU each time; cleared when all are used."""
    took = []
    for n in range(samples):
        key = f"xid.79 0000:{n % 250 + 1:02x}:00 kernel-log"
        text = XID.format(bus=n % 250 + 1)
        begun = time.perf_counter()
        agent.kernel(text)
        took.append((ingest.wait(key) - begun) * 1000.0)
        time.sleep(0.02)  # quiet between events, as on a node
    return took


def alive(idle_s: float, samples: int) -> dict[str, float]:
    """A real process: its share of a core while it waits for the next cycle, and its latencies."""
    ingest = Ingest()
    with tempfile.TemporaryDirectory() as folder:
        agent = Running(Path(folder), ingest_url=ingest.url, listen="127.0.0.1:0", check_interval_s=900)
        try:
            agent.start()
            ingest.wait("  nvidia-smi")
            assert agent.process is not None
            time.sleep(2.0)
            before, begun = core_seconds(agent.process.pid), time.monotonic()
            time.sleep(idle_s)
            share = (core_seconds(agent.process.pid) - before) / (time.monotonic() - begun)
            took = sorted(latencies(agent, ingest, samples))
            found = {
                "idle_core_share": share, "median_ms": statistics.median(took), "p99_ms": took[int(len(took) * 0.99)],
                "process_mb": resident(agent.process.pid),
            }  # fmt: skip
            agent.end()
            return found
        finally:
            agent.close()
            ingest.server.shutdown()
            ingest.server.server_close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle-s", type=float, default=20.0)
    parser.add_argument("--samples", type=int, default=60, help="fewer than the 64 verdicts that are kept")
    parser.add_argument("--lines", type=int, default=FLOOD)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    bare, soon, live = nothing(), hour(CYCLES_OF_AN_HOUR, args.lines), alive(args.idle_s, args.samples)
    rows = [
        {"what": "resident after an hour of cycles", "mb": round(soon["rss_mb"], 1),
         "times_a_bare_python": round(soon["rss_mb"] / bare, 2), "met": soon["rss_mb"] <= RSS_MB},
        {"what": "resident, as a process", "mb": round(live["process_mb"], 1),
         "times_a_bare_python": round(live["process_mb"] / bare, 2), "met": live["process_mb"] <= RSS_MB},
        {"what": "core between cycles", "percent": round(100 * live["idle_core_share"], 3),
         "met": live["idle_core_share"] <= CORE_SHARE},
        {"what": f"flood of {args.lines:,} lines", "cpu_s": round(soon["flood_s"], 3),
         "grew_mb": round(soon["after_flood_mb"] - soon["rss_mb"], 1),
         "three_more_grew_mb": round(soon["after_four_mb"] - soon["after_flood_mb"], 1), "counted": soon["count"],
         "met": soon["flood_s"] < FLOOD_S and soon["count"] == args.lines and soon["after_four_mb"] <= RSS_MB},
        {"what": "kernel line to HTTP", "median_ms": round(live["median_ms"], 1), "p99_ms": round(live["p99_ms"], 1),
         "met": live["p99_ms"] <= P99_MS},
    ]  # fmt: skip
    for row in rows:
        print(json.dumps(row) if args.json else "  ".join(f"{key} {value}" for key, value in row.items()))
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
