"""Storms: many nodes fail at once. How fast, never one too many, and never a wrong one.

Run: python -m benchmarks.kubernetes.storm [NODES]. Bars: 500 of 5,000 with limits lifted: cordons a second >= 1/8 of
bare concurrent PATCHes in the same run; with limits on: exactly as many as allowed, by the API server's audit log; 200
fatal and 1,800 harmless findings: exactly the 200.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kubernetes.ground import (
    bare_rate,
    closed,
    controller,
    finding,
    ground,
    home,
    lifted,
    publish,
    say,
    until,
)
from sickbay.kube.api import Api
from sickbay.model import Severity
from testbed.cluster import Cluster

RUNS, SHARE = 5, 1 / 8
# Parts of the fleet, so that a smaller one can be tried: of 5,000 nodes 100 in each of five runs, then 500 at once; 200
# with limits on; 200 fatal and 1,800 harmless findings.
SICK, WHOLE, FATAL = 1 / 50, 1 / 10, 1 / 25
ALLOWED = 25
QUIET_S = 10.0
HARMLESS = ("xid.13", "xid.31", "xid.43", "xid.45")  # 63 and 92 close a node, rightly


def storm(api: Api, nodes: Sequence[str]) -> float:
    """Cordons a second, counted from the first published finding."""
    began = publish(api, [(node, finding(node, 1)) for node in nodes])
    until(lambda: len(closed(api, nodes)) == len(nodes), 180.0)
    return len(nodes) / (time.monotonic() - began)


def speed(cluster: Cluster, folder: Path, nodes: list[str]) -> bool:
    """Limits lifted: five runs of a hundred beside bare PATCHes, then five hundred at once."""
    api = cluster.api()
    rates: list[float] = []
    bare: list[float] = []
    few, many = round(len(nodes) * SICK), round(len(nodes) * WHOLE)
    home(api, "speed")
    with controller(cluster, folder, namespace="speed"):
        for run in range(RUNS):
            bare.append(bare_rate(api, nodes[-min(400, len(nodes) // 3) :]))
            rates.append(storm(api, nodes[run * few : (run + 1) * few]))
            say(f"storm {run + 1} of {RUNS}: {rates[-1]:.0f}/s, bare {bare[-1]:.0f}/s")
        whole = storm(api, nodes[RUNS * few : RUNS * few + many])
    ratio, least = statistics.median(rates) / statistics.median(bare), whole / statistics.median(bare)
    print(
        f"   storm of {few}: {statistics.median(rates):.0f} cordons/s of {statistics.median(bare):.0f} bare PATCHes/s "
        f"= 1/{1 / ratio:.1f}; of {many} at once: {whole:.0f}/s = 1/{1 / least:.1f} (bar 1/{1 / SHARE:g})"
    )
    return min(ratio, least) >= SHARE


def limits(cluster: Cluster, folder: Path, nodes: list[str]) -> bool:
    """Limits on: never one more than allowed, by the audit log."""
    api, mark = cluster.api(), cluster.audit_mark()
    doomed = nodes[-round(len(nodes) * FATAL) :]
    already = len(closed(api, nodes))
    home(api, "limits")
    with controller(cluster, folder, lifted(out=ALLOWED), namespace="limits"):
        publish(api, [(node, finding(node, 1)) for node in doomed])
        time.sleep(QUIET_S)
    struck = set(doomed)
    asked = [line["objectRef"] for line in cluster.audit(mark, verb="patch", resource="nodes")]
    ours = {about["name"] for about in asked if not about.get("subresource")} & struck
    now = len(closed(api, nodes))
    allowed = max(0, ALLOWED - already)
    print(f"   limit {ALLOWED}: {len(ours)} cordoned by the audit log (allowed {allowed}), {now} out in all")
    return len(ours) == allowed


def wrong_actions(cluster: Cluster, folder: Path, nodes: list[str]) -> bool:
    """200 fatal and 1,800 harmless findings: exactly the 200."""
    first, some = round(len(nodes) * 0.3), round(len(nodes) * FATAL)
    api, fatal, harmless = cluster.api(), nodes[first : first + some], nodes[first + some : first + 10 * some]
    words = [(node, finding(node, 1)) for node in fatal]
    words += [
        (node, finding(node, 1, HARMLESS[i % len(HARMLESS)], Severity.MONITOR)) for i, node in enumerate(harmless)
    ]
    before = closed(api, nodes)
    home(api, "wrong")
    with controller(cluster, folder, namespace="wrong"):
        publish(api, words)
        until(lambda: closed(api, fatal) >= set(fatal), 180.0)
        time.sleep(QUIET_S)
    wrong = closed(api, nodes) - set(fatal) - before
    print(f"   {some} fatal among {len(words)} findings on {len(nodes)} nodes: {len(wrong)} wrong cordons (bar 0)")
    return not wrong


def main(count: int) -> int:
    with tempfile.TemporaryDirectory() as scratch, ground(count) as (cluster, nodes):
        good = [bar(cluster, Path(scratch), nodes) for bar in (limits, speed, wrong_actions)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000))
