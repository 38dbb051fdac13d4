"""Reads what NCCL's all_reduce_perf prints: the table, the verdict on its numbers, warnings, which network it used.

nccl-allreduce calls it; nccl-tests 2.0 to 2.18, with the prefixes of mpirun and srun, are known. Pure; never raises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite

from sickbay.checks.efa_text import lines_of

ROWS = 512  # of the table

_RANKS = re.compile(r"^#\s+Rank\s+(\d{1,7})\s.*?\bon\s+(\S{1,128})\s+device\s+(\d{1,4})")
_OUT_OF_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d{1,18})\s*(\w*)")
_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*([0-9.eE+]{1,24})")
_WARN = re.compile(r"\bNCCL WARN\b|Test NCCL failure|Test CUDA failure|Test failure\b")
_CUDA = re.compile(
    r"unhandled cuda error|Test CUDA failure|Cuda failure\b|uncorrectable (?:ECC|NVLink) error|illegal memory access"
    r"|unspecified launch failure",
    re.IGNORECASE,
)
_SYSTEM = re.compile(r"unhandled system error|remote process exited|NET/\w+ .{0,80}(?:error|failed)", re.IGNORECASE)
_EFA = re.compile(r"Selected [Pp]rovider is efa|Using network (?:AWS )?Libfabric|via NET/(?:AWS )?Libfabric")
_SOCKET = re.compile(r"Using network Socket|via NET/Socket|Selected [Pp]rovider is (?:tcp|sockets)\b")


@dataclass(frozen=True, slots=True)
class Row:
    """One message size. busbw in GB/s, the better of out-of-place and in-place; wrong: elements that differed."""

    size: int
    busbw: float
    wrong: int


@dataclass(frozen=True, slots=True)
class Run:
    rows: tuple[Row, ...] = ()
    out_of_bounds: int | None = None  # None: the run did not get that far
    average: float | None = None
    ranks: int = 0
    hosts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    cuda_error: str = ""
    system_error: str = ""
    efa: bool = False
    socket: str = ""

    @property
    def finished(self) -> bool:
        return self.out_of_bounds is not None and bool(self.rows)

    @property
    def wrong(self) -> int:
        return max(self.out_of_bounds or 0, sum(row.wrong for row in self.rows))

    def busbw(self, at_least: float) -> float | None:
        """The best bus bandwidth among messages of at least so many bytes; None if there was none."""
        return max((row.busbw for row in self.rows if row.size >= at_least), default=None)


def parse(text: str) -> Run:
    lines = lines_of(text)
    ranks = [found for line in lines if (found := _RANKS.match(line.strip()))]
    bounds = [found for line in lines if (found := _OUT_OF_BOUNDS.match(line.strip()))]
    averages = [found for line in lines if (found := _AVERAGE.match(line.strip()))]
    return Run(
        rows=tuple(row for line in lines if (row := _row(line)) is not None)[:ROWS],
        out_of_bounds=max((_bad(found) for found in bounds), default=None),
        average=_number(averages[-1][1]) if averages else None,
        ranks=len({found[1] for found in ranks}),
        hosts=tuple(dict.fromkeys(found[2] for found in ranks))[:ROWS],
        warnings=tuple(line.strip()[:400] for line in lines if _WARN.search(line))[:16],
        cuda_error=_first(_CUDA, lines),
        system_error=_first(_SYSTEM, lines),
        efa=any(_EFA.search(line) for line in lines),
        socket=_first(_SOCKET, lines),
    )


def _first(pattern: re.Pattern[str], lines: list[str]) -> str:
    return next((line.strip()[:400] for line in lines if pattern.search(line)), "")


def _bad(found: re.Match[str]) -> int:
    """`: 24 FAILED` is 24; a FAILED without a count is still one."""
    return max(int(found[1]), 1 if found[2].upper().startswith("FAIL") else 0)


def _row(line: str) -> Row | None:
    """size count type redop root, then time algbw busbw #wrong twice. Without checking, #wrong is N/A."""
    words = line.split()
    if len(words) < 12 or len(words) > 13 or not _whole(words[0]) or not _whole(words[1]):
        return None
    tail = words[-8:]
    speeds = [_number(tail[2]), _number(tail[6])]
    if any(speed is None for speed in speeds):
        return None
    wrong = sum(int(word) for word in (tail[3], tail[7]) if _whole(word))
    return Row(int(words[0]), max(speed for speed in speeds if speed is not None), wrong)


def _whole(word: str) -> bool:
    return word.isdecimal() and word.isascii() and len(word) <= 18


def _number(word: str) -> float | None:
    try:
        value = float(word[:24])
    except ValueError:
        return None
    return value if isfinite(value) and 0 <= value < 1e9 else None
