"""`sickbay evidence`: one archive, whole, safe, ready for a ticket."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from sickbay.cli import main
from sickbay.cli.evidence import MAX_FILES, serials
from sickbay.evidence.folder import FolderEvidence
from sickbay.evidence.keeping import described, name_of
from sickbay.model import Archive, Phase, Verb

from .builders import XID_79, Bay, a_case


def packed(**files: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as out:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            out.addfile(info, io.BytesIO(body))
    return made.getvalue()


def kept(bay: Bay, data: bytes) -> Archive:
    """As COLLECT leaves it, beside the store's file."""
    return FolderEvidence(bay.path.parent / "evidence").put(name_of("gpu-17.3/4"), data)


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as packed:
        bodies = {member.name: packed.extractfile(member) for member in packed}
        return {name: body.read().decode() if body else "" for name, body in bodies.items()}


def test_the_collected_files_the_timeline_and_the_ticket_are_in_one_archive(bay: Bay, tmp_path: Path) -> None:
    gpus = {"gpus": [{"index": 2, "pci": "0000:3b:00", "serial": "SN-42", "uuid": "GPU-1"}]}
    collected = packed(**{"kernel.log": XID_79.encode(), "x/identity.json": json.dumps(gpus).encode()})
    bay.put(a_case("gpu-17.3", archive=kept(bay, collected), rungs_tried=(Verb.REBOOT,)))
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
    bay.end(a_case("gpu-17.3", Phase.RESOLVED, archive=kept(bay, packed(**{"kernel.log": b"x"}))))
    target = tmp_path / "out.tar.gz"
    bay.run("evidence", "gpu-17.3", "-o", str(target))
    assert "collected/kernel.log" in contents(target)


@pytest.mark.parametrize("archive", [None, described(name_of("gpu-17.3/4"), b"gone meanwhile")])
def test_without_collected_files_the_ticket_says_so(bay: Bay, tmp_path: Path, archive: Archive | None) -> None:
    bay.put(a_case("gpu-17.3", archive=archive))
    target = tmp_path / "out.tar.gz"
    said = bay.run("evidence", "gpu-17.3", "-o", str(target))
    assert said.code == 0
    assert "Not complete" in said.out
    assert "Not attached" in contents(target)["ticket.txt"]


@pytest.mark.parametrize("name", ["secret.tar.gz", "../secret.tar.gz", "/{}/secret.tar.gz"])
def test_no_file_of_the_operators_machine_is_named_by_a_record(bay: Bay, tmp_path: Path, name: str) -> None:
    """`evidence` was a path, opened by whoever asked for the ticket: a node's answer could name any file."""
    secret = packed(id_rsa=b"secret")
    (tmp_path / "secret.tar.gz").write_bytes(secret)
    named = described(name.format(str(tmp_path).strip("/")), secret)
    bay.put(a_case("gpu-17.3", evidence=str(tmp_path / "secret.tar.gz"), archive=named))
    target = tmp_path / "out.tar.gz"
    assert "Not complete" in bay.run("evidence", "gpu-17.3", "-o", str(target)).out
    assert sorted(contents(target)) == ["ticket.txt", "timeline.txt"]


def test_a_record_of_an_older_version_is_told_and_not_opened(bay: Bay, tmp_path: Path) -> None:
    (tmp_path / "c.tar.gz").write_bytes(packed(**{"kernel.log": b"x"}))
    bay.put(a_case("gpu-17.3", evidence=str(tmp_path / "c.tar.gz")))
    said = bay.run("evidence", "gpu-17.3", "-o", str(tmp_path / "out.tar.gz"))
    assert f"what was said instead: {tmp_path / 'c.tar.gz'}" in said.out
    assert "collected/kernel.log" not in contents(tmp_path / "out.tar.gz")


def test_what_is_not_what_was_collected_is_not_attached(bay: Bay, tmp_path: Path) -> None:
    archive = kept(bay, packed(**{"kernel.log": b"x"}))
    kept(bay, packed(**{"kernel.log": b"forged"}))
    bay.put(a_case("gpu-17.3", archive=archive))
    said = bay.run("evidence", "gpu-17.3", "-o", str(tmp_path / "out.tar.gz"))
    assert "its digest is another one" in said.out
    assert "collected/kernel.log" not in contents(tmp_path / "out.tar.gz")


def test_a_few_bytes_that_stand_for_very_many_are_not_unpacked(
    bay: Bay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sickbay.cli.evidence.MAX_UNPACKED", 50_000)
    bay.put(a_case("gpu-17.3", archive=kept(bay, packed(first=b"x", bomb=b"\0" * 1_000_000))))
    said = bay.run("evidence", "gpu-17.3", "-o", str(tmp_path / "out.tar.gz"))
    assert "when unpacked" in said.out
    assert "collected/first" in contents(tmp_path / "out.tar.gz")


def test_very_many_files_are_not_all_taken(bay: Bay, tmp_path: Path) -> None:
    many = packed(**{f"f{n}": b"" for n in range(MAX_FILES + 5)})
    bay.put(a_case("gpu-17.3", archive=kept(bay, many)))
    assert f"only the first {MAX_FILES}" in bay.run("evidence", "gpu-17.3", "-o", str(tmp_path / "out.tar.gz")).out


def test_it_can_be_written_to_a_pipe(bay: Bay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl exec … -- sickbay evidence CASE -o - > FILE"""
    bay.put(a_case("gpu-17.3", archive=kept(bay, packed(**{"kernel.log": b"x"}))))
    pipe = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(pipe, write_through=True))
    with contextlib.suppress(SystemExit):
        main(["evidence", "gpu-17.3", "-o", "-", "--store", str(bay.path)])
    (tmp_path / "out.tar.gz").write_bytes(pipe.getvalue())
    assert "collected/kernel.log" in contents(tmp_path / "out.tar.gz")


def test_a_damaged_archive_is_carried_as_far_as_it_reads(bay: Bay, tmp_path: Path) -> None:
    whole = gzip.decompress(packed(first=b"x" * 5000, second=b"x" * 5000))
    bay.put(a_case("gpu-17.3", archive=kept(bay, gzip.compress(whole[:8000]))))
    target = tmp_path / "out.tar.gz"
    assert "damaged (" in bay.run("evidence", "gpu-17.3", "-o", str(target)).out
    files = contents(target)
    assert "collected/first" in files
    assert "ticket.txt" in files


def test_links_devices_and_paths_that_leave_the_archive_are_left_out(bay: Bay, tmp_path: Path) -> None:
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w:gz") as out:
        for name in ("../out", "/etc/cron.d/x", "good"):
            out.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        out.addfile(link)
    bay.put(a_case("gpu-17.3", archive=kept(bay, evil.getvalue())))
    target = tmp_path / "out.tar.gz"
    bay.run("evidence", "gpu-17.3", "-o", str(target))
    assert sorted(contents(target)) == ["collected/good", "ticket.txt", "timeline.txt"]


def test_a_place_that_cannot_be_written_leaves_nothing_behind(bay: Bay, tmp_path: Path) -> None:
    bay.put(a_case("gpu-17.3"))
    said = bay.run("evidence", "gpu-17.3", "-o", str(tmp_path / "no" / "such" / "folder.tar.gz"))
    assert said.code == 2
    assert "Cannot write" in said.err
    assert list(tmp_path.glob("**/*.part")) == []
