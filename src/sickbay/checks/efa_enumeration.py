"""Check 2: are all EFA adapters there, driven by their driver, offered by libfabric, and usable by programs?

`checks/run` calls it in every cycle; it occupies nothing. Fewer adapters than the profile is the node's fault; modules,
libfabric, limits are a setting's. It must never call a node sick for adapters it was launched without.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from sickbay.checks import efa_text
from sickbay.checks.infiniband_sysfs import adapters, modules
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote
from sickbay.model import Status
from sickbay.ports import Completed, Host

TOOL_S = 20.0
SANITY_S = 30.0  # as the original suite
RETRIES = 3  # p5en brings its adapters up late; as the original suite
RETRY_S = 5.0
PATHS = ("", "/opt/amazon/efa/bin/")  # where the EFA installer puts libfabric's tools
SANITY = ("/opt/gdrcopy/bin/sanity", "/opt/gdrcopy/bin/gdrcopy_sanity", "gdrcopy_sanity")
MODULES = ("efa", "ib_uverbs", "ib_core")
# Runs that somebody started where a job will run: there our own limits and the GPUs may be looked at. An agent's cycle
# has limits of its own and must not touch a GPU that trains.
BEFORE_A_JOB = frozenset({"lightweight", "prolog", "quarantine", "intensive"})


def collect(host: Host, ask: Ask) -> Reading:
    lspci = _counted(host, ask)
    verbs = adapters(host)
    loaded = modules(host)
    devices = host.names("/dev/infiniband")
    files = {
        "infiniband": None if verbs is None else " ".join(adapter.name for adapter in verbs if adapter.efa),
        "modules": None if loaded is None else " ".join(sorted(loaded)),
        "uverbs": None if devices is None else " ".join(name for name in devices if name.startswith("uverbs")),
        "vendor": host.read("/sys/class/dmi/id/sys_vendor"),
    }
    outputs: dict[str, Completed] = {}
    if efa_text.listed(lspci.stdout).present or files["infiniband"]:
        outputs["fi_info"] = tool(host, ("fi_info", "-p", "efa"), TOOL_S)
        if ask.suite in BEFORE_A_JOB:
            outputs["gdrcopy"] = _sanity(host)
            files["limits"] = host.read("/proc/self/limits")
    return Reading(lspci, outputs=outputs, files=files)


def tool(host: Host, argv: Sequence[str], timeout_s: float) -> Completed:
    """A tool of libfabric, from the PATH or from where the EFA installer puts it."""
    done = Completed(None, "", "", missing=True)
    for place in PATHS:
        done = host.run((place + argv[0], *argv[1:]), timeout_s)
        if not done.missing:
            break
    return done


def _counted(host: Host, ask: Ask) -> Completed:
    done = _pci(host)
    wanted = expected(ask) or 0
    if ask.profile is not None and ask.profile.type.startswith("p5en"):
        for _ in range(RETRIES):
            if done.missing or len(efa_text.listed(done.stdout).present) >= wanted:
                break
            time.sleep(ask.number("efa-retry-s", RETRY_S))
            done = _pci(host)
    return done


def _pci(host: Host) -> Completed:
    """lspci, or without it the kernel's own list of PCI devices in the same words."""
    done = host.run(("lspci", "-D"), TOOL_S)
    names = host.names("/sys/bus/pci/devices") if done.missing or done.timed_out else None
    if names is None:
        return done
    return Completed(0, "".join(_pci_line(host, name) for name in names), "")


def _pci_line(host: Host, name: str) -> str:
    root = f"/sys/bus/pci/devices/{name}"
    if (host.read(f"{root}/vendor") or "").strip().lower() != efa_text.AMAZON:
        return ""
    device = (host.read(f"{root}/device") or "").strip().lower().removeprefix("0x")
    return f"{name} Amazon.com, Inc. Device {device}\n"


def _sanity(host: Host) -> Completed:
    done = Completed(None, "", "", missing=True)
    for place in SANITY:
        done = host.run((place, "-v"), SANITY_S)
        if not done.missing:
            break
    return done


def expected(ask: Ask) -> int | None:
    """How many there should be: a setting for nodes launched with fewer, else the profile's. 0: not judged."""
    if "efa-count" in ask.options:
        return int(ask.number("efa-count", 0))
    return None if ask.profile is None else ask.profile.efas


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    found = efa_text.listed(reading.done.stdout)
    verbs = _words(reading, "infiniband")
    if not found.present and not found.fell and not verbs:
        return _none(reading, ask)
    told = [_fell(address) for address in found.fell]
    told += _count(len(found.present) or len(verbs), found, ask)
    told += _driver(found, verbs, reading, ask)
    told += _libfabric(max(len(verbs), 1), reading)
    told += _surroundings(len(verbs), reading, ask)
    return told


def samples(reading: Reading) -> dict[str, float]:
    """How many were seen, for the day on which none is."""
    seen = len(efa_text.listed(reading.done.stdout).present) or len(_words(reading, "infiniband"))
    return {"efa-enumeration/all/seen": float(seen)}


def _words(reading: Reading, name: str) -> list[str]:
    return (reading.files.get(name) or "").split()


def _none(reading: Reading, ask: Ask) -> list[Sign]:
    """No adapter at all: lost, never attached, not a machine that has any, or we could not look."""
    wanted = expected(ask)
    if reading.done.missing or reading.done.timed_out:
        return [] if wanted == 0 else [_blind(reading.done)]
    if wanted:
        return [_all_gone(wanted, ask)]
    amazon = efa_text.on_amazon(reading.done.stdout) or "Amazon" in (reading.files.get("vendor") or "")
    if wanted is None and amazon:
        return [_untyped(0)]
    return [Sign("", "no EFA adapter is here and none is expected, so there was nothing to count", status=Status.OK)]


