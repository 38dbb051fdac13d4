"""clock: does this node's clock agree with its time server? Logs of many nodes are read together, and tokens expire.

chrony is asked, then systemd. A node with neither is one UNKNOWN and no more: it may be kept in time by other means.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from sickbay.checks.signs import Ask, Check, Reading, Sign, quote
from sickbay.model import Status
from sickbay.ports import Completed, Host

NAME = "clock"
LIMIT_S = 5.0
FIELDS = 13  # of `chronyc -c tracking` at least: old ones do not name the server, so we count from the end
OFFSET, LEAP = -10, -1


def collect(host: Host, ask: Ask) -> Reading:
    chrony = host.run(("chronyc", "-c", "-n", "tracking"), LIMIT_S)
    outputs = {"chronyc": chrony}
    if _tracking(chrony) is None:
        outputs["timedatectl"] = host.run(("timedatectl", "show", "-p", "NTP", "-p", "NTPSynchronized"), LIMIT_S)
    return Reading(chrony, outputs=outputs)


def _tracking(done: Completed) -> tuple[float, str] | None:
    """(offset in seconds, leap status)."""
    cells = done.stdout.strip().split("\n")[0].split(",")
    if done.code != 0 or len(cells) < FIELDS:
        return None
    try:
        offset = float(cells[OFFSET])
    except ValueError:
        return None
    return (offset, cells[LEAP].strip()) if isfinite(offset) else None


def samples(reading: Reading) -> Mapping[str, float]:
    found = _tracking(reading.done)
    return {f"{NAME}/system/offset-s": found[0]} if found else {}


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    found = _tracking(reading.done)
    if found is not None:
        return _by_chrony(*found, reading.done, ask)
    return _by_systemd(reading.outputs.get("timedatectl"), ask)


def _by_chrony(offset: float, leap: str, done: Completed, ask: Ask) -> list[Sign]:
    shown = quote(done.stdout)
    if leap == "Not synchronised":
        return [_lost("chrony has no time server it believes", shown, ask)]
    if abs(offset) <= ask.limits["clock-offset-s"]:
        return []
    said = f"the clock is off by {abs(offset):.3g} s from its time server"
    return [Sign("clock.skew", said, evidence=shown, status=Status.DEGRADED if ask.young else None,
                 traits={"measure.clock-offset-s": f"{offset:.6g}"})]  # fmt: skip


def _by_systemd(done: Completed | None, ask: Ask) -> list[Sign]:
    values = dict(line.split("=", 1) for line in done.stdout.splitlines()[:64] if "=" in line) if done else {}
    if values.get("NTPSynchronized") == "yes":
        return []
    if done and values.get("NTPSynchronized") == "no" and values.get("NTP") == "yes":
        return [_lost("systemd says that the clock is not synchronised", quote(done.stdout), ask)]
    said = "neither chrony nor systemd can say whether the clock is right"
    return [Sign("tool.missing", said, status=Status.UNKNOWN)]


def _lost(said: str, shown: tuple[str, ...], ask: Ask) -> Sign:
    return Sign("clock.unsynchronised", said, evidence=shown, status=Status.DEGRADED if ask.young else None)


CHECK = Check(NAME, None, collect, judge, samples)
