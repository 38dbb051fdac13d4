"""The evidence store, as a folder and as a bucket: one contract. What it keeps is bounded, named by us, and checked."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from sickbay.errors import EvidenceError
from sickbay.evidence.folder import FolderEvidence
from sickbay.evidence.keeping import DAY_S, Limits, described, is_name, name_of
from sickbay.evidence.s3 import S3Evidence, client_of
from sickbay.model import Archive
from sickbay.ports import EvidenceStore
from sickbay.settings import EvidenceSettings
from tests.moto import KEYS, REGION

LIMITS = Limits(archive=1_000, total=2_500, keep_s=90 * DAY_S)


@dataclass
class Later:
    """A clock that a test moves on."""

    by: float = field(default=0.0)

    def __call__(self) -> float:
        return time.time() + self.by


Made = tuple[EvidenceStore, Later]


@pytest.fixture(params=["folder", "s3"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    clock = Later()
    if request.param == "folder":
        return FolderEvidence(tmp_path / "evidence", LIMITS, clock), clock
    return request.getfixturevalue("bucket")(clock), clock


@pytest.fixture
def bucket(moto_server: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[Later], S3Evidence]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    client = client_of(EvidenceSettings(region=REGION, endpoint=f"http://127.0.0.1:{moto_server}"))
    name = f"evidence-{secrets.token_hex(4)}"
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    client.put_object(Bucket=name, Key="sickbay/notes.txt", Body=b"somebody else's")
    client.put_object(Bucket=name, Key="others/old-1-00000000.tar.gz", Body=b"somebody else's")
    return lambda clock: S3Evidence(client, name, "/sickbay/", LIMITS, clock)


A, B, C = (name_of(f"gpu-17.{n}/4") for n in (1, 2, 3))


def test_what_was_put_is_got_by_its_name_and_digest(made: Made) -> None:
    store, _ = made
    kept = store.put(A, b"kernel log")
    assert kept == described(A, b"kernel log")
    assert store.get(kept) == b"kernel log"
    assert store.trouble == ""


def test_something_else_under_that_name_is_not_handed_out(made: Made) -> None:
    store, _ = made
    kept = store.put(A, b"kernel log")
    store.put(A, b"another's log, and longer")
    with pytest.raises(EvidenceError, match="is not what was collected: its digest is another one"):
        store.get(kept)
    with pytest.raises(EvidenceError, match="digest"):
        store.get(replace(described(A, b"another's log, and longer"), size=3))


def test_what_is_not_there_is_said(made: Made) -> None:
    store, _ = made
    with pytest.raises(EvidenceError, match=r"gpu-17\.2-4-|NoSuchKey"):
        store.get(described(B, b"x"))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../etc/passwd", "/etc/passwd", "a/../b.tar.gz", "x/y.tar.gz", ".hidden.tar.gz",
             "a..b/../c.tar.gz", "notes.txt", "a\0.tar.gz", "a\n.tar.gz", "x" * 300 + ".tar.gz"],
)  # fmt: skip
def test_no_name_leads_out_of_the_store(made: Made, name: str) -> None:
    """A case is a record that others may have written: what it names is not opened unless it can be an archive."""
    store, _ = made
    with pytest.raises(EvidenceError, match="no name of an archive"):
        store.get(Archive(name, "0" * 64, 10))
    with pytest.raises(EvidenceError, match="no name of an archive"):
        store.put(name, b"x")


@pytest.mark.parametrize("key", ["gpu-17.3/4", "../../etc/passwd", "train/job/x/3", "", "é\0\n", "a" * 400, "-._"])
def test_every_key_has_a_name_of_its_own_that_is_one(key: str) -> None:
    assert is_name(name_of(key))
    assert name_of(key) != name_of(f"{key}x")
    assert name_of("a/b-c/3") != name_of("a-b/c/3")


def test_one_that_is_too_large_is_refused_and_the_rest_is_kept(made: Made) -> None:
    store, _ = made
    store.put(A, b"x" * 1_000)
    with pytest.raises(EvidenceError, match=r"evidence\.archive_mb allows"):
        store.put(B, b"x" * 1_001)
    assert "archive_mb" in store.trouble
    assert store.get(described(A, b"x" * 1_000))


def test_a_full_store_refuses_and_says_so_until_there_is_room(made: Made) -> None:
    store, _ = made
    for name in (A, B):
        store.put(name, b"x" * 1_000)
    with pytest.raises(EvidenceError, match=r"full: .* nothing in it is older than 90 days \(evidence\.keep_days\)"):
        store.put(C, b"x" * 1_000)
    assert "the evidence store is full" in store.trouble
    store.put(B, b"y" * 1_000)  # in its own place
    assert store.trouble == ""


def test_what_is_past_its_time_makes_room_the_oldest_first(made: Made) -> None:
    store, clock = made
    for name in (A, B):
        store.put(name, b"x" * 1_000)
    clock.by = 91 * DAY_S
    kept = store.put(C, b"x" * 1_000)
    clock.by = 0.0
    with pytest.raises(EvidenceError):
        store.get(described(A, b"x" * 1_000))
    assert store.get(kept)


def test_what_is_past_its_time_goes_and_nothing_else_does(made: Made) -> None:
    store, clock = made
    store.put(A, b"x")
    assert store.prune() == 0
    clock.by = 91 * DAY_S
    assert store.prune() == 1
    assert store.prune() == 0


# --- a folder ---------------------------------------------------------------------------------------------------------


def test_only_its_owner_reads_a_folder(tmp_path: Path) -> None:
    store = FolderEvidence(tmp_path / "evidence", LIMITS)
    store.put(A, b"x")
    assert stat.S_IMODE((tmp_path / "evidence").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "evidence" / A).stat().st_mode) == 0o600


def test_a_link_is_not_followed_and_a_pipe_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / A).symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / B)
    store = FolderEvidence(tmp_path, LIMITS)
    with pytest.raises(EvidenceError, match="cannot be read"):
        store.get(described(A, b"secret"))
    with pytest.raises(EvidenceError, match="it is not a file"):
        store.get(described(B, b"secret"))


def test_files_of_others_in_it_neither_count_nor_go(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"x" * 9_000)
    os.utime(tmp_path / "notes.txt", (1, 1))
    store = FolderEvidence(tmp_path, LIMITS)
    store.put(A, b"x" * 1_000)
    assert store.prune() == 0
    assert (tmp_path / "notes.txt").exists()


def test_a_folder_that_cannot_be_is_a_trouble_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = FolderEvidence(tmp_path / "file" / "evidence", LIMITS)
    with pytest.raises(EvidenceError, match="cannot be written"):
        store.put(A, b"x")
    assert store.trouble


# --- a bucket ---------------------------------------------------------------------------------------------------------


def test_objects_of_others_in_a_bucket_neither_count_nor_go(bucket: Callable[[Later], S3Evidence]) -> None:
    clock = Later(400 * DAY_S)
    assert bucket(clock).prune() == 0


def test_a_bucket_that_is_not_there_is_a_trouble_and_no_crash(
    moto_server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    client = client_of(EvidenceSettings(region=REGION, endpoint=f"http://127.0.0.1:{moto_server}"))
    store = S3Evidence(client, "no-such-bucket-here", "sickbay", LIMITS)
    with pytest.raises(EvidenceError, match="NoSuchBucket"):
        store.put(A, b"x")
    assert "NoSuchBucket" in store.trouble