def _blind(done: Completed) -> Sign:
    why = "is not installed here" if done.missing else "did not answer in time"
    code = "tool.missing" if done.missing else "tool.timeout"
    said = f"lspci {why} and the kernel's list cannot be read, so EFA adapters were not counted"
    return Sign(code, said, status=Status.UNKNOWN)


def _all_gone(wanted: int, ask: Ask) -> Sign:
    if any(value for _, value in ask.series.points.get("efa-enumeration/all/seen", ())):
        return Sign(
            "nic.missing", f"all {wanted} EFA adapters of this node are gone from the PCI bus", status=_grace(ask)
        )
    said = f"none of {wanted} EFA adapters is here or was ever seen: was the instance launched without them?"
    return Sign("efa.none", said)


def _untyped(seen: int) -> Sign:
    said = f"{seen} EFA adapters are here; the type of this node is not known, so we cannot tell whether one is missing"
    return Sign("profile.unknown", said, status=Status.UNKNOWN)


def _grace(ask: Ask) -> Status | None:
    return Status.DEGRADED if ask.young else None


def _fell(address: str) -> Sign:
    said = f"EFA adapter {address} fell off the PCI bus: it is listed but no longer answers"
    return Sign("nic.fell-off-bus", said, _place(address), quote(f"{address} Elastic Fabric Adapter (rev ff)"))


def _place(address: str) -> str:
    """lspci's `00:07.0` -> `0000:00:07`, as devices are called everywhere else."""
    long = address if address.count(":") == 2 else f"0000:{address}"
    return long.rpartition(".")[0]


def _count(seen: int, found: efa_text.Listed, ask: Ask) -> Iterator[Sign]:
    wanted = expected(ask)
    if wanted is None:
        yield _untyped(seen)
    elif wanted == 0:
        said = f"{seen} EFA adapters are here; the profile gives no number for this type, so they were not counted"
        yield Sign("", said, status=Status.OK)
    elif seen + len(found.fell) < wanted:
        said = f"{seen} of {wanted} EFA adapters are here: {wanted - seen} missing from the PCI bus"
        yield Sign("nic.missing", said, evidence=quote(*found.present[:4]), status=_grace(ask), count=wanted - seen)
    elif seen > wanted:
        yield Sign("efa.count-differs", f"{seen} EFA adapters are here, {wanted} were expected: is the profile old?")


def _driver(found: efa_text.Listed, verbs: list[str], reading: Reading, ask: Ask) -> Iterator[Sign]:
    loaded = _words(reading, "modules")
    absent = [name for name in MODULES if loaded and name not in loaded]
    for name in absent:
        yield Sign("efa.module", f"kernel module {name} is not loaded, and EFA needs it", traits={"module": name})
    idle = len(found.present) - len(verbs)
    if idle > 0 and "efa" not in absent and reading.files.get("infiniband") is not None:
        said = f"{idle} of {len(found.present)} EFA adapters are on the PCI bus but their driver did not start them"
        yield Sign("nic.unbound", said, evidence=quote(" ".join(verbs)), status=_grace(ask), count=idle)


def _libfabric(wanted: int, reading: Reading) -> Iterator[Sign]:
    done = reading.outputs.get("fi_info")
    if done is None:
        return
    if done.missing or done.timed_out:
        why = "is not installed here" if done.missing else "did not answer in time"
        code = "tool.missing" if done.missing else "tool.timeout"
        said = f"fi_info {why}, so we cannot tell whether libfabric offers the adapters"
        yield Sign(code, said, status=Status.UNKNOWN)
        return
    offered = efa_text.domains(done.stdout)
    if len(offered) < wanted:
        error = efa_text.fi_error(f"{done.stdout}\n{done.stderr}")
        said = f"libfabric offers {len(offered)} of {wanted} EFA adapters"
        yield Sign("efa.provider", said, evidence=quote(error, " ".join(offered)))


def _surroundings(verbs: int, reading: Reading, ask: Ask) -> Iterator[Sign]:
    """What programs need besides the adapters: device files, GDRCopy, lockable memory."""
    devices = reading.files.get("uverbs")
    if len((devices or "").split()) < verbs:
        yield Sign("efa.uverbs", f"{len((devices or '').split())} device files in /dev/infiniband for {verbs} adapters")
    yield from _gdrcopy(reading)
    locked = memlock_gib(reading.files.get("limits") or "")
    if locked is not None and locked < ask.limits["memlock-gib"]:
        said = (
            f"processes may lock {locked:.3g} GiB of memory; EFA needs {ask.limits['memlock-gib']:.0f} GiB or no limit"
        )
        yield Sign("efa.memlock", said)


def _gdrcopy(reading: Reading) -> Iterator[Sign]:
    done = reading.outputs.get("gdrcopy")
    if done is None or done.missing:
        return
    loaded = _words(reading, "modules")
    if loaded and "gdrdrv" not in loaded:
        yield Sign("efa.gdrcopy", "GDRCopy is installed, and its kernel module gdrdrv is not loaded")
    elif done.timed_out or done.code != 0:
        end = "did not end in time" if done.timed_out else f"ended with exit code {done.code}"
        last = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()][-2:]
        yield Sign("efa.gdrcopy", f"GDRCopy's own sanity test {end}", evidence=quote(*last))


def memlock_gib(limits: str) -> float | None:
    """The soft limit in /proc/self/limits; None: no limit, or it is not said there."""
    row = next((line for line in limits.splitlines() if line.startswith("Max locked memory")), "")
    words = row.split()
    return float(words[3]) / 2**30 if len(words) > 3 and words[3].isdecimal() and len(words[3]) <= 20 else None


CHECK = Check("efa-enumeration", 2, collect, judge, samples, file="2-efa-enumeration")
