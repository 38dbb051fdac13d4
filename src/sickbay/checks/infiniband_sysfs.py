"""What /sys/class/infiniband says: adapters, their ports and counters. The network checks read through it.

EFA adapters stand there too (vendor Amazon). IO through a Host only, and it must never judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sickbay.checks.efa_text import MOST, is_efa
from sickbay.ports import Host

ROOT = "/sys/class/infiniband"
PORTS = 8  # of one adapter
PORT_FILES = ("state", "phys_state", "rate", "link_layer", "counters/link_downed")


@dataclass(frozen=True, slots=True)
class Adapter:
    name: str
    efa: bool
    vendor: str = ""


def adapters(host: Host) -> tuple[Adapter, ...] | None:
    """None: the kernel has no such folder, so no RDMA driver is loaded."""
    names = host.names(ROOT)
    if names is None:
        return None
    found = []
    for name in names[:MOST]:
        vendor = host.read(f"{ROOT}/{name}/device/vendor")
        found.append(Adapter(name, is_efa(name, vendor), (vendor or "").strip().lower()))
    return tuple(found)


def port_files(host: Host, names: Iterable[str]) -> dict[str, str | None]:
    """ "mlx5_0:1/state" -> its text, for every port of these adapters."""
    files: dict[str, str | None] = {}
    for name in names:
        for port in (host.names(f"{ROOT}/{name}/ports") or ())[:PORTS]:
            for file in PORT_FILES:
                files[f"{name}:{port}/{file}"] = host.read(f"{ROOT}/{name}/ports/{port}/{file}")
    return files


def counters(host: Host, names: Iterable[str], wanted: Iterable[str]) -> dict[str, str | None]:
    """ "rdmap0s26/rx_drops" -> its text. EFA adapters have one port."""
    keys = tuple(wanted)
    read = {name: f"{ROOT}/{name}/ports/1/hw_counters" for name in names}
    return {f"{name}/{key}": host.read(f"{folder}/{key}") for name, folder in read.items() for key in keys}


def as_counters(files: Mapping[str, str | None]) -> dict[str, dict[str, float]]:
    """What `counters` read, as numbers: adapter -> counter -> value. What is not a number is left out."""
    found: dict[str, dict[str, float]] = {}
    for path, text in files.items():
        name, _, key = path.partition("/")
        value = (text or "").strip()
        if value.isdecimal() and value.isascii() and len(value) <= 20:
            found.setdefault(name, {})[key] = float(value)
    return found


def modules(host: Host) -> frozenset[str] | None:
    """Kernel modules that are loaded or built in; None if that cannot be seen."""
    names = host.names("/sys/module")
    if names is not None:
        return frozenset(names)
    text = host.read("/proc/modules")
    return None if text is None else frozenset(line.split()[0] for line in text.splitlines() if line.split())
