"""The Ledger was deleted, and whoever takes the lead does not know what it said: it is made again from the other
records, before anything is decided.

Called by controller/loop.py when it takes the lead; core/rebuild*.py say what follows from which record. It must never
free a place, a grant or a node that people have let go.
"""

from __future__ import annotations

import logging
from itertools import islice

from sickbay.controller.records import Records
from sickbay.controller.view import View
from sickbay.core import absence, causes, rebuild, rebuild_limits
from sickbay.model import Case, Ledger, Sighting
from sickbay.settings import Settings

log = logging.getLogger(__name__)

MOST_ENDED = 1_000  # cases of the archive, the newest: more are not granted within a window


def make_again(records: Records, view: View, settings: Settings) -> None:
    before, now = records.ledger, records.ledger.watch_time
    open_cases = [stored.value for stored in view.cases.values()]
    known = [stored.value for stored in view.records.values()]
    ended = list(islice(records.store.history(Case, limit=MOST_ENDED), MOST_ENDED))
    when = rebuild_limits.calendar(open_cases, known, now)
    ledger = rebuild_limits.with_windows(before, [*reversed(ended), *open_cases], when)
    ledger = rebuild_limits.with_breaker(ledger, settings.policy, now)
    about_many = view.records.get(absence.NAME)
    if about_many is not None:
        ledger = rebuild.with_words(ledger, about_many.value)
    _save(records, rebuild.with_sightings(ledger, causes.kept(_seen(view), now)))


def _seen(view: View) -> tuple[Sighting, ...]:
    """What is latched was seen, and in the same boot with the same versions."""
    nodes = [(stored.value, view.nodes.get(name)) for name, stored in view.records.items()]
    found = [
        Sighting(node.name, latch.fault, latch.since, (), node.factors)
        for record, node in nodes if node is not None
        for latch in record.latched if latch.boot_id in ("", node.boot_id)
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: one.seen))


def _save(records: Records, ledger: Ledger) -> None:
    if ledger != records.ledger:
        log.warning("the Ledger was deleted: limits and people's words are made again from the other records")
        records.put_ledger(ledger)
