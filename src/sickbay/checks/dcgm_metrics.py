"""dcgm-exporter's metrics text: what a scrape says about the health of each GPU.

`sickbay diagnose` and, later, the agent's metrics check use it. Our own scanner: prometheus_client's parser needs
25 ms for one node's scrape (choices.md); a test holds the two against each other. The XID gauge holds the LAST code
until the driver is reloaded, so it may be old, and it hides whatever came before: it is a hint beside the kernel
log, not a count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sickbay.checks.kernel_lines import device
from sickbay.checks.signs import Sign, quote
from sickbay.model import Status

MOST_LABEL_SETS = 8192


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    labels: Mapping[str, str]
    value: float


_LABEL = re.compile(r'\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_NUMBERS = {"nan": math.nan, "+inf": math.inf, "inf": math.inf, "-inf": -math.inf}


def samples(text: str) -> Iterator[Sample]:
    """Every well-formed sample; a line that is not one is passed over."""
    cache: dict[str, Mapping[str, str] | None] = {}
    for line in text.split("\n"):
        line = line.strip()
        if line and line[0] != "#" and (sample := _sample(line, cache)):
            yield sample


def _sample(line: str, cache: dict[str, Mapping[str, str] | None]) -> Sample | None:
    open_, close = line.find("{"), line.rfind("}")
    if open_ < 0:
        name, _, rest = line.partition(" ")
        labels: Mapping[str, str] | None = {}
    elif close < open_:
        return None
    else:
        name, inside, rest = line[:open_].strip(), line[open_ + 1 : close], line[close + 1 :]
        if inside not in cache:
            if len(cache) >= MOST_LABEL_SETS:
                cache.clear()
            cache[inside] = _labels(inside)
        labels = cache[inside]
    value = _number(rest)
    if labels is None or value is None or not _NAME.fullmatch(name):
        return None
    return Sample(name, labels, value)


def _labels(inside: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    at = 0
    while at < len(inside) and inside[at:].strip(" \t,"):
        found = _LABEL.match(inside, at)
        if found is None:
            return None
        labels[found.group(1)] = _unescape(found.group(2))
        at = found.end()
    return labels


def _unescape(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda m: {"n": "\n", "\\": "\\", '"': '"'}.get(m.group(1), m.group()), value)


def _number(rest: str) -> float | None:
    word = rest.split(None, 1)[0] if rest.strip() else ""
    if word.lower() in _NUMBERS:
        return _NUMBERS[word.lower()]
    try:
        return float(word) if word and "_" not in word else None
    except ValueError:
        return None


# DCGM's "no value here" numbers (dcgm_fields.h): blank, not found, not supported, not permitted.
_BLANK_AT = (2147483632, 140737488355328)
_BLANK_FROM = 9.2233720368547e18  # 9223372036854775792 and up: as a float it is no longer exact


def blank(value: float) -> bool:
    return math.isnan(value) or value >= _BLANK_FROM or any(base <= value < base + 16 for base in _BLANK_AT)


# Fields of which any value above zero means the same as a sign another instrument gives.
_ABOVE_ZERO = {
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("metrics.row-remap-failure", "row remapping failed"),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("metrics.row-remap-pending", "a row remap waits for a reset"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("metrics.ecc-dbe", "uncorrected memory errors since the driver loaded"),
    "DCGM_FI_DEV_RETIRED_PENDING": ("smi.retired-pending", "retired pages wait for a reset"),
}
_XID = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT")


def signs(text: str) -> list[Sign]:
    told: dict[tuple[str, str], Sign] = {}
    seen = False
    for sample in samples(text):
        seen = seen or sample.name.startswith("DCGM_")
        if sample.value > 0 and not blank(sample.value) and (sign := _sign(sample)):
            told.setdefault((sign.code, sign.device or sign.traits.get("uuid", "")), sign)
        if len(told) > 4096:
            break
    if not seen:
        return [Sign("tool.unreadable", "no dcgm-exporter metrics in this text", status=Status.UNKNOWN)]
    return list(told.values())


def _sign(sample: Sample) -> Sign | None:
    where, traits = _place(sample.labels)
    shown = quote(f"{sample.name}{{gpu={sample.labels.get('gpu', '?')}}} {sample.value:g}")
    if sample.name in _ABOVE_ZERO:
        code, reason = _ABOVE_ZERO[sample.name]
        return Sign(code, f"{reason} ({sample.value:g})", where, shown, traits=traits)
    if sample.name in _XID:
        number = sample.labels.get("xid", "") if sample.name == _XID[1] else f"{sample.value:.0f}"
        if not number.isdecimal() or not 0 < int(number[:6]) < 1000:
            return None
        return Sign(
            f"xid.{number}",
            f"the last XID was {number}; it may be old",
            where,
            shown,
            traits=traits | {"sticky": "yes"},
        )
    return None


def _place(labels: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    address = labels.get("pci_bus_id", "")
    where = device(address) if address.count(":") == 2 else ""
    named = {"index": labels.get("gpu", ""), "uuid": labels.get("UUID", ""), "gpu_model": labels.get("modelName", ""),
             "driver": labels.get("DCGM_FI_DRIVER_VERSION", ""), "host": labels.get("Hostname", "")}  # fmt: skip
    return where, {key: value[:200] for key, value in named.items() if value}
