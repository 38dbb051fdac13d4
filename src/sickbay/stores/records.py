"""What every store must agree on about a record: its key, its epoch rule, where it lives, when it ended.

Called by each store in this folder, so that one contract means one thing. It must never do IO.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

from sickbay import wire
from sickbay.errors import AlreadyExists, StaleWrite, StoreError, Unreadable
from sickbay.model import Case, Command, Ledger, NodeRecord, Part, Pause, Recovery
from sickbay.ports import Stored, Value

R = TypeVar("R", bound=Value)

LEDGER_KEY = "ledger"  # the Ledger is one: whatever key it is asked for
PEOPLE = (Command, Pause)  # written by people, at any time: no epoch
KEPT = (Case, Recovery)  # what the archive keeps
DELETABLE = (Command, Pause, NodeRecord)

_KEYS = {
    Case: "id",
    Recovery: "job",
    NodeRecord: "node",
    Part: "serial",
    Command: "id",
    Pause: "scope",
}
KINDS: tuple[type[Value], ...] = (*_KEYS, Ledger)


def key_of(value: Value) -> str:
    if isinstance(value, Ledger):
        return LEDGER_KEY
    return str(getattr(value, _KEYS[type(value)]))


def lookup_key(kind: type[Value], key: str) -> str:
    return LEDGER_KEY if kind is Ledger else key


def epoch_of(value: Value, epoch: int) -> int:
    """The epoch to store: people's records carry none."""
    return 0 if isinstance(value, PEOPLE) else epoch


def ready(value: R, cluster: str) -> R:
    """The record as it may be written: of this store's cluster, and bounded."""
    if cluster and value.cluster != cluster:
        if value.cluster:
            raise StoreError(
                f"{describe(value)} belongs to cluster {value.cluster!r}, this store serves {cluster!r}: "
                "give each cluster a store of its own"
            )
        value = dataclasses.replace(value, cluster=cluster)
    if isinstance(value, KEPT):
        value = wire.bound(value)  # type: ignore[type-var]  # isinstance narrows R to a union
    return value


def refuse_stale(value: Value, stored: Stored[Value] | None, expect: int, epoch: int) -> None:
    """Compare-and-set and fencing, in the words a log reader needs."""
    if stored is None:
        raise StaleWrite(f"{describe(value)} is not there any more: somebody else ended or removed it")
    if stored.version != expect:
        raise StaleWrite(f"{describe(value)} has moved on (version {stored.version}, expected {expect}): look again")
    if not isinstance(value, PEOPLE) and epoch < stored.epoch:
        raise StaleWrite(
            f"{describe(value)} is owned by a newer leader (epoch {stored.epoch}, ours {epoch}): stop leading"
        )


def already_there(value: Value, where: str = "") -> AlreadyExists:
    return AlreadyExists(f"{describe(value)} already exists{where}")


def refuse_delete(kind: type[Value]) -> None:
    if kind not in DELETABLE:
        raise StoreError(f"a {kind.__name__} is never deleted: cases and recoveries are archived, the rest stays")


def describe(value: Value) -> str:
    return "the Ledger" if isinstance(value, Ledger) else f"{type(value).__name__} {key_of(value)}"


# --- what cannot be read ----------------------------------------------------------------------------------------------


def read(kind: type[Value], key: str, data: object) -> Any:
    """The record in these bytes; Unreadable if damaged, of a newer Sickbay, or of another key ("": any will do)."""
    if not isinstance(data, bytes | str):
        raise Unreadable(f"this is not a readable {kind.__name__}: not a text but {type(data).__name__}")
    try:
        value = wire.decode(cast(type[Any], kind), data)
    except (StoreError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    if key and key_of(value) != key:
        raise Unreadable(f"this {kind.__name__} is kept as {key} and calls itself {key_of(value)}")
    return value


def refuse_newer(value: Value) -> None:
    """As `read`, of a value that was never bytes."""
    if value.schema > wire.SCHEMA:
        raise Unreadable(wire.newer(type(value), value.schema))


# --- the archive ------------------------------------------------------------------------------------------------------


def ended_at(value: Case | Recovery) -> float:
    """Wall time of the end: that of the newest journal entry, or failing that of the beginning."""
    if value.journal:
        return value.journal[-1].at
    return value.opened_at if isinstance(value, Case) else value.down_since or 0.0


def nodes_of(value: Case | Recovery) -> frozenset[str]:
    return frozenset((value.node,)) if isinstance(value, Case) else frozenset(value.nodes)


def faults_of(value: Case | Recovery) -> frozenset[str]:
    """A Recovery is about a job and names no fault: asking for recoveries by fault finds none."""
    return frozenset(d.fault for d in value.diagnoses) if isinstance(value, Case) else frozenset()
