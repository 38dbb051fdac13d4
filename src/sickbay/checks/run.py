"""Runs checks on a Host and returns Findings: what the agent and VERIFY call.

One OK finding for a check that found nothing, so that silence is never mistaken for health; UNKNOWN for a check
that broke. It must never raise for anything a node can print.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from sickbay.catalog import Catalog
from sickbay.checks import BY_NAME
from sickbay.checks.nvidia_smi import inventory
from sickbay.checks.signs import Ask, Check, Sign, Stamp, finding, quote
from sickbay.model import Finding, Gpu, Status
from sickbay.ports import Host


def run(
    host: Host,
    names: Sequence[str],
    catalog: Catalog,
    *,
    answers: str = "",
    expected_gpus: int | None = None,
    at: float,
    cursor: str = "",
    sequence: Iterator[int] | None = None,
    gpus: Sequence[Gpu] = (),
    ask: Ask | None = None,
) -> list[Finding]:
    """The findings of these checks, in order. Ids are "<boot id>/<n>", n from `sequence` (the agent's own counter).

    `gpus` is the agent's map from its last healthy cycle: it puts a serial and an address on what names only an index.
    `ask` is what the caller knows beyond that: profile, series of earlier polls, limits, suite.
    """
    ask = _completed(ask or Ask(), host, expected_gpus, cursor, at)
    numbers = sequence if sequence is not None else count(1)
    boot = _boot_id(host)
    parts = _Parts(gpus)
    found: list[Finding] = []
    for name in names:
        stamp = Stamp(name, host.name, boot, at, answers)
        found += [finding(parts.placed(sign), catalog, stamp, next(numbers)) for sign in _signs(host, name, ask, parts)]
    return found


def _completed(ask: Ask, host: Host, expected: int | None, cursor: str, at: float) -> Ask:
    known = expected if expected is not None else ask.expected_gpus
    if known is None and ask.profile is not None:
        known = ask.profile.gpus or None
    uptime = ask.uptime_s if ask.uptime_s is not None else _uptime(host)
    return replace(ask, expected_gpus=known, cursor=cursor or ask.cursor, at=at, uptime_s=uptime)


def _uptime(host: Host) -> float | None:
    try:
        return float((host.read("/proc/uptime") or "").split()[0])
    except (ValueError, IndexError):
        return None


class _Parts:
    """Which GPU is meant by an index or an address."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.learn(gpus)

    def learn(self, gpus: Sequence[Gpu]) -> None:
        self.by_index = {str(gpu.index): gpu for gpu in gpus}
        self.by_pci = {gpu.pci: gpu for gpu in gpus}

    def placed(self, sign: Sign) -> Sign:
        index = "" if sign.device else sign.traits.get("index", "")
        gpu = self.by_pci.get(sign.device) or self.by_index.get(index)
        return replace(sign, device=gpu.pci, part=sign.part or gpu.serial) if gpu else sign


def _boot_id(host: Host) -> str:
    try:
        return host.boot_id()
    except Exception:
        return ""


def _signs(host: Host, name: str, ask: Ask, parts: _Parts) -> list[Sign]:
    check = BY_NAME.get(name)
    if check is None:
        return [Sign("tool.failed", f"there is no check named {name!r}", status=Status.UNKNOWN)]
    told = _tried(host, check, ask, parts)
    sick = any(sign.code for sign in told)
    return told if sick else [*told, Sign("", f"{name}: nothing found", status=Status.OK)]


def _tried(host: Host, check: Check, ask: Ask, parts: _Parts) -> list[Sign]:
    try:
        reading = check.collect(host, ask)
        if check.name == "nvidia-smi" and not parts.by_pci:
            parts.learn(inventory(reading.done.stdout))
        if check.samples is not None:
            ask.series.add(ask.at, check.samples(reading))
        return check.judge(reading, ask)
    except Exception as broken:  # a check that breaks has seen nothing: the boundary where that becomes UNKNOWN
        said = f"{check.name} broke: {type(broken).__name__}"
        return [Sign("tool.failed", said, evidence=quote(str(broken)), status=Status.UNKNOWN)]
