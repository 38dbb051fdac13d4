"""The NVIDIA GPUs on the PCI bus, and which profiles they fit. The last resort when nobody says what a node is.

It asks sysfs, then lspci; never the driver, which may hang just when it matters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from sickbay.catalog import Profile
from sickbay.catalog.pci_gpus import models
from sickbay.ports import Host

LIMIT_S = 10.0
_DEVICES = "/sys/bus/pci/devices"
_MOST = 4_096
# "53:00.0 0302: 10de:2330 (rev a1)", with a domain in front or not; 0300 and 0302 are GPUs, 0680 is a switch
_LSPCI = re.compile(r"^[0-9a-fA-F:.]{7,16} (?P<class>[0-9a-fA-F]{4}): 10de:(?P<id>[0-9a-fA-F]{4})\b", re.MULTILINE)
_GPU_CLASSES = ("0300", "0302")


def gpu_ids(host: Host) -> tuple[str, ...]:
    """Device id of each NVIDIA GPU on the bus, four hex digits in small letters."""
    names = host.names(_DEVICES)
    if names is not None:
        return tuple(_from_sysfs(host, names[:_MOST]))
    return from_lspci(host.run(("lspci", "-n", "-d", "10de:"), LIMIT_S).stdout)


def _from_sysfs(host: Host, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if _hex(host, name, "vendor") == "10de" and _hex(host, name, "class")[:4] in _GPU_CLASSES:
            yield _hex(host, name, "device")


def _hex(host: Host, name: str, field: str) -> str:
    return (host.read(f"{_DEVICES}/{name}/{field}") or "").strip().lower().removeprefix("0x")


def from_lspci(text: str) -> tuple[str, ...]:
    rows = (row for row, _ in zip(_LSPCI.finditer(text), range(_MOST), strict=False))
    return tuple(row["id"].lower() for row in rows if row["class"] in _GPU_CLASSES)


def guess(ids: Iterable[str], profiles: Mapping[str, Profile], *, ec2: bool) -> tuple[str, str]:
    """(type, why): the one profile that has exactly these GPUs; ("", why) when none or several do.

    On EC2 only its types are asked, elsewhere only others: their names tell (a family, a dot, a size).
    """
    known = Counter(models().get(one, one) for one in ids)
    if not known:
        return "", "no NVIDIA GPU on the PCI bus"
    if len(known) > 1:
        return "", "different GPU models on one PCI bus: " + ", ".join(f"{n} x {m}" for m, n in sorted(known.items()))
    ((model, many),) = known.items()
    fits = [p.type for p in profiles.values() if p.gpus == many and p.gpu_model == model and _sort_of(p.type, ec2)]
    if len(fits) == 1:
        return fits[0], f"{many} x {model} on the PCI bus"
    what = "no profile has" if not fits else f"{' and '.join(sorted(fits))} all have"
    return "", f"{what} {many} x {model}, so the PCI bus does not tell"


def _sort_of(kind: str, ec2: bool) -> bool:
    return ("." in kind) is ec2 and not kind.startswith("simulated")
