"""What cannot be meant is a user's mistake, said as one: it must not end as "0 seeds, 0 bad"."""

from __future__ import annotations

import pytest

from tests.cli.builders import run_command


@pytest.mark.parametrize(
    "words",
    [
        ("check", "--seeds", "0"),
        ("check", "--seeds", "-3"),
        ("check", "--jobs", "0"),
        ("mutants", "--seeds", "0"),
        ("partitions", "--nodes", "0"),
    ],
    ids=" ".join,
)
def test_a_number_that_can_do_nothing_is_refused(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    said = run_command(capsys, "sim", *words)
    assert said.code == 2
    assert f"Invalid value for '{words[1]}'" in said.err


def test_a_word_that_no_mutant_holds_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    said = run_command(capsys, "sim", "mutants", "--only", "typo")
    assert said.code == 2
    assert "no mutant's name, and no checker that one is for, holds the word" in said.err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--kind", "cable"),
        ("--place", "zone"),
        ("--share", "0"),
        ("--share", "101"),
        ("--length", "-1"),
        ("--length", "x"),
        ("--length", "inf"),
    ],
)
def test_a_cut_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str], option: str, value: str) -> None:
    said = run_command(capsys, "sim", "partitions", option, value)
    assert said.code == 2
    assert f"{option} {value}: " in said.err
    assert said.out == ""
