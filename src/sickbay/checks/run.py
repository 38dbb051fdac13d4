"""Runs checks on a Host and returns Findings: what the agent, VERIFY and `sickbay check` call.

One OK finding for a check that found nothing, so that silence is never mistaken for health; UNKNOWN for a check
that broke. It must never raise for anything a node can print.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from sickbay.catalog import Catalog
from sickbay.checks import BY_NAME
from sickbay.checks.nvidia_smi import inventory
from sickbay.checks.signs import Ask, Check, Reading, Sign, Stamp, finding, quote
from sickbay.errors import CheckError
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
    asked = _completed(ask or Ask(), host, expected_gpus, cursor, at)
    round_ = Round(host, catalog, asked, answers=answers, sequence=sequence, gpus=gpus)
    return [one for name in names for one in round_.answer(name).findings]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one check said, and the raw texts it wants kept (file name -> text)."""

    findings: tuple[Finding, ...]
    kept: Mapping[str, str] = field(default_factory=dict)


class Round:
    """Several checks on one host, one after the other, that share what they learn: which GPU sits where."""

    def __init__(
        self, host: Host, catalog: Catalog, ask: Ask, *, answers: str = "", sequence: Iterator[int] | None = None,
        gpus: Sequence[Gpu] = (),
    ) -> None:  # fmt: skip
        self.ask = _completed(ask, host, None, "", ask.at)
        self._catalog, self._answers, self._node = catalog, answers, host.name
        self._host, self._boot = host, _boot_id(host)
        self._numbers = sequence if sequence is not None else count(1)
        self._parts = _Parts(gpus)

    def answer(self, name: str, host: Host | None = None) -> Answer:
        """Run one. `host`: the same machine through another door, such as one with a time limit."""
        signs, reading = _signs(host or self._host, name, self.ask, self._parts)
        stamp = Stamp(name, self._node, self._boot, self.ask.at, self._answers)
        found = (finding(self._parts.placed(sign), self._catalog, stamp, next(self._numbers)) for sign in signs)
        return Answer(tuple(found), _kept(name, reading))


def _completed(ask: Ask, host: Host, expected: int | None, cursor: str, at: float) -> Ask:
    known = expected if expected is not None else ask.expected_gpus
    if known is None and ask.profile is not None:
        known = ask.profile.gpus or None
    up_s = ask.uptime_s if ask.uptime_s is not None else uptime(host)
    return replace(ask, expected_gpus=known, cursor=cursor or ask.cursor, at=at, uptime_s=up_s)


def uptime(host: Host) -> float | None:
    """Seconds since this host was booted; None: it does not say."""
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


def _signs(host: Host, name: str, ask: Ask, parts: _Parts) -> tuple[list[Sign], Reading | None]:
    check = BY_NAME.get(name)
    if check is None:
        return [Sign("tool.failed", f"there is no check named {name!r}", status=Status.UNKNOWN)], None
    told, reading = _tried(host, check, ask, parts)
    sick = any(sign.code for sign in told)
    return told if sick else [*told, Sign("", f"{name}: nothing found", status=Status.OK)], reading


def _tried(host: Host, check: Check, ask: Ask, parts: _Parts) -> tuple[list[Sign], Reading | None]:
    try:
        reading = check.collect(host, ask)
        if check.name == "nvidia-smi" and not parts.by_pci:
            parts.learn(inventory(reading.done.stdout))
        if check.samples is not None:
            ask.series.add(ask.at, check.samples(reading))
        return check.judge(reading, ask), reading
    except CheckError as blind:  # it says itself, in a sentence, what it could not see
        return [Sign("tool.failed", str(blind)[:400], status=Status.UNKNOWN)], None
    except Exception as broken:  # a check that breaks has seen nothing: the boundary where that becomes UNKNOWN
        said = f"{check.name} broke: {type(broken).__name__}"
        return [Sign("tool.failed", said, evidence=quote(str(broken)), status=Status.UNKNOWN)], None


def _kept(name: str, reading: Reading | None) -> Mapping[str, str]:
    check = BY_NAME.get(name)
    if reading is None or check is None or check.keeps is None:
        return {}
    try:
        return check.keeps(reading)
    except Exception:  # artefacts are a courtesy: the findings stand without them
        return {}
