"""Nodes that are back from an absence of many with another boot: who they are, and whether they were examined since.

Such a node gets managed work only after its agent has gone through the whole light suite in that boot. A VERIFY of ours
would be a case, a cordon, a place in the limits and some writes for each node of a hall that has its power again; the
agents run the same checks by themselves, each when its node is up, which staggers them, and for nothing. Of a cycle an
agent tells when its last check has ended, all at once (agent/station.py): one answer of this boot is a whole cycle.

What must outlive a leader is on record: the boots with which nodes went away, in the case about them, and the boot that
is not examined yet, in the node's own record. Pure; called by controller/absences.py and controller/jobs.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from sickbay.model import Node, NodeRecord, Severity, Status

WORD = 5  # characters; a case has to stay small: a name and a boot are ten
MOST = 4_096  # nodes in one case; of more the leader who saw them go knows
STREAM = "kernel-log"  # is followed, not run: what it says is no answer of a cycle


def noted(boots: str, went: Mapping[str, str], *, again: bool) -> str:
    """With those who went away, and their boots then. `again`: this leader saw them go, so he knows better than what is
    written; one who found them away does not."""
    known = _read(boots)
    for node, boot in went.items():
        if boot and (again or _word(node) not in known) and (_word(node) in known or len(known) < MOST):
            known[_word(node)] = _word(boot)
    return "".join(node + boot for node, boot in known.items())


def rebooted(boots: str, nodes: Iterable[Node]) -> set[str]:
    """Who is back with another boot than it went away with."""
    known = _read(boots)
    back = [node for node in nodes if node.ready and node.boot_id]
    return {node.name for node in back if known.get(_word(node.name), _word(node.boot_id)) != _word(node.boot_id)}


def _read(boots: str) -> dict[str, str]:
    pairs = [boots[i : i + 2 * WORD] for i in range(0, len(boots), 2 * WORD)]
    return {pair[:WORD]: pair[WORD:] for pair in pairs}


def _word(text: str) -> str:
    """Two names with the same word are a node that is asked for one cycle too many."""
    return hashlib.sha256(text.encode()).hexdigest()[:WORD]


def is_proved(record: NodeRecord | None, node: Node) -> bool:
    """May it have managed work? A later boot than the one on record is another absence's matter, or a treatment's."""
    return record is None or not record.unproved or record.unproved != node.boot_id or is_examined(node)


def is_examined(node: Node) -> bool:
    """Has its agent gone through a whole cycle in this boot? What it found is held against it by its latches; in the
    middle of a cycle only what is grave is told. An outsider's word carries this boot too, and is no examination."""
    said = [f for f in node.findings if f.source == "agent" and f.check != STREAM and not f.answers]
    seen = [f for f in said if f.status is not Status.UNKNOWN and f.severity <= Severity.MONITOR]
    return any(f.boot_id == node.boot_id for f in seen)
