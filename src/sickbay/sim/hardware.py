"""The hardware truth: parts (GPUs), hosts, racks, the shelf of parts that were taken out. The World changes it.

Nothing here is what anybody sees: hosts print it (smi.py, dcgm.py), platforms/simulated/views.py shows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sickbay.model import Finding, Gpu
from sickbay.sim.faults import Ailment
from sickbay.sim.kernel import KernelRing

# Bus numbers as an 8-GPU HGX baseboard has them on a p5 instance.
BUSES = ("53", "64", "75", "86", "97", "a8", "b9", "ca")


def pci_of(index: int) -> str:
    return f"0000:{BUSES[index % 8]}:0{index // 8}"


def as_uuid(*parts: object) -> str:
    """A UUID that depends on nothing but its parts: the same seed gives the same machine, byte for byte."""
    digest = hashlib.sha1("/".join(map(str, parts)).encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


@dataclass(slots=True)
class SimGpu:
    """A part. It keeps its serial, and its ailments, wherever it is put."""

    serial: str
    uuid: str
    ailments: list[Ailment] = field(default_factory=list)
    slot: int = 0

    @property
    def pci(self) -> str:
        return pci_of(self.slot)

    def sign(self, name: str) -> Any:
        """The strongest value any visible ailment gives to this sign; None when none does."""
        values = [a.signs[name] for a in self.ailments if name in a.signs]
        return max(values) if values and not isinstance(values[0], str) else (values[-1] if values else None)

    @property
    def lost(self) -> bool:
        return bool(self.ailments) and bool(self.sign("lost"))

    def as_gpu(self) -> Gpu:
        return Gpu(uuid=self.uuid, serial=self.serial, pci=self.pci, index=self.slot)


@dataclass(slots=True)
class SimNode:
    """A host, its object on the platform, and what its agent holds."""

    name: str
    pool: str
    rack: str
    domain: str
    uid: str
    instance: str
    driver: str
    image: str
    gpus: list[SimGpu]
    expected: int
    boot_id: str
    boot_at: float
    kernel: KernelRing
    spare: bool = False
    generation: int = 0  # of the instance in this place
    boots: int = 0
    objects: int = 0
    present: bool = True  # the object is there
    gone: bool = False  # the provider ended the instance
    up: bool = True  # the host runs
    ready: bool = True  # the platform hears from it
    agent_up: bool = True
    ailments: list[Ailment] = field(default_factory=list)
    mark: str = ""  # case id in our mark
    closed: bool = False  # closed for new work in the name of our mark
    written: tuple[float, str, bool] = (0.0, "", False)  # when our mark was last written, and what it was before
    others: list[str] = field(default_factory=list)  # who else closed it
    gate: bool = False
    opted_out: bool = False
    jobs: dict[str, tuple[int, ...]] = field(default_factory=dict)  # job -> slots of the GPUs it holds here
    stuck: list[str] = field(default_factory=list)  # jobs whose processes here cannot be killed
    orphans: list[str] = field(default_factory=list)  # jobs given up whose ranks live on here, out of anybody's reach
    cuts: list[str] = field(default_factory=list)  # of control | data | power, one for each cut in force (network.py)
    dark_since: float = 0.0  # when the control plane last lost it
    pulled: set[str] = field(default_factory=set)  # jobs whose image it has
    told_boot: str = ""  # the boot id that its kubelet told last
    switch: str = ""
    zone: str = ""
    kind: str = ""  # instance type
    capacity: str = ""  # how it is paid for, where that is not a reservation
    treating: str = ""  # key of the treatment under way
    findings: dict[tuple[str, str, str], Finding] = field(default_factory=dict)
    outside: dict[tuple[str, str, str], Finding] = field(default_factory=dict)  # what others say of it (outsiders.py)
    sequence: int = 0  # of findings within this boot
    cursor: str = ""  # of the agent, in the kernel log
    pinged: dict[str, int] = field(default_factory=dict)  # loopback tests that an EFA adapter has passed
    gpu_map: tuple[Gpu, ...] = ()  # from the agent's last healthy cycle
    agent_phase: float = 0.0
    agent_silent_since: float | None = None
    agent: str = ""  # version of its agent, where one is rolled out
    agent_fault: str = ""  # mute | blind | lying: what is wrong with that version here (rollouts.py)
    agent_muted: bool = False  # it does not speak though it could: somebody stopped it
    cycle_at: float | None = None  # when the next real cycle of the agent runs
    same_cycles: int = 0
    version: int = 0
    out_since: float | None = None
    out_s: float = 0.0
    recorded: set[str] = field(default_factory=set)  # keys of actions delivered to this instance
    place: str = ""  # the name that stood here first, where the provider gives each successor a name of its own
    shown: Any = None  # what the platform showed last, None when more than the work on the node has changed since

    @property
    def cordoned(self) -> bool:
        return self.closed or bool(self.others)

    @property
    def job(self) -> str:
        """The job here; the first where several share the node."""
        return next(iter(self.jobs), "")

    @job.setter
    def job(self, job: str) -> None:
        self.jobs = {job: tuple(range(len(self.gpus)))} if job else {}

    def free_slots(self) -> tuple[int, ...]:
        taken = {slot for slots in self.jobs.values() for slot in slots}
        return tuple(slot for slot in range(len(self.gpus)) if slot not in taken)

    @property
    def reachable(self) -> bool:
        """Does the control plane reach its kubelet and its agent?"""
        return "control" not in self.cuts

    @property
    def powered(self) -> bool:
        return "power" not in self.cuts

    @property
    def answers(self) -> bool:
        """Would a question asked through the control plane be answered?"""
        return self.up and not (self.cuts and not self.reachable)

    @property
    def provider_status(self) -> str:
        """What the provider (or the BMC) truly says of the machine: a second witness beside readiness."""
        if self.gone:
            return "terminated"
        if not self.powered:
            return "stopped"
        return "impaired" if self.node_sign("down") else "running"

    @property
    def hung(self) -> bool:
        return bool(self.ailments) and self.node_sign("hung")

    def node_sign(self, name: str) -> bool:
        return any(a.signs.get(name) for a in self.ailments)

    def allocatable(self) -> int:
        if not self.ready or self.hung:
            return 0
        return len(self.gpus) - sum(1 for gpu in self.gpus if gpu.ailments and gpu.lost)

    def serving(self) -> bool:
        """Would a scheduler put work here?"""
        return self.present and self.ready and not self.cordoned and not self.gate and not self.treating

    def all_ailments(self) -> Iterator[tuple[SimGpu | None, Ailment]]:
        for ailment in self.ailments:
            yield None, ailment
        for gpu in self.gpus:
            for ailment in gpu.ailments:
                yield gpu, ailment

    def gpu_at(self, device: str) -> SimGpu | None:
        return next((gpu for gpu in self.gpus if gpu.pci == device), None)


class Shelf:
    """Parts that were taken out. Some come back."""

    def __init__(self) -> None:
        self.parts: list[SimGpu] = []
        self.owed: list[str] = []  # serials that the next replacement must bring back

    def put(self, parts: list[SimGpu]) -> None:
        self.parts.extend(part for part in parts if part.ailments)

    def take(self, serial: str) -> SimGpu | None:
        for i, part in enumerate(self.parts):
            if part.serial == serial:
                return self.parts.pop(i)
        return None


class Factory:
    """Makes parts and hosts with names that depend only on the seed."""

    def __init__(self, seed: int, gpus_per_node: int) -> None:
        self.seed, self.gpus_per_node = seed, gpus_per_node
        self.made = 0

    def gpus(self, count: int = 0) -> list[SimGpu]:
        made = []
        for slot in range(count or self.gpus_per_node):
            self.made += 1
            serial = f"16533{self.seed % 1000:03d}{self.made:06d}"
            made.append(SimGpu(serial, f"GPU-{as_uuid(self.seed, 'gpu', self.made)}", slot=slot))
        return made

    def instance(self, node: str, generation: int) -> str:
        return "i-0" + hashlib.sha1(f"{self.seed}/{node}/{generation}".encode()).hexdigest()[:16]

    def uid(self, node: str, objects: int) -> str:
        return as_uuid(self.seed, "uid", node, objects)

    def boot_id(self, instance: str, boots: int) -> str:
        return as_uuid(self.seed, "boot", instance, boots)
