"""What is asked of a node as evidence: commands and files, cheap ones first. A table; `gather` asks, `archive` writes.

Nothing here may change the node or print the environment of a process.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """One command and the file its output goes to."""

    file: str
    argv: tuple[str, ...]
    limit_s: float = 30.0


GPU_FIELDS = "index,name,serial,uuid,pci.bus_id,vbios_version,driver_version,inforom.img"

COMMANDS = (
    Asked("versions/uname.txt", ("uname", "-a"), 5.0),
    Asked("versions/fi_info.txt", ("fi_info", "--version"), 10.0),
    Asked("versions/libraries.txt", ("ldconfig", "-p"), 10.0),
    Asked("versions/dcgmi.txt", ("dcgmi", "--version"), 10.0),
    Asked("pci/lspci-nvidia.txt", ("lspci", "-vvv", "-d", "10de:")),
    Asked("pci/lspci-tree.txt", ("lspci", "-tv")),
    Asked("nvidia-smi/serials.csv", ("nvidia-smi", f"--query-gpu={GPU_FIELDS}", "--format=csv"), 60.0),
    Asked("nvidia-smi/q.txt", ("nvidia-smi", "-q"), 60.0),
    Asked("nvidia-smi/topo.txt", ("nvidia-smi", "topo", "-m")),
    Asked("nvidia-smi/nvlink-status.txt", ("nvidia-smi", "nvlink", "-s")),
    Asked("nvidia-smi/nvlink-errors.txt", ("nvidia-smi", "nvlink", "-e")),
    Asked("dcgm/health.json", ("dcgmi", "health", "-c", "-j"), 60.0),
    Asked("dcgm/discovery.txt", ("dcgmi", "discovery", "-l")),
    Asked("services/fabricmanager.txt", ("journalctl", "-u", "nvidia-fabricmanager", "-n", "500", "--no-pager")),
)
FILES = {
    "versions/kernel.txt": "/proc/version",
    "versions/driver.txt": "/proc/driver/nvidia/version",
    "versions/os.txt": "/etc/os-release",
    "versions/efa.txt": "/sys/module/efa/version",
    "versions/efa-installed.txt": "/opt/amazon/efa_installed_packages",
}
# Safe mode leaves out what hangs on a dead GPU (NVIDIA, "Xid errors", section 2.2). It may take an hour; we do not.
BUG_REPORT = "nvidia-bug-report.sh"
BUG_REPORT_S = 300.0
