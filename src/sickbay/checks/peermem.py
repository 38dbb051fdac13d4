"""Check: can GPUs and mlx5 adapters exchange data directly? The kernel module nvidia_peermem must be loaded for it.

`checks/run` calls it in every cycle; it reads names. Judged only where both kinds of hardware are; EFA and plain
machines do not use the module. A setting, never a sick node.
"""

from __future__ import annotations

from sickbay.checks.infiniband_sysfs import adapters, modules
from sickbay.checks.signs import Ask, Check, Reading, Sign
from sickbay.model import Status
from sickbay.ports import Completed, Host

MELLANOX = "0x15b3"
MODULES = frozenset({"nvidia_peermem", "nv_peer_mem"})  # the driver's own, and the one before R470


def collect(host: Host, ask: Ask) -> Reading:
    found = adapters(host) or ()
    ours = [adapter.name for adapter in found if adapter.vendor == MELLANOX or adapter.name.startswith("mlx5")]
    loaded = modules(host)
    files = {"mlx5": " ".join(ours), "modules": None if loaded is None else " ".join(sorted(loaded))}
    return Reading(Completed(0, "", ""), files=files)


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    cards = (reading.files.get("mlx5") or "").split()
    loaded = reading.files.get("modules")
    if not cards:
        return [Sign("", "no mlx5 adapter is here, so nvidia-peermem is not needed", status=Status.OK)]
    if loaded is None:
        said = "the list of kernel modules cannot be read, so we cannot tell whether nvidia-peermem is loaded"
        return [Sign("tool.unreadable", said, status=Status.UNKNOWN)]
    names = frozenset(loaded.split())
    if "nvidia" not in names or names & MODULES:
        return []
    said = f"nvidia-peermem is not loaded: {len(cards)} mlx5 adapters reach GPU memory only where NCCL uses DMA-BUF"
    return [Sign("peermem.missing", said)]


CHECK = Check("peermem", None, collect, judge)
