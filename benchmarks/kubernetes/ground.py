"""A real control plane with thousands of GPU nodes, a real controller process beside it, and agents' words for it.

Shared by the benchmarks of this folder. Everything is loopback; what is started here ends with us.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sickbay.agent.publishers import Told, node_status
from sickbay.agent.verdicts import NodeVerdict
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.names import CONDITION, keys
from sickbay.kube.objects import Anything, Condition, NodeObject
from sickbay.kube.results import stamp
from sickbay.model import Finding, Gpu, Place, Report, Severity, Status
from sickbay.settings import AgentSettings
from testbed.cluster import Cluster
from testbed.plane import Options

ROOT = Path(__file__).parent.parent.parent
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()  # agents on this machine tell it, so must the nodes
PAD = 1_800  # bytes: with its agent's results a node has the 12 KB of a real one, and 2 KB of managedFields besides
NAMESPACE = "sickbay"
WRITES = ("create", "update", "patch", "delete")
LOTS = 1_000_000
PCI = tuple(f"0000:{bus}:00" for bus in ("3b", "4c", "5d", "6e", "9a", "ab", "bc", "cd"))
FACTORS = {"driver": "580.105.08", "image": "gpu-image-41", "instance-type": "p5.48xlarge", "vbios": "96.00.A5.00.01"}
BEGAN = stamp(time.time())
REST_S, AT_REST, IDLE = 3.0, 0.6, 3  # the fourth column of /proc/stat is idle time
LEASES_A_SECOND = 20  # of the fake kubelets, whatever the fleet: a real fleet's have cores of their own


def lifted(*, settle_s: float = 600.0, out: int = LOTS) -> str:
    """A policy without limits, or with one. A cordoned node rests for the length of a run, so that what comes after a
    cordon costs nothing here."""
    every = f"{{count = {LOTS}, percent = 100}}"
    rows = [f"{limit} = {every}" for limit in ("max_out_fleet", "max_out_rack", "max_out_domain", "at_once")]
    verbs = ", ".join(f"{verb} = {LOTS}" for verb in ("CORDON", "RESET_GPU", "REBOOT", "POWER_CYCLE", "REPLACE"))
    return "\n".join([
        f"max_out = {{count = {out}, percent = 100, at_least = 1}}", *rows, f"per_window = {{{verbs}}}",
        f"jobs_hurt_per_window = {LOTS}", f"settle_s = {settle_s:g}",
    ])  # fmt: skip


@contextmanager
def ground(count: int) -> Iterator[tuple[Cluster, list[str]]]:
    """A cluster with `count` padded GPU nodes whose agents have spoken, our namespace and our resources."""
    lease_s = max(40, 4 * count // LEASES_A_SECOND)  # kwok renews four times in a lease
    with Cluster.start(options=Options(lease_s=lease_s, grace_s=lease_s * 6 // 5)) as cluster:
        api = cluster.api()
        cluster.kubectl("apply", "-f", str(ROOT / "deploy" / "kubernetes" / "crds"))
        home(api, NAMESPACE)
        say(f"making {count} nodes")
        nodes = cluster.add_nodes(count, pad=PAD, boot_id=BOOT, within_s=600.0)
        publish(api, [(node, healthy(node)) for node in nodes])
        say(f"the machine is at rest after {until(at_rest, 240.0):.0f} s")
        yield cluster, nodes


def at_rest() -> bool:
    """Nobody is busy with the newcomers any more: over a few seconds the cores were idle for most of the time."""
    before = _ticks()
    time.sleep(REST_S)
    spent = [after - earlier for after, earlier in zip(_ticks(), before, strict=True)]
    return spent[IDLE] > AT_REST * sum(spent)


def _ticks() -> list[int]:
    return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]


def home(api: Api, namespace: str) -> None:
    """A namespace for records of their own, with the account of our Jobs."""
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}}, Anything)
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(account, {"metadata": {"name": "sickbay-node-job"}}, Anything)


def say(text: str) -> None:
    print(f"   … {text}", file=sys.stderr, flush=True)


# --- the controller ---------------------------------------------------------------------------------------------------


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    log: Path
    began: float

    def said(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def status(self, field: str) -> float:
        """A line of /proc/PID/status in MB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
        raise KeyError(field)

    def cpu_s(self) -> float:
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def controller(
    cluster: Cluster, folder: Path, policy: str = lifted(), max_verb: str = "CORDON", **more: str
) -> Iterator[Running]:
    """`sickbay controller run` on the cluster, leading. `policy`: TOML; `more`: rows of [kubernetes]."""
    name = f"controller-{time.monotonic_ns()}"
    kube = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {"machines": "none", **more}.items())
    (folder / f"{name}.toml").write_text(
        f'cluster = "bench"\nplatform = "kubernetes"\nstore = "kubernetes"\ndata_dir = "{folder}"\n'
        f'[policy]\nmax_verb = "{max_verb}"\n{policy}\n[kubernetes]\nkubeconfig = "{cluster.kubeconfig}"\n{kube}\n'
        "[controller]\ncommon_cause_nodes = 1000000\n"  # faults made by hand have a common cause indeed: us
    )
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        argv = [sys.executable, "-m", "sickbay", "controller", "run", "--config", str(folder / f"{name}.toml")]
        process = subprocess.Popen(argv, stdout=out, stderr=out, process_group=cluster.group)
        running = Running(process, log, time.monotonic())
    try:
        until(lambda: running.said("leading epoch="), 120.0, log)
        yield running
    except Exception:
        say("the controller's last words:\n" + log.read_text(errors="replace")[-4000:])
        raise
    finally:
        running.process.terminate()
        running.process.wait(30)


