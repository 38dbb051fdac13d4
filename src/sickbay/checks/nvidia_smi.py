"""Check 0: nvidia-smi. Are all GPUs there, and does any of them ask for a reset, a reboot or a replacement?

`checks/run` calls it on a Host; `sickbay diagnose` uses `signs` on a file. NVML is asked where its library is
installed (`checks/nvml`), the command line otherwise. Exit codes are not believed: 0 and 6 have both been seen with a
GPU lost, and the text may be on either stream. No tool and no answer are UNKNOWN, never OK; nor is a GPU count that
nothing is known to compare with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from sickbay.catalog.thresholds import thresholds
from sickbay.checks import nvml, smi_csv, smi_memory
from sickbay.checks.kernel_lines import device
from sickbay.checks.signs import Ask, Check, Reading, Sign, quote, unusable
from sickbay.checks.smi_memory import Trouble
from sickbay.checks.smi_text import Card, Report, known, parse
from sickbay.model import Gpu, Status
from sickbay.ports import Completed, Host

TIMEOUT_S = 60.0


def collect(host: Host, ask: Ask) -> Reading:
    """NVML answers for a node whose GPUs all answer it; anything else is asked of nvidia-smi, whose words we know."""
    told = nvml.ask(host, TIMEOUT_S)
    return Reading(told if told is not None else host.run(("nvidia-smi", "-q"), TIMEOUT_S))


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if blind := unusable(reading.done, "nvidia-smi"):
        return [blind]
    text = _said(reading.done)
    told = [_once(sign, ask) for sign in signs(text, ask.expected_gpus, ask.limits) if not _counted(sign, ask)]
    return [*told, *_rates(_report(text), ask), *_uncounted(_report(text), told, ask)]


def _said(done: Completed) -> str:
    return f"{done.stdout}\n{done.stderr}" if done.stderr else done.stdout


def _report(text: str) -> Report:
    """The table of this text: `-q`, `-q -x`, NVML's, or that of --query-gpu."""
    found = parse(text)
    return found if found.cards or "," not in text else replace(found, cards=smi_csv.report(text).cards)


def samples(reading: Reading) -> dict[str, float]:
    """Corrected errors of each GPU, so that the next polls can tell how fast they come."""
    cards = _report(_said(reading.done)).cards
    counts = ((card.device, smi_memory.corrected(card)) for card in cards if card.device)
    return {_figure(pci): float(value) for pci, value in counts if value is not None}


def keeps(reading: Reading) -> dict[str, str]:
    """The artefacts of the original suite, by its own names and columns."""
    cards = list(zip(inventory(_said(reading.done)), _report(_said(reading.done)).cards, strict=True))
    uuids = [f"{gpu.index}, {gpu.serial or '[N/A]'}, {gpu.uuid}" for gpu, _ in cards]
    status = [", ".join((str(gpu.index), *_ecc_row(card))) for gpu, card in cards]
    return {"gpu-uuids.csv": "\n".join(uuids) + "\n", "ecc-status.csv": "\n".join(status) + "\n"}


def _ecc_row(card: Card) -> Iterator[str]:
    """ecc uncorrected volatile, aggregate, retired_pages.pending, sbe, dbe."""
    counted = any(path.startswith("ecc_errors/") and known(value) for path, value in card.fields.items())
    for when in ("volatile", "aggregate"):
        yield str(smi_memory.uncorrected(card, when)) if counted else "[N/A]"
    yield card.get("retired_pages/pending_page_blacklist") or "[N/A]"
    for pages in smi_memory.retired(card):
        yield "[N/A]" if pages is None else str(pages)


def inventory(text: str) -> tuple[Gpu, ...]:
    """The parts in this node today."""
    lost = {int(found["index"]) for found in _all(_HANDLE, "unable to determine", text) if found["index"]}
    places = (index for index in count() if index not in lost)  # the ones that answer keep their numbers
    return tuple(
        Gpu(card.get("gpu_uuid"), card.get("serial_number"), card.device, index)
        for index, card in zip(places, _report(text).cards, strict=False)
    )


