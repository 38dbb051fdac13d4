"""Nodes that go away one after another, each alone: network work or certificates that pass through a fleet.

Each by itself looks like a dead host, and was rebooted: 40 of 64 healthy ones in a day. A host that does not answer
after its REBOOT and comes back by itself was not mended by it; after a few of those within a day a person decides.
Called by controller/absences.py, which keeps when it happened in the Ledger. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sickbay.core import absence, keeping
from sickbay.model import Case, Event, Ledger, Notice, Verb
from sickbay.settings import ControllerSettings

WINDOW = "fleet/rebooted-in-vain"  # in Ledger.windows
LASTS_S = 86_400.0

Noted = tuple[Ledger, Notice | None]  # the Ledger, and what people are told


def was_in_vain(case: Case) -> bool:
    """It was rebooted for nothing but its absence, still did not answer, and was back later by itself."""
    back = any(e.event == Event.EXAMINED and e.by == "sickbay" for e in case.journal)
    return absence.is_only_evidence(case) and Verb.REBOOT in case.rungs_tried and back


def lately(ledger: Ledger, now: float) -> tuple[float, ...]:
    return tuple(t for t in ledger.windows.get(WINDOW, ()) if now - t < LASTS_S)


def is_many(times: Sequence[float], limits: ControllerSettings) -> bool:
    return len(times) >= limits.absent_nodes


def forbids(case: Case, ledger: Ledger, now: float, limits: ControllerSettings) -> str:
    """Why a node that went away alone is not treated for it; "" when it may be."""
    times = lately(ledger, now)
    if not is_many(times, limits) or Verb.REBOOT in case.approved:
        return ""
    return (
        f"{len(times)} nodes that went away alone within a day were rebooted in vain and came back by themselves: "
        f"{case.node} is left until it answers; to treat it all the same: sickbay case approve {case.id} --verb REBOOT"
    )


def noted(case: Case, ledger: Ledger, watch: float, wall: float, limits: ControllerSettings) -> Noted:
    """Of a node's own case that has ended: was its REBOOT in vain, and is that one too many?"""
    if not was_in_vain(case):
        return ledger, None
    before = lately(ledger, watch)
    times = (*before, watch)[-limits.absent_nodes :]
    ledger = replace(ledger, windows={**ledger.windows, WINDOW: times})
    if not is_many(times, limits) or is_many(before, limits):
        return ledger, None
    told = notice(case, len(times), watch, wall)
    return replace(ledger, notices=keeping.owed(ledger.notices, (told,))), told


def notice(case: Case, count: int, watch: float, wall: float) -> Notice:
    body = (
        f"{count} nodes, {case.node} the last of them, stopped answering one after another within a day. A reboot did "
        "not help them, and each came back by itself: something that they share goes from node to node. Look at "
        "network work, certificates and kubelets. Whoever goes away alone from now on is closed for new work and not "
        "rebooted, for a day; to treat one all the same: sickbay case approve CASE --verb REBOOT."
    )
    title = f"{count} nodes went away one after another, and came back by themselves"
    return Notice(f"one-by-one/{int(watch // LASTS_S)}", "urgent", title, body, "", wall)
