"""Runs checks on a Host and returns Findings: what the agent and VERIFY call.

One OK finding for a check that found nothing, so that silence is never mistaken for health; UNKNOWN for a check that broke.
It must never raise for anything a node can print.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from sickbay.catalog import Catalog
from sickbay.checks import BY_NAME, Check
from sickbay.checks.signs import Ask, Sign, Stamp, finding, quote
from sickbay.model import Finding, Status
from sickbay.ports import Host


def run(
    host: Host,
    names: Sequence[str],
    catalog: Catalog,
    *,
    answers: str = "",
    expected_gpus: int | None = None,
    at: float,
    cursor: str = "",
    sequence: Iterator[int] | None = None,
) -> list[Finding]:
    """The findings of these checks, in order. Ids are "<boot id>/<n>", n from `sequence` (the agent's own counter)."""
    ask = Ask(expected_gpus, cursor)
    numbers = sequence if sequence is not None else count(1)
    boot = _boot_id(host)
    found: list[Finding] = []
    for name in names:
        stamp = Stamp(name, host.name, boot, at, answers)
        found += [finding(sign, catalog, stamp, next(numbers)) for sign in _signs(host, name, ask)]
    return found


def _boot_id(host: Host) -> str:
    try:
        return host.boot_id()
    except Exception:
        return ""


def _signs(host: Host, name: str, ask: Ask) -> list[Sign]:
    check = BY_NAME.get(name)
    if check is None:
        return [Sign("check.unknown", f"there is no check named {name!r}", status=Status.UNKNOWN)]
    told = _tried(host, check, ask)
    sick = any(sign.code for sign in told)
    return told if sick else [*told, Sign("", f"{name}: nothing found", status=Status.OK)]


def _tried(host: Host, check: Check, ask: Ask) -> list[Sign]:
    try:
        return check.judge(check.collect(host, ask), ask)
    except Exception as broken:  # a check that breaks has seen nothing: the boundary where that becomes UNKNOWN
        return [Sign("check.broken", f"{check.name} broke: {type(broken).__name__}", evidence=quote(str(broken)), status=Status.UNKNOWN)]
