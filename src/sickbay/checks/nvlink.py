"""Reads `nvidia-smi nvlink -s` (state of the links) and `-e` (their error counters), per GPU and link.

`checks/topology` and `checks/nvlink_errors` judge what is read here. "Device does not have or support Nvlink" and MIG
mode are not links that are down. C2C links (to a Grace CPU) are not NVLinks. Broken input reads as nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST_LINKS = 64
MOST_GPUS = 64
MOST_LINES = 100_000

_GPU = re.compile(r"GPU (\d{1,3}): (.{1,120}?) \(UUID: (\S{1,80})\)")
_STATE = re.compile(r"\s+Link (\d{1,2}): (?:([0-9.]{1,12}) GB/s|<?(inactive)>?)\s*$", re.IGNORECASE)
_ERRORS = re.compile(r"\s+Link (\d{1,2}): (Replay|Recovery|CRC)\b[ A-Za-z]{0,12} Errors: (\d{1,18})\s*$")
_NOTES = (
    ("all links are inactive", "inactive"),
    ("does not have or support nvlink", "none"),
    ("not supported for devices in mig mode", "mig"),
)


@dataclass(slots=True)
class Links:
    """One GPU's links. `note`: "inactive" (all of them), "none" (it has none), "mig" (cannot be asked), or ""."""

    index: int
    name: str
    active: dict[int, float] = field(default_factory=dict)  # link -> GB/s
    inactive: set[int] = field(default_factory=set)
    note: str = ""


@dataclass(slots=True)
class Counters:
    """One GPU's error counters: kind ("replay", "recovery", "crc") -> link -> count."""

    index: int
    by_kind: dict[str, dict[int, int]] = field(default_factory=dict)

    def total(self, kind: str) -> int:
        return sum(self.by_kind.get(kind, {}).values())


def states(text: str) -> list[Links]:
    found: list[Links] = []
    for line in _lines(text):
        if (gpu := _GPU.match(line)) and len(found) < MOST_GPUS:
            found.append(Links(int(gpu[1]), gpu[2]))
        elif found and (link := _STATE.match(line)):
            _note_link(found[-1], int(link[1]), link[2])
        elif found:
            found[-1].note = found[-1].note or _note(line)
    return found


def _note_link(links: Links, number: int, speed: str | None) -> None:
    if number >= MOST_LINKS:
        return
    try:
        rate = float(speed or 0)
    except ValueError:  # "1.2.3"
        return
    if rate > 0:
        links.active[number] = rate
    else:
        links.inactive.add(number)


def _note(line: str) -> str:
    lower = line.lower()
    return next((note for words, note in _NOTES if words in lower), "")


def counters(text: str) -> list[Counters]:
    """A GPU without a heading of its own (a container shows that) is GPU 0."""
    found: list[Counters] = []
    for line in _lines(text):
        if (gpu := _GPU.match(line)) and len(found) < MOST_GPUS:
            found.append(Counters(int(gpu[1])))
        elif counted := _ERRORS.match(line):
            if not found:
                found.append(Counters(0))
            kind = found[-1].by_kind.setdefault(counted[2].lower(), {})
            link, count = int(counted[1]), int(counted[3])
            if link < MOST_LINKS:  # "CRC Flit" and "CRC Data" of one link are one count
                kind[link] = kind.get(link, 0) + count
    return found


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines()[:MOST_LINES]:
        yield line[:400]
