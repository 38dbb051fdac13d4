"""DCGM's words and exit codes: every row names an error and a source that exist, the exact before the vague."""

from __future__ import annotations

import tomllib

import pytest

from sickbay.catalog import load
from sickbay.catalog.reading import shipped
from sickbay.checks.dcgm_errors import UNNAMED, exits, named, table

ROWS = [*table()["words"]["rows"], *table()["tests"]["names"]]


@pytest.mark.parametrize("error", sorted({row["error"] for row in ROWS}))
def test_every_error_named_by_words_has_a_row(error: str) -> None:
    assert f"dcgm.{error}" in load().codes


def test_every_source_exists() -> None:
    known = tomllib.loads(shipped("sources.toml"))
    assert {source for part in table().values() for source in part["source"]} <= set(known)


def test_no_exit_code_is_listed_twice() -> None:
    codes = [row["code"] for row in table()["exit"]["codes"]]
    assert len(codes) == len(set(codes)) == len(exits())


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("GPU 3 had uncorrectable memory errors and row remapping failed.", "DCGM_FR_ROW_REMAP_FAILURE"),
        ("GPU 3 had memory errors and row remappings are pending", "DCGM_FR_PENDING_ROW_REMAP"),
        ("GPU 3 had uncorrectable memory errors and 2 rows were remapped", "DCGM_FR_UNCORRECTABLE_ROW_REMAP"),
        ("Detected XID 79 for GPU 1", "DCGM_FR_XID_ERROR"),
        ("NVSwitch 1's NvLink 4 is down.", "DCGM_FR_NVSWITCH_NVLINK_DOWN"),
        ("Only 16 NvLinks are up out of the expected 18", "DCGM_FR_GPU_EXPECTED_NVLINKS_UP"),
        ("There was an internal error during the test: 'x'", "DCGM_FR_INTERNAL"),
        ("Couldn't allocate at least 75.0% of GPU memory on GPU 0", "DCGM_FR_MEMORY_ALLOC"),
        ("no words we know", UNNAMED),
    ],
)  # fmt: skip
def test_a_message_is_known_by_its_words(words: str, error: str) -> None:
    assert named(words) == error
