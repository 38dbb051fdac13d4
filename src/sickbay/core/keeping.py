"""What of a decision must be on record at once, what may wait for the next write, and what is not worth one.

Asked by controller/desk.py for every decision. The rule: a crash may lose only what the next leader sees for itself and
comes to by the same steps. sim/swarm.py crashes with such writes outstanding, and so judges this file: COLLECTING may
not wait, because nodes were then treated before their evidence was kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter

from sickbay.core.frozen import replace
from sickbay.core.turn import Decision, NodeSlice
from sickbay.model import Case, Doubt, NodeRecord, Notice, Phase

NOW = 0.0  # what a crash must not lose
# Watch time: a phase in which nothing is done that could do harm if nobody remembered it. Longer than policy.settle_s:
# else each case would be written once just before its next phase is. Also the promise to whoever reads the ward list:
# a phase and what it waits for are never older than this.
SOON_S = 15.0
LATER_S = 300.0  # what the next leader would see for itself
# What hardly anybody misses: that a notice was delivered (a crash meanwhile tells it twice, by the same key), or what
# else is seen while a machine boots or is examined. Longer than that takes: it is one with the write at its end.
RARELY_S = 900.0
OWED_MAX = 32  # notices that one record keeps until they are delivered
_lasting = attrgetter(*(field.name for field in fields(NodeRecord) if field.name not in ("seen", "not_ready_since")))


def is_worth_a_write(before: NodeRecord, after: NodeRecord, stored: bool) -> bool:
    """A record that only says which boot a healthy node is in is not, nor that the same answers were heard once more:
    with every cycle of every agent they come under a new number."""
    if after is before:
        return False
    # the next leader counts for itself: a network that is cut costs no writes
    since = None if before.not_ready_since is None else after.not_ready_since
    if _lasting(before) == _lasting(after) and before.not_ready_since == since:
        return False
    after = replace(after, seen=before.seen, not_ready_since=since)
    plain = NodeRecord(after.node, uid=after.uid, boot_id=after.boot_id, boot_seen=after.boot_seen,
                       instance=after.instance, cluster=after.cluster)  # fmt: skip
    return stored or after != plain


def patience(s: NodeSlice, d: Decision) -> float:
    """Seconds of watch time that what was decided may wait for another write."""
    before, case = s.case, d.case
    if case is None:
        return LATER_S if _is_only_sight(s.record, d.record) else NOW
    if before is None or d.ended or (case.held, case.paused) != (before.held, before.paused):
        return NOW  # a hold and its end too: nobody may read "held" beside something that is being done
    if case.phase is before.phase and case.pending == before.pending and case.notices == before.notices:
        return _at_rest(case) if case.refusal == before.refusal else SOON_S  # merged from findings that still stand
    return SOON_S if _harms_nobody(s, case) else NOW


AT_WORK = frozenset({Phase.COLLECTING, Phase.REPAIRING, Phase.VERIFYING})  # on the machine: all wait for its end


def _at_rest(case: Case) -> float:
    return RARELY_S if case.phase in AT_WORK else LATER_S


def _harms_nobody(s: NodeSlice, case: Case) -> bool:
    """Phases that may begin unwritten: closed and at rest, or drained where there is nothing to evict. After a crash
    the next leader comes to the same phase by the same steps, and asks the same under the same key."""
    if case.phase is Phase.HOLDING:
        return case.pending is None
    return case.phase is Phase.DRAINING and s.node is not None and not s.node.jobs


def _is_only_sight(before: NodeRecord, after: NodeRecord) -> bool:
    """Since when a boot or a silence is seen: the next leader counts from its own first look, which is never sooner."""
    seen = replace(after, boot_id=before.boot_id, boot_seen=before.boot_seen, not_ready_since=before.not_ready_since)
    return replace(seen, doubts=_unloaded(seen)) == replace(before, doubts=_unloaded(before))


def _unloaded(record: NodeRecord) -> tuple[Doubt, ...]:
    """Without the good hours: a few minutes of them are no loss, and each job would be two writes at once."""
    return tuple(replace(doubt, load_s=0.0, loaded_since=None) for doubt in record.doubts)


def owed(*notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """What is still to be delivered, each once. While nobody takes them, the oldest that is not urgent goes first."""
    every = {notice.key: notice for some in notices for notice in some}
    for notice in sorted(every.values(), key=lambda n: n.level == "urgent")[: max(0, len(every) - OWED_MAX)]:
        del every[notice.key]
    return tuple(every.values())
