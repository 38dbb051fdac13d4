"""What the host around the GPUs shows: /proc and /sys files, mounts, drives, and what stat, chronyc and python3 print.

A p5 host: eight local drives, a shared Lustre. Signs of a node's ailments it shows: hung (processes stuck in the
driver), nvme_missing (how many), read_only, memory_ue, storage_hung, clock_offset (seconds), retiring. Of a GPU's:
wrong (computes wrong numbers), slow (share of the usual speed). SimHost calls it; it reads the truth, and never changes
it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sickbay.ports import Completed
from sickbay.sim.hardware import SimNode

DRIVES = 8
TOOLS = frozenset({"stat", "chronyc", "python3"})
NVME, EDAC, PCI, DMI = "/sys/class/nvme", "/sys/devices/system/edac/mc", "/sys/bus/pci/devices", "/sys/class/dmi/id"
IMDS = "http://169.254.169.254/latest/"
SPEEDS = {"gemm-tflops": 640.0, "memory-gbs": 2900.0, "h2d-gbs": 54.0}
_STACK = "[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]\n[<0>] nvidia_ioctl+0x1a/0x30 [nvidia]\n"
_STUCK_PID = 4_242


def _most(node: SimNode, name: str) -> float:
    return max((float(a.signs[name]) for a in node.ailments if a.signs.get(name)), default=0.0)


def _drives(node: SimNode) -> tuple[str, ...]:
    return tuple(f"nvme{n}" for n in range(1 + DRIVES - int(_most(node, "nvme_missing"))))


def names(node: SimNode, path: str) -> tuple[str, ...] | None:
    folders: dict[str, tuple[str, ...]] = {
        "/proc": ("1", *((str(_STUCK_PID),) if node.hung else ()), "cpuinfo", "mounts"),
        NVME: _drives(node),
        EDAC: ("mc0", "mc1"),
        PCI: tuple(f"{gpu.pci}.0" for gpu in node.gpus if not (gpu.ailments and gpu.lost)),
    }
    return folders.get(path)


def read(node: SimNode, path: str, now: float) -> str | None:
    folder, _, name = path.rpartition("/")
    if folder == DMI:
        return {"sys_vendor": "Amazon EC2\n", "product_name": "p5.48xlarge\n"}.get(name)
    if folder.startswith(f"{PCI}/"):
        return {"vendor": "0x10de\n", "device": "0x2330\n", "class": "0x030200\n"}.get(name)
    if folder.startswith(f"{NVME}/"):
        return _drive(folder.rpartition("/")[2], name)
    if folder.startswith(f"{EDAC}/"):
        return f"{int(_most(node, 'memory_ue')) if (folder[-1], name) == ('0', 'ue_count') else 0}\n"
    return _proc(node, path)


def _drive(drive: str, field: str) -> str | None:
    model = "Amazon Elastic Block Store" if drive == "nvme0" else "Amazon EC2 NVMe Instance Storage"
    return {"state": "live\n", "transport": "pcie\n", "model": model + "\n", "serial": f"AWS{drive}\n"}.get(field)


def _proc(node: SimNode, path: str) -> str | None:
    files = {
        "/proc/1/stat": f"1 (systemd) S 0 {'0 ' * 17}1 0 0\n",
        "/proc/1/mounts": _mounts(node),
        "/proc/sys/kernel/osrelease": "6.1.112-124.190.amzn2023.x86_64\n",
    }
    if node.hung:
        files[f"/proc/{_STUCK_PID}/stat"] = f"{_STUCK_PID} (nvidia-smi) D 1 {'0 ' * 17}{int(node.boot_at)} 0 0\n"
        files[f"/proc/{_STUCK_PID}/wchan"] = "os_acquire_rwlock_write"
        files[f"/proc/{_STUCK_PID}/stack"] = _STACK
    return files.get(path)


def _mounts(node: SimNode) -> str:
    mode = "ro" if node.node_sign("read_only") else "rw"
    return (
        f"/dev/nvme0n1p1 / xfs {mode},noatime 0 0\nproc /proc proc rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n"
        "10.0.0.9@tcp:/scratch /fsx lustre rw,lazystatfs 0 0\n"
    )


def fetch(node: SimNode, url: str, method: str) -> str | None:
    """The metadata service, as far as checks ask it."""
    pages = {"PUT api/token": "session", "GET meta-data/instance-type": "p5.48xlarge"}
    event = {"Code": "instance-retirement", "State": "active", "NotBefore": "21 Jan 2027 09:00:00 GMT"}
    pages["GET meta-data/events/maintenance/scheduled"] = json.dumps([event] if node.node_sign("retiring") else [])
    return pages.get(f"{method} {url.removeprefix(IMDS)}") if url.startswith(IMDS) else None


def run(node: SimNode, tool: str, words: Sequence[str]) -> Completed:
    if tool == "chronyc":
        offset = _most(node, "clock_offset") or 0.000002
        tail = f"{offset:.9f},0.000001,0.00001,-12.1,0.001,0.1,0.0004,0.0002,16.2,Normal"
        return Completed(0, f"A9FEA97B,169.254.169.123,4,1731718800.1,{tail}\n", "")
    if tool == "stat":
        return _stat(node, words)
    what = next((word for word in words if word in ("matmul", "speed")), "")
    if not what:
        return Completed(2, "", "python3: this simulated host only runs the test computation")
    if node.hung:
        return Completed(None, "", "", timed_out=True, stuck=True)
    rows = (line for gpu in node.gpus if not gpu.lost for line in _computed(gpu.slot, _signs(gpu), what))
    return Completed(0, "".join(json.dumps(row) + "\n" for row in rows), "")


def _stat(node: SimNode, words: Sequence[str]) -> Completed:
    if words and words[-1] == "/fsx" and node.node_sign("storage_hung"):
        return Completed(None, "", "", timed_out=True, stuck=True)
    shared = any("%T" in word for word in words)
    return Completed(0, "lustre 4096 1000000 500000\n" if shared else "4096 52428800 26214400 1000000 900000\n", "")


def _signs(gpu: Any) -> Mapping[str, Any]:
    return {name: value for ailment in gpu.ailments for name, value in ailment.signs.items()}


def _computed(slot: int, signs: Mapping[str, Any], what: str) -> list[dict[str, object]]:
    """One GPU's lines, as gpu_compute prints them."""
    told: dict[str, object] = {"kind": what, "gpu": slot, "name": "NVIDIA H100 80GB HBM3", "sms": 132}
    if what == "speed":
        share = float(signs.get("slow") or 1.0)
        return [{**told, **{name: value * share for name, value in SPEEDS.items()}}]
    right = {case: hashlib.sha256(case.encode()).hexdigest()[:32] for case in ("exact-fp32", "exact-fp16")}
    wrong = "0" * 32 if signs.get("wrong") else ""
    return [
        {**told, "case": case, "digest": wrong or digest, "unstable": 0, "reference": digest, "backend": "simulated"}
        for case, digest in right.items()
    ]
