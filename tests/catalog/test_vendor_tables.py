"""Against the vendors' tables, when they are there: nothing is missing, and no sentence is theirs."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterator
from functools import cache

import pytest

from sickbay.catalog import load
from sickbay.catalog.nvlink5 import decode
from sickbay.catalog.reading import FILES, shipped
from sickbay.model import Severity
from tests.catalog.shared import table

LONGEST_SHARED = 8  # words in a row that two people may write alike by chance


def rows(name: str) -> list[dict[str, str]]:
    with table(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_xid_of_nvidias_catalog_has_a_row_with_its_bucket() -> None:
    theirs = {f"xid.{row['xid']}": row["immediate_action"] for row in rows("xid_catalog.csv")}
    ours = {code: row.vendor_action for code, row in load().codes.items()}
    assert len(theirs) >= 172
    assert {code: ours.get(code) for code in theirs} == theirs


def test_every_sxid_has_a_row() -> None:
    assert [row["sxid"] for row in rows("sxid_catalog.csv") if f"sxid.{row['sxid']}" not in load().codes] == []


def test_every_dcgm_error_of_the_peers_map_has_a_row_and_is_judged_by_us() -> None:
    theirs = dict(line.split(",") for line in table("dcgm_error_actions.csv").read_text(encoding="utf-8").split())
    ours = {name: load().codes[f"dcgm.{name}"] for name in theirs}
    assert {name: row.vendor_action for name, row in ours.items() if row.vendor_action} != {}
    restarts = [name for name, action in theirs.items() if action == "RESTART_VM"]
    followed = [name for name in restarts if load().faults[ours[name].fault].severity >= Severity.REBOOT]
    assert followed == [], "a row of theirs that reboots was taken over; say why here if that is meant"


def test_codes_without_a_vendor_action_or_for_support_treat_nothing() -> None:
    for row in rows("xid_catalog.csv"):
        if row["immediate_action"] in ("", "CONTACT_SUPPORT"):
            fault = load().fault_of(f"xid.{row['xid']}")
            assert fault is not None
            assert (fault.treats, fault.severity) == (False, Severity.MONITOR), row["xid"]


@pytest.mark.parametrize("generation", ["570.0", "580.0"])
def test_every_line_of_the_nvlink5_sheet_decodes_to_its_own_action(generation: str) -> None:
    column = "intrinfo_v1_lt_r575" if generation < "575" else "intrinfo_v2_ge_r575"
    for row in rows("xid_144_150_decode.csv"):
        bits = int(row[column].replace("-", "0"), 2)
        status = int(row["error_status"].split("/")[0] or "0", 16)
        unit = row["subcode"].split("/")[-1]
        found = decode(load().nvlink5, int(row["xid"]), bits, status, unit=unit, driver=generation)
        assert found is not None, row
        assert (found.sub.severity is Severity.RESET) == (row["recovery_action"] == "RESET_GPU"), row


def grams(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return zip(*(words[start:] for start in range(LONGEST_SHARED + 1)), strict=False)


@cache
def theirs() -> frozenset[tuple[str, ...]]:
    prose: list[str] = []
    for name in ("xid_catalog.csv", "sxid_catalog.csv", "xid_144_150_decode.csv", "xid_resolution_buckets.csv"):
        for row in rows(name):
            prose += [text or "" for column, text in row.items() if column != "source"]
    return frozenset(gram for text in prose for gram in grams(text))


def our_sentences(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from our_sentences(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from our_sentences(inner)


def test_the_comparison_would_notice_a_borrowed_sentence() -> None:
    borrowed = max((row["notes"] for row in rows("xid_catalog.csv")), key=len)
    assert theirs() & set(grams(borrowed))


def test_no_sentence_of_ours_is_a_vendors() -> None:
    written = [file for file in FILES if file != "sources.toml"]  # titles and addresses of their pages must be theirs
    ours = [text for file in written for text in our_sentences(tomllib.loads(shipped(file)))]
    assert [text for text in ours if theirs() & set(grams(text))] == []
