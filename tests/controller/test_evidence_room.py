"""The evidence store in the controller: told of when it does not keep, handed out to who knows the digest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sickbay.controller.evidence_room import DAY_S, EvidenceRoom, handed_out, page_of
from sickbay.errors import EvidenceError
from sickbay.evidence.folder import FolderEvidence
from sickbay.evidence.keeping import Limits, name_of
from sickbay.model import Notice

NAME = name_of("gpu-17.3/4")


def test_a_store_that_does_not_keep_is_told_once_a_day_however_many_cases_there_are(tmp_path: Path) -> None:
    full, told, now = FolderEvidence(tmp_path, Limits(100, 10, DAY_S)), list[Notice](), [5 * DAY_S]
    room = EvidenceRoom(full, told.extend, lambda: now[0])
    room.look()
    assert told == []
    for case in range(3):
        with pytest.raises(EvidenceError):
            full.put(name_of(f"gpu-{case}.1/4"), b"x" * 50)
        room.look()
    assert [notice.level for notice in told] == ["warning"]
    assert "is not kept: the evidence store is full" in told[0].body
    assert "Nodes are treated all the same" in told[0].body
    now[0] += DAY_S
    room.look()
    assert len({notice.key for notice in told}) == 2
    full.put(name_of("gpu-9.1/4"), b"x")
    now[0] += DAY_S
    room.look()
    assert len(told) == 2


def test_without_a_store_there_is_nothing_to_look_at() -> None:
    EvidenceRoom(None, list[Notice]().extend, lambda: 0.0).look()
    assert handed_out(None, f"/evidence/{NAME}/{'0' * 64}/1") is None


def test_an_archive_is_handed_out_to_who_knows_its_digest_and_to_nobody_else(tmp_path: Path) -> None:
    store = FolderEvidence(tmp_path)
    kept = store.put(NAME, b"kernel log")
    assert handed_out(store, page_of(kept)) == (200, b"kernel log")
    for wrong in (replace(kept, sha256="0" * 64), replace(kept, size=3), replace(kept, name=name_of("gpu-17.4/4"))):
        assert handed_out(store, page_of(wrong)) == (404, b"there is no such archive here\n")


@pytest.mark.parametrize(
    "path", ["/evidence", "/evidence/", f"/evidence/{NAME}", f"/evidence/../{NAME}/{'0' * 64}/1", "/metrics",
             f"/evidence/%2e%2e%2fx.tar.gz/{'0' * 64}/1", f"/evidence/{NAME}/{'0' * 64}/{'9' * 40}"],
)  # fmt: skip
def test_no_other_path_is_a_page_of_evidence(tmp_path: Path, path: str) -> None:
    store = FolderEvidence(tmp_path)
    store.put(NAME, b"kernel log")
    assert handed_out(store, path) is None


def test_a_name_that_leads_elsewhere_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_bytes(b"secret")
    assert handed_out(FolderEvidence(tmp_path / "e"), f"/evidence/..secret.txt/{'0' * 64}/6") == (
        404,
        b"there is no such archive here\n",
    )