def signs(text: str, expected: int | None = None, limits: Mapping[str, float] | None = None) -> list[Sign]:
    report, most = _report(text), limits or thresholds()
    told = [*_lost(text), *_failures(text)]
    told += [sign for card in report.cards for sign in _card(card, report, most)]
    told += _missing(report, told, expected)
    told += _unread(report)
    if not report.cards and not told:
        told = [
            Sign(
                "tool.unreadable",
                "nvidia-smi printed nothing we can read",
                evidence=quote(*report.loose[:3]),
                status=Status.UNKNOWN,
            )
        ]
    return told


# Where a GPU says how it is. Its name and address only say who it is, and its settings what somebody wanted.
_READINGS = (
    "ecc_errors/", "remapped_rows/", "retired_pages/", "gpu_recovery_action", "inforom_checksum",
    "clocks_event_reasons", "clocks_throttle_reasons", "temperature/", "utilization/", "fb_memory_usage/",
    "gpu_power_readings/", "power_readings/", "clocks/", "fan_speed", "performance_state",
)  # fmt: skip


def _unread(report: Report) -> list[Sign]:
    """GPUs that are listed and of which nothing could be read: we have not looked at them, which is not a pass."""
    blind = [card for card in report.cards if not any(_read(*one) for one in card.fields.items())]
    if not blind:
        return []
    said = f"nvidia-smi lists {len(report.cards)} GPU(s) and shows no reading of the health of {len(blind)} of them"
    names = ", ".join(card.device for card in blind[:8] if card.device)
    shown = quote(*(f"GPU {card.device}: no reading" for card in blind[:3] if card.device))
    return [Sign("tool.unreadable", f"{said}: {names}" if names else said, evidence=shown, status=Status.UNKNOWN)]


def _read(name: str, value: str) -> bool:
    """A reading that failed was told for what it is; "N/A" says nothing at all."""
    return _odd(value) or (name.startswith(_READINGS) and bool(known(value)))


def _once(sign: Sign, ask: Ask) -> Sign:
    """A single look in a suite sees an instant; only the agent's polls can tell that a slowdown lasts."""
    if sign.code != "smi.slowdown-hw" or not ask.suite:
        return sign
    return replace(sign, status=Status.DEGRADED)


def _counted(sign: Sign, ask: Ask) -> bool:
    """Where gpu-slowdown keeps count of this GPU, its count decides and not an instant."""
    return sign.code == "smi.slowdown-hw" and f"gpu-slowdown/{sign.device}/active" in ask.series.points


def _figure(pci: str) -> str:
    return f"nvidia-smi/{pci}/ecc-corrected"


def _rates(report: Report, ask: Ask) -> Iterator[Sign]:
    for card in report.cards:
        rise = ask.series.rise(_figure(card.device), ask.at - 3600)
        if rise > ask.limits["ecc-corrected-per-hour"]:
            said = f"{rise:.0f} corrected memory errors within an hour on {card.device}; nothing is lost yet"
            shown = quote(f"GPU {card.device}: {smi_memory.corrected(card)} corrected since the driver loaded")
            traits = {**_traits(card, report), "measure.ecc-corrected-per-hour": f"{rise:.0f}"}
            part = card.get("serial_number")
            yield Sign("smi.ecc-corrected", said, card.device, shown, Status.DEGRADED, part=part, traits=traits)


def _uncounted(report: Report, told: list[Sign], ask: Ask) -> Iterator[Sign]:
    """Nobody told us how many GPUs belong here: the count is unknown, which is not a pass (originals 002.12 #3)."""
    if ask.expected_gpus is not None or not report.cards or any(sign.code == "smi.gpu-missing" for sign in told):
        return
    seen = len(report.cards)
    said = f"{seen} GPU(s) answer, but this node's type is not known, so we cannot tell whether one is missing"
    yield Sign("smi.count-unknown", said, evidence=quote(f"{seen} GPUs listed"), status=Status.UNKNOWN)


