"""`python -m sickbay.sim.trainer` in real time."""

from __future__ import annotations

from pathlib import Path

import pytest

from sickbay.sim.trainer.__main__ import main


def run(workdir: Path, *more: str) -> int:
    return main(["--ranks", "2", "--workdir", str(workdir), "--checkpoint-every", "5", *more])


def test_it_trains_to_the_end_and_resumes_with_the_same_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "whole", "--steps", "20") == 0
    whole = capsys.readouterr().out.splitlines()
    assert whole[-2:-1] == ["step 20/20, complete checkpoint at 20"]
    assert run(tmp_path / "parts", "--steps", "10") == 0
    assert run(tmp_path / "parts", "--steps", "20", "--resume") == 0
    parts = capsys.readouterr().out.splitlines()
    assert "attempt 2: 2 ranks from step 10" in parts
    assert whole[-1].startswith("digest ")
    assert parts[-1] == whole[-1]


def test_what_is_impossible_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--steps", "0") == 2
    assert capsys.readouterr().err.startswith("error: ranks, steps")
