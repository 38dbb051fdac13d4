"""What a leader remembers of nodes that are away together, beside the record: who is missed, on which machine, and who
is back.

None of it is written: a network that is cut costs no write for each node, and the next leader sees for himself who is
away. He knows no more than the names on record of who was missed, and not since when anybody has been away. Pure;
called by controller/absences.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from sickbay.core.absence import SAME_S, is_left
from sickbay.model import Absence, Ledger, Node, NodeRecord

Nodes = Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class Memory:
    members: frozenset[str] = frozenset()  # those who are away and belong to it
    boots: Mapping[str, str] = field(default_factory=dict)  # of members, when they went away
    back: Mapping[str, float] = field(default_factory=dict)  # who was one, and since when he is not
    missed: Mapping[str, str] | None = None  # who is counted in its case, and which machine it is
    left: int = 0  # how many had left without being back when that was counted
    theirs: frozenset[str] = frozenset()  # left to people


def away_since(
    known: NodeRecord | None, ledger: Ledger, quiet_s: float, now: float, *, has_answered: bool, went_later: bool
) -> float:  # fmt: skip
    """Of a node that no pass has seen away yet. One whose record knows it from the leader before has been away as long;
    one that this leader has never seen ready may be among those who were left to people, and is while their time
    lasts; not one that is on record as having gone later."""
    since = known.not_ready_since if known is not None else None
    unknown = since is None and not has_answered and not went_later
    if unknown and is_left(ledger.left_at, ledger, quiet_s, now):
        since = ledger.left_at
    return now if since is None else min(since, now)


def went_later(name: str, absence: Absence | None, ledger: Ledger) -> bool:
    """Is it on record that it was not among those whom people were left with: they are named, or it is, in the open
    case about those who went away since? The next leader took it for one of them: its case was over, "all are back",
    and nobody looked after it (seeds 836, 50000229)."""
    if ledger.left_names:
        return name not in ledger.left_names
    return absence is not None and name in absence.names and absence.since > ledger.left_at


def counted(memory: Memory, members: Collection[str], nodes: Nodes, now: float) -> Memory:
    """As it stands now that these are members."""
    boots = {name: memory.boots[name] if name in memory.boots else nodes[name].boot_id for name in members}
    gone = dict.fromkeys(memory.members.difference(members), now)
    back = {name: at for name, at in {**memory.back, **gone}.items() if now - at <= SAME_S}
    return replace(memory, members=frozenset(members), boots=boots, back=back)


def unproved(before: Memory, after: Memory, nodes: Nodes) -> set[str]:
    """Who is back with another boot: it is examined (by its own agent's next cycle) before it gets managed work."""
    ready = {name: nodes[name] for name in before.members - after.members if name in nodes and nodes[name].ready}
    return {name for name, node in ready.items() if before.boots[name] not in ("", node.boot_id)}


def excuses(memory: Memory, name: str, now: float) -> bool:
    """Was it away with many others a moment ago? Then that its ranks were silent says nothing about it."""
    return name in memory.members or now - memory.back.get(name, float("-inf")) <= SAME_S


def left(memory: Memory, absence: Absence, still: Collection[str], nodes: Nodes) -> int:
    """How many are missed no more without being back: taken away, held by somebody, or another machine by now. Who
    leads anew knows only the names on record; so does who finds another count there than he has written: somebody had
    moved the record, it was read again, and a node that was taken away meanwhile had gone for back (seed 50001778)."""
    known = memory.missed if absence.left == memory.left else None
    missed = known if known is not None else dict.fromkeys(absence.names, "")
    return sum(not _is_back(nodes.get(name), machine) for name, machine in missed.items() if name not in still)


def _is_back(node: Node | None, machine: str) -> bool:
    return node is not None and node.ready and machine in ("", node.instance)
