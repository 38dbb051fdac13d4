"""`make demo-kubernetes`: a GPU node falls ill in a real cluster on this machine, and comes back. About a minute.

A real control plane on loopback, simulated machines behind its nodes, and the real controller in a process of its own.
What you see is what `kubectl` and the journal say; nothing is staged but the fault.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from sickbay.kube.names import keys
from sickbay.kube.objects import Anything
from sickbay.model import Case
from sickbay.sim.world import World
from sickbay.stores.kubernetes import KubernetesStore
from testbed.binaries import Missing
from testbed.cluster import Cluster
from testbed.kubelet import SimKubelet

ROOT = Path(__file__).parent.parent
NODES, WITHIN_S, AGENT_S = 6, 240.0, 40.0
ENDS = ("RESOLVED", "DISMISSED", "DEFERRED", "ESCALATED")


def say(text: str = "") -> None:
    print(text, flush=True)


def show(cluster: Cluster, *args: str) -> None:
    say(f"$ kubectl {' '.join(args)}")
    say(cluster.kubectl(*args).rstrip() + "\n")


def install(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", str(ROOT / "deploy" / "kubernetes" / "crds"))
    api = cluster.api()
    api.create("/api/v1/namespaces", {"metadata": {"name": "sickbay"}}, Anything)
    account = {"metadata": {"name": "sickbay-node-job"}}
    api.create("/api/v1/namespaces/sickbay/serviceaccounts", account, Anything)


def control(cluster: Cluster, folder: Path) -> subprocess.Popen[bytes]:
    config = folder / "sickbay.toml"
    config.write_text(
        f'cluster = "demo"\nplatform = "kubernetes"\nstore = "kubernetes"\ndata_dir = "{folder}"\n'
        f'[policy]\nmax_verb = "REBOOT"\nsettle_s = 2\n[kubernetes]\nkubeconfig = "{cluster.kubeconfig}"\n'
        'machines = "node-job"\n'
    )
    with (folder / "controller.log").open("wb") as log:
        argv = [sys.executable, "-m", "testbed.hurried", str(config)]
        return subprocess.Popen(argv, stdout=log, stderr=log, cwd=ROOT)


def follow(store: KubernetesStore) -> str:
    """The journal as it grows; returns how it ended."""
    told, end = 0, time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        cases = [stored.value for stored in store.list(Case)] or list(store.history(Case))
        for case in cases[:1]:
            for entry in case.journal[told:]:
                say(f"  {time.strftime('%H:%M:%S', time.localtime(entry.at))}  {entry.phase:<11} {entry.why}")
            told = len(case.journal)
            if case.phase in ENDS:
                return case.phase
        time.sleep(0.2)
    return "still open"


def play(cluster: Cluster, folder: Path) -> int:
    install(cluster)
    nodes = cluster.add_nodes(NODES)
    world = World(
        7, NODES, silent_failure=0.0, reboot_hangs=0.0, part_returns=0.0, start=time.time() - 7200, cycle_s=5.0
    )
    world.run_for(3_600.0)
    with SimKubelet(cluster.api(), world, nodes, folder / "machines", logs=True) as kubelet:
        controller = control(cluster, folder)
        store = KubernetesStore(cluster.api(), "sickbay")
        try:
            return _scene(cluster, kubelet, nodes[1], store, folder)
        finally:
            store.close()
            controller.terminate()
            controller.wait(30)


def _scene(cluster: Cluster, kubelet: SimKubelet, sick: str, store: KubernetesStore, folder: Path) -> int:
    log, end = folder / "controller.log", time.monotonic() + 60
    while "leading" not in log.read_text(errors="replace") and time.monotonic() < end:
        time.sleep(0.1)
    ours = keys()
    columns = f"{ours.status},{ours.severity}"
    show(cluster, "get", "nodes", "-L", columns)
    say(f"A GPU of {sick} falls off the bus (XID 79). The case, as it is written:")
    with kubelet.lock:
        kubelet.world.strike("gpu_lost_79", kubelet.nodes[sick], 3, cure="reboot")
    ended = follow(store)
    say("\nIts agent starts with the machine, and says how it is:")
    _heard(cluster, sick)
    show(cluster, "get", "nodecases", "-n", "sickbay", "-o", "wide")
    show(cluster, "get", "jobs", "-n", "sickbay")
    show(cluster, "get", "nodes", "-L", columns)
    say(f"The case is {ended}. {sick} has been rebooted {kubelet.sim(sick).boots} time(s).")
    if ended != "RESOLVED":
        say(log.read_text(errors="replace")[-3000:])
    return 0 if ended == "RESOLVED" else 1


def _heard(cluster: Cluster, node: str) -> None:
    """Until the agent of the new boot has spoken: the labels are its words, not the controller's."""
    end, label = time.monotonic() + AGENT_S, keys().status.replace(".", "\\.")
    while time.monotonic() < end:
        if cluster.kubectl("get", "node", node, "-o", f"jsonpath={{.metadata.labels.{label}}}") == "pass":
            return
        time.sleep(0.5)


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, _stop)
    say("Starting a real control plane on this machine (the first time ever it is built: about ten minutes).")
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as scratch, Cluster.start() as cluster:
            (folder := Path(scratch)).joinpath("machines").mkdir()
            say(f"It runs after {time.monotonic() - began:.0f} s.\n")
            return play(cluster, folder)
    except Missing as why:
        say(f"This needs Go, to build the control plane once: {why}")
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
