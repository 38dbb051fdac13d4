"""Host metrics: CPU, memory, disk, network from /proc, GPU use from nvidia-smi. Figures, never findings.

agent/process asks each `host_metrics_s` and hands them to /metrics and the emf publisher. Names are the CloudWatch
agent's where the originals use it (001.6). A figure that cannot be read is left out; it must never be made up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sickbay.checks import mounts
from sickbay.ports import Host

SECTOR = 512
GPU_FIELDS = "index,utilization.gpu,memory.used,memory.total"
GPU_TIMEOUT_S = 20.0
MOST_DEVICES = 64
MOST_FILE_SYSTEMS = 16
SPACE_TIMEOUT_S = 10.0


class Measure(NamedTuple):
    name: str  # "cpu_usage_active"
    value: float
    unit: str = ""  # percent, bytes, bytes_per_s, per_s
    label: str = ""  # "index=0", "device=nvme0n1": which one


@dataclass(frozen=True, slots=True)
class Measures:
    at: float = 0.0
    all: tuple[Measure, ...] = ()


@dataclass(slots=True)
class Meter:
    """Remembers the last counters, because most figures are differences."""

    host: Host
    _before: dict[str, float] = field(default_factory=dict)
    _at: float | None = None

    def measure(self, now: float, wall: float) -> Measures:
        """`now` is monotonic: rates must not jump with the wall clock."""
        seconds = now - self._at if self._at is not None else 0.0
        self._at = now
        moving = [*self._cpu(), *self._disks(seconds), *self._network(seconds)]
        return Measures(wall, (*_memory(self.host), *moving, *_space(self.host), *_gpus(self.host)))

    def _cpu(self) -> list[Measure]:
        first = (self.host.read("/proc/stat") or "").partition("\n")[0].split()
        if len(first) < 9 or first[0] != "cpu" or not all(word.isdecimal() for word in first[1:9]):
            return []
        ticks = dict(
            zip(("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"), first[1:9], strict=False)
        )
        spent = {name: self._grown(f"cpu/{name}", float(value)) for name, value in ticks.items()}
        total = sum(value for value in spent.values() if value is not None)
        if not total or any(value is None for value in spent.values()):
            return []
        shares = {name: 100.0 * (value or 0.0) / total for name, value in spent.items()}
        shares["active"] = 100.0 - shares["idle"] - shares["iowait"]
        return [
            Measure(f"cpu_usage_{name}", round(shares[name], 2), "percent")
            for name in ("active", "idle", "iowait", "system", "user")
        ]

    def _disks(self, seconds: float) -> list[Measure]:
        found: list[Measure] = []
        for row in _rows(self.host.read("/proc/diskstats"))[:MOST_DEVICES]:
            if len(row) < 10 or not _whole_disk(row[2]):
                continue
            read, written = _number(row[5]), _number(row[9])
            for name, value in (("diskio_read", read * SECTOR), ("diskio_write", written * SECTOR)):
                if (rate := self._rate(f"{name}/{row[2]}", value, seconds)) is not None:
                    found.append(Measure(f"{name}_bytes", rate, "bytes_per_s", f"device={row[2]}"))
        return found

    def _network(self, seconds: float) -> list[Measure]:
        found: list[Measure] = []
        for row in (self.host.read("/proc/net/dev") or "").splitlines()[2 : 2 + MOST_DEVICES]:
            name, _, rest = row.partition(":")
            words, name = rest.split(), name.strip()
            if len(words) < 9 or name == "lo" or name.startswith(("veth", "cali", "cni", "eni")):
                continue
            for figure, value in (("net_bytes_recv", words[0]), ("net_bytes_sent", words[8])):
                if (rate := self._rate(f"{figure}/{name}", _number(value), seconds)) is not None:
                    found.append(Measure(figure, rate, "bytes_per_s", f"interface={name}"))
        return found

    def _grown(self, name: str, value: float) -> float | None:
        before = self._before.get(name)
        self._before[name] = value
        return value - before if before is not None and value >= before else None

    def _rate(self, name: str, value: float, seconds: float) -> float | None:
        grown = self._grown(name, value)
        return round(grown / seconds, 1) if grown is not None and seconds > 0 else None


def _whole_disk(name: str) -> bool:
    """nvme0n1 and sda, not their partitions, and no loop or ram device."""
    if name.startswith("nvme"):
        return "p" not in name.removeprefix("nvme")
    return name.startswith(("sd", "vd", "xvd")) and not name[-1].isdecimal()


def _rows(text: str | None) -> list[list[str]]:
    return [line.split() for line in (text or "").splitlines()]


def _number(word: str) -> float:
    return float(word) if word.isdecimal() else 0.0


def _memory(host: Host) -> list[Measure]:
    rows = {row[0].rstrip(":"): _number(row[1]) * 1024 for row in _rows(host.read("/proc/meminfo")) if len(row) >= 2}
    total, free = rows.get("MemTotal", 0.0), rows.get("MemAvailable", rows.get("MemFree", 0.0))
    if not total:
        return []
    return [
        Measure("mem_used_percent", round(100.0 * (total - free) / total, 2), "percent"),
        Measure("mem_available", free, "bytes"),
        Measure("mem_total", total, "bytes"),
    ]


def _space(host: Host) -> list[Measure]:
    """Local file systems only, each device once, asked by a child: one that hangs must not take us along."""
    paths: dict[str, str] = {}
    for mount in mounts.parse(mounts.table(host) or ""):
        if mount.kind in mounts.LOCAL and len(paths) < MOST_FILE_SYSTEMS:
            paths.setdefault(mount.source, mount.path)
    if not paths:
        return []
    done = host.run(("stat", "-f", "-c", "%S %b %f %a %n", *paths.values()), SPACE_TIMEOUT_S)
    found: list[Measure] = []
    for row in _rows(done.stdout):
        size, total, free, usable = (_number(word) for word in row[:4]) if len(row) >= 5 else (0.0,) * 4
        if size and total:
            used = total - free
            share = 100.0 * used / (used + usable) if used + usable else 0.0  # as df counts: without root's reserve
            found.append(Measure("disk_used_percent", round(share, 2), "percent", f"path={' '.join(row[4:])}"))
            found.append(Measure("disk_total", size * total, "bytes", f"path={' '.join(row[4:])}"))
    return found


def _gpus(host: Host) -> list[Measure]:
    if host.names("/proc/driver/nvidia/gpus") is None and host.read("/proc/driver/nvidia/version") is None:
        return []  # no driver, so no reason to start its tool each minute
    done = host.run(("nvidia-smi", f"--query-gpu={GPU_FIELDS}", "--format=csv,noheader,nounits"), GPU_TIMEOUT_S)
    found: list[Measure] = []
    for line in done.stdout.splitlines()[:MOST_DEVICES] if done.code == 0 else ():
        words = [word.strip() for word in line.split(",")]
        if len(words) != 4 or not words[0].isdecimal():
            continue
        label = f"index={words[0]}"
        if words[1].isdecimal():  # "[N/A]" on a GPU in MIG mode
            found.append(Measure("nvidia_smi_utilization_gpu", float(words[1]), "percent", label))
        if words[2].isdecimal():
            found.append(Measure("nvidia_smi_memory_used", float(words[2]) * (1 << 20), "bytes", label))
        if words[3].isdecimal():
            found.append(Measure("nvidia_smi_memory_total", float(words[3]) * (1 << 20), "bytes", label))
    return found
