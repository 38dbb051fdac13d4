"""The embedded store: one SQLite file, standard library only. The default on one machine and on a Slurm head node.

Several processes may open the same file (the controller, a person's CLI). Every write is one IMMEDIATE transaction that
also advances one counter; the counter is the record's new version, so a version never repeats, and it is the token.
It must never hand out half a write, nor write what it could not read back.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from sickbay import wire
from sickbay.errors import StoreError, Unreadable
from sickbay.model import Case, Command, Recovery
from sickbay.ports import Names, Stored, Unread, V, Value
from sickbay.stores import records, sqlite_file

_HISTORY = """
select body from archive where kind = :kind and ended >= :since
  and (:node = '' or exists (select 1 from archive_node where archive_node.seq = archive.seq and node = :node))
  and (:fault = '' or exists (select 1 from archive_fault where archive_fault.seq = archive.seq and fault = :fault))
order by seq desc limit :limit
"""
_LAST_ENDED = """
select body from archive where kind = :kind and key = :key
  and not exists (select 1 from records where records.kind = :kind and records.key = :key)
order by seq desc limit 1
"""


_KINDS = {kind.__name__: kind for kind in records.KINDS}


class SqliteStore:
    """ports.Store in one file. One connection under one lock; what was read or written last is kept decoded."""

    lanes, frugal = 1, False

    def __init__(self, path: str | Path, cluster: str = "", *, synchronous: str = "FULL", busy_s: float = 10.0) -> None:
        self.path = Path(path).expanduser()
        self._lock = threading.RLock()
        db = sqlite_file.open_file(self.path, cluster, synchronous, busy_s)
        self._db: sqlite3.Connection | None = db
        self.cluster = sqlite_file.cluster_of(db)
        self._known: dict[tuple[str, str], Stored[Any]] = {}
        self._lists: dict[str, tuple[int, Sequence[Stored[Any]]]] = {}
        self._unread: dict[tuple[str, str], Unread] = {}
        self._looked = -1  # every record of this version or an older one has been tried

    def get(self, kind: type[V], key: str) -> Stored[V] | None:
        with self._reading() as db:
            return self._get(db, kind, records.lookup_key(kind, key))

    def list(self, kind: type[V]) -> list[Stored[V]]:
        with self._reading() as db:
            token = _token(db)
            if self._lists.get(kind.__name__, (-1, ()))[0] != token:
                self._lists[kind.__name__] = (token, self._list(db, kind))
            return [*self._lists[kind.__name__][1]]

    def unread(self) -> Sequence[Unread]:
        with self._reading() as db:
            token = _token(db)
            new = db.execute("select kind, key from records where version > ?", (self._looked,)).fetchall()
            for name, key in sorted({*new, *self._unread}):  # those known may have been mended by hand, or removed
                self._try(db, name, key)
            self._looked = token
            return list(self._unread.values())

    def create(self, value: Value, epoch: int = 0) -> int:
        value = records.ready(value, self.cluster)
        with self._writing() as db:
            if self._get(db, type(value), records.key_of(value)) is not None:
                raise records.already_there(value)
            if isinstance(value, Case) and _is_archived(db, value.id):
                raise records.already_there(value, " in the archive: case numbers are never used twice")
            stored = self._put(db, value, epoch)
        return self._remember(stored)

    def commit(self, value: Value, expect: int, epoch: int, consumes: Sequence[str] = ()) -> int:
        value = records.ready(value, self.cluster)
        with self._writing() as db:
            self._check(db, value, expect, epoch)
            _consume(db, consumes)
            stored = self._put(db, value, epoch)
        return self._remember(stored)

    def archive(self, value: Case | Recovery, expect: int, epoch: int, consumes: Sequence[str] = ()) -> None:
        value = records.ready(value, self.cluster)
        with self._writing() as db:
            self._check(db, value, expect, epoch)
            _consume(db, consumes)
            self._drop(db, type(value), records.key_of(value))
            _keep(db, value)

    def delete(self, kind: type[V], key: str) -> None:
        records.refuse_delete(kind)
        with self._writing() as db:
            if self._drop(db, kind, key):
                _next_token(db)

    def history(
        self, kind: type[V], *, node: str = "", fault: str = "", since: float = 0.0, limit: int = 100
    ) -> Iterator[V]:
        asked = {"kind": kind.__name__, "node": node, "fault": fault, "since": since, "limit": max(limit, 0)}
        with self._reading() as db:
            bodies = [row[0] for row in db.execute(_HISTORY, asked)]
        return (value for body in bodies if (value := _archived(kind, body)) is not None)

    def last_ended(self, kind: type[V], key: str) -> V | None:
        with self._reading() as db:
            found = db.execute(_LAST_ENDED, {"kind": kind.__name__, "key": key}).fetchone()
        return _archived(kind, found[0]) if found is not None else None

    def prune(self, older_than: float) -> int:
        with self._writing() as db:
            gone = db.execute("delete from archive where ended < ?", (older_than,)).rowcount
            if gone:
                _next_token(db)
            return gone

    def missing(self, kind: type[V], keys: Collection[str]) -> Names:
        with self._reading() as db:
            live = {row[0] for row in db.execute("select key from records where kind = ?", (kind.__name__,))}
        return [key for key in keys if key not in live]

    def moved(self, kind: type[V], key: str, version: int) -> bool:
        asked = (kind.__name__, records.lookup_key(kind, key))
        with self._reading() as db:
            found = db.execute("select version from records where kind = ? and key = ?", asked).fetchone()
        return found is not None and found[0] != version

    def token(self) -> int:
        with self._reading() as db:
            return _token(db)

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    # --- transactions -------------------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, sqlite_file.plain_words(self.path):
            if self._db is None:
                raise StoreError(f"{self.path}: this store has been closed")
            yield self._db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as db:
            db.execute("begin immediate")
            try:
                yield db
                db.execute("commit")
            except BaseException:
                if db.in_transaction:
                    db.execute("rollback")
                raise

    # --- records ------------------------------------------------------------------------------------------------------

    def _get(self, db: sqlite3.Connection, kind: type[Value], key: str) -> Stored[Any] | None:
        where = (kind.__name__, key)
        known = self._known.get(where)
        row = db.execute("select version from records where kind = ? and key = ?", where).fetchone()
        if row is not None and known is not None and known.version == row[0]:
            return known
        self._known.pop(where, None)
        return self._fetch(db, kind, key)

    def _fetch(self, db: sqlite3.Connection, kind: type[Value], key: str) -> Stored[Any] | None:
        where = (kind.__name__, key)
        row = db.execute("select body, version, epoch from records where kind = ? and key = ?", where).fetchone()
        if self._unread.pop(where, None) is not None:
            self._lists.pop(kind.__name__, None)  # a hand that mends it tells no token
        if row is None:
            return None
        try:
            value = records.read(kind, key, row[0])
        except Unreadable as error:
            self._unread[where] = self._describe(kind, key, str(error), row[2])
            raise Unreadable(f"{self.path}, {kind.__name__} {key}: {error}") from error
        stored = self._known[where] = Stored(value, row[1], row[2])
        return stored

    def _try(self, db: sqlite3.Connection, name: str, key: str) -> Stored[Any] | None:
        """None if it is not there or cannot be read; a kind that only a newer Sickbay knows is no business of ours."""
        if name not in _KINDS:
            return None
        try:
            return self._get(db, _KINDS[name], key)
        except Unreadable:
            return None

    def _describe(self, kind: type[Value], key: str, why: str, epoch: int) -> Unread:
        quoted = key.replace("'", "''")
        removal = f"sqlite3 {self.path} \"delete from records where kind = '{kind.__name__}' and key = '{quoted}'\""
        return Unread(kind, key, f"{self.path} (table records)", why, removal, epoch)

    def _list(self, db: sqlite3.Connection, kind: type[Value]) -> Sequence[Stored[Any]]:
        rows = db.execute("select key from records where kind = ? order by key", (kind.__name__,)).fetchall()
        found = [stored for (key,) in rows if (stored := self._try(db, kind.__name__, key)) is not None]
        for gone in {key for name, key in self._known if name == kind.__name__}.difference(key for (key,) in rows):
            del self._known[kind.__name__, gone]  # ended by another process
        return found

    def _check(self, db: sqlite3.Connection, value: Value, expect: int, epoch: int) -> None:
        records.refuse_stale(value, self._get(db, type(value), records.key_of(value)), expect, epoch)

    def _put(self, db: sqlite3.Connection, value: Value, epoch: int) -> Stored[Any]:
        kind = cast(type[Any], type(value))
        body = wire.encode(value)
        wire.decode(kind, body)  # an infinity or a wrong type must fail here, not when the file is opened next
        stored = Stored(value, _next_token(db), records.epoch_of(value, epoch))
        db.execute(
            "insert or replace into records (kind, key, version, epoch, body) values (?, ?, ?, ?, ?)",
            (kind.__name__, records.key_of(value), stored.version, stored.epoch, body),
        )
        return stored

    def _drop(self, db: sqlite3.Connection, kind: type[Value], key: str) -> bool:
        self._known.pop((kind.__name__, key), None)
        return db.execute("delete from records where kind = ? and key = ?", (kind.__name__, key)).rowcount > 0

    def _remember(self, stored: Stored[Any]) -> int:
        """Only after the transaction: a write that failed must not be remembered."""
        with self._lock:
            where = (type(stored.value).__name__, records.key_of(stored.value))
            self._known[where] = stored
        return stored.version


def _archived(kind: type[V], body: object) -> V | None:
    try:
        return cast(V, records.read(kind, "", body))
    except Unreadable:
        return None


def _token(db: sqlite3.Connection) -> int:
    return int(db.execute("select value from meta where name = 'token'").fetchone()[0])


def _next_token(db: sqlite3.Connection) -> int:
    return int(db.execute("update meta set value = value + 1 where name = 'token' returning value").fetchall()[0][0])


def _consume(db: sqlite3.Connection, commands: Sequence[str]) -> None:
    rows = [(Command.__name__, command) for command in commands]
    db.executemany("delete from records where kind = ? and key = ?", rows)


def _is_archived(db: sqlite3.Connection, case: str) -> bool:
    found = db.execute("select 1 from archive where kind = ? and key = ? limit 1", (Case.__name__, case))
    return found.fetchone() is not None


def _keep(db: sqlite3.Connection, value: Case | Recovery) -> None:
    row = (_next_token(db), type(value).__name__, records.key_of(value), records.ended_at(value), wire.encode(value))
    db.execute("insert into archive (seq, kind, key, ended, body) values (?, ?, ?, ?, ?)", row)
    nodes = [(row[0], node) for node in sorted(records.nodes_of(value))]
    faults = [(row[0], fault) for fault in sorted(records.faults_of(value))]
    db.executemany("insert into archive_node (seq, node) values (?, ?)", nodes)
    db.executemany("insert into archive_fault (seq, fault) values (?, ?)", faults)
