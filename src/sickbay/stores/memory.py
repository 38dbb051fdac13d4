"""A store in this process: for tests, for the simulator and for `--store memory`. Reads cost a dictionary look-up.

Values are handed out as they came in (they are frozen; nobody mutates a mapping inside one). It forgets on exit.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from sickbay import wire
from sickbay.errors import StoreError
from sickbay.model import Case, Command, Recovery
from sickbay.ports import Names, Stored, Unread, V, Value
from sickbay.stores import records


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a store held at one moment: the simulator's backups."""

    live: dict[type[Value], dict[str, Stored[Any]]]
    ended: tuple[Case | Recovery, ...]


class MemoryStore:
    """ports.Store in dictionaries under one lock."""

    lanes, frugal = 1, False

    def __init__(self, cluster: str = "") -> None:
        self.cluster = cluster
        self._lock = threading.RLock()
        self._token = 0
        self._live: dict[type[Value], dict[str, Stored[Any]]] = {kind: {} for kind in records.KINDS}
        self._lists: dict[type[Value], list[Stored[Any]]] = {}
        self._archive: dict[type[Value], list[Case | Recovery]] = {Case: [], Recovery: []}
        self._by_node: dict[tuple[type[Value], str], list[Case | Recovery]] = defaultdict(list)
        self._last: dict[tuple[type[Value], str], Case | Recovery] = {}  # of each key the one that ended last
        self._newest = 0  # the highest schema that was ever put
        self._closed = False

    def get(self, kind: type[V], key: str) -> Stored[V] | None:
        self._open()
        return self._get(kind, records.lookup_key(kind, key))

    def list(self, kind: type[V]) -> list[Stored[V]]:
        with self._lock:
            self._open()
            found = self._lists.get(kind)
            if found is None:
                found = self._lists[kind] = [
                    stored for _, stored in sorted(self._live[kind].items()) if stored.value.schema <= wire.SCHEMA
                ]
            return found.copy()

    def unread(self) -> Sequence[Unread]:
        """In memory nothing is ever damaged; but a newer controller may have shared it (tests, the simulator)."""
        with self._lock:
            self._open()
            if self._newest <= wire.SCHEMA:
                return ()
            return [
                Unread(kind, key, "this process's memory", wire.newer(kind, stored.value.schema), "", stored.epoch)
                for kind, live in self._live.items()
                for key, stored in sorted(live.items())
                if stored.value.schema > wire.SCHEMA
            ]

    def create(self, value: Value, epoch: int = 0) -> int:
        value = records.ready(value, self.cluster)
        with self._lock:
            self._open()
            key = records.key_of(value)
            if self._get(type(value), key) is not None:
                raise records.already_there(value)
            if isinstance(value, Case) and (Case, key) in self._last:
                raise records.already_there(value, " in the archive: case numbers are never used twice")
            return self._put(value, epoch)

    def commit(self, value: Value, expect: int, epoch: int, consumes: Sequence[str] = ()) -> int:
        value = records.ready(value, self.cluster)
        with self._lock:
            self._check(value, expect, epoch)
            self._consume(consumes)
            return self._put(value, epoch)

    def archive(self, value: Case | Recovery, expect: int, epoch: int, consumes: Sequence[str] = ()) -> None:
        value = records.ready(value, self.cluster)
        with self._lock:
            self._check(value, expect, epoch)
            self._consume(consumes)
            self._remove(type(value), records.key_of(value))
            self._keep(value)

    def delete(self, kind: type[V], key: str) -> None:
        records.refuse_delete(kind)
        with self._lock:
            self._open()
            self._remove(kind, key)

    def history(
        self, kind: type[V], *, node: str = "", fault: str = "", since: float = 0.0, limit: int = 100
    ) -> Iterator[V]:
        with self._lock:
            self._open()
            kept = list(self._by_node[kind, node] if node else self._archive.get(kind, ()))
        found = (
            value
            for value in reversed(kept)
            if value.schema <= wire.SCHEMA
            and records.ended_at(value) >= since
            and (not fault or fault in records.faults_of(value))
        )
        return cast(Iterator[V], islice(found, max(limit, 0)))

    def last_ended(self, kind: type[V], key: str) -> V | None:
        with self._lock:
            self._open()
            found = self._last.get((kind, key)) if key not in self._live[kind] else None
        return cast(V, found) if found is not None and found.schema <= wire.SCHEMA else None

    def prune(self, older_than: float) -> int:
        with self._lock:
            self._open()
            kept = [value for kind in records.KEPT for value in self._archive[kind]]
            staying = [value for value in kept if records.ended_at(value) >= older_than]
            if len(staying) < len(kept):
                self._rebuild(staying)
            return len(kept) - len(staying)

    def contents(self) -> Contents:
        with self._lock:
            live = {kind: dict(found) for kind, found in self._live.items()}
            return Contents(live, tuple(value for kind in records.KEPT for value in self._archive[kind]))

    def replace_contents(self, contents: Contents) -> None:
        """Everything is as it was then. Versions are not: whoever remembers one of a moment ago is refused."""
        with self._lock:
            self._rebuild(contents.ended)
            self._lists.clear()
            self._live = {
                kind: {key: self._again(stored) for key, stored in found.items()}
                for kind, found in contents.live.items()
            }

    def missing(self, kind: type[V], keys: Collection[str]) -> Names:
        live = self._live[kind]
        return [key for key in keys if key not in live]

    def moved(self, kind: type[V], key: str, version: int) -> bool:
        stored = self._live[kind].get(records.lookup_key(kind, key))
        return stored is not None and stored.version != version

    def lose(self, kind: type[V], key: str) -> None:
        """As somebody would who deletes a record behind our back: for the simulator, nobody else can."""
        with self._lock:
            self._remove(kind, key)

    def token(self) -> int:
        return self._token

    def close(self) -> None:
        self._closed = True

    # --- under the lock -----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._closed:
            raise StoreError("this store has been closed")

    def _get(self, kind: type[Value], key: str) -> Stored[Any] | None:
        stored = self._live[kind].get(key)
        if stored is not None:
            records.refuse_newer(stored.value)
        return stored

    def _check(self, value: Value, expect: int, epoch: int) -> None:
        self._open()
        records.refuse_stale(value, self._get(type(value), records.key_of(value)), expect, epoch)

    def _put(self, value: Value, epoch: int) -> int:
        self._touch(type(value))
        self._newest = max(self._newest, value.schema)
        stored = Stored(value, self._token, records.epoch_of(value, epoch))
        self._live[type(value)][records.key_of(value)] = stored
        return self._token

    def _remove(self, kind: type[Value], key: str) -> None:
        if self._live[kind].pop(key, None) is not None:
            self._touch(kind)

    def _touch(self, kind: type[Value]) -> None:
        self._token += 1
        self._lists.pop(kind, None)

    def _consume(self, commands: Sequence[str]) -> None:
        for command in commands:
            self._remove(Command, command)

    def _again(self, stored: Stored[Any]) -> Stored[Any]:
        self._token += 1
        self._newest = max(self._newest, stored.value.schema)
        return Stored(stored.value, self._token, stored.epoch)

    def _keep(self, value: Case | Recovery) -> None:
        self._archive[type(value)].append(value)
        for node in records.nodes_of(value):
            self._by_node[type(value), node].append(value)
        self._last[type(value), records.key_of(value)] = value

    def _rebuild(self, staying: Sequence[Case | Recovery]) -> None:
        """After a prune. Ids of pruned cases go too: NodeRecord.last_n is what keeps numbers from coming back."""
        self._token += 1
        self._archive = {Case: [], Recovery: []}
        self._by_node.clear()
        self._last.clear()
        for value in staying:
            self._keep(value)
