"""A disk that takes nothing must not silence an agent: what cannot be spooled is still sent, told once and counted."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sickbay import atomic
from sickbay.agent.publishers.http import HttpPublisher
from sickbay.agent.publishers.lane import Lane
from sickbay.agent.publishers.spool import IN_MEMORY, Spool
from tests.agent.builders import Moments
from tests.agent.test_publishers import Ingest, an_http, ingest, told

__all__ = ("ingest",)  # a fixture

REFUSALS = [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO]


def refuse(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def write(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(atomic, "write", write)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    if os.geteuid() != 0:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must be able to mount a tmpfs: run the tests as root")
        pytest.skip("NOT TESTED: a full disk, for only root may mount a tmpfs")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "sickbay-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    assert os.statvfs(disk).f_bavail == 0
    return ballast


def test_on_a_full_disk_the_agent_goes_on_reporting(small_disk: Path, ingest: Ingest) -> None:
    fill(small_disk)
    publisher = an_http(small_disk, ingest.url)
    for n in range(1, 6):
        publisher.publish(told(n))
        assert publisher.work() is None
    assert [report.sequence for report in ingest.taken] == [1, 2, 3, 4, 5]
    publisher.close()


def test_a_disk_that_fills_and_has_room_again_loses_no_report_and_keeps_their_order(
    small_disk: Path, ingest: Ingest
) -> None:
    clock = Moments()
    publisher = an_http(small_disk, ingest.url, clock)
    ingest.answers = [503] * 20
    publisher.publish(told(1))
    ballast = fill(small_disk)
    for n in (2, 3):
        publisher.publish(told(n))
        publisher.work()
    ballast.unlink()
    publisher.publish(told(4))
    assert publisher.figures()["unspooled"] == 2
    ingest.answers.clear()
    clock.now += 600.0
    publisher.work()
    assert [report.sequence for report in ingest.taken] == [1, 2, 3, 4]
    publisher.close()


@pytest.mark.parametrize("code", REFUSALS, ids=errno.errorcode.get)
def test_whatever_the_disk_refuses_is_still_sent_and_told_once(
    tmp_path: Path, ingest: Ingest, code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = an_http(tmp_path, ingest.url)
    refuse(monkeypatch, code)
    for n in range(1, 51):
        publisher.publish(told(n))
        publisher.work()
    assert [report.sequence for report in ingest.taken] == list(range(1, 51))
    assert publisher.figures()["unspooled"] == 50
    said = [record.getMessage() for record in caplog.records if "spool" in record.getMessage()]
    assert len(said) == 1
    assert os.strerror(code) in said[0]
    assert "still sent" in said[0]
    publisher.close()


def test_it_is_told_again_when_the_disk_was_well_in_between(
    tmp_path: Path, ingest: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Moments()
    publisher = an_http(tmp_path, ingest.url, clock)
    for _ in range(2):
        with pytest.MonkeyPatch.context() as broken:
            refuse(broken, errno.ENOSPC)
            publisher.publish(told(1))
            publisher.work()
        publisher.publish(told(2))
        publisher.work()
    assert sum("still sent" in record.getMessage() for record in caplog.records) == 2
    publisher.close()


def a_file_in_its_place(folder: Path) -> None:
    (folder / "spool").write_text("I am no folder")


def a_dangling_link_in_its_place(folder: Path) -> None:
    (folder / "spool").symlink_to(folder / "nowhere" / "at all")


@pytest.mark.parametrize("spoil", [a_file_in_its_place, a_dangling_link_in_its_place])
def test_a_spool_that_is_no_folder_keeps_no_agent_from_reporting(tmp_path: Path, ingest: Ingest, spoil: Any) -> None:
    spoil(tmp_path)
    publisher = an_http(tmp_path, ingest.url)
    publisher.publish(told(1))
    publisher.work()
    assert [report.sequence for report in ingest.taken] == [1]
    publisher.close()


def a_folder(path: Path) -> None:
    path.mkdir()


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def nothing_in_it(path: Path) -> None:
    path.write_bytes(b"")


def a_huge_one(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2 << 20)


def half_a_report(path: Path) -> None:
    path.write_bytes(b'{"node": "gpu-1", "boot')


@pytest.mark.parametrize("damage", [a_folder, a_fifo, a_link, nothing_in_it, a_huge_one, half_a_report])
def test_a_damaged_entry_is_passed_over_and_counted(tmp_path: Path, ingest: Ingest, damage: Any) -> None:
    (tmp_path / "spool").mkdir()
    damage(tmp_path / "spool" / f"{0:020d}.json")
    publisher = an_http(tmp_path, ingest.url)
    publisher.publish(told(1))
    working = threading.Thread(target=publisher.work, daemon=True)
    working.start()
    working.join(10.0)
    assert [report.sequence for report in ingest.taken] == [1]
    assert publisher.figures()["damaged"] == 1
    publisher.close()


def test_what_is_kept_in_memory_is_bounded_and_the_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, 64 << 20)
    refuse(monkeypatch, errno.ENOSPC)
    for n in range(100):
        spool.add(n, b"x" * (IN_MEMORY // 10))
    assert spool.bytes <= IN_MEMORY
    assert spool.dropped == 90
    assert (spool.oldest() or ("", b""))[0].startswith(f"{90:020d}")


def test_a_lane_with_a_disk_that_takes_nothing_still_delivers(
    tmp_path: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = HttpPublisher(ingest.url, Spool(tmp_path / "spool", 1 << 20))
    refuse(monkeypatch, errno.ENOSPC)
    lane = Lane(publisher)
    lane.start()
    for n in (1, 2, 3):
        lane.offer(told(n))
    assert ingest.wait(lambda: len(ingest.taken) == 3)
    lane.stop(10.0)
    assert lane.figures()["failed"] == 0
