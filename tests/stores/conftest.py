"""Every store we ship, behind the same fixtures. A new store adds one line to STORES and runs the whole contract."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

from sickbay import wire
from sickbay.ports import Store
from sickbay.stores import records
from sickbay.stores.memory import MemoryStore
from sickbay.stores.sqlite import SqliteStore

Pair = tuple[Store, Store]
NEWER = 99  # a schema that no version of ours has


class Spoiler(Protocol):
    """Makes a record one that a newer Sickbay wrote, behind the store's back, and one that can be read again."""

    def spoil(self, value: Any, *, archived: bool = False) -> None: ...

    def mend(self, value: Any) -> None: ...

    def raw(self, value: Any) -> object: ...


class _InMemory:
    def __init__(self, store: Store) -> None:
        self._store = cast(MemoryStore, store)

    def spoil(self, value: Any, *, archived: bool = False) -> None:
        if archived:
            kept = [replace(one, schema=NEWER) if one == value else one for one in self._store._archive[type(value)]]
            self._store._archive[type(value)] = kept
        else:
            self._store._put(replace(value, schema=NEWER), self._epoch(value))

    def mend(self, value: Any) -> None:
        self._store._put(value, self._epoch(value))

    def raw(self, value: Any) -> object:
        return self._store._live[type(value)][records.key_of(value)]

    def _epoch(self, value: Any) -> int:
        return self._store._live[type(value)][records.key_of(value)].epoch


class _InSqlite:
    def __init__(self, store: Store) -> None:
        self._path = cast(SqliteStore, store).path

    def spoil(self, value: Any, *, archived: bool = False) -> None:
        tree = {**wire.to_json(value), "schema": NEWER, "gpu": ["a shape", 1]}
        self._write(value, json.dumps(tree).encode(), "archive" if archived else "records")

    def mend(self, value: Any) -> None:
        self._write(value, wire.encode(value), "records")

    def raw(self, value: Any) -> object:
        with closing(sqlite3.connect(self._path)) as db:
            return db.execute("select * from records where kind = ? and key = ?", _where(value)).fetchone()

    def _write(self, value: Any, body: bytes, table: str) -> None:
        """As a newer Sickbay would: under the next number."""
        with closing(sqlite3.connect(self._path)) as db, db:
            db.execute("update meta set value = value + 1 where name = 'token'")
            db.execute(f"update {table} set body = ? where kind = ? and key = ?", (body, *_where(value)))
            if table == "records":
                db.execute(
                    "update records set version = (select value from meta where name = 'token') "
                    "where kind = ? and key = ?",
                    _where(value),
                )


def _where(value: Any) -> tuple[str, str]:
    return type(value).__name__, records.key_of(value)


def _two_handles_on_memory(_: Path) -> Pair:
    store = MemoryStore()
    return store, store


def _two_connections_to_sqlite(folder: Path) -> Pair:
    path = folder / "store.db"
    return SqliteStore(path, synchronous="OFF"), SqliteStore(path, synchronous="OFF")


STORES: dict[str, Callable[[Path], Pair]] = {
    "memory": _two_handles_on_memory,
    "sqlite": _two_connections_to_sqlite,
}
SPOILERS: dict[str, Callable[[Store], Spoiler]] = {"memory": _InMemory, "sqlite": _InSqlite}


@pytest.fixture(params=sorted(STORES))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Two writers to the same records."""
    stores = STORES[request.param](tmp_path)
    yield stores
    for store in stores:
        store.close()


@pytest.fixture
def store(pair: Pair) -> Store:
    return pair[0]


@pytest.fixture
def spoiler(request: pytest.FixtureRequest, pair: Pair) -> Spoiler:
    return SPOILERS[request.node.callspec.params["pair"]](pair[0])
