"""What the windows, the breaker and the count of reboots in vain must say at least, by the journals of cases: for when
the Ledger was deleted and nobody leads who knows what it said.

Journals are dated by the wall, limits by watch time. Where the records do not say both, the latest watch time is taken
that it can have been: a limit may then be full for longer, never sooner free. Pure; called by
controller/lost_ledger.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sickbay.core import admit, one_by_one, triage
from sickbay.core.phases import NEXT
from sickbay.model import TREATMENTS, Case, Entry, Event, Ledger, NodeRecord, Phase, Verb, When
from sickbay.settings import Policy

KEPT_S = 7 * 86_400.0  # no window is longer


@dataclass(frozen=True, slots=True)
class Calendar:
    """Moments of which both times are on record, in the order in which they came: the wall may have been set back
    between two of them."""

    known: tuple[tuple[float, float], ...]  # wall, watch
    now: float  # watch time

    def watch(self, wall: float) -> float:
        """The latest that it can have been: time passes by our watch only while somebody watches. After the last moment
        at which the wall was not past it, and before the one that followed."""
        latest = next((i for i in reversed(range(len(self.known))) if self.known[i][0] <= wall), None)
        after = 0 if latest is None else latest + 1
        following = self.known[after][1] if after < len(self.known) else self.now
        before = self.now if latest is None else self.known[latest][1] + wall - self.known[latest][0]
        return min(following, self.now, before)


def calendar(cases: Iterable[Case], records: Iterable[NodeRecord], now: float) -> Calendar:
    known = [(case.timeline[-1][1], case.entered) for case in cases if case.timeline]
    known += [(past.ended_at, past.ended) for record in records for past in record.past]
    return Calendar(tuple(sorted(known, key=lambda one: (one[1], one[0]))), now)


def with_windows(ledger: Ledger, cases: Sequence[Case], when: Calendar) -> Ledger:
    """Also with what these cases were granted. `cases`: open, and ended lately."""
    found: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        for name, wall in _grants(case):
            found[name].append(when.watch(wall))
    found[one_by_one.WINDOW] = [when.watch(c.timeline[-1][1]) for c in cases if c.timeline and _was_in_vain(c)]
    kept = {name: tuple(sorted(t for t in times if when.now - t < KEPT_S)) for name, times in found.items()}
    return replace(ledger, windows=_longer({name: times for name, times in kept.items() if times}, ledger.windows))


def _longer(
    found: Mapping[str, tuple[float, ...]], known: Mapping[str, tuple[float, ...]]
) -> dict[str, tuple[float, ...]]:  # fmt: skip
    return {**found, **{name: times for name, times in known.items() if len(times) >= len(found.get(name, ()))}}


def with_breaker(ledger: Ledger, policy: Policy, now: float) -> Ledger:
    """Would it be open by the escalations that are known?"""
    if ledger.breaker:
        return ledger
    times = ledger.windows.get("fleet/escalated", ())
    fresh = replace(ledger, windows={**ledger.windows, "fleet/escalated": ()})
    for at in times:
        fresh = admit.trip(fresh, policy, 1, at)
    return admit.trip(replace(fresh, windows=ledger.windows), policy, 0, now)


def _was_in_vain(case: Case) -> bool:
    return case.phase in (Phase.RESOLVED, Phase.DISMISSED) and one_by_one.was_in_vain(case)


def _grants(case: Case) -> Iterator[tuple[str, float]]:
    """Names of windows, and when by the wall."""
    if case.factor:
        return
    before = ""
    for entry, after in zip(case.journal, (*case.journal[1:], None), strict=True):
        if entry.event == Event.ADMITTED and entry.phase == Phase.CORDONING:
            yield f"{case.pool}/{Verb.CORDON}", entry.at
            if case.jobs_hurt and triage.soonest(case.diagnoses) is When.CHECKPOINT:
                yield "fleet/jobs-hurt", entry.at
        if entry.event == Event.READY and entry.phase == Phase.DRAINING:
            yield f"{case.pool}/{Verb.DRAIN}", entry.at
        if (verb := _treats(entry)) and not _was_undelivered(after):
            yield f"{case.pool}/{verb}", entry.at
        if entry.phase == Phase.ESCALATED and before != Phase.ESCALATED:
            yield "fleet/escalated", entry.at
        before = entry.phase


def _treats(entry: Entry) -> str:
    verb = entry.why.removesuffix(NEXT)
    return verb if entry.phase == Phase.REPAIRING and verb in TREATMENTS else ""


def _was_undelivered(after: Entry | None) -> bool:
    return after is not None and after.phase == Phase.QUEUED and after.event == Event.UNREACHABLE
