"""What a Ledger must say at least, by all that the other records know: for when it was deleted, or is a minute behind.

Watch time and the places that open cases hold never go back: deadlines would come late, limits would be given away
twice. Called by controller/records.py when it takes over. Grants of the last window and an open breaker are not in any
other record; they are forgotten with the Ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sickbay.core import triage
from sickbay.core.admit import OUT, TREAT, is_needed
from sickbay.model import Case, Ledger, NodeRecord, Phase, Recovery, Seat, Verb, When

BEFORE_A_SEAT = (Phase.SUSPECTED, Phase.WAITING)


def watched(cases: Iterable[Case], recoveries: Iterable[Recovery], records: Iterable[NodeRecord]) -> float:
    """The latest watch time that anybody wrote down as passed. Deadlines and quiet times lie ahead: not counted."""
    times = [case.entered for case in cases]
    times += [t for r in recoveries for t in (r.entered, r.progressed)]
    times += [t for record in records for t in _seen(record)]
    return max(times, default=0.0)


def _seen(record: NodeRecord) -> Iterator[float]:
    yield record.boot_seen
    yield record.not_ready_since or 0.0
    yield from (latch.seen for latch in record.latched)
    yield from (past.ended for past in record.past)
    yield from record.told.values()


def seats(ledger: Ledger, cases: Iterable[Case]) -> tuple[Seat, ...]:
    """The ledger's, and one for each open case that must have had one."""
    known = {(seat.case, seat.kind) for seat in ledger.seats}
    owed = [seat for case in cases for seat in _owed(case) if (seat.case, seat.kind) not in known]
    return (*ledger.seats, *owed)


def numbers(cases: Iterable[str]) -> dict[str, int]:
    """The highest of each node, by the names of its cases: where nothing else of them is known."""
    found: dict[str, int] = {}
    for node, _, number in (case.rpartition(".") for case in cases):
        if number.isdecimal():
            found[node] = max(found.get(node, 0), int(number))
    return found


def _owed(case: Case) -> Iterator[Seat]:
    if case.factor or case.phase in BEFORE_A_SEAT:
        return
    yield _seat(case, OUT, Verb.CORDON)
    treat = _seat(case, TREAT, case.rung or Verb.REBOOT)
    if case.phase is not Phase.QUEUED and is_needed(treat, case, case.entered):
        yield treat


def _seat(case: Case, kind: str, verb: Verb) -> Seat:
    """Rack and domain are not on record: a node that is out is counted there by its cordon."""
    urgent = triage.soonest(case.diagnoses) is When.NOW
    return Seat(case.id, case.node, kind, verb.value, case.pool, "", "", case.entered, urgent)
