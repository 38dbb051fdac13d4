"""What software this node runs, cheaply: files first, then commands that only print. For Report.factors and evidence.

Versions are compared across the nodes of one job. It must never run a tool that opens a GPU (nvidia-smi, torch): what
nobody says is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sickbay.ports import Host

LIMIT_S = 5.0
_NUMBER = r"(\d{1,8}(?:\.\d{1,8}){1,4})"
_GPUS = "/proc/driver/nvidia/gpus"


def versions(host: Host) -> dict[str, str]:
    """name -> version, only those that were found: driver, kernel, vbios, gsp, cuda, efa, nccl, fabricmanager ..."""
    found: dict[str, str] = {}
    for name, look in _LOOKS:
        value = look(host)
        if value:
            found[name] = value[:64]
    return found


def _first(pattern: str, text: str | None) -> str:
    found = re.search(pattern, text or "")
    return found.group(1).strip() if found else ""


def _driver(host: Host) -> str:
    said = host.read("/proc/driver/nvidia/version")
    return _first(_NUMBER, host.read("/sys/module/nvidia/version")) or _first(
        rf"Module[^\n]{{0,80}}?\s\s{_NUMBER}", said
    )


def _of_gpus(field: str) -> Callable[[Host], str]:
    """All the different values, for one board with another VBIOS is what one looks for."""

    def look(host: Host) -> str:
        values = {_first(rf"(?m)^{field}:[ \t]*([\w.]+)", text) for text in _informations(host)}
        return ",".join(sorted(value for value in values if value and "?" not in value))

    return look


def _informations(host: Host) -> Iterator[str]:
    for name in (host.names(_GPUS) or ())[:64]:
        yield host.read(f"{_GPUS}/{name}/information") or ""


def _kernel(host: Host) -> str:
    return (host.read("/proc/sys/kernel/osrelease") or "").strip()


def _cuda(host: Host) -> str:
    text = host.read("/usr/local/cuda/version.json") or ""
    return _first(rf'"cuda"\s*:\s*\{{[^}}]*?"version"\s*:\s*"{_NUMBER}"', text) or _first(
        rf"CUDA Version {_NUMBER}", host.read("/usr/local/cuda/version.txt")
    )


def _efa(host: Host) -> str:
    return _first(rf"EFA installer version:\s*{_NUMBER}", host.read("/opt/amazon/efa_installed_packages"))


def _efa_driver(host: Host) -> str:
    return (host.read("/sys/module/efa/version") or "").strip()


def _nccl(host: Host) -> str:
    text = host.read("/usr/include/nccl.h") or host.read("/usr/local/cuda/include/nccl.h") or ""
    parts = [_first(rf"(?m)^#define NCCL_{name}\s+(\d{{1,4}})\s*$", text) for name in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(parts) if all(parts) else ""


def _fabricmanager(host: Host) -> str:
    done = host.run(("nv-fabricmanager", "--version"), LIMIT_S)
    return _first(_NUMBER, f"{done.stdout}\n{done.stderr}")


def _image(host: Host) -> str:
    return _first(r'(?m)^PRETTY_NAME="?([^"\n]{1,64})', host.read("/etc/os-release"))


_LOOKS: tuple[tuple[str, Callable[[Host], str]], ...] = (
    ("driver", _driver),
    ("vbios", _of_gpus("Video BIOS")),
    ("gsp", _of_gpus("GPU Firmware")),
    ("kernel", _kernel),
    ("os", _image),
    ("cuda", _cuda),
    ("efa", _efa),
    ("efa-driver", _efa_driver),
    ("nccl", _nccl),
    ("fabricmanager", _fabricmanager),
)
