"""etcd as it was yesterday: our records and the marks on node objects, taken at one moment and put back at another.

Tests and storms call it. The world goes on as it is: machines were treated, jobs moved, people acted; only what the
platform's own store held is old again. Versions go on growing, as after a restore with `--bump-revision`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from sickbay import wire
from sickbay.ports import Store, V
from sickbay.sim.hardware import SimNode
from sickbay.sim.world import World


class Restorable(Protocol):
    """A store that can say all it holds, and take it back."""

    def contents(self) -> Any: ...

    def replace_contents(self, contents: Any) -> None: ...


class Records(Restorable, Store, Protocol):
    """As people reach our records: with what the command line does, and with `kubectl delete`."""

    def lose(self, kind: type[V], key: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Marks:
    """What a node object carried."""

    instance: str
    mark: str
    closed: bool
    others: tuple[str, ...]
    gate: bool
    opted_out: bool


@dataclass(frozen=True, slots=True)
class Backup:
    taken_at: float
    contents: Any
    marks: dict[str, Marks]


def take(world: World, store: Restorable) -> Backup:
    marks = {n.name: _marks(n) for n in world.nodes.values() if n.present}
    return Backup(world.now, store.contents(), marks)


def _marks(n: SimNode) -> Marks:
    return Marks(n.instance, n.mark, n.closed, tuple(n.others), n.gate, n.opted_out)


def restore(world: World, store: Restorable, backup: Backup) -> None:
    store.replace_contents(backup.contents)
    world.note("etcd-restored", "", age=round(world.now - backup.taken_at))
    for node in world.nodes.values():
        if node.present:
            _put_back(world, node, backup.marks.get(node.name))
            world.touch(node)


def _put_back(world: World, node: SimNode, old: Marks | None) -> None:
    """A machine that yesterday's objects do not know registers anew, behind the gate that its kubelet brings."""
    if old is None or old.instance != node.instance:
        node.objects += 1
        node.uid = world.factory.uid(node.name, node.objects)
        old = Marks(node.instance, "", False, (), True, False)
    if old.mark and old.mark != node.mark:
        world.note("mark-put-back", node.name, mark=old.mark)
    node.mark, node.closed, node.others = old.mark, old.closed, list(old.others)
    node.gate, node.opted_out = old.gate, old.opted_out


def all_readable(store: Restorable) -> None:
    """The newer controller runs again: also what a backup from before that has put back can be read."""
    for kind, found in store.contents().live.items():
        for key, stored in found.items():
            if stored.value.schema > wire.SCHEMA:
                written_by_a_newer(store, kind, key, newer=False)


def written_by_a_newer(store: Restorable, kind: type[Any], key: str, *, newer: bool = True) -> None:
    """A controller of the next version wrote this record and was then rolled back; or, `newer=False`, it is read again
    by one that knows it."""
    contents = store.contents()
    stored = contents.live[kind].get(key)
    if stored is not None:
        schema = wire.SCHEMA + 1 if newer else wire.SCHEMA
        contents.live[kind][key] = replace(stored, value=replace(stored.value, schema=schema))
        store.replace_contents(contents)
