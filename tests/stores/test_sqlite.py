"""What only a file can get wrong: reopening, other processes, kill -9, foreign files, newer files, damage."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sickbay.errors import StaleWrite, StoreError
from sickbay.model import Case, Ledger, NodeRecord, Phase
from sickbay.stores import records
from sickbay.stores.sqlite import SqliteStore

from .builders import ONE_OF_EACH, a_case

HERE = Path(__file__).parent


def _run(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process that may use the builders of this folder."""
    lines = f"import sys; sys.path.insert(0, {str(HERE)!r}); from builders import *\n" + script
    command = [sys.executable, "-c", lines, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_everything_is_there_after_closing_and_opening_again(path: Path) -> None:
    store = SqliteStore(path)
    versions = [store.create(value, epoch=4) for value in ONE_OF_EACH]
    store.archive(a_case("n9.1"), store.create(a_case("n9.1")), 0)
    token = store.token()
    store.close()
    store = SqliteStore(path)
    value: Any
    for value, version in zip(ONE_OF_EACH, versions, strict=True):
        stored = store.get(type(value), records.key_of(value))
        assert stored is not None
        assert (stored.value, stored.version) == (value, version)
    assert list(store.history(Case)) == [a_case("n9.1")]
    assert store.token() == token
    store.close()


RACE = """
from sickbay.stores.sqlite import SqliteStore
store = SqliteStore(sys.argv[1], synchronous="OFF")
print(sum(take_a_seat(store, f"{sys.argv[2]}-{n}.1", seats=7) for n in range(10)))
"""


def test_processes_racing_for_seats_never_overbook(path: Path) -> None:
    store = SqliteStore(path)
    store.create(Ledger(epoch=1), epoch=1)
    racers = [_run(RACE, path, name) for name in ("a", "b", "c")]
    won = [int(racer.communicate(timeout=60)[0]) for racer in racers]
    stored = store.get(Ledger, "")
    assert stored is not None
    assert sum(won) == 7 == len(stored.value.seats)
    store.close()


def test_processes_that_create_the_file_at_the_same_moment_share_it(path: Path) -> None:
    script = "from sickbay.stores.sqlite import SqliteStore; SqliteStore(sys.argv[1]).create(NodeRecord(sys.argv[2]))"
    makers = [_run(script, path, name) for name in ("n1", "n2", "n3")]
    assert [maker.wait(timeout=60) for maker in makers] == [0, 0, 0]
    for maker in makers:
        maker.communicate()
    store = SqliteStore(path)
    assert [stored.value.node for stored in store.list(NodeRecord)] == ["n1", "n2", "n3"]
    store.close()


ENDLESS = """
from dataclasses import replace
from sickbay.stores.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
store.create(a_command("c0"))
version = store.create(a_case(), epoch=1)
step = 1
while True:
    step += 1
    store.create(a_command(f"c{step}"))
    version = store.commit(replace(a_case(), step=step), version, 1, consumes=[f"c{step}"])
    print(step, flush=True)
"""


def test_a_writer_killed_in_the_middle_leaves_a_whole_file_with_the_last_commit(path: Path) -> None:
    writer = _run(ENDLESS, path)
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(20)]
    writer.send_signal(signal.SIGKILL)
    said += writer.stdout.readlines()
    writer.wait(timeout=30)
    writer.stdout.close()
    last = max(int(line) for line in said if line.endswith("\n"))
    store = SqliteStore(path)
    stored = store.get(Case, "n1.1")
    assert stored is not None
    assert stored.value.step in (last, last + 1)  # + 1: committed, and killed before it could say so
    store.commit(replace(stored.value, phase=Phase.CORDONING), stored.version, 1)
    store.close()


def test_a_deposed_process_cannot_write_after_a_reopen(path: Path) -> None:
    first, second = SqliteStore(path), SqliteStore(path)
    version = first.create(a_case(), epoch=1)
    version = second.commit(a_case(), version, epoch=2)
    first.close()
    first = SqliteStore(path)
    with pytest.raises(StaleWrite):
        first.commit(a_case(), version, epoch=1)
    first.close()
    second.close()


@pytest.mark.parametrize("content", [b"hello, I am a text file\n" * 100, b"\x00\xff" * 2000])
def test_a_file_that_is_no_database_is_refused_in_plain_words_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"not a SQLite database.*give another path"):
        SqliteStore(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("create table recipes (name text)")
    db.close()
    with pytest.raises(StoreError, match="belongs to another program"):
        SqliteStore(path)


def test_a_file_of_a_newer_sickbay_is_refused(path: Path) -> None:
    SqliteStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("update meta set value = 99 where name = 'schema'")
    db.close()
    with pytest.raises(StoreError, match=r"written by a newer Sickbay.*run the newer version"):
        SqliteStore(path)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot create its folder"):
        SqliteStore(tmp_path / "file" / "store.db")


def test_a_store_serves_one_cluster(path: Path) -> None:
    store = SqliteStore(path, "east")
    store.create(a_case())
    assert store.list(Case)[0].value.cluster == "east"
    with pytest.raises(StoreError, match="belongs to cluster 'west'"):
        store.create(replace(a_case("n2.1"), cluster="west"))
    store.close()
    with pytest.raises(StoreError, match="serves cluster 'east', not 'west'"):
        SqliteStore(path, "west")
    looked = SqliteStore(path)
    assert looked.cluster == "east"
    looked.close()


def test_what_could_not_be_read_back_is_never_written(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="not a readable NodeRecord"):
        store.create(NodeRecord("n1", boot_seen=float("inf")))
    assert store.get(NodeRecord, "n1") is None
    assert store.token() == 0
    store.close()


def test_a_file_kept_locked_by_another_program_is_a_clear_error(path: Path) -> None:
    store = SqliteStore(path, busy_s=0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(StoreError, match="kept the file locked for too long"):
        store.create(a_case())
    other.execute("rollback")
    other.close()
    store.create(a_case())
    store.close()


def test_an_unknown_synchronous_mode_is_refused(path: Path) -> None:
    with pytest.raises(StoreError, match="one of FULL, NORMAL, OFF, EXTRA"):
        SqliteStore(path, synchronous="sometimes")
    assert not path.exists()


def test_the_file_is_durable_by_default(path: Path) -> None:
    store = SqliteStore(path)
    with store._reading() as db:
        assert db.execute("pragma synchronous").fetchone() == (2,)  # FULL
        assert db.execute("pragma journal_mode").fetchone() == ("wal",)
    store.close()


def modes(path: Path) -> set[int]:
    return {stat.S_IMODE(name.stat().st_mode) for name in path.parent.glob(path.name + "*")}


def test_only_its_owner_may_read_the_file_and_what_lies_beside_it(path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(path)
        store.create(a_case())
        assert len(list(path.parent.glob(path.name + "*"))) == 3
        assert modes(path) == {0o600}
        store.close()
    finally:
        os.umask(before)


def test_a_file_that_an_older_version_left_open_to_all_is_closed_to_them(path: Path) -> None:
    left = SqliteStore(path)  # and never closed: its -wal and -shm are there
    left.create(a_case())
    for name in path.parent.glob(path.name + "*"):
        name.chmod(0o644)
    SqliteStore(path).close()
    assert modes(path) == {0o600}
    left.close()
