"""What a simulated host prints about how its GPUs are joined and used: topo -m, nvlink -s, nvlink -e, compute apps, and
whether fabric manager runs.

`sim/smi` and SimHost call it. Formats follow R590 captures of H100 hosts: the header's underline escapes and the legend
are there too, because real checks must not stumble over them. It reads the truth and never changes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sickbay.ports import Completed
from sickbay.sim.hardware import SimGpu, SimNode

MODEL = "NVIDIA H100 80GB HBM3"
LINKS = 18
FABRIC_MANAGER_PID = 2213
_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def list_row(gpu: SimGpu) -> str:
    return f"GPU {gpu.slot}: {MODEL} (UUID: {gpu.uuid})\n"


def down(gpu: SimGpu) -> int:
    return min(LINKS, gpu.sign("links_down") or 0)


def topology(node: SimNode) -> str:
    shown = [gpu for gpu in node.gpus if not gpu.lost]
    tail = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    head = "\t\x1b[4m" + "\t".join([f"GPU{gpu.slot}" for gpu in shown] + tail) + "\x1b[0m"
    rows = ["\t".join([f"GPU{gpu.slot}", *(_path(gpu, other) for other in shown), *_numa(gpu)]) for gpu in shown]
    return "\n".join([head, *rows]) + "\n" + _LEGEND


def _path(gpu: SimGpu, other: SimGpu) -> str:
    if gpu is other:
        return " X "
    width = LINKS - max(down(gpu), down(other))
    if width > 0:
        return f"NV{width}"
    return "NODE" if gpu.slot // 4 == other.slot // 4 else "SYS"


def _numa(gpu: SimGpu) -> tuple[str, ...]:
    half = gpu.slot // 4 % 2
    return ("0-47,96-143" if half == 0 else "48-95,144-191", str(half), "", "N/A")


def status(gpu: SimGpu) -> list[str]:
    if down(gpu) >= LINKS:
        return ["NVML: Unable to retrieve Nvlink information as all links are inActive"]
    return [f"\t Link {i}: " + ("<inactive>" if i < down(gpu) else "26.562 GB/s") for i in range(LINKS)]


def errors(gpu: SimGpu) -> list[str]:
    """Counters of a link that was lost stand at what it had gone through when it went."""
    if down(gpu) >= LINKS:
        return ["NVML: Unable to retrieve Nvlink information as all links are inActive"]
    rows = []
    for link in range(LINKS):
        hurt = link < down(gpu)
        for kind, count in (("Replay", 148 * hurt), ("Recovery", 3 * hurt), ("CRC", 57 * hurt)):
            rows.append(f"\t Link {link}: {kind} Errors: {count}")
        rows.append("")
    return rows


def compute_apps(node: SimNode, fields: Sequence[str], header: bool) -> str:
    """A job has one process a GPU; one that cannot be killed is still listed after its job has gone."""
    named = {"used_memory": "used_gpu_memory", "name": "process_name"}
    rows = [", ".join(fields)] if header else []
    for gpu in node.gpus:
        if not gpu.lost and (node.job or node.stuck):
            app = {
                "gpu_name": MODEL, "gpu_bus_id": f"0000{gpu.pci.upper()}.0", "gpu_serial": gpu.serial,
                "gpu_uuid": gpu.uuid, "pid": str(4100 + gpu.slot), "process_name": "python3",
                "used_gpu_memory": "71234 MiB",
            }  # fmt: skip
            rows.append(", ".join(app.get(named.get(f.strip(), f.strip()), "[N/A]") for f in fields))
    return "\n".join(rows) + "\n" if rows else ""


def service(tool: str, words: Sequence[str]) -> Completed:
    """`systemctl is-active nvidia-fabricmanager` and `pgrep -f nv-fabricmanager`; no other service is here."""
    if tool == "systemctl" and list(words) == ["is-active", "nvidia-fabricmanager"]:
        return Completed(0, "active\n", "")
    if tool == "systemctl":
        return Completed(3, "inactive\n", "")
    found = words[-1:] == ["nv-fabricmanager"]
    return Completed(0 if found else 1, f"{FABRIC_MANAGER_PID}\n" if found else "", "")
