"""An archive as text in a log: what was printed comes back, and whatever else a node prints is only not it."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.platforms.kubernetes import parcel


def said(data: bytes) -> bytes:
    out = io.StringIO()
    parcel.printed(data, out)
    return out.getvalue().encode()


@given(st.binary(max_size=40_000))
def test_what_was_printed_comes_back(data: bytes) -> None:
    assert parcel.opened(b"sickbay node: looking\n" + said(data), len(data)) == data


def test_words_of_others_between_its_lines_do_no_harm() -> None:
    clean = said(b"x" * 20_000).split(b"\n")
    mixed = b"\n".join([*clean[:3], b"sickbay node: still at it.", *clean[3:]])
    assert parcel.opened(mixed, 20_000) == b"x" * 20_000


def test_no_line_is_so_long_that_a_runtime_breaks_it() -> None:
    assert max(map(len, said(b"x" * 100_000).split(b"\n"))) < 16_384


@pytest.mark.parametrize(
    "log", [b"", b"\xff\xfe", b"-----BEGIN SICKBAY EVIDENCE-----", said(b"x")[:-40], b"A" * 100_000, b"=\n==\n" * 99]
)
def test_a_log_without_an_archive_is_none(log: bytes) -> None:
    assert parcel.opened(log, 10) in (b"", b"x")


@given(st.binary(max_size=4_000), st.integers(0, 100))
def test_nothing_that_a_node_prints_is_an_error_or_more_than_it_may_be(log: bytes, size: int) -> None:
    assert len(parcel.opened(parcel.BEGIN.encode() + b"\n" + log, size)) <= size
