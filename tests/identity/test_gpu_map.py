"""The GPU map: a lost GPU keeps its name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.identity import gpu_map
from sickbay.identity.gpu_map import GpuMap, name_of, renewed
from sickbay.model import Gpu
from tests.fuzzing import EXAMPLES


def gpus(count: int, name: str = "S") -> tuple[Gpu, ...]:
    return tuple(Gpu(f"GPU-{name}{n}", f"{name}{n}", f"0000:{n + 16:02x}:00", n) for n in range(count))


EIGHT = GpuMap(gpus(8), "boot-a", 5.0)


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "state" / "gpus.json"
    gpu_map.save(path, EIGHT)
    assert gpu_map.load(path) == EIGHT
    assert [file.name for file in path.parent.iterdir()] == ["gpus.json"]


def test_a_cycle_with_a_gpu_missing_keeps_the_names_we_know() -> None:
    assert renewed(EIGHT, gpus(7), 8, "boot-b", 9.0) is EIGHT
    assert renewed(EIGHT, gpus(7), None, "boot-b", 9.0) is EIGHT
    lost = name_of(renewed(EIGHT, gpus(7), 8, "boot-b", 9.0), 7)
    assert lost is not None
    assert lost.serial == "S7"


def test_a_whole_cycle_replaces_the_map() -> None:
    after = renewed(EIGHT, gpus(8, "T"), 8, "boot-b", 9.0)
    assert (after.gpus, after.boot_id, after.at) == (gpus(8, "T"), "boot-b", 9.0)


def test_a_gpu_without_a_readable_name_has_not_answered() -> None:
    half = (*gpus(7), Gpu("", "", "0000:17:00", 7))
    assert renewed(EIGHT, half, 8, "boot-b", 9.0) is EIGHT


def test_two_gpus_that_claim_one_uuid_are_no_map() -> None:
    assert renewed(EIGHT, (*gpus(7), gpus(1)[0]), 8, "boot-b", 9.0) is EIGHT


def test_an_empty_cycle_never_makes_a_map() -> None:
    assert renewed(GpuMap(), (), None, "boot-a", 1.0) == GpuMap()


@pytest.mark.parametrize("where", ["0000:12:00", "0000:12:00.0", "00000000:12:00.0", "0000:12:00".upper(), 2])
def test_a_gpu_is_found_by_its_address_however_written_or_its_index(where: str | int) -> None:
    found = name_of(EIGHT, where)
    assert found is not None
    assert found.serial == "S2"


@pytest.mark.parametrize("where", ["", "12:00", "0001:12:00", 9, -1])
def test_an_address_we_do_not_know_has_no_name(where: str | int) -> None:
    assert name_of(EIGHT, where) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"version": 2, "gpus": []}', '{"version": 1, "gpus": [1]}', '{"version": 1}', "\0"]
)
def test_garbage_on_disk_is_an_empty_map(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpus.json"
    path.write_text(text)
    assert gpu_map.load(path) == GpuMap()


def test_a_map_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert gpu_map.load(tmp_path / "none.json") == GpuMap()
    assert gpu_map.load(tmp_path) == GpuMap()


def test_a_file_too_large_to_be_ours_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    path.write_text(json.dumps({"version": 1, "gpus": [], "x": "y" * gpu_map.MOST_BYTES}))
    assert gpu_map.load(path) == GpuMap()


def test_a_failed_write_leaves_the_old_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gpus.json"
    gpu_map.save(path, EIGHT)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        gpu_map.save(path, GpuMap(gpus(1)))
    assert gpu_map.load(path) == EIGHT
    assert [file.name for file in tmp_path.iterdir()] == ["gpus.json"]


some_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["version", "gpus", "uuid", "serial", "pci", "index", "at", "boot_id"]), inner, max_size=5), max_leaves=12,
)  # fmt: skip


@given(some_json)
@settings(max_examples=EXAMPLES, deadline=None)
def test_fuzz_any_json_is_a_map_or_an_empty_one(data: object) -> None:
    assert isinstance(gpu_map._read(data), GpuMap)
