"""What kind of text is this? Kernel log, DCGM result, nvidia-smi output, exporter metrics, or a training job's log.

`sickbay diagnose` asks about the beginning (and the end) of a file. A guess; `--kind` overrides it. It must never
raise.
"""

from __future__ import annotations

import re

from sickbay.checks import job_log

KINDS = ("kernel", "dcgm", "smi", "metrics", "joblog")

_DCGM = re.compile(r'"DCGM (?:GPU )?Diagnostic"|"test_categories"')
_SMI = re.compile(r"<nvidia_smi_log|=+NVSMI LOG=+")
_SMI_FAILED = re.compile(
    r"^(?:Unable to determine the device handle for|Failed to initialize NVML|No devices (?:were )?found"
    r"|NVIDIA-SMI has failed|WARNING: infoROM is corrupted)",
    re.MULTILINE,
)
_METRICS = re.compile(r"^(?:# (?:HELP|TYPE) )?DCGM_(?:FI|EXP)_\w+[ {]", re.MULTILINE)
_KERNEL = re.compile(
    r"\s*(?:\d+,\d+,\d+,[^;]{0,64};|<\d+>\[|\[\s*\d+(?:\.\d+)?\]|\[\w{3} \w{3}\s+\d+ [\d:]+ \d{4}\]"
    r"|kern\s*:\w+\s*:|kernel:"
    r"|(?:\S+\s+\d+\s+|\d{4}-\d\d-\d\dT)[\d:.,+-]+Z?\s+\S+\s+[\w./()-]+(?:\[\d+\])?:\s|NVRM:|nvidia-\w+:"
    r"|\{\"?.{0,400}\"_TRANSPORT\")"
)
_PASTED = re.compile(r"\s*(?:NVRM:|nvidia-\w+:)")
_BARE = re.compile(
    r"\s*(?:ACPI|PCI|EXT4-fs|mlx5_core|pcieport|EDAC|mce|usb|IPMI|ipmi|efa|ena|infiniband|LustreError"
    r"|Out of memory|oom|watchdog"
    r"|INFO: task|Linux version|Kernel|BOOT_IMAGE|Command line|\[drm\]|\[Hardware Error\]|\{\d+\}\[Hardware|RAS"
    r"|ERST|iommu|nf_conntrack"
    r"|NETDEV WATCHDOG|XID event|nvme|\[gpu-health\]|igb|audit|systemd)\b"
)


def kind_of(text: str) -> str:
    """One of KINDS, or "" if it looks like none of them."""
    for kind, pattern in (("dcgm", _DCGM), ("smi", _SMI), ("metrics", _METRICS)):
        if pattern.search(text):
            return kind
    lines = [line[:600] for line in text.splitlines() if line.strip()][:2000]
    kernel = sum(_KERNEL.match(line) is not None for line in lines)
    pasted = sum(_PASTED.match(line) is not None for line in lines)  # driver lines without a prefix: people paste them
    job = job_log.looks_like(text)
    if _SMI_FAILED.search(text) and not job:  # a job's log may quote it
        return "smi"
    if lines and kernel * 2 > len(lines) and not (job and kernel == pasted):
        return "kernel"
    if job:
        return "joblog"
    bare = sum(_BARE.match(line) is not None for line in lines)
    return "kernel" if lines and (kernel + bare) * 2 >= len(lines) and kernel + bare else ""


def binary(block: bytes) -> bool:
    """Not text at all: many NULs, or hardly a printable byte."""
    if not block:
        return False
    odd = block.count(0) + sum(block.count(bytes((byte,))) for byte in (1, 2, 3, 4, 5, 6, 14, 15, 16, 17, 18, 19))
    return odd * 20 > len(block)
