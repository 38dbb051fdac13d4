"""The world: hardware truth in virtual time. Same seed and same requests give the same trace, byte for byte.

The simulated platform asks it to do things, hosts and agents read it, checkers judge by `log`. It knows nothing of
cases, diagnoses or policies. Nothing here may read a real clock or an unseeded random number.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sickbay.sim import accounts
from sickbay.sim.capacity import Capacity
from sickbay.sim.clock import Act, VirtualClock
from sickbay.sim.faults import Ailment, rates
from sickbay.sim.gangs import Gangs
from sickbay.sim.hardware import Factory, Shelf, SimGpu, SimNode
from sickbay.sim.illness import Illness
from sickbay.sim.jobs import JobSpec, RealEngine, SimJob
from sickbay.sim.kernel import KernelRing, boot_lines
from sickbay.sim.network import Network
from sickbay.sim.outsiders import Outsiders
from sickbay.sim.people import People
from sickbay.sim.provider import Provider
from sickbay.sim.rollouts import Rollouts
from sickbay.sim.services import Services
from sickbay.sim.shared import Shared
from sickbay.sim.treatments import Treatments

EPOCH = 1_790_000_000.0  # 2026-09-21: virtual wall time starts here
TRACE_KEPT = 200_000


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that truly happened, for checkers. `detail` is flat and plain."""

    t: float
    kind: str
    node: str
    detail: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        rest = " ".join(f"{k}={v}" for k, v in self.detail.items())
        return f"{self.t:.3f} {self.kind} {self.node or '-'} {rest}".rstrip()


@dataclass(frozen=True, slots=True)
class Machine:
    """What stands in a pool: an instance type, and its GPUs."""

    kind: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Removed:
    """An object that disappeared from the platform."""

    name: str
    version: int
    gone: bool


class Places(dict[str, SimNode]):
    """The nodes of the fleet by name. One whose place was taken under another name is no member any more; who still
    speaks of it (an old job, a late call) finds what is left of it."""

    def __init__(self) -> None:
        super().__init__()
        self.former: dict[str, SimNode] = {}

    def __missing__(self, name: str) -> SimNode:
        return self.former[name]

    def succeed(self, old: str, new: SimNode) -> None:
        self.former[old] = self.pop(old)
        self[new.name] = new


class Watcher:
    """What a platform hands in to hear of changes. Batches arrive at the end of an instant."""

    def __init__(self, changed: Callable[[list[SimNode], list[Removed], list[SimJob]], None]) -> None:
        self.changed = changed


