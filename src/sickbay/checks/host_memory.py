"""host-memory: errors of the host's own memory, as the kernel's EDAC driver counts them.

Corrected ones are watched by rate, uncorrected ones are a fault (only a boot sets the counters to 0). In a virtual
machine there is no EDAC and nothing to see: the provider watches that memory. rasdaemon is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sickbay.checks.signs import Ask, Check, Reading, Sign, quote
from sickbay.model import Status
from sickbay.ports import Completed, Host

NAME = "host-memory"
EDAC = "/sys/devices/system/edac/mc"
MOST = 64  # controllers, and modules of one


@dataclass(frozen=True, slots=True)
class Count:
    """One controller, or one module of it where the kernel tells them apart."""

    name: str
    label: str
    corrected: int
    uncorrected: int


def collect(host: Host, ask: Ask) -> Reading:
    names = host.names(EDAC)
    files: dict[str, str | None] = {}
    if names is None:
        files["virtual"] = "yes" if _is_virtual(host) else "no"
        return Reading(Completed(None, "", "", missing=True), files=files)
    for name in [name for name in names if _numbered(name, "mc")][:MOST]:
        files[f"{name}/ce"] = host.read(f"{EDAC}/{name}/ce_count")
        files[f"{name}/ue"] = host.read(f"{EDAC}/{name}/ue_count")
        for dimm in [one for one in host.names(f"{EDAC}/{name}") or () if _numbered(one, "dimm")][:MOST]:
            _dimm(host, f"{name}/{dimm}", files)
    return Reading(Completed(0, "", ""), files=files)


def _dimm(host: Host, place: str, files: dict[str, str | None]) -> None:
    files[f"{place}/ce"] = host.read(f"{EDAC}/{place}/dimm_ce_count")
    files[f"{place}/ue"] = host.read(f"{EDAC}/{place}/dimm_ue_count")
    files[f"{place}/label"] = host.read(f"{EDAC}/{place}/dimm_label")


def _numbered(name: str, word: str) -> bool:
    return name.startswith(word) and name[len(word) :].isdecimal()


def _is_virtual(host: Host) -> bool:
    """x86 says so among the CPU flags; elsewhere (Grace, Graviton) EC2 machines are virtual but for the .metal ones."""
    if " hypervisor" in (host.read("/proc/cpuinfo") or "")[:65_536]:
        return True
    vendor = (host.read("/sys/class/dmi/id/sys_vendor") or "").strip()
    return vendor == "Amazon EC2" and ".metal" not in (host.read("/sys/class/dmi/id/product_name") or "")


def counts(files: Mapping[str, str | None]) -> Iterator[Count]:
    """Modules where a controller has them, since one that is named can be replaced; else the controller itself."""
    places = [path.removesuffix("/ce") for path in files if path.endswith("/ce")]
    for place in places:
        if any(other.startswith(f"{place}/") for other in places) and not _more_than_modules(place, places, files):
            continue
        label = (files.get(f"{place}/label") or "").strip()[:64]
        yield Count(place, label or place, _number(files.get(f"{place}/ce")), _number(files.get(f"{place}/ue")))


def _more_than_modules(place: str, places: list[str], files: Mapping[str, str | None]) -> bool:
    """The controller counts errors it cannot give to a module, too."""
    modules = [other for other in places if other.startswith(f"{place}/")]
    return any(
        _number(files.get(f"{place}/{kind}")) > sum(_number(files.get(f"{one}/{kind}")) for one in modules)
        for kind in ("ce", "ue")
    )


def _number(text: str | None) -> int:
    word = (text or "").strip()
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 16 else 0


def samples(reading: Reading) -> Mapping[str, float]:
    return {f"{NAME}/{one.name}/corrected": float(one.corrected) for one in counts(reading.files)}


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if reading.done.missing and reading.files.get("virtual") == "yes":
        return []
    if reading.done.missing or not any(text is not None for text in reading.files.values()):
        said = "the kernel counts no memory errors here: its EDAC driver is not loaded"
        return [Sign("tool.missing", said, status=Status.UNKNOWN)]
    return [sign for one in counts(reading.files) for sign in _judged(one, ask)]


def _judged(one: Count, ask: Ask) -> Iterator[Sign]:
    where = {"dimm": one.label}
    if one.uncorrected:
        said = f"{one.uncorrected} uncorrected error(s) in host memory {one.label} since the last boot"
        yield Sign("host.memory-uncorrected", said, evidence=quote(f"{one.name}: ue_count {one.uncorrected}"),
                   count=one.uncorrected, traits=where)  # fmt: skip
    window = ask.limits["host-memory-window-s"]
    rise = ask.series.rise(f"{NAME}/{one.name}/corrected", ask.at - window)
    if rise > ask.limits["host-memory-corrected"]:
        said = f"host memory {one.label} had {rise:.0f} corrected errors within {window / 3600:.0f} h"
        yield Sign("host.memory-corrected", said, evidence=quote(f"{one.name}: ce_count {one.corrected}"), traits=where)


CHECK = Check(NAME, None, collect, judge, samples)
