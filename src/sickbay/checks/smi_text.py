"""Reads `nvidia-smi -q` text, `-q -x` XML and our own NVML table into one table per GPU: {"ecc_errors/...": value}.

`checks/nvidia_smi`, `topology` and `gpu_slowdown` judge the table. Keys differ by driver age and between text and XML;
`_XML_NAMES` is where they meet. It must never fail on broken input: what cannot be read is simply not there.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as tree
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from sickbay.checks.kernel_lines import device

MOST_GPUS = 1024
MOST_FIELDS = 2000


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as nvidia-smi shows it. A value that says it is no value ("N/A", "Unknown Error", ...) reads as ""."""

    device: str
    fields: Mapping[str, str]

    def get(self, *keys: str) -> str:
        return next((value for key in keys if (value := known(self.fields.get(key, "")))), "")


@dataclass(slots=True)
class Report:
    driver: str = ""
    attached: int | None = None
    cards: list[Card] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)  # lines that belong to no table: errors and warnings


_NO_VALUE = re.compile(
    r"\[?(?:n/a|not supported|not found|unknown error|gpu is lost|gpu requires reset|insufficient permissions"
    r"|requested functionality has been .*)\]?",
    re.IGNORECASE,
)


def known(value: str) -> str:
    return "" if _NO_VALUE.fullmatch(value) else value


def key(name: str) -> str:
    return _short_key(name) if len(name) <= 64 else _key(name)


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


_short_key = lru_cache(maxsize=2_000)(_key)  # a report repeats its few hundred names for every GPU


@lru_cache(maxsize=1)
def parse(text: str) -> Report:
    """Read once, asked twice: the check takes the inventory of GPUs first and judges then. Nobody changes a Report."""
    begin = text.find("<nvidia_smi_log")
    if begin >= 0:
        return _xml(text, begin)
    return _nvml(text) if text.startswith(NVML_HEAD) else _text(text)


NVML_HEAD = '{"sickbay-nvml": 1,'  # how `checks/nvml` begins what it prints, so that nothing else is taken for it


def _nvml(text: str) -> Report:
    try:
        told, _ = json.JSONDecoder().raw_decode(text)  # a library's warnings may follow on the other stream
        cards = [_nvml_card(gpu) for gpu in told["gpus"][:MOST_GPUS]]
        return Report(str(told["driver"])[:64], int(told["attached"]), cards)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Report(loose=["an NVML table that cannot be read"])


def _nvml_card(gpu: dict[str, dict[str, str]]) -> Card:
    fields = {str(name)[:200]: str(value)[:200] for name, value in list(gpu["fields"].items())[:MOST_FIELDS]}
    address = str(gpu["bus_id"])
    return Card(device(address) if address.count(":") == 2 else "", fields)


_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_PAIR = re.compile(r"(\s*)(\S.*?)\s+: ?(.*)$|(\s*)(\S.*?):\s*$")


def _text(text: str) -> Report:
    report, fields, path = Report(), dict[str, str](), list[tuple[int, str]]()
    for line in text.splitlines():
        if (found := _GPU.match(line)) and len(report.cards) < MOST_GPUS:
            fields, path = {}, []
            report.cards.append(Card(device(found.group(1)), fields))
        elif not line.startswith(" "):
            _top(report, line)
        elif report.cards and len(fields) < MOST_FIELDS:
            _field(line, fields, path)
    return report


def _top(report: Report, line: str) -> None:
    name, colon, value = line.partition(" : ")
    if colon and name.strip() == "Driver Version":
        report.driver = value.strip()
    elif colon and name.strip() == "Attached GPUs" and value.strip().isdecimal():
        report.attached = int(value.strip()[:6])
    elif line.strip() and not colon and not line.startswith("=") and len(report.loose) < 200:
        report.loose.append(line.strip()[:400])


def _field(line: str, fields: dict[str, str], path: list[tuple[int, str]]) -> None:
    """`path` holds (indent, whole key) of each heading above the line."""
    bare = line.lstrip()
    indent = len(line) - len(bare)
    while path and path[-1][0] >= indent:
        path.pop()
    name, colon, value = bare.rstrip().partition(" : ")  # the value column moves between drivers
    whole = key(name.rstrip(" :"))[:200]
    if len(path) > 10:
        return
    if path:
        whole = f"{path[-1][1]}/{whole}"
    path.append((indent, whole))
    if colon:
        fields.setdefault(whole, value.strip()[:200])


# XML spells some names in its own way; `fold` also drops a parent's name repeated in its child.
_XML_NAMES = {
    "remapped_row_pending": "pending",
    "remapped_row_failure": "remapping_failure_occurred",
    "remapped_row_unc": "uncorrectable_error",
    "remapped_row_corr": "correctable_error",
    "pending_retirement": "pending_page_blacklist",
    "pending_blacklist": "pending_page_blacklist",
    "current_mig": "current",
    "serial": "serial_number",
    "uuid": "gpu_uuid",
    "clocks_throttle_reasons": "clocks_event_reasons",
    "sram_uncorrectable_secded": "sram_uncorrectable_sec_ded",
    "multiple_single_bit_retirement": "single_bit_ecc",
    "double_bit_retirement": "double_bit_ecc",
    "pcie_gen": "pcie_generation",
    "link_widths": "link_width",
    "max_link_gen": "max",
    "current_link_gen": "current",
    "max_link_width": "max",
    "current_link_width": "current",
    "gpu_util": "gpu",
}
_REASON = re.compile(r"clocks_(?:event|throttle)_reason_")


def _xml(text: str, begin: int) -> Report:
    report = Report(
        loose=[line.strip()[:400] for line in text[:begin].splitlines()[:50] if line.strip() and line[0] != "<"]
    )
    end = text.rfind("</nvidia_smi_log>")
    if end < 0 or "<!ENTITY" in text[:4096]:  # truncated, or a bomb: nothing in it can be trusted
        return report
    try:
        root = tree.fromstring(text[begin : end + len("</nvidia_smi_log>")])
    except (tree.ParseError, ValueError, RecursionError):
        return report
    report.driver = (root.findtext("driver_version") or "").strip()
    attached = (root.findtext("attached_gpus") or "").strip()
    report.attached = int(attached[:6]) if attached.isdecimal() else None
    for gpu in root.findall("gpu")[:MOST_GPUS]:
        address = gpu.get("id") or ""
        fields = dict(_walk(gpu, ""))
        report.cards.append(Card(device(address) if address.count(":") == 2 else "", fields))
    return report


def _walk(node: tree.Element, path: str) -> Iterator[tuple[str, str]]:
    for child in node:
        name = _REASON.sub("", child.tag)
        where = f"{path}{_XML_NAMES.get(name, name)}"
        if len(child) and path.count("/") < 10:
            yield from _walk(child, where + "/")
        elif child.text and child.text.strip():
            yield where, child.text.strip()[:200]
