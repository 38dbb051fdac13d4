"""Decodes XID 144-150: which unit of an NVLink 5 complained, and whether the link is lost.

Called by whoever reads kernel lines, with the numbers of the line. Pure. The bits moved between driver generations;
with the driver unknown both are tried, the milder answer is taken, and `sure` is False so that the reason can say it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sickbay.catalog import ANY_STATUS, NvlinkSub

SECOND_GENERATION = 575  # first driver branch that prints the shorter sub-code
LAST_FLAG_XID = 148  # up to here errorStatus is a set of flags; 149 and 150 print a number


@dataclass(frozen=True, slots=True)
class Decoded:
    sub: NvlinkSub
    sure: bool  # False: the driver was not known and its generation decides


def decode(
    rows: Iterable[NvlinkSub], xid: int, intr_info: int, error_status: int, *, unit: str = "", driver: str = ""
) -> Decoded | None:
    """The row for the words of one line; None if the table has none. `driver` as printed, e.g. "570.124.06"."""
    mine = [row for row in rows if row.xid == xid and (not unit or unit in row.unit.split("/"))]
    old = _worst(mine, intr_info, error_status, second=False)
    new = _worst(mine, intr_info, error_status, second=True)
    branch = driver.partition(".")[0]
    if branch.isdecimal():
        known = new if int(branch) >= SECOND_GENERATION else old
        return Decoded(known, True) if known else None
    found = [row for row in (old, new) if row is not None]
    if not found:
        return None
    milder = min(found, key=_badness)
    return Decoded(milder, sure=all(_badness(row) == _badness(milder) for row in found))


def _worst(rows: list[NvlinkSub], intr_info: int, error_status: int, *, second: bool) -> NvlinkSub | None:
    bits = f"{intr_info & 0xFFFFFFFF:032b}"
    here = [row for row in rows if _fits(row.pattern_v2 if second else row.pattern_v1, bits)]
    exact = [row for row in here if row.error_status in (ANY_STATUS, error_status)]
    flags = [row for row in here if row.xid <= LAST_FLAG_XID and row.error_status & error_status]
    return max(exact or flags, key=_badness, default=None)


def _fits(pattern: str, bits: str) -> bool:
    return all(want in ("-", have) for want, have in zip(pattern, bits, strict=True))


def _badness(row: NvlinkSub) -> tuple[int, bool]:
    return row.severity, row.fatal
