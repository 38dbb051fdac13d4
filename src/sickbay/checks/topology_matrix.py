"""Reads `nvidia-smi topo -m`: which path joins each pair of GPUs. And finds whose fault a weak path is.

`checks/topology` judges it. The header is underlined with escape codes even in a pipe, columns are parted by tabs or
spaces, network adapters follow the GPUs as "NICn" or "mlx5_n", and a legend follows the rows: it explains, and says
nothing about this node. Originals 002.12 #14: "X" is a GPU itself, so nothing is learnt from where it stands.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MOST_GPUS = 64
_ESCAPES = re.compile(r"\x1b\[[0-9;]{0,8}[A-Za-z]")
_NAME = re.compile(r"GPU(\d{1,3})")
_PATH = re.compile(r"NV(\d{1,3})|SYS|NODE|PHB|PXB|PIX|SOC")

Pair = tuple[int, int]


@dataclass(slots=True)
class Matrix:
    """`rows`: the GPUs that have a row. `paths`: (lower, higher index) -> "NV18", "SYS", ..."""

    rows: list[int] = field(default_factory=list)
    paths: dict[Pair, str] = field(default_factory=dict)


def matrix(text: str) -> Matrix:
    found, columns = Matrix(), list[int]()
    for line in _ESCAPES.sub("", text[:1_000_000]).splitlines():
        words = line[:8192].split()
        if not words or not _NAME.fullmatch(words[0]):
            continue
        heads = _leading(words)
        if not columns and (len(heads) > 1 or line[:1].isspace()):
            columns = heads[:MOST_GPUS]
        elif columns and len(found.rows) < MOST_GPUS:
            _row(found, columns, heads[0], words[1:])
    return found


def _leading(words: list[str]) -> list[int]:
    """The GPUs named at the beginning of a line; the header ends them with "CPU Affinity" or an adapter."""
    numbers = []
    for word in words:
        name = _NAME.fullmatch(word)
        if name is None:
            break
        numbers.append(int(name[1]))
    return numbers


def _row(found: Matrix, columns: list[int], gpu: int, cells: list[str]) -> None:
    if gpu in found.rows:
        return
    found.rows.append(gpu)
    for other, cell in zip(columns, cells, strict=False):
        if other != gpu and _PATH.fullmatch(cell):
            found.paths.setdefault((min(gpu, other), max(gpu, other)), cell)


def width(path: str) -> int:
    """Links in a path: "NV18" -> 18; a path over PCIe has none."""
    found = _PATH.fullmatch(path)
    return int(found[1]) if found and found[1] else 0


def weak(paths: Mapping[Pair, str], expected: int, spared: Iterable[int] = ()) -> dict[Pair, str]:
    """The pairs joined by fewer links than this type of node has, apart from the GPUs to be spared."""
    out = frozenset(spared)
    return {pair: path for pair, path in paths.items() if width(path) < expected and not out.intersection(pair)}


def culprits(pairs: Iterable[Pair]) -> tuple[list[int], list[Pair]]:
    """The GPUs that explain the weak pairs, and the pairs for which neither end can be blamed over the other.

    A GPU that lost a link is weak towards every other GPU, while each of those is weak towards it alone.
    """
    left, blamed = sorted(pairs), list[int]()
    while left:
        worst, times = Counter(gpu for pair in left for gpu in pair).most_common(1)[0]
        if times == 1:
            break
        blamed.append(worst)
        left = [pair for pair in left if worst not in pair]
    return sorted(blamed), left
