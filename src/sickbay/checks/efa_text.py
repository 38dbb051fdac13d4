"""Reads what tools print about EFA adapters: lspci, fi_info, ibv_devices, rdma, fi_pingpong. Pure, and never raises.

efa-enumeration, efa-loopback and efa-counters call it. Names: the kernel calls an adapter efa_0 or rdmap160s27, and
libfabric calls its domain rdmap160s27-rdm or -dgrm. It must never hold a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sickbay.checks.series import step

AMAZON = "0x1d0f"
MOST = 256  # adapters we look at: the largest node has 32
LINES = 65_536  # of one tool's output

# `[1,0]<stdout>:` of mpirun, `0: ` of srun --label, `[rank 1] ` of launchers
_RANK = re.compile(r"^\s*(?:\[\d+,\d+\]<std(?:out|err)>:|\[rank \d+\] ?|\d+: )")
_PCI_LINE = re.compile(r"^((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\s+(.+)$")
# with pci.ids, with -nn, and on a host whose pci.ids is older than the adapter. Not "efa": `grep -i efa` finds default.
_EFA_WORDS = re.compile(r"Elastic Fabric Adapter|\[1d0f:efa[0-9a-f]\]|Amazon\.com, Inc\. Device efa[0-9a-f]\b", re.I)
_FELL = re.compile(r"\(rev ff\)\s*$")  # the device answers every read with ones: it fell off the bus
_KERNEL_NAME = re.compile(r"^(?:efa_\d+|rdmap\d+s\d+(?:f\d+)?)$")
_SUFFIX = re.compile(r"-(?:rdm|dgrm)$")


@dataclass(frozen=True, slots=True)
class Listed:
    """EFA adapters on the PCI bus."""

    present: tuple[str, ...]  # addresses
    fell: tuple[str, ...] = ()  # listed, but no longer answering


def bare(line: str) -> str:
    """The line as the tool printed it, without the launcher's prefix."""
    return _RANK.sub("", line, count=1)


def lines_of(text: str) -> list[str]:
    return [bare(line) for line in text.splitlines()[:LINES]]


def listed(text: str) -> Listed:
    """lspci, with or without -nn, -D and -vvv (whose details are indented)."""
    present: list[str] = []
    fell: list[str] = []
    for line in text.splitlines()[:LINES]:
        found = _PCI_LINE.match(line)
        if found and _EFA_WORDS.search(found[2]):
            (fell if _FELL.search(line) else present).append(found[1].lower())
    return Listed(tuple(dict.fromkeys(present))[:MOST], tuple(dict.fromkeys(fell))[:MOST])


def on_amazon(lspci: str) -> bool:
    return "Amazon.com" in lspci or "[1d0f:" in lspci


def is_efa(name: str, vendor: str | None) -> bool:
    """By the vendor of the PCI device where it can be read; rdmap... is also what udev calls an unknown RDMA device."""
    return vendor.strip().lower() == AMAZON if vendor and vendor.strip() else bool(_KERNEL_NAME.match(name))


def domains(text: str) -> tuple[str, ...]:
    """fi_info: the distinct adapters of the provider efa. One adapter has one to three entries, by libfabric's age."""
    found, provider = [], ""
    for line in lines_of(text):
        key, colon, value = line.strip().partition(":")
        if not colon:
            continue
        if key == "provider":
            provider = value.strip().lower()
        elif key == "domain" and (provider == "efa" or provider.startswith("efa;")):
            found.append(adapter(value.strip()))
    return tuple(dict.fromkeys(name for name in found if name))[:MOST]


def adapter(domain: str) -> str:
    """rdmap0s26-rdm -> rdmap0s26: the kernel's name, which FI_EFA_IFACE takes."""
    return _SUFFIX.sub("", domain[:64])


def fi_error(text: str) -> str:
    """`fi_getinfo: -61 (No data available)`: libfabric is there and finds no such provider."""
    return next((line.strip() for line in lines_of(text) if line.strip().startswith("fi_getinfo:")), "")


def verbs_devices(text: str) -> tuple[str, ...]:
    """ibv_devices: the names, below a head of two lines."""
    rows = [line.split() for line in lines_of(text)]
    names = [row[0] for row in rows if len(row) == 2 and re.fullmatch(r"[0-9a-fA-F:]{16,23}", row[1])]
    return tuple(dict.fromkeys(names))[:MOST]


def rdma_statistics(text: str) -> dict[str, dict[str, float]]:
    """`rdma -p statistic show`: link "rdmap0s26" -> counters. Pairs may follow `link name/1` or stand on own lines."""
    links: dict[str, dict[str, float]] = {}
    current: dict[str, float] = {}
    for line in lines_of(text):
        words = line.split()
        if words[:1] == ["link"]:
            name = words[1].partition("/")[0] if len(words) > 1 else ""
            current = links.setdefault(name, {}) if name and len(links) < MOST else {}
            words = words[2:]
        for key, value in zip(words[::2], words[1::2], strict=False):
            if value.isdecimal() and value.isascii() and len(value) <= 20 and len(current) < MOST:
                current[key] = float(value)
    return links


def pingpong_rows(text: str) -> int:
    """fi_pingpong: how many sizes came back whole (`#sent` equals `=#ack`)."""
    rows = [line.split() for line in lines_of(text)]
    return sum(1 for row in rows if len(row) >= 6 and row[1].isdecimal() and row[2] == f"={row[1]}")


def rises(
    before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """How much each counter of each adapter grew between two looks. One that starts anew grew by what it shows."""
    grown: dict[str, dict[str, float]] = {}
    for name, counters in after.items():
        old = before.get(name, {})
        steps = {key: step(old[key], value) for key, value in counters.items() if key in old}
        grown[name] = {key: grew for key, grew in steps.items() if grew > 0}
    return grown
