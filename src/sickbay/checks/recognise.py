"""What kind of text is this? Kernel log, DCGM result, nvidia-smi output, exporter metrics, or a training job's log.

`sickbay diagnose` asks about the beginning (and the end) of a file. A guess; `--kind` overrides it. It must never
raise.
"""

from __future__ import annotations

import re

from sickbay.checks import dcgm_output, job_log

KINDS = ("kernel", "dcgm", "smi", "metrics", "joblog")

_SMI = re.compile(r"<nvidia_smi_log|=NVSMI LOG=")
_SMI_FAILED = re.compile(
    r"^(?:Unable to determine the device handle for|Failed to initialize NVML|No devices (?:were )?found"
    r"|NVIDIA-SMI has failed|WARNING: infoROM is corrupted)",
    re.MULTILINE,
)
_FIELD = re.compile(r"[a-z][\w.]*(?: \[[^\]]{1,8}\])?")
_SMI_FIELD = re.compile(
    r"(?:pci\.bus_id|gpu_bus_id|gpu_uuid|driver_version|temperature\.gpu)$|(?:remapped_rows|ecc\.errors)\."
)
_DCGM_DEAD = re.compile(r"\s*Error: unable to establish a connection to the specified host", re.IGNORECASE)
_METRICS = re.compile(r"^(?:# (?:HELP|TYPE) )?DCGM_(?:FI|EXP)_\w+[ {]", re.MULTILINE)
_KERNEL = re.compile(
    r"\s*(?:\d+,\d+,\d+,[^;]{0,64};|<\d+>\[|\[\s*\d+(?:\.\d+)?\]|\[\w{3} \w{3}\s+\d+ [\d:]+ \d{4}\]"
    r"|kern\s*:\w+\s*:|kernel:"
    r"|(?:\S+\s+\d+\s+|\d{4}-\d\d-\d\dT)[\d:.,+-]+Z?\s+\S+\s+[\w./()-]+(?:\[\d+\])?:\s|NVRM:|nvidia-\w+:"
    r"|\{\"?.{0,400}\"_TRANSPORT\")"
)
_PASTED = re.compile(r"\s*(?:NVRM:|nvidia-\w+:)")
_BARE = re.compile(
    r"\s*(?:(?:ACPI|PCI|EXT4-fs|mlx5_core|pcieport|EDAC|mce|usb|IPMI|ipmi|efa|ena|infiniband|LustreError"
    r"|Out of memory|oom|watchdog"
    r"|INFO: task|Linux version|Kernel|BOOT_IMAGE|Command line|RAS|ERST|iommu|nf_conntrack"
    r"|NETDEV WATCHDOG|XID event|nvme|igb|audit|systemd)\b"
    r"|\[(?:drm|Hardware Error|Firmware \w+|gpu-health)\]|\{\d+\}\[Hardware)"
)
FEW_LINES = 10  # a healthy log of so few lines may hold none that we know by sight


def kind_of(text: str) -> str:
    """One of KINDS, or "" if it looks like none of them."""
    if dcgm_output.DIAG.search(text) or _DCGM_DEAD.match(text):
        return "dcgm"
    if _lists_gpus(text):
        return "smi"
    for kind, pattern in (("smi", _SMI), ("metrics", _METRICS)):
        if pattern.search(text):
            return kind
    if dcgm_output.shape_of(text) and not job_log.looks_like(text):  # a job's log may hold such a table
        return "dcgm"
    lines = _lines(text)
    job = job_log.looks_like(text)
    if _SMI_FAILED.search(text) and not job:  # a job's log may quote it
        return "smi"
    kernel = sum(_KERNEL.match(line) is not None for line in lines)
    bare = sum(_BARE.match(line) is not None for line in lines)
    if kernel * 2 > len(lines):
        return "joblog" if unprefixed(text) and _spoken_beside_the_kernel(lines) else "kernel"
    if job and _others(lines):
        return "joblog"
    return "kernel" if (kernel + bare) * 2 >= len(lines) and kernel + bare else ""


def _lists_gpus(text: str) -> bool:
    """`nvidia-smi --query-gpu=... --format=csv`: its header names fields, one of which only nvidia-smi has."""
    names = text[:16_384].lstrip().partition("\n")[0].strip().split(", ")
    if len(names) < 2 or "pid" in names or not all(_FIELD.fullmatch(name) for name in names):
        return False
    return any(_SMI_FIELD.match(name) for name in names)


def _lines(text: str) -> list[str]:
    return [line[:600] for line in text.splitlines() if line.strip()][:2000]


def _others(lines: list[str]) -> list[str]:
    """Lines that do not look like the kernel's."""
    return [line for line in lines if not _KERNEL.match(line) and not _BARE.match(line)]


def _spoken_beside_the_kernel(lines: list[str]) -> bool:
    """Does a program or a tool speak beside the driver's lines? Then somebody pasted those into its log."""
    return job_log.looks_like("\n".join(_others(lines))) > 0


def unprefixed(text: str) -> bool:
    """No line says which logger wrote it: `dmesg -t`, or lines pasted into something else. Nobody can tell which."""
    lines = _lines(text)
    return bool(lines) and all(_PASTED.match(line) or not _KERNEL.match(line) for line in lines)


def unlike_a_kernel_log(text: str) -> bool:
    """Text of which not one line looks like the kernel's, and enough of it to say so."""
    lines = _lines(text)
    return len(lines) > FEW_LINES and len(_others(lines)) == len(lines)


def binary(block: bytes) -> bool:
    """Not text at all: many NULs, or hardly a printable byte."""
    if not block:
        return False
    odd = block.count(0) + sum(block.count(bytes((byte,))) for byte in (1, 2, 3, 4, 5, 6, 14, 15, 16, 17, 18, 19))
    return odd * 20 > len(block)