class World:
    def __init__(
        self,
        seed: int = 0,
        nodes: int = 64,
        *,
        gpus_per_node: int = 8,
        spares: int = 0,
        pools: Mapping[str, int] | None = None,
        rack_size: int = 8,
        domain_size: int = 0,
        switch_size: int = 0,
        zones: int = 0,
        machines: Mapping[str, Machine] | None = None,
        stock: int = 10_000,
        driver: str = "580.105.08",
        image: str = "gpu-image-41",
        silent_failure: float | None = None,
        reboot_hangs: float | None = None,
        part_returns: float | None = None,
        heartbeats: bool = False,
        provider_tells: bool = False,
        cycle_s: float = 300.0,
        waits_s: tuple[float, float] = (0.0, 0.0),
        agent_up_s: float = 15.0,
        start: float = EPOCH,
    ) -> None:
        self.seed, self.gpus_per_node, self.cycle_s = seed, gpus_per_node, cycle_s
        self.agent_up_s = agent_up_s  # after a boot, until the agent has looked for the first time
        self.clock = VirtualClock(start)
        self.factory = Factory(seed, gpus_per_node)
        self.shelf, self.stock = Shelf(), stock
        self.nodes = Places()
        self.jobs: dict[str, SimJob] = {}
        self.log: list[Fact] = []
        self.trace: deque[str] = deque(maxlen=TRACE_KEPT)
        self._digest = hashlib.sha256()
        self._streams: dict[str, Random] = {}
        self._version = 0
        self._dirty_nodes: dict[str, None] = {}
        self._dirty_jobs: dict[str, None] = {}
        self._removed: list[Removed] = []
        self._watchers: list[Watcher] = []
        self._truth_listeners: list[Callable[[SimNode], None]] = []
        self._kernel_listeners: list[Callable[[SimNode], None]] = []
        repair = rates()["repair"]
        self.silent_failure = (
            dict(repair["silent_failure"])
            if silent_failure is None
            else dict.fromkeys(repair["silent_failure"], silent_failure)
        )
        self.reboot_hangs = repair["reboot_hangs"] if reboot_hangs is None else reboot_hangs
        self.part_returns = repair["part_returns"] if part_returns is None else part_returns
        self.heartbeats = heartbeats
        self.provider_tells = provider_tells  # does the platform show what the provider says of a silent machine?
        self.waits_s = waits_s  # what is sent to a node waits so long in a line (a queue's, a quota's) before it begins
        self.illness, self.treatments, self.gangs, self.people = (
            Illness(self),
            Treatments(self),
            Gangs(self),
            People(self),
        )
        self.network, self.services, self.provider = Network(self), Services(self), Provider(self)
        self.shared, self.capacity, self.rollouts = Shared(self), Capacity(self), Rollouts(self)
        self.outsiders = Outsiders(self)
        self.machines = dict(machines or {})
        self._build(nodes, spares, pools or {"default": nodes}, rack_size, domain_size, driver, image)
        self._wire(switch_size, zones)
        from sickbay.sim.agent import Agents

        self.agents = Agents(self)

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.clock.time

    def at(self, when: float, act: Act) -> None:
        self.clock.at(when, act)

    def after(self, seconds: float, act: Act) -> None:
        self.clock.at(self.clock.time + seconds, act)

    def next_at(self) -> float | None:
        return self.clock.next_at()

    def run_until(self, when: float) -> None:
        """Let virtual time pass. Changes are told once per instant."""
        clock = self.clock
        self.flush()
        while True:
            due = clock.next_at()
            if due is None or due > when:
                break
            clock.run_instant()
            if self._dirty_nodes or self._dirty_jobs or self._removed:
                self.flush()
        clock.time = max(clock.time, when)

    def run_for(self, seconds: float) -> None:
        self.run_until(self.now + seconds)

    # -- chance -------------------------------------------------------------------------------------------------------

    def stream(self, concern: str) -> Random:
        """A random stream of its own for each concern: one more draw here moves nothing elsewhere."""
        if concern not in self._streams:
            self._streams[concern] = Random(f"{self.seed}/{concern}")
        return self._streams[concern]

    # -- facts and changes --------------------------------------------------------------------------------------------

    def note(self, kind: str, node: str = "", **detail: Any) -> None:
        fact = Fact(self.now, kind, node, detail)
        self.log.append(fact)
        line = fact.line()
        self.trace.append(line)
        self._digest.update(line.encode() + b"\n")

    def digest(self) -> str:
        """One number for the whole virtual trace."""
        return self._digest.hexdigest()

    def touch(self, node: SimNode) -> None:
        """The platform would show something else about this node now."""
        self._version += 1
        node.version = self._version
        serving = node.serving()
        if not serving and node.out_since is None:
            node.out_since = self.now
        elif serving and node.out_since is not None:
            node.out_s += self.now - node.out_since
            node.out_since = None
        node.shown = None
        self._dirty_nodes[node.name] = None

    def touch_work(self, node: SimNode) -> None:
        """As `touch`, where nothing but the work on the node has changed: thousands at once when a gang is placed."""
        self._version += 1
        node.version = self._version
        self._dirty_nodes[node.name] = None

    def touch_job(self, job: SimJob) -> None:
        self._version += 1
        job.version = self._version
        self._dirty_jobs[job.id] = None

    def remove_object(self, node: SimNode, *, gone: bool) -> None:
        self._version += 1
        node.version, node.present = self._version, False
        self._removed.append(Removed(node.name, self._version, gone))
        self.touch(node)
        del self._dirty_nodes[node.name]

    def truth_changed(self, node: SimNode) -> None:
        """The instruments of this node may now print something else: its agent must look again at its next cycle."""
        for listener in self._truth_listeners:
            listener(node)
        self.touch(node)

    def print_kernel(self, node: SimNode, texts: Iterable[str]) -> None:
        node.kernel.print(texts, self.now)
        for listener in self._kernel_listeners:
            listener(node)

    def on_truth(self, listener: Callable[[SimNode], None]) -> None:
        self._truth_listeners.append(listener)

    def on_kernel(self, listener: Callable[[SimNode], None]) -> None:
        self._kernel_listeners.append(listener)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    @property
    def watched(self) -> bool:
        return bool(self._watchers)

    def flush(self) -> None:
        """Tell the watchers what this instant changed, each object once."""
        while self._dirty_nodes or self._dirty_jobs or self._removed:
            nodes = [self.nodes[name] for name in self._dirty_nodes if self.nodes[name].present]
            jobs = [self.jobs[name] for name in self._dirty_jobs]
            removed, self._removed = self._removed, []
            self._dirty_nodes, self._dirty_jobs = {}, {}
            for watcher in tuple(self._watchers):
                watcher.changed(nodes, removed, jobs)

    # -- what people and tests ask of it ------------------------------------------------------------------------------

    def strike(self, kind: str, node: str, gpu: int | None = None, **options: Any) -> Ailment | None:
        """Let a fault happen now. Options: cure, effect, hides, relapse_s, recall (see sim/faults.toml)."""
        return self.illness.strike(kind, self.nodes[node], gpu, **options)

    def submit(self, spec: JobSpec, engine: RealEngine | None = None) -> SimJob:
        return self.gangs.submit(spec, engine)

    def ailing(self, node: str) -> list[tuple[SimGpu | None, Ailment]]:
        """The whole truth about a node: everything it has, seen or not."""
        return list(self.nodes[node].all_ailments())

    def truly_healthy(self, node: str, checks: Iterable[str] = ()) -> bool:
        """Would these checks certainly find nothing, judged by the truth? With no checks: has it no ailment at all?"""
        return not self.illness.certain(self.nodes[node], tuple(checks))

    def accounts(self) -> list[accounts.JobAccount]:
        return [accounts.job_account(job, self.now, self.gpus_per_node) for job in self.jobs.values()]

    def gpu_hours_out(self) -> float:
        return accounts.gpu_hours_out(self.nodes.values(), self.now)

    # -- building -----------------------------------------------------------------------------------------------------

    def _build(
        self, nodes: int, spares: int, pools: Mapping[str, int], rack: int, domain: int, driver: str, image: str
    ) -> None:
        placed = [pool for pool, count in pools.items() for _ in range(count)]
        first = next(iter(pools))
        for i, pool in enumerate([*placed, *([first] * spares)]):
            name = f"node-{i:04d}" if i < len(placed) else f"spare-{i - len(placed):03d}"
            domain_name = f"nvl-{i // domain:03d}" if domain else ""
            node = self._host(name, pool, f"rack-{i // rack:03d}", domain_name, driver, image, i >= len(placed))
            self.nodes[name] = node

    def _wire(self, switch_size: int, zones: int) -> None:
        """Which leaf switch and which zone a node hangs on; with 0 nobody has told the platform."""
        for i, node in enumerate(self.nodes.values()):
            node.switch = f"leaf-{i // switch_size:03d}" if switch_size else ""
            node.zone = f"zone-{'abcdef'[i * zones // len(self.nodes)]}" if zones else ""

    def _host(self, name: str, pool: str, rack: str, domain: str, driver: str, image: str, spare: bool) -> SimNode:
        instance, machine = self.factory.instance(name, 0), self.machines.get(pool, Machine("", self.gpus_per_node))
        node = SimNode(
            name=name, pool=pool, rack=rack, domain=domain, uid=self.factory.uid(name, 0), instance=instance,
            driver=driver, image=image, gpus=self.factory.gpus(machine.gpus), expected=machine.gpus, kind=machine.kind,
            boot_id=self.factory.boot_id(instance, 0), boot_at=self.now, kernel=KernelRing(self.now), spare=spare,
        )  # fmt: skip
        node.told_boot = node.boot_id
        node.kernel.print(boot_lines(driver), self.now)
        node.gpu_map = tuple(gpu.as_gpu() for gpu in node.gpus)
        digest = hashlib.sha1(name.encode()).digest()
        node.agent_phase = int.from_bytes(digest[:4], "big") % int(self.cycle_s)
        return node
