"""A kubelet for simulated GPU nodes: runs Sickbay's own Jobs on them for real, against a simulated machine.

kwok runs nothing, and leaves the pods of our Jobs alone. SimKubelet takes them: the command in the pod is the one that
would run in the container, and it is run in this process against the machine (testbed/machine.py), which prints what
the real tools print. The pod's status is written as a kubelet writes it, termination message included. It also speaks
for each node's agent, and mirrors the machine (boot id, GPUs that are gone) on the node object. Pods of others are
never touched.

    with SimKubelet(api, World(nodes=1, start=time.time(), cycle_s=2.0), {"gpu-a1-0": "node-0000"}, folder) as kubelet:
        with kubelet.lock:
            kubelet.world.strike("xid79", "node-0000", 3)
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Self

from sickbay.agent.publishers import Told, node_status
from sickbay.agent.verdicts import NodeVerdict
from sickbay.errors import ApiError
from sickbay.kube import names
from sickbay.kube.api import Api
from sickbay.kube.names import Keys, keys
from sickbay.kube.objects import Anything, NodeObject
from sickbay.kube.watch import Gone, Put, Reflector, Synced
from sickbay.model import Finding, Report, Severity, Status
from sickbay.sim.hardware import SimNode
from sickbay.sim.world import World
from testbed import fleet
from testbed.log_server import LogServer
from testbed.machine import Machine
from testbed.pods import JobPod, ended, run_command, started, word_of

TICK_S = 0.05
BEAT_S = 30.0  # an agent's heartbeat
AT_ONCE = 16


class SimKubelet:
    """`nodes`: Kubernetes node -> simulated node. Whoever touches the world while it runs takes `lock`. `lasts`: real
    seconds that a "boot" takes, or a command of our Jobs ("check"); else it is over as soon as it can be. `logs`: the
    API server can read what its pods have printed."""

    def __init__(
        self, api: Api, world: World, nodes: Mapping[str, str] | Sequence[str], folder: Path, *, pace: float = 1.0,
        marks: Keys | None = None, agents: bool = True, lasts: Mapping[str, float] | None = None, logs: bool = False,
    ) -> None:  # fmt: skip
        named = nodes if isinstance(nodes, Mapping) else dict(zip(nodes, world.nodes, strict=False))
        self.api, self.world, self.folder, self.nodes = api, world, folder, dict(named)
        self.lock = threading.RLock()
        self.machines = {name: Machine(name, world, world.nodes[sim], self) for name, sim in self.nodes.items()}
        self.hang: set[str] = set()  # nodes on which a pod starts and never ends
        self.mute: set[str] = set()  # nodes on which a pod is killed before it has said anything
        self._marks, self._pace, self._agents = marks or keys(), pace, agents
        self._lasts, self._down = dict(lasts or {}), set[str]()  # machines that boot
        self._taken: set[str] = set()  # uids of pods
        self._said: dict[str, tuple[Told | None, float]] = {}
        self._shown: dict[str, tuple[str, int]] = {}
        self._reports = int(time.time())
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sim-kubelet")
        self._thread = threading.Thread(target=self._serve, name="sim-kubelet", daemon=True)
        chosen = {"labelSelector": self._marks.target_node, "fieldSelector": "status.phase=Pending"}
        self._pods = Reflector(api, names.PODS, JobPod, self._take, params=chosen)
        self.errors: list[str] = []
        self.logs: dict[str, str] = {}  # pod -> what it has printed
        self._log_server = LogServer(folder, self.logs) if logs else None
        self.published: dict[str, list[float]] = {}  # when each agent had news; heartbeats aside

    # -- beginning and end

    def start(self) -> Self:
        self._mirror()  # before anybody looks: the boot id on the node is the machine's
        if self._log_server is not None:
            for name in self.nodes:
                self._log_server.serve(self.api, name)
        self._pods.start()
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._pods.stop()
        if self._thread.is_alive():
            self._thread.join(10.0)
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._log_server is not None:
            self._log_server.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def sim(self, name: str) -> SimNode:
        """The machine behind a Kubernetes node."""
        return self.world.nodes[self.nodes[name]]

    def reboot(self, name: str) -> str:
        """The machine boots, by whoever ordered it: what a boot cures is cured. Returns the new boot id."""
        self._down.add(name)
        fleet.go_down(self.api, name)
        self._stop.wait(self._lasts.get("boot", 0.0))
        with self.lock:
            boot = self.machines[name].boot()
        fleet.come_up(self.api, name, boot)
        self._down.discard(name)
        fleet.wait_ready(self.api, name)
        return boot

    def restart_agent(self, name: str) -> None:
        """Its process ends and begins again: it looks at once, and tells as one that does not know what it has told."""
        with self.lock:
            sim = self.sim(name)
            self.world.agents.silence(sim)
            self.world.agents.wake(sim, sim.boot_id)
        self._said.pop(name, None)

    # -- the thread

    def _serve(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(TICK_S):
            try:
                with self.lock:  # a treatment takes the world forward by itself: from there it goes on
                    last, before = time.monotonic(), last
                    self.world.run_until(self.world.now + (last - before) * self._pace)
                self._mirror()
                if self._agents:
                    self._speak()
            except ApiError as error:  # the API server may be down on purpose
                self.errors = [*self.errors[-9:], str(error)]

    def _take(self, told: Put[JobPod] | Gone | Synced) -> None:
        if not isinstance(told, Put):
            return
        pod = told.object
        mine = pod.spec.node_name in self.nodes and not pod.metadata.deletion_timestamp
        if mine and pod.metadata.uid not in self._taken and not self._stop.is_set():
            self._taken.add(pod.metadata.uid)
            self._pool.submit(self._run, pod)

    def _run(self, pod: JobPod) -> None:
        node = pod.spec.node_name
        try:
            began = started(self.api, pod)
            if node in self.hang:
                return
            log = self.folder / f"{pod.metadata.uid}.log"
            out = io.StringIO()
            code = 137 if node in self.mute else run_command(pod, self.machines[node], self.state_dir(node), log, out)
            self.logs[pod.metadata.name] = out.getvalue()
            self._stop.wait(self._lasts.get(word_of(pod), 0.0))
            ended(self.api, pod, began, code, log)
        except Exception as error:  # a test must see it, and the kubelet goes on
            self.errors = [*self.errors[-9:], f"{pod.metadata.name}: {type(error).__name__}: {error}"]

    def state_dir(self, node: str) -> Path:
        """The node's own disk, as far as Sickbay keeps something there."""
        path = self.folder / node
        path.mkdir(parents=True, exist_ok=True)
        return path

    # -- the node object

    def _mirror(self) -> None:
        """What a kubelet and the device plugin say of the machine."""
        for name in self.nodes:
            sim = self.sim(name)
            now = (sim.boot_id, sim.allocatable() if sim.up else sim.expected)
            if self._shown.get(name) == now or not sim.up or name in self._down:
                continue
            amount = {"nvidia.com/gpu": str(now[1])}
            status = {"nodeInfo": {"bootID": sim.boot_id}, "allocatable": amount}
            self.api.patch(f"{names.node(name)}/status", {"status": status}, Anything, how="strategic")
            self._shown[name] = now

    def _speak(self) -> None:
        """For the agents: at once when something is new by the real publisher's own measure, and as a heartbeat."""
        for name in self.nodes:
            with self.lock:
                sim = self.sim(name)
                found = tuple(_named(f, name) for f in sorted(sim.findings.values(), key=lambda f: (-f.severity, f.id)))
                alive, report = sim.agent_up and sim.up and name not in self._down, self._report(name, sim, found)
            told = Told(report, _verdict(report))
            before, at = self._said.get(name, (None, 0.0))
            news, quiet = before is None or _mark(told) != _mark(before), time.monotonic() - at
            if alive and quiet > (node_status.wait(told, before) if news else BEAT_S):
                self._publish(name, told)
                self.published.setdefault(name, []).extend([time.time()] if news else [])
                self._said[name] = (told, time.monotonic())

    def _report(self, name: str, sim: SimNode, found: tuple[Finding, ...]) -> Report:
        self._reports += 1
        return Report(
            name, sim.boot_id, self._reports, time.time(), found, sim.gpu_map,
            {"driver": sim.driver, "image": sim.image, "instance-type": "p5.48xlarge"},
        )  # fmt: skip

    def _publish(self, name: str, told: Told) -> None:
        known = node_status.our_condition(self.api.get(names.node(name), NodeObject))
        body = node_status.patch(told, self._marks, known, label=True, condition=True)
        self.api.patch(f"{names.node(name)}/status", body, Anything, how="strategic")


def _named(finding: Finding, node: str) -> Finding:
    return replace(finding, place=replace(finding.place, node=node))


def _mark(told: Told) -> tuple[str, node_status.Mark]:
    return told.report.boot_id, node_status.mark(told)


def _verdict(report: Report) -> NodeVerdict:
    """In one word, as the agent has it."""
    worst = next((f for f in report.findings if f.severity > Severity.MONITOR and f.status is Status.FAILED), None)
    if worst is not None:
        return NodeVerdict("fail", worst.severity, worst.reason)
    blind = next((f for f in report.findings if f.check == "nvidia-smi" and f.status is Status.UNKNOWN), None)
    if blind is not None:
        return NodeVerdict("unknown", Severity.NONE, blind.reason)
    watched = next((f for f in report.findings if f.severity is Severity.MONITOR), None)
    if watched is not None:
        return NodeVerdict("warn", Severity.MONITOR, watched.reason)
    return NodeVerdict("pass", Severity.NONE, "all GPUs answer")
