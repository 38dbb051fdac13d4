"""`python -m sickbay.sim.trainer` in real time."""

from __future__ import annotations

from pathlib import Path

import pytest

from sickbay.sim.trainer.__main__ import main
from tests.trainer.conftest import MakeGang


def run(workdir: Path, *more: str) -> int:
    return main(["--ranks", "2", "--workdir", str(workdir), "--checkpoint-every", "5", *more])


def test_it_trains_and_resumes_to_the_same_result_as_a_gang(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make_gang: MakeGang
) -> None:
    assert run(tmp_path, "--steps", "10") == 0
    assert run(tmp_path, "--steps", "20", "--resume") == 0
    said = capsys.readouterr().out.splitlines()
    assert "attempt 2: 2 ranks from step 10" in said
    assert "step 20/20, complete checkpoint at 20" in said

    gang = make_gang("calm", ranks=2, total_steps=20)
    gang.start(1, None)
    gang.grant(20)
    assert said[-1] == f"digest {gang.digest()}"


def test_what_is_impossible_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--steps", "0") == 2
    assert capsys.readouterr().err.startswith("error: ranks, steps")