# Five spellings: "gpu 0000:08:00.0:", "GPU 0000:05:00.0:", "GPU0000:25:00.0:", "GPU3: 0000:5F:00.0:", "GPU2:".
_HANDLE = re.compile(
    r"Unable to determine the device handle for GPU\s?(?:(?P<index>\d{1,3}):\s?)?"
    r"(?P<bdf>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])?:?\s*(?P<tail>[^\n]*)",
    re.IGNORECASE,
)


def _all(pattern: re.Pattern[str], words: str, text: str) -> list[re.Match[str]]:
    """What it finds is rare, and it ignores case, which makes a long report slow to search: so first for its words."""
    return list(pattern.finditer(text)) if words in text.lower() else []


def _lost(text: str) -> Iterator[Sign]:
    for found in _all(_HANDLE, "unable to determine", text)[:64]:
        where = device(found["bdf"]) if found["bdf"] else ""
        traits = {"index": found["index"]} if found["index"] else {}
        name = where or (f"GPU {found['index']}" if found["index"] else "a GPU")
        yield Sign("smi.gpu-lost", f"nvidia-smi cannot reach {name}", where, quote(found.group()), traits=traits)


# What the tool itself says when it cannot work. None of these is evidence about a GPU, except that there is none.
_TOOL = (
    (
        re.compile(r"No devices (?:were )?found"),
        "smi.gpu-missing",
        "nvidia-smi finds no GPU at all",
        None,
    ),
    (
        re.compile(r"Driver/library version mismatch"),
        "tool.failed",
        "the driver was updated under the library: reload or reboot",
        Status.UNKNOWN,
    ),
    (
        re.compile(r"Failed to initialize NVML"),
        "tool.failed",
        "NVML does not start here (in a container: device access was lost)",
        Status.UNKNOWN,
    ),
    (
        re.compile(r"couldn't communicate with the NVIDIA driver"),
        "tool.failed",
        "the NVIDIA driver is not running",
        Status.UNKNOWN,
    ),
)
_INFOROM = re.compile(
    r"infoROM is corrupted at gpu ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)", re.IGNORECASE
)


def _failures(text: str) -> Iterator[Sign]:
    for pattern, code, reason, status in _TOOL:
        if found := pattern.search(text):
            yield Sign(code, reason, evidence=quote(_line(text, found)), status=status)
            return
    for corrupt in _all(_INFOROM, "inforom is corrupted", text)[:64]:
        where = device(corrupt.group(1))
        yield Sign("smi.inforom-corrupt", f"the infoROM of {where} is corrupt", where, quote(corrupt.group()))


def _line(text: str, found: re.Match[str]) -> str:
    """The whole line. A pattern that asks for it (`^.*`) tries every line of a report of thousands to its end."""
    begin, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.end())
    return text[begin : end if end >= 0 else None]


def _missing(report: Report, told: list[Sign], expected: int | None) -> list[Sign]:
    """Fewer GPUs than there should be, beyond those already reported lost. More: the profile is wrong, not the node."""
    lost = sum(sign.code == "smi.gpu-lost" for sign in told)
    if not report.cards and not lost:
        return []
    want = max(expected or 0, report.attached or 0 if report.driver else 0)
    gone = want - len(report.cards) - lost
    shown = quote(f"{len(report.cards)} of {want} GPUs listed")
    if expected and len(report.cards) > expected:
        said = f"{len(report.cards)} GPUs here, and {expected} expected: the profile does not fit this node"
        return [Sign("smi.gpu-surplus", said, evidence=shown)]
    if gone <= 0 or any(sign.code == "smi.gpu-missing" for sign in told):
        return []
    if not expected and lost == 0 and len(report.cards) == 1:  # a table cut to one GPU by whoever saved it (-i)
        return []
    return [Sign("smi.gpu-missing", f"{gone} of {want} GPUs missing", evidence=shown, traits={"missing": str(gone)})]


