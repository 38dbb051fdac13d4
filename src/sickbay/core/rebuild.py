"""What a Ledger must say at least, by all that the other records know: for when it was deleted, or is a minute behind.

Watch time and the places that open cases hold never go back: deadlines would come late, limits would be given away
twice. Called by controller/records.py when it takes over, and by controller/lost_ledger.py when the Ledger was deleted;
what was granted and whether the breaker is open is said in core/rebuild_limits.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sickbay.core import triage
from sickbay.core.absence import NEVER
from sickbay.core.admit import OUT, TREAT, is_needed
from sickbay.model import Case, Ledger, NodeRecord, Phase, Recovery, Seat, Sighting, Verb, When

WORDS = ("split_at", "left_at", "replaced_at", "replaced_from")  # of people, about nodes that are away together
WORD, SCOPE = "ledger/", "ledger/scope/"  # of the keys in NodeRecord.told of the record about absences
LONGEST_NUMBER = 10  # digits of a case's number; a longer one is nobody's, and int() refuses thousands of them
BEFORE_A_SEAT = (Phase.SUSPECTED, Phase.WAITING)


def watched(record: Case | Recovery | NodeRecord) -> float:
    """The latest watch time that it says has passed. Deadlines and quiet times lie ahead: not counted."""
    if isinstance(record, Case):
        return record.entered
    return max((record.entered, record.progressed) if isinstance(record, Recovery) else _seen(record))


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
        if number.isdecimal() and len(number) < LONGEST_NUMBER:
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


# --- what people said of nodes that are away together: in the Ledger, and in the record about absences ---------------


def remembered(record: NodeRecord, ledger: Ledger) -> NodeRecord:
    """The record about absences, with these words in it."""
    told = {key: at for key, at in record.told.items() if not key.startswith(WORD)}
    told |= {f"{WORD}{name}": at for name in WORDS if (at := float(getattr(ledger, name))) > NEVER}
    told |= {f"{SCOPE}{key}": 0.0 for key in ledger.replaced_scope}
    return record if told == dict(record.told) else replace(record, told=told)


def with_words(ledger: Ledger, record: NodeRecord) -> Ledger:
    said = {name: max(float(getattr(ledger, name)), record.told.get(f"{WORD}{name}", NEVER)) for name in WORDS}
    scope = tuple(key.removeprefix(SCOPE) for key in record.told if key.startswith(SCOPE))
    return replace(ledger, **said, replaced_scope=ledger.replaced_scope or scope)  # type: ignore[arg-type]


def with_sightings(ledger: Ledger, seen: tuple[Sighting, ...]) -> Ledger:
    return ledger if ledger.sightings else replace(ledger, sightings=seen)
