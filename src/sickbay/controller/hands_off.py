"""What cannot be read keeps our hands off: whose record it is, and what a person is told about it.

Made by controller/records.py from what Store.unread names, asked by both desks. It must never guess what such a record
says: what it may be about is left alone until somebody has mended or removed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sickbay.model import Case, Ledger, Node, NodeRecord, Notice, Part, Pause, Recovery
from sickbay.ports import Unread

FLEET = "fleet"
LOOK_AGAIN_S = 30.0  # a hand that mends a record may tell nobody: while there is one, look this often


@dataclass(frozen=True, slots=True)
class HandsOff:
    """`nodes` are names of nodes, and of factors with a case of their own; `scopes` are those of pauses."""

    unread: tuple[Unread, ...] = ()
    nodes: Mapping[str, Unread] = field(default_factory=dict)
    jobs: Mapping[str, Unread] = field(default_factory=dict)
    parts: Mapping[str, Unread] = field(default_factory=dict)
    scopes: Mapping[str, Unread] = field(default_factory=dict)
    cases: frozenset[str] = frozenset()

    def of_node(self, name: str, node: Node | None) -> Unread | None:
        """The record that keeps us from this node: its own, that of a cause it may share, or that of a part in it."""
        if not self.unread:
            return None
        factors = [f"{factor}={value}" for factor, value in node.factors.items()] if node else []
        for known in (name, *factors):
            if known in self.nodes:
                return self.nodes[known]
        names = (name for gpu in (node.gpus if node else ()) for name in (gpu.serial, gpu.uuid))
        return next((self.parts[name] for name in names if name in self.parts), None)

    def pauses(self) -> dict[str, Pause]:
        """A "hands off" that cannot be read is one, and for good."""
        return {
            scope: Pause(scope, "a record that cannot be read", f"{one.name} in {one.where}", since=0.0)
            for scope, one in self.scopes.items()
        }

    @property
    def ledger(self) -> bool:
        return any(one.kind is Ledger for one in self.unread)


def hands_off(unread: Sequence[Unread]) -> HandsOff:
    nodes = {one.key: one for one in unread if one.kind is NodeRecord}
    nodes |= {one.key.rpartition(".")[0]: one for one in unread if one.kind is Case}
    return HandsOff(
        tuple(unread), nodes,
        jobs={one.key: one for one in unread if one.kind is Recovery},
        parts={one.key: one for one in unread if one.kind is Part},
        scopes={_scope(one): one for one in unread if one.kind in (Pause, Ledger)},
        cases=frozenset(one.key for one in unread if one.kind is Case),
    )  # fmt: skip


def _scope(one: Unread) -> str:
    """Of a Pause whose key names none, and of the Ledger, which knows who may be disrupted: the fleet."""
    named = one.kind is Pause and one.key.startswith(("node:", "pool:"))
    return one.key if named else FLEET


def notices(off: HandsOff, told: set[str], wall: float) -> Iterator[Notice]:
    """One for each; again only after it could be read in between. `told` is the caller's memory of it."""
    if not (off.unread or told):
        return
    keys = {f"unread/{one.kind.__name__}/{one.key}": one for one in off.unread}
    told -= {key for key in told if key.startswith("unread/") and key not in keys}
    for key, one in keys.items():
        if key not in told:
            told.add(key)
            yield _notice(key, one, wall)


def _notice(key: str, one: Unread, wall: float) -> Notice:
    whole = one.kind in (Pause, Ledger) and _scope(one) == FLEET
    removal = f", or remove it: {one.removal}" if one.removal else ""
    body = (
        f"{one.name} is in {one.where}. {one.why}. {_consequence(one)} It was not changed and will not be. Mend it, "
        f"run the Sickbay that wrote it{removal}. It is looked at every {LOOK_AGAIN_S:.0f} s and taken up without a "
        "restart."
    )
    title = f"{one.name} cannot be read: {_left_alone(one)}"
    return Notice(key, "urgent" if whole else "warning", title, body, "", wall)


def _left_alone(one: Unread) -> str:
    if one.kind in (Pause, Ledger):
        return "nothing is disrupted anywhere" if _scope(one) == FLEET else f"hands are off {one.key}"
    if one.kind is NodeRecord or one.kind is Case:
        return f"{one.key if one.kind is NodeRecord else one.key.rpartition('.')[0]} is left alone"
    return {Recovery: f"job {one.key} is left alone", Part: "nodes with that GPU are left alone"}.get(
        one.kind, "what it asks for is not done"
    )


def _consequence(one: Unread) -> str:
    if one.kind is Ledger:
        return "It says who holds which place: until then the fleet is watched, and no node or job is touched."
    if one.kind is Pause:
        return "It asks for hands off, so hands are off."
    if one.kind is NodeRecord or one.kind is Case:
        return "Until then nothing is decided about it: it is not treated, and gets no job from us."
    if one.kind is Recovery:
        return "Until then nothing is decided about this job: it is neither stopped nor restarted."
    if one.kind is Part:
        return "It may say that this GPU was condemned: nodes that show it are not treated and get no job from us."
    return "Until then it waits; everything else goes on."