_RECOVERY = {
    "none": "",
    "reset": "reset",
    "gpu reset": "reset",
    "reboot": "reboot",
    "node reboot": "reboot",
    "drain p2p": "drain",
    "drain and reset": "drain",
}
_SLOW = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
_REASONS = (
    "clocks_event_reasons",
    "clocks_event_reasons/hw_slowdown",
    "clocks_throttle_reasons",
    "clocks_throttle_reasons/hw_slowdown",
)


def _card(card: Card, report: Report, limits: Mapping[str, float]) -> Iterator[Sign]:
    traits, part = _traits(card, report), card.get("serial_number")
    for trouble in (*smi_memory.troubles(card, limits), *_asks(card), *_settings(card)):
        shown = quote(f"GPU {card.device}: {trouble.name} : {trouble.value}")
        said = f"{trouble.reason} on {card.device}"
        yield Sign(trouble.code, said, card.device, shown, trouble.status, part=part, traits=traits)


def _asks(card: Card) -> Iterator[Trouble]:
    """What the GPU wants done, what slows it down, and what it can no longer read about itself."""
    action = card.get("gpu_recovery_action")
    wanted = _recovery(action)
    if wanted:
        yield Trouble(f"smi.recovery-action-{wanted}", f"the driver asks for: {action}", "gpu_recovery_action", action)
    if slow := slowed(card):
        yield Trouble("smi.slowdown-hw", "hardware slows the clocks down", slow, "Active")
    if card.get("inforom_checksum_validation").lower() == "invalid":
        yield Trouble("smi.inforom-corrupt", "the infoROM's check sum is wrong", "inforom checksum", "invalid")
    odd = next(((name, value) for name, value in card.fields.items() if _odd(value)), None)
    if odd is not None and "requires reset" in odd[1].lower() and not wanted:
        yield Trouble("smi.recovery-action-reset", "readings are refused until a reset", *odd)
    elif odd is not None:
        yield Trouble("smi.unknown-error", "some readings of this GPU fail", *odd)


def _odd(value: str) -> bool:
    """A reading that the GPU should have given. "N/A" is not one of these: it only says that there is no such thing."""
    return value[:1] in "[UuG" and value.strip("[]").lower() in ("unknown error", "gpu requires reset", "gpu is lost")


def _settings(card: Card) -> Iterator[Trouble]:
    """How the GPU is set up: configuration, never hardware."""
    if "GeForce" in card.get("product_name"):
        return
    if card.get("persistence_mode").lower() == "disabled":
        yield Trouble("smi.persistence-off", "persistence mode is off", "persistence_mode", "Disabled")


def _recovery(action: str) -> str:
    """By the words, since newer drivers have new ones: "PF FLR", "OS Reboot", "Bus Reset"."""
    lower = action.lower()
    if lower in _RECOVERY:
        return _RECOVERY[lower]
    words = (("reboot", "reboot"), ("drain", "drain"), ("reset", "reset"), ("flr", "reset"))
    return next((wanted for word, wanted in words if word in lower), "")


def slowed(card: Card) -> str:
    """Which hardware reason holds the clocks down, "" if none. A power cap, idleness and set clocks are no such."""
    return next((s for s in _SLOW if any(card.fields.get(f"{r}/{s}") == "Active" for r in _REASONS)), "")


def _traits(card: Card, report: Report) -> dict[str, str]:
    traits = {
        "gpu_model": card.get("product_name"),
        "driver": report.driver,
        "mig": card.get("mig_mode/current").lower(),
    }
    return {name: value for name, value in traits.items() if value}


CHECK = Check("nvidia-smi", 0, collect, judge, samples, file="0-nvidia-smi", keeps=keeps)
