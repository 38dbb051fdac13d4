"""Our mark on a node names another case than the one that put it there: somebody has written over it.

Nobody has opened the node, so that is no person's uncordon: a sick node was let go untreated for it. The case closes
the node once more in its own name and tells whose mark it takes off. A second time somebody means it, such as another
Sickbay on the same nodes: then the case stands still until a person has decided, for two that write over each other
would go on for ever. Called by core/decide.py and core/steps.py. Pure.
"""

from __future__ import annotations

from sickbay.core import explain, machine
from sickbay.core.frozen import replace
from sickbay.core.turn import Move, Turn
from sickbay.model import Case, Event, Node, Phase

EVENT = "OVERWRITTEN"


def mark(case: Case, node: Node | None) -> str:
    """The other mark. Only at a version later than our cordon, on a node that is still closed."""
    if node is None or case.cancelled or not case.cordon_version or node.version <= case.cordon_version:
        return ""
    return node.mark if node.cordoned and node.mark not in ("", case.id, case.adopts) else ""


def move(case: Case, node: Node) -> Move | None:
    """Closed once more, unless a treatment is under way: that is seen to its end first."""
    other, sent = mark(case, node), case.pending is not None and case.pending.sends > 0
    if not other or (case.phase is Phase.REPAIRING and sent):
        return None
    return (Event.REJOINED, f"somebody has put the mark of {other} in the place of ours on {node.name}", "platform")


def told(case: Case, moved: Case, node: Node | None, at: float) -> Case:
    """The case that takes the other mark off says so: in its journal, and to people."""
    other = mark(case, node)
    if not other:
        return moved
    why = (
        f"somebody has put the mark of {other} in the place of ours on {moved.node}, which is closed for {moved.id}. "
        f"It is closed in the name of {moved.id} again, and goes on from there. Should it happen once more, nothing is "
        "done until a person decides"
    )
    return _noted(moved, why, "warning", at)


def look(turn: Turn) -> None:
    """The second time is for a person."""
    case, node = turn.case, turn.s.node
    if case is None or node is None or _times(case) != 1 or not mark(case, node):
        return
    turn.case = _noted(case, f"{_stands(case, node)} To let the node go as it is: sickbay case abort {case.id}",
                       "urgent", turn.ctx.now.wall)  # fmt: skip


def stands_still(case: Case, node: Node | None) -> str:
    return _stands(case, node) if node is not None and _times(case) > 1 and mark(case, node) else ""


def _stands(case: Case, node: Node) -> str:
    return (
        f"somebody has put the mark of {node.mark} in the place of ours on {node.name} again, so another Sickbay may "
        f"be at work on it: nothing is done until the mark is {case.id} or a person has decided."
    )


def _times(case: Case) -> int:
    return sum(entry.event == EVENT for entry in case.journal)


def _noted(case: Case, why: str, level: str, at: float) -> Case:
    case = machine.note(case, EVENT, at=at, by="sickbay", why=why)
    notice = explain.about(case, f"{case.node}: somebody wrote over our mark", why, level, at)
    return replace(case, notices=(*case.notices, notice)[-8:])
