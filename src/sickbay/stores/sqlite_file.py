"""The SQLite file itself: opening it, its tables, and its errors in plain words.

Called by sqlite.py only. It must never touch a file that is not a Sickbay store, nor one that a newer Sickbay wrote.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sickbay.errors import StoreError

SCHEMA = 1  # of the tables; the records inside carry their own
APPLICATION_ID = 0x534B4259  # "SKBY" in the file's header: what tells our file from another program's
PRIVATE = 0o600
SYNCHRONOUS = ("FULL", "NORMAL", "OFF", "EXTRA")

_TABLES = """
create table meta (name text primary key, value) without rowid;
create table records (
  kind text not null, key text not null, version integer not null, epoch integer not null, body blob not null,
  primary key (kind, key)
);
create table archive (
  seq integer primary key, kind text not null, key text not null, ended real not null, body blob not null
);
create index archive_key on archive (kind, key);
create index archive_ended on archive (ended);
create table archive_node (
  node text not null, seq integer not null references archive on delete cascade, primary key (node, seq)
) without rowid;
create table archive_fault (
  fault text not null, seq integer not null references archive on delete cascade, primary key (fault, seq)
) without rowid;
create index archive_node_seq on archive_node (seq);
create index archive_fault_seq on archive_fault (seq);
"""


def open_file(path: Path, cluster: str, synchronous: str, busy_s: float) -> sqlite3.Connection:
    if synchronous.upper() not in SYNCHRONOUS:
        raise StoreError(f"synchronous is {synchronous!r}; it must be one of {', '.join(SYNCHRONOUS)}")
    with plain_words(path):
        _make_folder(path)
        _keep_private(path)
        db = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db, path, cluster, synchronous.upper(), busy_s)
        except BaseException:
            db.close()
            raise
        return db


@contextmanager
def plain_words(path: Path) -> Iterator[None]:
    """sqlite3's errors as StoreError: what happened, where, what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {_advice(str(error))}") from error


_ADVICE = (
    (
        "not a database",
        "this file is not a SQLite database, so it is no Sickbay store: give another path, or move it away",
    ),
    ("malformed", "the file is damaged: restore it from a copy, or move it away to begin with an empty store"),
    ("unable to open", "cannot open or create this file: check that the folder exists and may be written"),
    ("readonly", "this file may not be written by this user: check its owner and mode, and those of its folder"),
    ("locked", "another process has kept the file locked for too long: look for one that hangs (fuser names it)"),
    ("full", "the disk is full: free some space; nothing was half written"),
)


def _advice(said: str) -> str:
    for word, advice in _ADVICE:
        if word in said:
            return f"{advice} [{said}]"
    return said


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"{path}: cannot create its folder ({error.strerror}): give another path") from error


def _keep_private(path: Path) -> None:
    """Cases quote kernel logs and say who is on call: nobody else on this machine needs to read them. SQLite gives its
    -wal and -shm the mode of the file; those that an older Sickbay left open to all are closed here. Where the owner is
    somebody else, that is their business."""
    with suppress(OSError):  # what is wrong with it is said by whoever opens it
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, PRIVATE))
    for name in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        with suppress(OSError):
            if stat.S_IMODE(name.stat().st_mode) & ~PRIVATE:
                name.chmod(PRIVATE)


def _prepare(db: sqlite3.Connection, path: Path, cluster: str, synchronous: str, busy_s: float) -> None:
    _refuse_foreign(db, path)
    _use_wal(db, busy_s)
    db.execute(f"pragma synchronous = {synchronous}")
    db.execute("pragma foreign_keys = on")
    db.execute("begin immediate")  # two processes may create the file at the same moment
    try:
        if not _is_ours(db):
            _create_tables(db, cluster)
        _refuse_newer(db, path)
        _one_cluster(db, path, cluster)
        db.execute("commit")
    except BaseException:
        if db.in_transaction:
            db.execute("rollback")
        raise


def _is_ours(db: sqlite3.Connection) -> bool:
    return bool(db.execute("pragma application_id").fetchone()[0] == APPLICATION_ID)


def _refuse_foreign(db: sqlite3.Connection, path: Path) -> None:
    if not _is_ours(db) and db.execute("select count(*) from sqlite_master").fetchone()[0]:
        raise StoreError(f"{path}: this SQLite file belongs to another program: give another path")


def _use_wal(db: sqlite3.Connection, busy_s: float) -> None:
    """The switch to WAL does not wait for a lock by itself (sqlite.org/wal.html), so ask again for a while."""
    until = time.monotonic() + busy_s
    while True:
        try:
            db.execute("pragma journal_mode = wal").fetchone()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _create_tables(db: sqlite3.Connection, cluster: str) -> None:
    for statement in _TABLES.split(";"):
        db.execute(statement)
    rows = (("schema", SCHEMA), ("token", 0), ("cluster", cluster))
    db.executemany("insert into meta (name, value) values (?, ?)", rows)
    db.execute(f"pragma application_id = {APPLICATION_ID}")


def _refuse_newer(db: sqlite3.Connection, path: Path) -> None:
    schema = _meta(db, "schema")
    if int(str(schema)) > SCHEMA:
        raise StoreError(
            f"{path}: written by a newer Sickbay (tables of schema {schema}, this one knows {SCHEMA}): "
            "run the newer version, or give another path"
        )


def _one_cluster(db: sqlite3.Connection, path: Path, cluster: str) -> None:
    """The first name given is the store's for good; opening without a name (to look) is always allowed."""
    kept = _meta(db, "cluster")
    if not kept and cluster:
        db.execute("update meta set value = ? where name = 'cluster'", (cluster,))
    elif cluster and kept != cluster:
        raise StoreError(f"{path}: this store serves cluster {kept!r}, not {cluster!r}: give each cluster its own path")


def cluster_of(db: sqlite3.Connection) -> str:
    return str(_meta(db, "cluster"))


def _meta(db: sqlite3.Connection, name: str) -> object:
    row = db.execute("select value from meta where name = ?", (name,)).fetchone()
    if row is None:
        raise StoreError(f"this store has lost its {name}: restore it from a copy")
    return row[0]
