"""Storms: many nodes fail at once. How fast, never one too many, and never a wrong one.

Run: python -m benchmarks.kubernetes.storm [NODES]. Bars: 500 of 5,000 with limits lifted, five times: cordons a second
>= 1/8 of bare concurrent PATCHes in the same run; with limits on: exactly as many as allowed for longer than refusals
are looked at again, and exactly one more when a person opens one, by the API server's audit log; 200 fatal and 1,800
harmless findings: exactly the 200.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
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
    until_quiet,
)
from sickbay.core import admit
from sickbay.model import Severity
from testbed.cluster import Cluster

RUNS, SHARE = 5, 1 / 8
# Parts of the fleet, so that a smaller one can be tried. Of 5,000 nodes: 500 in each of five storms, then 200 fatal and
# 1,800 harmless findings, 300 for bare PATCHes, and 200 of which 25 may be out with limits on.
STORM, FATAL, BARE, ALLOWED = 1 / 10, 1 / 25, 3 / 50, 1 / 200
QUIET_S = 10.0
AGAIN_S = admit.AGAIN_S + 10.0  # refusals are looked at once more within this time
HARMLESS = ("xid.13", "xid.31", "xid.43", "xid.45")  # 63 and 92 close a node, rightly


def storm(cluster: Cluster, nodes: Sequence[str]) -> float:
    """Cordons a second from the first published finding to the last cordon, by the API server's own log: to ask for a
    fleet of closed nodes again and again would slow down what is measured."""
    words, mark = [(node, finding(node, 1)) for node in nodes], cluster.audit_mark()
    began = publish(cluster.api(name="bench"), words)
    until(lambda: len(cordons(cluster, mark, nodes)) == len(nodes), 180.0)
    return len(nodes) / (max(cordons(cluster, mark, nodes).values()) - began)


def cordons(cluster: Cluster, mark: int, among: Sequence[str]) -> dict[str, float]:
    """Nodes that a controller has written to since `mark` (here it cordons and nothing else), and when it first had."""
    time.sleep(0.2)
    told, wanted = dict[str, float](), set(among)
    for line in cluster.audit(mark, verb="patch", resource="nodes"):
        about, good = line["objectRef"], line["responseStatus"]["code"] == 200
        if good and line["userAgent"] == "sickbay" and not about.get("subresource") and about["name"] in wanted:
            told.setdefault(about["name"], datetime.fromisoformat(line["stageTimestamp"]).timestamp())
    return told


def speed(cluster: Cluster, folder: Path, nodes: list[str]) -> bool:
    """Limits lifted: five storms beside bare PATCHes."""
    api, count = cluster.api(name="bench"), len(nodes)
    rates: list[float] = []
    bare: list[float] = []
    many, idle = round(count * STORM), nodes[-round(count * (FATAL + BARE)) : -round(count * FATAL)]
    home(api, "speed")
    with controller(cluster, folder, namespace="speed") as running:
        until_quiet(cluster)
        for run in range(RUNS):
            bare.append(bare_rate(api, idle))
            rates.append(storm(cluster, nodes[run * many : (run + 1) * many]))
            say(f"storm {run + 1} of {RUNS}: {rates[-1]:.0f}/s, bare {bare[-1]:.0f}/s")
        peak = running.status("VmHWM")
    ratio = statistics.median(rates) / statistics.median(bare)
    print(
        f"   storm of {many} among {count}: {statistics.median(rates):.0f} cordons/s of {statistics.median(bare):.0f} "
        f"bare PATCHes/s = 1/{1 / ratio:.1f} (bar 1/{1 / SHARE:g}); the controller's peak after {RUNS} of them: "
        f"{peak:.0f} MB"
    )
    return ratio >= SHARE


def limits(cluster: Cluster, folder: Path, nodes: list[str]) -> bool:
    """Limits on: never one more than allowed, also when refusals are looked at again; one more for one that is free."""
    api, doomed = cluster.api(name="bench"), nodes[-round(len(nodes) * FATAL) :]
    allowed = round(len(nodes) * ALLOWED)
    home(api, "limits")
    with controller(cluster, folder, lifted(out=allowed), namespace="limits"):
        until_quiet(cluster)
        mark = cluster.audit_mark()
        publish(api, [(node, finding(node, 1)) for node in doomed])
        until(lambda: len(cordons(cluster, mark, doomed)) >= allowed, 120.0)
        time.sleep(AGAIN_S)
        first, mark = set(cordons(cluster, mark, doomed)), cluster.audit_mark()
        opened = {min(first)}
        cluster.kubectl("uncordon", *opened)
        time.sleep(AGAIN_S)
        more, out = set(cordons(cluster, mark, doomed)) - opened, closed(api, nodes)  # our mark is taken off that one
    print(
        f"   limit {allowed} of {len(doomed)}: {len(first)} cordoned by the audit log; one opened by a person: "
        f"{len(more)} more, {len(out)} out in all"
    )
    return len(first) == allowed and len(more) == 1 and out == (first - opened) | more


def wrong_actions(cluster: Cluster, folder: Path, nodes: list[str]) -> bool:
    """200 fatal and 1,800 harmless findings: exactly the 200."""
    first, some = round(len(nodes) * STORM) * RUNS, round(len(nodes) * FATAL)
    api, fatal = cluster.api(name="bench"), nodes[first : first + some]
    harmless = nodes[first + some : first + 10 * some]
    words = [(node, finding(node, 1)) for node in fatal]
    words += [
        (node, finding(node, 1, HARMLESS[i % len(HARMLESS)], Severity.MONITOR)) for i, node in enumerate(harmless)
    ]
    home(api, "wrong")
    with controller(cluster, folder, namespace="wrong"):
        until_quiet(cluster)
        before, mark = closed(api, nodes), cluster.audit_mark()
        publish(api, words)
        until(lambda: len(cordons(cluster, mark, fatal)) == some, 180.0)
        time.sleep(QUIET_S)
    wrong = closed(api, nodes) - set(fatal) - before
    print(f"   {some} fatal among {len(words)} findings on {len(nodes)} nodes: {len(wrong)} wrong cordons (bar 0)")
    return not wrong


def main(count: int) -> int:
    with tempfile.TemporaryDirectory() as scratch, ground(count) as (cluster, nodes):
        good = [bar(cluster, Path(scratch), nodes) for bar in (limits, wrong_actions, speed)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000))
