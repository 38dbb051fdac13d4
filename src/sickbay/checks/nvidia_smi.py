"""Check 0: nvidia-smi. Are all GPUs there, and does any of them ask for a reset, a reboot or a replacement?

`checks/run` calls it on a Host; `sickbay diagnose` uses `signs` on a file. Exit codes are not believed: 0 and 6
have both been seen with a GPU lost, and the text may be on either stream. No tool and no answer are UNKNOWN, never
OK.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

from sickbay.checks.kernel_lines import device
from sickbay.checks.signs import Ask, Reading, Sign, quote, unusable
from sickbay.checks.smi_text import Card, Report, parse
from sickbay.model import Gpu, Status
from sickbay.ports import Host

TIMEOUT_S = 60.0


def collect(host: Host, ask: Ask) -> Reading:
    return Reading(host.run(("nvidia-smi", "-q"), TIMEOUT_S))


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    if blind := unusable(reading.done, "nvidia-smi"):
        return [blind]
    return signs(f"{reading.done.stdout}\n{reading.done.stderr}", ask.expected_gpus)


def inventory(text: str) -> tuple[Gpu, ...]:
    """The parts in this node today."""
    lost = {int(found["index"]) for found in _HANDLE.finditer(text) if found["index"]}
    places = (index for index in count() if index not in lost)  # the ones that answer keep their numbers
    return tuple(
        Gpu(card.get("gpu_uuid"), card.get("serial_number"), card.device, index)
        for index, card in zip(places, parse(text).cards, strict=False)
    )


def signs(text: str, expected: int | None = None) -> list[Sign]:
    report = parse(text)
    told = [*_lost(text), *_failures(text)]
    told += [sign for card in report.cards for sign in _card(card, report)]
    told += _missing(report, told, expected)
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


# Five spellings: "gpu 0000:08:00.0:", "GPU 0000:05:00.0:", "GPU0000:25:00.0:", "GPU3: 0000:5F:00.0:", "GPU2:".
_HANDLE = re.compile(
    r"Unable to determine the device handle for GPU\s?(?:(?P<index>\d{1,3}):\s?)?"
    r"(?P<bdf>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])?:?\s*(?P<tail>[^\n]*)",
    re.IGNORECASE,
)


def _lost(text: str) -> Iterator[Sign]:
    for found in list(_HANDLE.finditer(text))[:64]:
        where = device(found["bdf"]) if found["bdf"] else ""
        traits = {"index": found["index"]} if found["index"] else {}
        name = where or (f"GPU {found['index']}" if found["index"] else "a GPU")
        yield Sign("smi.gpu-lost", f"nvidia-smi cannot reach {name}", where, quote(found.group()), traits=traits)


# What the tool itself says when it cannot work. None of these is evidence about a GPU, except that there is none.
_TOOL = (
    (
        re.compile(r"^.*No devices (?:were )?found.*$", re.MULTILINE),
        "smi.gpu-missing",
        "nvidia-smi finds no GPU at all",
        None,
    ),
    (
        re.compile(r"^.*Driver/library version mismatch.*$", re.MULTILINE),
        "tool.failed",
        "the driver was updated under the library: reload or reboot",
        Status.UNKNOWN,
    ),
    (
        re.compile(r"^.*Failed to initialize NVML.*$", re.MULTILINE),
        "tool.failed",
        "NVML does not start here (in a container: device access was lost)",
        Status.UNKNOWN,
    ),
    (
        re.compile(r"^.*couldn't communicate with the NVIDIA driver.*$", re.MULTILINE),
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
            yield Sign(code, reason, evidence=quote(found.group()), status=status)
            return
    for corrupt in list(_INFOROM.finditer(text))[:64]:
        where = device(corrupt.group(1))
        yield Sign("smi.inforom-corrupt", f"the infoROM of {where} is corrupt", where, quote(corrupt.group()))


def _missing(report: Report, told: list[Sign], expected: int | None) -> list[Sign]:
    """Fewer GPUs than there should be, beyond those already reported lost."""
    lost = sum(sign.code == "smi.gpu-lost" for sign in told)
    if not report.cards and not lost:
        return []
    want = max(expected or 0, report.attached or 0 if report.driver else 0)
    gone = want - len(report.cards) - lost
    if gone <= 0 or any(sign.code == "smi.gpu-missing" for sign in told):
        return []
    if (
        not expected and lost == 0 and len(report.cards) == 1
    ):  # a table cut to one GPU by whoever saved it (nvidia-smi -i)
        return []
    return [
        Sign(
            "smi.gpu-missing",
            f"{gone} of {want} GPUs missing",
            evidence=quote(f"{len(report.cards)} of {want} GPUs listed"),
            traits={"missing": str(gone)},
        )
    ]


_RECOVERY = {
    "none": "",
    "reset": "reset",
    "gpu reset": "reset",
    "reboot": "reboot",
    "node reboot": "reboot",
    "drain p2p": "drain",
    "drain and reset": "drain",
}
_YES = (
    ("remapped_rows/pending", "smi.remap-pending", "a row remap waits for a reset"),
    ("remapped_rows/remapping_failure_occurred", "smi.remap-failed", "row remapping failed: no spare row left"),
    (
        "ecc_errors/aggregate/sram_threshold_exceeded",
        "smi.sram-threshold",
        "too many SRAM errors: the vendor's threshold is exceeded",
    ),
    ("ecc_errors/channel_repair_pending", "smi.channel-repair-pending", "a memory channel repair waits for a reboot"),
    ("ecc_errors/tpc_repair_pending", "smi.tpc-repair-pending", "a TPC repair waits for a reboot"),
    ("ecc_errors/unrepairable_memory", "smi.unrepairable-memory", "memory that can no longer be repaired"),
    ("retired_pages/pending_page_blacklist", "smi.retired-pending", "retired pages wait for a reset"),
)
_SLOW = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
_NESTED = "clocks_event_reasons/hw_slowdown/"


def _card(card: Card, report: Report) -> Iterator[Sign]:
    traits = _traits(card, report)

    def sign(code: str, reason: str, name: str, value: str) -> Sign:
        shown = quote(f"GPU {card.device}: {name} : {value}")
        return Sign(
            code, f"{reason} on {card.device}", card.device, shown, part=card.get("serial_number"), traits=traits
        )

    for name, code, reason in _YES:
        if card.get(name).lower() == "yes":
            yield sign(code, reason, name, "Yes")
    if errors := _uncorrected(card):
        yield sign(
            "smi.ecc-volatile",
            f"{errors} uncorrected memory error(s) since the driver loaded",
            "ecc_errors/volatile uncorrected",
            str(errors),
        )
    action = card.get("gpu_recovery_action")
    if wanted := _recovery(action):
        yield sign(f"smi.recovery-action-{wanted}", f"the driver asks for: {action}", "gpu_recovery_action", action)
    if slow := next((s for s in _SLOW if _active(card, s)), ""):
        yield sign("smi.slowdown-hw", "hardware slows the clocks down", slow, "Active")
    if card.get("persistence_mode").lower() == "disabled" and "GeForce" not in card.get("product_name"):
        yield sign("smi.persistence-off", "persistence mode is off", "persistence_mode", "Disabled")


def _recovery(action: str) -> str:
    lower = action.lower()
    if not lower:
        return ""
    known = _RECOVERY.get(lower)
    if known is not None:
        return known
    return (
        "reboot"
        if "reboot" in lower
        else "drain"
        if "drain" in lower
        else "reset"
        if "reset" in lower or "flr" in lower
        else ""
    )


def _active(card: Card, name: str) -> bool:
    values = (
        card.get(f"clocks_event_reasons/{name}"),
        card.get(_NESTED + name),
        card.get(f"clocks_throttle_reasons/{name}"),
        card.get(f"clocks_throttle_reasons/hw_slowdown/{name}"),
    )
    return "Active" in values


def _uncorrected(card: Card) -> int:
    total = 0
    for path, value in card.fields.items():
        counted = path.startswith("ecc_errors/volatile/") and (
            "uncorrectable" in path or path.endswith("double_bit/total")
        )
        if counted and value.isdecimal() and len(value) < 16:
            total += int(value)
    return total


def _traits(card: Card, report: Report) -> dict[str, str]:
    traits = {
        "gpu_model": card.get("product_name"),
        "driver": report.driver,
        "mig": card.get("mig_mode/current").lower(),
    }
    return {name: value for name, value in traits.items() if value}
