"""Check 3: topology. Are all GPUs joined as this type of node joins them, and is the fabric behind that up?

`checks/run` calls it on a Host. What the links should be comes from the profile alone: without one, nothing is missed,
and only GPUs that differ from their equals are noted. A node that has just booted is still training its links, so
then everything is only watched; the catalog wants three looks in a row for the rest. MIG, a GPU without a bridge, and
the legend under the matrix are no findings (originals 002.12 #14).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sickbay.catalog import Profile
from sickbay.checks import nvlink
from sickbay.checks.nvlink import Links
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote, unusable
from sickbay.checks.smi_text import Card, parse
from sickbay.checks.topology_matrix import Matrix, culprits, matrix, weak, width
from sickbay.model import Status
from sickbay.ports import Completed, Host

TIMEOUT_S = 60.0
SERVICE_TIMEOUT_S = 10.0
_NONE = Completed(None, "", "", missing=True)

# Machines whose switches stand in trays of their own: fabric manager runs there and not on the node (nvidia-fm).
_SWITCHES_ELSEWHERE = re.compile(r"\bGB\d00")


def collect(host: Host, ask: Ask) -> Reading:
    done = host.run(("nvidia-smi", "topo", "-m"), TIMEOUT_S)
    if unusable(done, "nvidia-smi"):  # the other calls would only wait in the same place
        return Reading(done)
    outputs = {"nvlink": host.run(("nvidia-smi", "nvlink", "-s"), TIMEOUT_S)}
    if linked(ask.profile):
        outputs["q"] = host.run(("nvidia-smi", "-q"), TIMEOUT_S)
    if has_fabric_manager(ask.profile):
        service = host.run(("systemctl", "is-active", "nvidia-fabricmanager"), SERVICE_TIMEOUT_S)
        outputs["service"] = service
        if service.stdout.strip() != "active":
            outputs["process"] = host.run(("pgrep", "-f", "nv-fabricmanager"), SERVICE_TIMEOUT_S)
    return Reading(done, outputs=outputs)


def keeps(reading: Reading) -> dict[str, str]:
    return {"topo-matrix.txt": reading.done.stdout}


def linked(profile: Profile | None) -> bool:
    return profile is not None and width(profile.nvlink) > 0


def has_fabric_manager(profile: Profile | None) -> bool:
    return linked(profile) and profile is not None and not _SWITCHES_ELSEWHERE.search(profile.gpu_model)


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if blind := unusable(reading.done, "nvidia-smi"):
        return [blind]
    found = matrix(reading.done.stdout)
    if not found.rows:
        lines = f"{reading.done.stdout}\n{reading.done.stderr}".splitlines()
        said = "nvidia-smi topo -m printed no matrix we can read"
        return [Sign("tool.unreadable", said, evidence=quote(*lines), status=Status.UNKNOWN)]
    links = nvlink.states(reading.outputs.get("nvlink", _NONE).stdout)
    told = [*_rows(found, ask.expected_gpus), *_uneven(links, ask.profile)]
    if linked(ask.profile) and ask.profile is not None:
        told += _expected(found, links, reading, ask.profile)
    return [_graced(sign) for sign in told] if ask.young else told


def _graced(sign: Sign) -> Sign:
    """Links and fabric are still training; a GPU that is not there will not come by waiting."""
    if sign.code == "smi.gpu-missing" or sign.status is not None:
        return sign
    return replace(sign, reason=f"{sign.reason} (the node has just booted)", status=Status.DEGRADED)


def _rows(found: Matrix, expected: int | None) -> Iterator[Sign]:
    seen = len(found.rows)
    if expected and seen != expected:
        code, shown = "smi.gpu-missing" if seen < expected else "smi.gpu-surplus", quote(f"{seen} GPU rows")
        yield Sign(code, f"the topology lists {seen} GPUs where {expected} are expected", evidence=shown)


def _expected(found: Matrix, links: Sequence[Links], reading: Reading, profile: Profile) -> Iterator[Sign]:
    """What is judged only where the profile says that the GPUs are joined by NVLink."""
    down = [_down(gpu, profile) for gpu in links if gpu.note != "mig" and (gpu.inactive or gpu.note == "inactive")]
    spared = {gpu.index for gpu in links if gpu.note == "mig"}
    named = {int(sign.traits["index"]) for sign in down}
    thin = weak(found.paths, width(profile.nvlink), spared)
    pcie_only = len(thin) == len(found.paths) > 0 and not any(width(path) for path in thin.values())
    if pcie_only:
        yield _absent(thin, profile)
    else:
        yield from down
        yield from _narrow({pair: path for pair, path in thin.items() if not named.intersection(pair)}, profile)
    yield from _fabric(reading.outputs.get("q", _NONE))
    yield from _manager(reading)


def _absent(thin: dict[tuple[int, int], str], profile: Profile) -> Sign:
    kinds = ", ".join(sorted(set(thin.values())))
    said = f"no GPU reaches another over NVLink ({kinds} only), where {profile.type} has {profile.nvlink}"
    return Sign("smi.nvlink-absent", said, evidence=quote(f"{len(thin)} pairs of GPUs: {kinds}"), count=len(thin))


def _down(gpu: Links, profile: Profile) -> Sign:
    lost = len(gpu.inactive) or width(profile.nvlink)
    which = ", ".join(map(str, sorted(gpu.inactive))) or "all"
    said = f"{lost} of {width(profile.nvlink)} NVLinks of GPU {gpu.index} are inactive"
    traits = {"index": str(gpu.index), "gpu_model": gpu.name, "measure.nvlinks-inactive": str(lost)}
    return Sign("smi.nvlink-inactive", said, evidence=quote(f"GPU {gpu.index}: inactive: {which}"), traits=traits)


def _narrow(thin: dict[tuple[int, int], str], profile: Profile) -> Iterator[Sign]:
    blamed, unclear = culprits(thin)
    for gpu in blamed:
        shown = {path for pair, path in thin.items() if gpu in pair}
        said = f"GPU {gpu} reaches the others over {'/'.join(sorted(shown))}, where {profile.nvlink} is expected"
        lines = [f"GPU{a} - GPU{b}: {path}" for (a, b), path in thin.items() if gpu in (a, b)]
        yield Sign("smi.nvlink-narrow", said, evidence=quote(*lines), traits={"index": str(gpu)})
    if unclear:
        a, b = unclear[0]
        said = f"GPU {a} and GPU {b} are joined by {thin[a, b]}, where {profile.nvlink} is expected; either may be ill"
        lines = [f"GPU{x} - GPU{y}: {thin[x, y]}" for x, y in unclear]
        yield Sign("smi.nvlink-narrow", said, evidence=quote(*lines), count=len(unclear))


def _uneven(links: Sequence[Links], profile: Profile | None) -> Iterator[Sign]:
    """Without a profile: GPUs of one model in one node have the same number of links, unless something is wrong."""
    if profile is not None:
        return
    for name in {gpu.name for gpu in links}:
        alike = [gpu for gpu in links if gpu.name == name and not gpu.note]
        most = max((len(gpu.active) for gpu in alike), default=0)
        for gpu in (gpu for gpu in alike if gpu.inactive and len(gpu.active) < most):
            said = f"GPU {gpu.index} has {len(gpu.active)} active NVLinks, others of its kind here have {most}"
            shown = quote(f"GPU {gpu.index}: inactive: {', '.join(map(str, sorted(gpu.inactive)))}")
            yield Sign("smi.nvlink-uneven", said, evidence=shown, traits={"index": str(gpu.index)})


def _fabric(done: Completed) -> Iterator[Sign]:
    """A GPU that has not joined its fabric cannot talk to the others, whatever its links say."""
    cards = [card for card in parse(done.stdout).cards if card.get("mig_mode/current").lower() != "enabled"]
    outside = [(card, trouble) for card in cards if (trouble := fabric_trouble(card))]
    if outside and len(outside) == len(cards) > 1:
        said = f"none of the {len(cards)} GPUs has joined the NVLink fabric ({outside[0][1]})"
        yield Sign("smi.fabric-not-ready", said, evidence=quote(f"Fabric: {outside[0][1]}"), count=len(outside))
        return
    for card, trouble in outside:
        said = f"GPU {card.device} has not joined the NVLink fabric ({trouble})"
        shown = quote(f"GPU {card.device}: Fabric: {trouble}")
        yield Sign("smi.fabric-not-ready", said, card.device, shown, part=card.get("serial_number"))


def fabric_trouble(card: Card) -> str:
    """What the GPU says about its place in the fabric; "" if it is in, or has no such thing."""
    state, status = card.get("fabric/state"), card.get("fabric/status")
    if state.lower() in ("not started", "in progress"):
        return f"State: {state}"
    if state.lower() == "completed" and status.lower() not in ("", "success"):
        return f"Status: {status}"
    summary = card.get("fabric/health/summary")
    return f"Health: {summary}" if summary.lower().startswith(("unhealthy", "limited")) else ""


def _manager(reading: Reading) -> Iterator[Sign]:
    """systemd's word counts; where there is no systemd (a container), a process of that name does."""
    service, process = reading.outputs.get("service", _NONE), reading.outputs.get("process", _NONE)
    state = service.stdout.strip()
    if state == "active" or "service" not in reading.outputs or (process.code == 0 and process.stdout.strip()):
        return
    told = state in ("inactive", "failed", "deactivating", "activating")
    if not told and process.code != 1:  # pgrep: 1 is "no such process", anything else "I could not look"
        said = "neither systemctl nor pgrep can say whether fabric manager runs"
        yield Sign("tool.failed", said, evidence=quote(service.stderr, process.stderr), status=Status.UNKNOWN)
        return
    said = "fabric manager is not running, so the next job cannot use all GPUs together"
    shown = quote(f"nvidia-fabricmanager: {state or 'no such process'}")
    # A container may not see the host's processes: a process that we miss is only watched.
    yield Sign("smi.fabric-manager-down", said, evidence=shown, status=None if told else Status.DEGRADED)


CHECK = Check("topology", 3, collect, judge, file="3-topology-check", keeps=keeps)