def written(cluster: Cluster, since: int) -> list[dict[str, Any]]:
    """What Sickbay has written, by the audit log; leases, Events and evictions aside. Who only measures has an Api of
    another name, and so have the simulated agents."""
    found = [entry for entry in cluster.audit(since) if entry["verb"] in WRITES and entry.get("userAgent") == "sickbay"]
    told = [(entry, entry.get("objectRef") or {}) for entry in found]
    kinds = ("events", "leases")
    return [e for e, about in told if about.get("resource") not in kinds and about.get("subresource") != "eviction"]


def until_quiet(cluster: Cluster) -> None:
    """A controller that has just begun has written what it makes of the fleet, and of what others left sick."""

    def quiet() -> bool:
        mark = cluster.audit_mark()
        time.sleep(REST_S)
        return not written(cluster, mark)

    until(quiet, 600.0)


def kind_of(entry: dict[str, Any]) -> str:
    return f"{entry['verb']} {entry['objectRef'].get('resource')}"


def until(holds: Callable[[], bool], within_s: float, log: Path | None = None) -> float:
    """How long it took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > within_s:
            raise TimeoutError(log.read_text(errors="replace")[-3000:] if log else "it never came true")
        time.sleep(0.002)
    return time.monotonic() - began


# --- agents' words ----------------------------------------------------------------------------------------------------


def healthy(node: str, number: int = 0) -> dict[str, Any]:
    """The PATCH of nodes/status that the agent of a healthy node with eight GPUs sends, first and as each heartbeat."""
    report = _report(node, number)
    since = Condition(CONDITION, "False", last_transition_time=BEGAN)
    told = Told(report, NodeVerdict("pass", Severity.NONE, f"{len(report.findings)} checks pass"))
    return node_status.patch(told, keys(), since, label=True, condition=True)


def finding(node: str, number: int, code: str = "xid.79", severity: Severity = Severity.REBOOT) -> dict[str, Any]:
    """The one that it sends about one kernel line."""
    line = f"NVRM: Xid (PCI:0000:3b:00): {code.partition('.')[2]}, pid=1, name=python, GPU has fallen off the bus."
    found = Finding(
        f"{BOOT}/{number}", "agent", "kernel-log", Place(node, "0000:3b:00"), Status.FAILED, code, f"{code} on {node}",
        (line,), severity, BOOT, time.time(),
    )  # fmt: skip
    verdict = NodeVerdict("fail" if severity > Severity.MONITOR else "warn", severity, found.reason)
    return node_status.patch(Told(_report(node, number, found), verdict), keys(), None, label=True, condition=True)


def _report(node: str, number: int, *found: Finding) -> Report:
    """What was found, and beside it the answers of the checks that pass, the GPUs and the versions."""
    now, answers = time.time(), AgentSettings().light_checks
    passed = tuple(
        Finding(f"{BOOT}/{number}", "agent", check, Place(node), Status.OK, "", f"{check} passes", boot_id=BOOT, at=now)
        for check in answers if check != "kernel-log"
    )  # fmt: skip
    stem = zlib.crc32(node.encode())
    gpus = tuple(
        Gpu(f"GPU-{uuid.UUID(int=stem << 8 | slot)}", f"16{stem:010}{slot}", pci, slot) for slot, pci in enumerate(PCI)
    )
    return Report(node, BOOT, number, now, (*found, *passed), gpus, FACTORS, cluster="bench")


def publish(api: Api, words: Sequence[tuple[str, dict[str, Any]]], at_once: int = 16) -> float:
    """Send them side by side; the time of day at which the first was sent."""
    began = time.time()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda one: api.patch(f"{names.node(one[0])}/status", one[1], Anything, how="strategic"), words))
    return began


def closed(api: Api, among: Sequence[str]) -> set[str]:
    wanted = set(among)
    found = api.list(names.NODES, NodeObject, fieldSelector="spec.unschedulable=true")
    return {node.metadata.name for node in found} & wanted


def bare_rate(api: Api, nodes: Sequence[str], at_once: int = 16) -> float:
    """Bare PATCHes a second, as many at once."""
    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda name: bare_patch(api, name), nodes))
    return len(nodes) / (time.monotonic() - began)


def bare_patch(api: Api, node: str) -> float:
    began = time.monotonic()
    body = {"metadata": {"labels": {"bench.test/beat": str(time.monotonic_ns())}}}
    api.patch(names.node(node), body, Anything)
    return time.monotonic() - began
