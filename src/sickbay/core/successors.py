"""Machines that came sick, one after the other: where a provider's stock is bad, a REPLACE brings the next sick one.

Counted by pool, for a name tells nothing: many autoscalers give each machine a name of its own. Who joined while we
looked on, and is sent away before it was ever found well, is one of a row; after `MOST` of them a person decides.
Called by core/decide.py and core/phases.py; controller/successors.py keeps the row in the Ledger.
Pure. It must never stop a person who approves a REPLACE for this very case.
"""

from __future__ import annotations

from sickbay.core import machine
from sickbay.core.frozen import replace
from sickbay.core.moment import how_long
from sickbay.model import Case, Ledger, Phase, Verb

MOST = 2  # successors in a row that are sent away without asking: that a third one is as sick is no chance
ROW_S = 86_400.0  # from one to the next; what came sick longer ago says nothing of today's stock
PROVED_S = 3_600.0  # in service for so long with nothing held against it: the stock is not all bad
JOINED = "JOINED"  # in a case's journal
WINDOW = "came-sick"  # in Ledger.windows, after the pool


def noted(case: Case, since: float | None, now: float, at: float) -> Case:
    """`since`: watch time at which the node joined; None if it was there before we were."""
    if since is None:
        return case
    why = f"it joined {how_long(now - since)} before, and was not found well since"
    return machine.note(case, JOINED, at=at, by="sickbay", why=why)


def has_joined(case: Case) -> bool:
    return any(entry.event == JOINED for entry in case.journal)


def row(ledger: Ledger, pool: str, now: float) -> tuple[float, ...]:
    """Watch times at which successors were sent away, the last of them within `ROW_S`."""
    times = ledger.windows.get(f"{pool}/{WINDOW}", ())
    return times if times and now - times[-1] < ROW_S else ()


def sent_away(ledger: Ledger, pool: str, now: float) -> Ledger:
    times = (*row(ledger, pool, now), now)[-MOST - 1 :]
    return replace(ledger, windows={**ledger.windows, f"{pool}/{WINDOW}": times})


def proved(ledger: Ledger, pool: str) -> Ledger:
    """One that came was well: the row is over."""
    name = f"{pool}/{WINDOW}"
    return replace(ledger, windows={k: v for k, v in ledger.windows.items() if k != name})


IN_A_ROW = "machines in a row came sick to pool"


def is_of_a_row(case: Case) -> bool:
    """One whose REPLACE is under way, or that rests with a person over this: it counts for those that come to theirs
    meanwhile."""
    if case.phase is Phase.ESCALATED and IN_A_ROW in case.journal[-1].why:
        return True
    sent = case.pending if case.phase is Phase.REPAIRING else case.unfinished
    return sent is not None and sent.verb is Verb.REPLACE and has_joined(case)


def why_not(case: Case, before: int) -> str:
    """Why the next machine would be no better, and what a person can do. `before`: those of this row."""
    if before < MOST or not has_joined(case):
        return ""
    return (
        f"{before + 1} {IN_A_ROW} {case.pool}: another REPLACE would bring the next one. Ask the provider what it "
        f"hands out, and look at the image and driver that new machines get; to replace {case.node} all the same: "
        f"sickbay case approve {case.id} --verb REPLACE, then sickbay case retry {case.id}"
    )
