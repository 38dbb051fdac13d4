"""What one GPU's table says about its memory: remapped rows, ECC counters, retired pages, repairs that wait.

`checks/nvidia_smi` calls it for every Card, whether the table came from text, XML or NVML. It reads a Card and nothing
else; a flag that is absent or reads "N/A" is neither good nor bad. Counts alone never condemn a part: flags do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sickbay.checks.smi_text import Card
from sickbay.model import Status


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing a GPU shows, before it is placed on that GPU: `name : value` is the line to quote."""

    code: str
    reason: str
    name: str
    value: str
    status: Status | None = None  # None: as bad as the catalog says


_FLAGS = (
    ("remapped_rows/pending", "smi.remap-pending", "a row remap waits for a reset"),
    ("remapped_rows/remapping_failure_occurred", "smi.remap-failed", "row remapping failed: no spare row left"),
    (
        "ecc_errors/aggregate/sram_threshold_exceeded",
        "smi.sram-threshold",
        "too many SRAM errors: the vendor's threshold is exceeded",
    ),
    ("ecc_errors/channel_repair_pending", "smi.channel-repair-pending", "a memory channel repair waits for a reboot"),
    ("ecc_errors/tpc_repair_pending", "smi.tpc-repair-pending", "a TPC repair waits for a reset"),
    ("ecc_errors/unrepairable_memory", "smi.unrepairable-memory", "memory that can no longer be repaired"),
    ("retired_pages/pending_page_blacklist", "smi.retired-pending", "retired pages wait for a reset"),
)


def troubles(card: Card, limits: Mapping[str, float]) -> Iterator[Trouble]:
    for name, code, reason in _FLAGS:
        if card.get(name).lower() == "yes":
            yield Trouble(code, reason, name, "Yes")
    if errors := uncorrected(card, "volatile"):
        said = f"{errors} uncorrected memory error(s) since the driver loaded"
        yield Trouble("smi.ecc-volatile", said, "ecc_errors/volatile uncorrected", str(errors))
    yield from _corrected(card, limits)
    yield from _retired(card, limits)


def _corrected(card: Card, limits: Mapping[str, float]) -> Iterator[Trouble]:
    """Corrected errors did no harm, so the count is only watched, however large."""
    dram, sram = corrected_dram(card), number(card.get("ecc_errors/volatile/sram_correctable"))
    for kind, value, most in (
        ("DRAM", dram, limits["ecc-corrected-most"]),
        ("SRAM", sram, limits["ecc-corrected-sram-most"]),
    ):
        if value is not None and value > most:
            said = f"{value} corrected {kind} errors since the driver loaded, more than large fleets accept"
            yield Trouble("smi.ecc-corrected", said, f"{kind} correctable", str(value), Status.DEGRADED)


def _retired(card: Card, limits: Mapping[str, float]) -> Iterator[Trouble]:
    """Only GPUs before Ampere retire pages; what is retired is out of use, so a count is a forecast, not a fault."""
    single, double = retired(card)
    if double:
        said = f"{double} page(s) retired after double-bit errors; they are out of use"
        yield Trouble("smi.retired-pages", said, "retired_pages/double_bit_ecc", str(double), Status.DEGRADED)
    if single is not None and single > limits["max-retired-pages-sbe"]:
        said = f"{single} pages retired for single-bit errors; the vendor replaces the board at 64"
        yield Trouble("smi.retired-pages", said, "retired_pages/single_bit_ecc", str(single), Status.DEGRADED)


def number(value: str) -> int | None:
    """A plain count; None for anything else, and for what no counter holds."""
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 16 else None


def retired(card: Card) -> tuple[int | None, int | None]:
    """Pages retired for single-bit and for double-bit errors; None where the GPU has no such list."""
    kinds = ("single_bit_ecc", "double_bit_ecc")
    single, double = (
        number(card.get(f"retired_pages/{kind}", f"retired_pages/{kind}/retired_count")) for kind in kinds
    )
    return single, double


def uncorrected(card: Card, when: str) -> int:
    """`when`: volatile (since the driver loaded) or aggregate (the board's life). Old drivers: Double Bit / Total."""
    head = f"ecc_errors/{when}/"
    return sum(
        number(value) or 0
        for path, value in card.fields.items()
        if path.startswith(head) and ("uncorrectable" in path or path.endswith("double_bit/total"))
    )


def corrected_dram(card: Card) -> int | None:
    return number(card.get("ecc_errors/volatile/dram_correctable", "ecc_errors/volatile/single_bit/total"))


def corrected(card: Card) -> int | None:
    """All corrected errors since the driver loaded, for rates; None where the GPU counts none."""
    parts = (corrected_dram(card), number(card.get("ecc_errors/volatile/sram_correctable")))
    return sum(part for part in parts if part is not None) if any(part is not None for part in parts) else None
