"""Every store we ship, behind the same fixtures. A new store adds one line to STORES and runs the whole contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sickbay.ports import Store
from sickbay.stores.memory import MemoryStore
from sickbay.stores.sqlite import SqliteStore

Pair = tuple[Store, Store]


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
