"""Machines and parts that were sent away and are back: the second time a person decides, not another REPLACE.

Called by core/phases.py before a REPLACE is asked for, and by core/decide.py when one has ended. A provider that hands
back the same board would else be asked for ever. It must never stop a person who approves one for this very case.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sickbay.core.moment import how_long
from sickbay.model import Case, Event, Node, NodeRecord, Phase, Verb
from sickbay.settings import Policy

MOST = 2  # replacements of one node within policy.relapse_s that nobody has to be asked for
REMEMBERED = 8


def note(record: NodeRecord, case: Case, now: float) -> NodeRecord:
    """A replacement is remembered by the node's name, whatever machine stands behind it by now."""
    if case.phase is not Phase.RESOLVED or Verb.REPLACE not in case.rungs_tried:
        return record
    kept = {**record.replaced, case.id: now}
    return replace(record, replaced=dict(list(kept.items())[-REMEMBERED:]))


def has_left(case: Case) -> bool:
    """Did the machine of this ended case leave with a REPLACE? Not where its provider only started it again."""
    replaced = case.phase is Phase.RESOLVED and Verb.REPLACE in case.rungs_tried
    return replaced and case.journal[-1].event != Event.DONE


def awaits_successor(case: Case) -> bool:
    """Its REPLACE was sent and is not answered: that the old machine is gone is half of it. Until the other one is
    there, or a person lets it go, the node counts as out: else a provider without stock empties a pool."""
    sent = case.pending if case.phase is Phase.REPAIRING else case.unfinished
    waits = case.phase in (Phase.REPAIRING, Phase.QUEUED, Phase.ESCALATED)
    return waits and sent is not None and sent.verb is Verb.REPLACE and sent.sends > 0


def no_successor(case: Case) -> str:
    return (
        f"{case.node} was to be replaced: the old machine ({case.instance}) is gone and no other has come. Ask the "
        f"provider for capacity; the case ends when one joins as {case.node}, or by sickbay case abort {case.id}"
    )


def is_successor(case: Case, node: Node | None) -> bool:
    """Is it another machine than the one that this case is about? Older records name a machine by its object."""
    return node is not None and case.instance not in ("", node.instance, node.uid)


def is_same_machine(case: Case, node: Node | None) -> bool:
    """The provider says that it replaced the machine, and started the very same one again."""
    sent = case.pending
    booted = node is not None and sent is not None and bool(sent.before.boot_id) and node.boot_id != sent.before.boot_id
    return node is not None and booted and node.instance == case.instance and not node.gone


def is_still_there(case: Case, node: Node | None) -> bool:
    """It is said to be replaced, and we still see it as it was: nobody knows yet what came of it. The same machine,
    started again where nobody hears it, was taken for another one, and our mark stayed on it (seed 133)."""
    sent = case.pending
    as_it_was = node is not None and sent is not None and node.boot_id == sent.before.boot_id
    return node is not None and as_it_was and bool(node.boot_id) and node.instance == case.instance and not node.gone


def why_not_again(record: NodeRecord, case: Case, returned: Collection[str], policy: Policy, now: float) -> str:
    """Why another machine would not help, and what a person can do; "" if it may be tried."""
    within = [cid for cid, at in record.replaced.items() if now - at <= policy.relapse_s]
    parts = sorted({d.part for d in case.diagnoses if d.part in returned})
    same = any(p.rung is Verb.REPLACE and now - p.ended <= policy.relapse_s for p in record.past)
    if parts:
        seen = f"GPU {parts[0]} was sent away, came back, was sent away again and is back in {case.node}"
    elif same:
        seen = f"{case.node} was replaced ({', '.join(within[-2:])}) and the same machine {case.instance} is back, ill"
    elif len(within) >= MOST:
        times = f"{len(within)} times within {how_long(policy.relapse_s)}"
        seen = f"{case.node} was replaced {times} ({', '.join(within)}) and is ill again"
    else:
        return ""
    return (
        f"{seen}: another REPLACE would bring no better part. Ask the provider what it hands back; to replace it all "
        f"the same: sickbay case approve {case.id} --verb REPLACE, then sickbay case retry {case.id}"
    )
