"""`python -m testbed`: a cluster by hand, until Ctrl-C. With --owner, until that process is gone (tests share one so).

It also starts, in the name of those who only attached to the cluster, the controllers that they ask for.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import traceback
from pathlib import Path

from testbed.cluster import Cluster

LOOK_S = 0.1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where its files are; removed at the end")
    parser.add_argument("--owner", type=int, help="go to the background, and end when this process has ended")
    parser.add_argument("--nodes", type=int, default=0, help="GPU nodes to begin with")
    asked = parser.parse_args()
    if asked.owner is not None:
        return _in_background(asked.folder, asked.owner)
    with Cluster.start(asked.folder) as cluster:
        cluster.add_nodes(asked.nodes)
        print(f"export KUBECONFIG={cluster.kubeconfig}\nCtrl-C stops the cluster.", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


def _in_background(folder: Path, owner: int) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    gone = os.pidfd_open(owner)
    if os.fork():
        return 0
    os.setsid()
    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (0, 1, 2):
        os.dup2(log if stream else os.open(os.devnull, os.O_RDONLY), stream)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with Cluster.start(folder) as cluster:
            while not select.select([gone], [], [], LOOK_S)[0]:
                cluster.install_asked()
    except Exception:  # told to those who wait for it
        folder.with_suffix(".failed").write_text(traceback.format_exc())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
