"""`sickbay evidence`: one archive, whole, safe, ready for a ticket."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from sickbay.cli.evidence import serials
from sickbay.model import Phase, Verb

from .builders import XID_79, Bay, a_case


def archive(path: Path, **files: bytes) -> Path:
    with tarfile.open(path, "w:gz") as out:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            out.addfile(info, io.BytesIO(body))
    return path


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as packed:
        bodies = {member.name: packed.extractfile(member) for member in packed}
        return {name: body.read().decode() if body else "" for name, body in bodies.items()}


def test_the_collected_files_the_timeline_and_the_ticket_are_in_one_archive(bay: Bay, tmp_path: Path) -> None:
    gpus = {"gpus": [{"index": 2, "pci": "0000:3b:00", "serial": "SN-42", "uuid": "GPU-1"}]}
    collected = archive(
        tmp_path / "c.tar.gz", **{"kernel.log": XID_79.encode(), "x/identity.json": json.dumps(gpus).encode()}
    )
    bay.put(a_case("gpu-17.3", evidence=str(collected), rungs_tried=(Verb.REBOOT,)))
    target = tmp_path / "out.tar.gz"
    assert "2 collected files" in bay.run("evidence", "gpu-17.3", "-o", str(target)).out
    files = contents(target)
    assert files["collected/kernel.log"] == XID_79
    assert "- GPU 2 at 0000:3b:00: serial SN-42, GPU-1" in files["ticket.txt"]
    assert "the GPU fell off the bus" in files["timeline.txt"]
    for said in ("SN-42", "i-0123", "xid.79", XID_79, "Already tried, in this order: REBOOT"):
        assert said in files["ticket.txt"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"gpus": 3}', b'{"gpus": [{"index": 1}]}', b"\xff\xfe", b"[" * 100_000]
)
def test_an_identity_that_cannot_be_read_spoils_nothing(body: bytes) -> None:
    assert serials(body) == []


def test_an_ended_case_still_has_its_evidence(bay: Bay, tmp_path: Path) -> None:
    collected = archive(tmp_path / "c.tar.gz", **{"kernel.log": b"x"})
    bay.end(a_case("gpu-17.3", Phase.RESOLVED, evidence=str(collected)))
    target = tmp_path / "out.tar.gz"
    bay.run("evidence", "gpu-17.3", "-o", str(target))
    assert "collected/kernel.log" in contents(target)


@pytest.mark.parametrize("evidence", ["", "/nonexistent/c.tar.gz"])
def test_without_collected_files_the_ticket_says_so(bay: Bay, tmp_path: Path, evidence: str) -> None:
    bay.put(a_case("gpu-17.3", evidence=evidence))
    target = tmp_path / "out.tar.gz"
    said = bay.run("evidence", "gpu-17.3", "-o", str(target))
    assert said.code == 0
    assert "Not complete" in said.out
    assert "Not attached" in contents(target)["ticket.txt"]


def test_a_damaged_archive_is_carried_as_far_as_it_reads(bay: Bay, tmp_path: Path) -> None:
    whole = tmp_path / "whole.tar"
    with tarfile.open(whole, "w") as out:
        for name in ("first", "second"):
            info = tarfile.TarInfo(name)
            info.size = 5000
            out.addfile(info, io.BytesIO(b"x" * 5000))
    broken = tmp_path / "broken.tar"
    broken.write_bytes(whole.read_bytes()[:8000])
    bay.put(a_case("gpu-17.3", evidence=str(broken)))
    target = tmp_path / "out.tar.gz"
    assert "damaged (" in bay.run("evidence", "gpu-17.3", "-o", str(target)).out
    files = contents(target)
    assert "collected/first" in files
    assert "ticket.txt" in files


def test_links_devices_and_paths_that_leave_the_archive_are_left_out(bay: Bay, tmp_path: Path) -> None:
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as out:
        for name in ("../out", "/etc/cron.d/x", "good"):
            out.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        out.addfile(link)
    bay.put(a_case("gpu-17.3", evidence=str(evil)))
    target = tmp_path / "out.tar.gz"
    bay.run("evidence", "gpu-17.3", "-o", str(target))
    assert sorted(contents(target)) == ["collected/good", "ticket.txt", "timeline.txt"]


def test_a_place_that_cannot_be_written_leaves_nothing_behind(bay: Bay, tmp_path: Path) -> None:
    bay.put(a_case("gpu-17.3"))
    said = bay.run("evidence", "gpu-17.3", "-o", str(tmp_path / "no" / "such" / "folder.tar.gz"))
    assert said.code == 2
    assert "Cannot write" in said.err
    assert list(tmp_path.glob("**/*.part")) == []
